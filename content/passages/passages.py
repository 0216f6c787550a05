"""Splits a text into passages of a few hundred bytes that follow its structure."""

from collections.abc import Iterator
from dataclasses import dataclass

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
    place: Place | None = None
    for following in _places(data, tool_name):
        if place is not None:
            yield (passage := _passage(data, place, following.at, line))
            line = passage.last_line + (data[following.at - 1] == _NEWLINE)
        place = following
    if place is not None and place.at < len(data):
        yield _passage(data, place, len(data), line)


_NEWLINE = ord("\n")


def _places(data: bytes, tool_name: str) -> Iterator[Place]:
    if not data:
        return iter(())
    kind = sniff(data, tool_name)
    if json_members.fits(data, kind):
        return json_members.places(data)
    return text_sections.places(data, kind)


def _passage(data: bytes, place: Place, end: int, line: int) -> Passage:
    breaks = data.count(b"\n", place.at, end - 1)
    return Passage(place.at, end, line, line + breaks, place.path, place.opened)
