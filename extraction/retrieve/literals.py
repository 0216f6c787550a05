"""Quoted texts with signs in them, such as `"foo->bar()"`: they are searched for as they are written."""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from content.source import Source
from content.text import clip, count_of
from extraction.retrieve.index import PassageIndex
from extraction.retrieve.instruction import ParsedInstruction

_HAS_SIGN = re.compile(r"[^\w\s]")
_MOST_PLACES = 1000
_MOST_LINES = 8
_CHARS = 60


class Literal(NamedTuple):
    """`numbers` are those of the passages that hold it, `lines` those of its lines, at most 1,000 each."""

    text: str
    numbers: Sequence[int]
    lines: Sequence[int]

    def told(self, shown: int) -> str:
        """Where it is, for an answer that shows it in `shown` of the passages."""
        what, count = f"“{clip(self.text, _CHARS)}”", len(self.lines)
        if shown < len(self.numbers):
            numbers = ", ".join(map(str, self.lines[:_MOST_LINES])) + (", …" if count > _MOST_LINES else "")
            return f"{what} is on {count_of(count, 'line')}: {numbers}."
        return f"The only line with {what}." if count == 1 else f"All {count} lines with {what}."


def literals(text: Source, index: PassageIndex, instruction: ParsedInstruction) -> list[Literal]:
    every = []
    for quoted in filter(_HAS_SIGN.search, instruction.quoted):
        places = list(_places(text.data, quoted))
        lines = dict.fromkeys(_line(text, index, at) for at in places)
        every.append(Literal(quoted, list(dict.fromkeys(map(index.at, places))), list(lines)))
    return every


def _places(data: bytes, quoted: str) -> list[int]:
    """Where it is; in JSON with escapes; in any case if nowhere in its own."""
    escaped = json.dumps(quoted, ensure_ascii=False)[1:-1]
    return _offsets(data, quoted) or _offsets(data, escaped) or _offsets(data.lower(), quoted.lower())


def _offsets(data: bytes, quoted: str) -> list[int]:
    encoded, at = quoted.encode("utf-8", "replace"), 0
    places: list[int] = []
    while len(places) < _MOST_PLACES and (at := data.find(encoded, at)) >= 0:
        places.append(at)
        at += len(encoded)
    return places


def _line(text: Source, index: PassageIndex, at: int) -> int:
    passage = index.passages[index.at(at)]
    row = passage.line - 1 + text.data.count(b"\n", passage.start, at)
    return text.stored_line(row) if text.is_verbatim else row + 1
