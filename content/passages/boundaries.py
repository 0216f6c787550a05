"""Where passages begin, and where a run of text is cut that has no structure of its own."""

from typing import NamedTuple

LEAST, AIM, MOST = 120, 300, 600
"""Bytes of a passage: fewer only where the structure says so, never more."""


class Place(NamedTuple):
    """A passage begins at byte `at`; `path` says where in the structure that is."""

    at: int
    path: str


# Where a long line is best cut, behind one of these: escaped lines, records, tags, sentences, words.
_INSIDE_LINE = (b"\\n", b"}, ", b"},", b"><", b". ", b"; ", "。".encode(), b", ", b",", b" ", b"\t")


def cut_between(data: bytes, start: int) -> int:
    """A place to cut after `start`, as near to AIM as what it cuts between allows: lines, then whatever a
    long line has."""
    if len(data) - start <= MOST:
        return len(data)
    low, wished, high = start + LEAST, start + AIM, start + MOST
    newline = data.rfind(b"\n", low, wished) + 1 or data.find(b"\n", wished, high) + 1
    if newline:
        return newline
    for mark in _INSIDE_LINE:
        place = data.rfind(mark, low, wished)
        if place >= 0:
            # Of a tag only what closes the one before.
            return place + (1 if mark == b"><" else len(mark))
    return data.find(b" ", wished, high) + 1 or _between_characters(data, high)


def _between_characters(data: bytes, place: int) -> int:
    """The place itself, or a byte or more before it."""
    first = max(0, place - 3)
    while first < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place
