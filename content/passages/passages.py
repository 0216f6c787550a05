"""Splits a text into passages of a few hundred bytes that follow its structure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from content.kinds import sniff
from content.passages import json_members, text_sections
from content.passages.text_sections import Place


@dataclass(frozen=True, slots=True)
class Passage:
    """Bytes `start` to before `end`, on lines `line` to `last_line` (1-based). `path` is the place in the
    structure, or "". `opened` is a place from which its brackets can be matched, -1 if unknown."""

    start: int
    end: int
    line: int
    last_line: int
    path: str
    opened: int = -1


def split(data: bytes, tool_name: str = "") -> Iterator[Passage]:
    """Yields passages in order. Every byte is in exactly one passage, and no valid character is cut. Linear
    in the size of any data."""
    line = 1
    for place, following in pairwise(chain(_places(data, tool_name), (Place(len(data), ""),))):
        if place.at < following.at:
            breaks = data.count(b"\n", place.at, following.at - 1)
            yield Passage(place.at, following.at, line, line + breaks, place.path, place.opened)
            line += breaks + data.endswith(b"\n", place.at, following.at)


def _places(data: bytes, tool_name: str) -> Iterator[Place]:
    kind = sniff(data, tool_name)
    if json_members.fits(data, kind):
        return json_members.places(data)
    return text_sections.places(data, kind)
