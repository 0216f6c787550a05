"""The words of an instruction as the data has them: counted, misspelled, replaced by synonyms."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from extraction.retrieve.asking import is_of_asking
from extraction.retrieve.index import PassageIndex, is_pair
from extraction.retrieve.instruction import ParsedInstruction, synonyms
from extraction.retrieve.pinyin import spellings

SHORT = 4
"""A stem of fewer letters is looked for as a whole word."""

_SUFFIX = re.compile(r"(?:ing|ed|ies|es|s|ly|y|ions?|ments?)\Z")

_SHORTEST = 4
_SHORTEST_PART = 3
_MOST = 8
_NEAR_WORDS = 2000
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the data has of the words of an instruction.

    `counts`: the number of passages that hold a word, a similar word or a synonym. `absent`: the needed words
    that the data lacks. `similar`: for each of them the words of the data that resemble it. `synonyms`: for
    each word that the data lacks the synonyms that it has. `concepts`: for each needed word the first word of
    the same meaning."""

    counts: dict[str, int]
    absent: Sequence[str]
    similar: dict[str, tuple[str, ...]]
    synonyms: dict[str, dict[str, int]]
    concepts: dict[str, str]

    @classmethod
    def of(cls, index: PassageIndex, instruction: ParsedInstruction, header: str) -> "Vocabulary":
        """`header` has the names of a table's columns, in lower case. They are shown above its rows, which
        need not hold them."""
        words = instruction.words
        counts = _counts(index, words)
        needed = [
            word
            for word in words
            if instruction.needs(word.lower()) and (word in counts or not is_of_asking(word))
        ]
        absent = [word for word in needed if word not in counts]
        similar = {word: similar_words(index, word) for word in absent}
        counts |= {other: max(1, index.count(other)) for others in similar.values() for other in others}
        concepts = _concepts(word for word in needed if stem(word) not in header)
        for word in _across_words(words, counts):
            concepts.pop(word, None)
            similar.pop(word, None)
        instead = {word: _counts(index, synonyms([word])) for word in words if word not in counts}
        for others in instead.values():
            counts |= others
        return cls(counts, absent, similar, instead, concepts)

    @property
    def size(self) -> int:
        """The number of different concepts, at least 1."""
        return max(len(set(self.concepts.values())), 1)

    @property
    def concept_of(self) -> dict[str, str]:
        """The concept of each counted word that stands for one."""
        similar = self._concepts_of(self.similar.items())
        # Of several words that a synonym stands for, the first counts.
        instead = self._concepts_of(reversed(self.synonyms.items()))
        return instead | self.concepts | similar

    def _concepts_of(self, others_of: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
        concepts = self.concepts
        return {other: concepts[word] for word, others in others_of if word in concepts for other in others}

    @property
    def missing(self) -> tuple[str, ...]:
        """The absent words for which the data has no other either, in lower case."""
        known = {word.lower() for word in self.counts}
        known |= {word.lower() for word, others in self.similar.items() if others}
        lacking = (
            word.lower()
            for word in self.absent
            if self.similar.get(word) == () and not self.synonyms.get(word)
        )
        return tuple(dict.fromkeys(word for word in lacking if word not in known))


def _counts(index: PassageIndex, words: Iterable[str]) -> dict[str, int]:
    return {word: count for word in words if (count := index.count(word))}


def stem(word: str) -> str:
    """The word in lower case without an English ending."""
    bare = _SUFFIX.sub("", word.lower())
    return bare if len(bare) >= SHORT else word.lower()


def _concepts(words: Iterable[str]) -> dict[str, str]:
    """Maps each word to the first word of the same meaning: a form of it, or a synonym."""
    concepts: dict[str, str] = {}
    first_of: dict[str, str] = {}
    for word in words:
        same = next((concepts[other] for other in synonyms([word]) if other in concepts), word.lower())
        concepts[word] = first_of.setdefault(stem(word), same)
    return concepts


def _across_words(words: Sequence[str], present: Collection[str]) -> list[str]:
    """The pairs of characters that the data does not hold beside one that it holds, in a script without
    spaces: they are the end of one word and the beginning of the next."""
    ends = {word[-1] for word in present if is_pair(word)}
    begins = {word[0] for word in present if is_pair(word)}
    return [
        word
        for word in words
        if is_pair(word) and word not in present and (word[0] in ends or word[1] in begins)
    ]


def as_spelled(index: PassageIndex, instruction: ParsedInstruction) -> ParsedInstruction:
    """The instruction with its numbers as the data writes them."""
    words = [one for word in instruction.words for one in _spelled(index, word)]
    exact = [one for word in instruction.exact for one in _spelled(index, word)]
    exact = [one for one in exact if not one.isalnum() or index.count(one)]
    return replace(instruction, words=tuple(words), exact=tuple(exact))


def _spelled(index: PassageIndex, word: str) -> list[str]:
    """A number as the data writes it, with commas between thousands or without. One with commas that the data
    has in neither way is several numbers; those of one or two digits say little. Any other word as it is."""
    digits = word.replace(",", "")
    if not digits.isdecimal():
        return [word]
    other = digits if "," in word else f"{int(digits):,}"
    if other == word or index.count(word):
        return [word]
    return [other] if index.count(other) else [part for part in word.split(",") if len(part) > 2]


def similar_words(index: PassageIndex, word: str) -> tuple[str, ...]:
    """At most eight words or phrases of the data that resemble the word. For a name such as `Beijing` and
    Chinese data these are spellings in Chinese characters."""
    if word[:1].isupper() and word.isascii() and index.is_chinese:
        return tuple(islice((one for one in spellings(word) if index.count(one)), _MOST))
    word = word.lower()
    if len(word) < _SHORTEST or not word.isalpha():
        return ()
    cuts = range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1)
    similar = [two for at in cuts if index.count(two := f"{word[:at]} {word[at:]}")]
    if len(word) > _SHORTEST:
        similar += [other for other in sorted(_mistyped(word)) if index.count(other)]
        near = index.words_from(word[:_SHORTEST_PART], word[:_SHORTEST_PART] + _LAST, _NEAR_WORDS)
        bare = _SUFFIX.sub("", word)
        similar += [other for other in near if _is_one_edit(word, other) or _is_one_edit(bare, other)]
    similar += index.words_from(word, word + _LAST, _MOST)
    return tuple(dict.fromkeys(similar))[:_MOST]


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
