"""Where the literal texts of a pattern stand which matches no line."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from content.text import clip, count_of

_MOST_CANDIDATES = 20_000
_MOST_LINE_BYTES = 2000
_MOST_TEXTS, _TEXT_CHARS, _LINE_CHARS = 8, 40, 400

_TOKEN = re.compile(
    r"\\(?P<escaped>[^A-Za-z0-9])(?![?*])"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?(?:P?<\w*>|[A-Za-z-]*[:)])|[().*+?|^$]"
    r"|.[?*]|(?P<plain>.)",
    re.DOTALL,
)
"""A literal character of RE2, or something else: also a character that may be missing."""


class NearMisses(NamedTuple):
    """How many lines hold the texts; the number and the text of the last. `is_all`: all lines were looked
    at."""

    lines: int
    line: int = 0
    text: str = ""
    is_all: bool = True


def literals(pattern: str) -> list[str]:
    """The literal texts of a pattern, without spaces around them, the words of one that stands alone; none
    where there is only one word."""
    text = _TOKEN.sub(lambda token: token["escaped"] or token["plain"] or "\n", pattern)
    parts = dict.fromkeys(map(str.strip, text.split("\n")))
    texts = [part for part in parts if len(part) > 1 or part.isdecimal()]
    texts = texts if len(texts) > 1 else "".join(texts).split()
    return texts if 1 < len(texts) <= _MOST_TEXTS else []


def lines_with_all(data: bytes, texts: list[str]) -> NearMisses:
    """The lines that hold all texts in any order and letter case, of those of at most 2,000 bytes."""
    lowered, count, last, is_all = data.lower(), 0, (0, 0), True
    needles = sorted((text.lower().encode("utf-8", "replace") for text in texts), key=len, reverse=True)
    end = len(lowered)
    for _ in range(_MOST_CANDIDATES):
        at = lowered.rfind(needles[0], 0, end)
        if at < 0:
            break
        begin = lowered.rfind(b"\n", 0, at) + 1
        stop = lowered.find(b"\n", at, end)
        stop, end = end if stop < 0 else stop, begin
        is_all = is_all and stop - begin <= _MOST_LINE_BYTES
        if stop - begin <= _MOST_LINE_BYTES and all(one in lowered[begin:stop] for one in needles[1:]):
            count, last = count + 1, last if count else (begin, stop)
    else:
        is_all = False
    if not count:
        return NearMisses(0, is_all=is_all)
    text = clip(data[slice(*last)].decode("utf-8", "replace"), _LINE_CHARS)
    return NearMisses(count, data.count(b"\n", 0, last[0]) + 1, text)


def near_miss_text(texts: list[str], found: NearMisses) -> str:
    hold, which = ("holds", "") if found.lines == 1 else ("hold", " The last:")
    return (
        f"No line matches. {count_of(found.lines, 'line')} {hold} {_quoted(texts)} in another order or "
        f"form.{which}\n{found.line}: {found.text}"
    )


def nowhere_text(texts: list[str]) -> str:
    """Says that no line holds all of the texts."""
    return f"No line matches, and none holds all of {_quoted(texts)}."


def _quoted(texts: list[str]) -> str:
    return ", ".join(f"“{clip(text, _TEXT_CHARS)}”" for text in texts)


_WORD = re.compile(r"[^\W_]{2,}(?:[_.-][^\W_]+)*|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2,}")
_SIDE = 60


class Occurrence(NamedTuple):
    """How many lines hold a word, in any letter case and also within longer words; the first of them."""

    word: str
    lines: int
    line: int = 0
    text: str = ""

    def told(self) -> str:
        if not self.lines:
            return f"“{self.word}”: nowhere, not even within a word."
        first = "" if self.lines == 1 else ", the first"
        return f"“{self.word}”: {count_of(self.lines, 'line')}{first} {self.line}: {self.text}"


def words_of(pattern: str) -> list[str]:
    """The words among the literal characters of a pattern."""
    text = _TOKEN.sub(lambda token: token["escaped"] or token["plain"] or " ", pattern)
    return list({word.lower(): word for word in _WORD.findall(text)}.values())


def occurrences(data: bytes, words: Sequence[str]) -> list[Occurrence]:
    lowered = data.lower()
    return [_occurrence(data, lowered, word) for word in words]


def _occurrence(data: bytes, lowered: bytes, word: str) -> Occurrence:
    needle = word.lower().encode("utf-8", "replace")
    first = at = lowered.find(needle)
    count = 0
    while at >= 0:
        count += 1
        end = lowered.find(b"\n", at)
        at = lowered.find(needle, end) if end >= 0 else -1
    if not count:
        return Occurrence(word, 0)
    # A character may be longer in lower case: the place is near.
    start = max(data.rfind(b"\n", 0, first) + 1, first - _SIDE)
    stop = data.find(b"\n", first)
    part = data[start : min(stop if stop >= 0 else len(data), first + len(needle) + _SIDE)]
    return Occurrence(word, count, lowered.count(b"\n", 0, first) + 1, clip(part, _LINE_CHARS))
