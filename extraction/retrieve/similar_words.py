"""Words of the data that a word of the instruction may stand for: longer, joined, split or misspelled."""

import re

from extraction.retrieve.index import PassageIndex

_SHORTEST = 4
_SHORTEST_PART = 3
_MOST = 8
_LOOKED_AT = 2000
_LAST = "\U0010ffff"

_SUFFIX = re.compile(r"(?:ing|ed|es|s|ly|ions?|ments?)\Z")
"""Endings that the index cuts off too."""


def similar_words(index: PassageIndex, word: str) -> tuple[str, ...]:
    """At most eight words or phrases that the data holds."""
    word = word.lower()
    if len(word) < _SHORTEST or not word.isalpha():
        return ()
    found = [two for two in _parted(word) if index.count(two)]
    if len(word) > _SHORTEST:
        found += [other for other in sorted(_mistyped(word)) if index.count(other)]
        near = index.words_from(word[:_SHORTEST_PART], word[:_SHORTEST_PART] + _LAST, _LOOKED_AT)
        stem = _SUFFIX.sub("", word)
        found += [other for other in near if _is_one_edit(word, other) or _is_one_edit(stem, other)]
    found += index.words_from(word, word + _LAST, _MOST)
    return tuple(dict.fromkeys(found))[:_MOST]


def _parted(word: str) -> list[str]:
    return [f"{word[:at]} {word[at:]}" for at in range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1)]


def _mistyped(word: str) -> set[str]:
    """The word without one letter, or with two adjacent letters swapped."""
    dropped = {word[:at] + word[at + 1 :] for at in range(len(word))}
    return dropped | {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)} - {
        word
    }


def _is_one_edit(one: str, other: str) -> bool:
    """True if the words differ by one inserted, deleted or replaced letter."""
    short, long = sorted((one, other), key=len)
    if len(long) - len(short) > 1:
        return False
    same = 0
    while same < len(short) and short[same] == long[same]:
        same += 1
    return short[same:] == long[same + 1 :] or short[same + 1 :] == long[same + 1 :]
