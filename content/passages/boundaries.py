"""The bounds of passages, and cuts in text without structure."""

from typing import NamedTuple

LEAST, AIM, MOST = 120, 300, 600
"""Bytes of a passage. MOST is never exceeded; a short section may be below LEAST."""


class Place(NamedTuple):
    """A passage begins at byte `at`. `path` is its place in the structure."""

    at: int
    path: str


# A long line is cut after one of these, the best first: escaped lines, records, tags, sentences, words.
_INSIDE_LINE = (b"\\n", b"}, ", b"},", b"><", b". ", b"; ", "。".encode(), b", ", b",", b" ", b"\t")


def cut_between(data: bytes, start: int) -> int:
    """A place to cut after `start`, near AIM: between lines, else within a long line."""
    if len(data) - start <= MOST:
        return len(data)
    low, wished, high = start + LEAST, start + AIM, start + MOST
    newline = data.rfind(b"\n", low, wished) + 1 or data.find(b"\n", wished, high) + 1
    if newline:
        return newline
    for mark in _INSIDE_LINE:
        place = data.rfind(mark, low, wished)
        if place >= 0:
            # Between two tags.
            return place + (1 if mark == b"><" else len(mark))
    return data.find(b" ", wished, high) + 1 or _between_characters(data, high)


def _between_characters(data: bytes, place: int) -> int:
    """The last place up to `place` that splits no character."""
    first = max(0, place - 3)
    while first < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place
