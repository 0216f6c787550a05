"""A text as it is read: without the escapes of JSON, the codes of a terminal, and the NULs of UTF-16."""

import re
from array import array
from bisect import bisect_right
from functools import cached_property, lru_cache

from content.redaction.spans import SecretSpan
from content.text import TERMINAL_CODE

DEEPEST = 4
"""How many levels of escapes and codes are taken off a text: JSON in JSON in JSON has three."""

_ESCAPE = re.compile(rb"""\\(?:["'/bfnrt]|\\(?:\\\\){0,63}+|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})""")
"""Backslashes that are escaped again are one piece where they follow each other. It begins with a literal,
which is looked for several times as fast as a choice."""

_NULS = re.compile(rb"\0+")
"""ASCII in UTF-16 is UTF-8 with a NUL beside each character."""

_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class Bare:
    """A text without one level of its escapes, or without its terminal codes or NULs."""

    def __init__(self, before: bytes, pattern: re.Pattern[bytes]) -> None:
        self._before, self._pattern = before, pattern
        # A function of Python lets go of the interpreter between two pieces; one in C would not.
        self.data = pattern.sub(lambda found: _plain(found[0]), before)

    @cached_property
    def _pieces(self) -> "tuple[array[int], array[int], array[int]]":
        """Where each piece begins in this text, and where it begins and ends in the one before. Most texts
        have no span, and need none."""
        places, starts, ends = array("Q"), array("Q"), array("Q")
        shorter = 0
        for found in self._pattern.finditer(self._before):
            places.append(found.start() - shorter)
            starts.append(found.start())
            ends.append(found.end())
            shorter += len(found[0]) - len(_plain(found[0]))
        return places, starts, ends

    def back(self, span: SecretSpan) -> SecretSpan:
        """Where the text before has the span."""
        return SecretSpan(self._stood(span.start)[0], self._stood(span.end - 1)[1], span.kind)

    def _stood(self, at: int) -> tuple[int, int]:
        """What stood for the byte at `at`."""
        places, starts, ends = self._pieces
        number = bisect_right(places, at) - 1
        if number < 0:
            return at, at + 1
        start, end, inside = starts[number], ends[number], at - places[number]
        piece = self._before[start:end]
        behind = inside - len(_plain(piece))
        if behind >= 0:
            return end + behind, end + behind + 1
        if piece[1] in b"ux":
            return start, end
        return start + 2 * inside, start + 2 * inside + 2


def bare(data: bytes) -> Bare | None:
    """None if the text has no escapes, codes and NULs."""
    for sign, pattern in ((b"\0", _NULS), (b"\x1b", TERMINAL_CODE), (b"\\", _ESCAPE)):
        if sign in data and pattern.search(data):
            return Bare(data, pattern)
    return None


@lru_cache(maxsize=4096)
def _plain(piece: bytes) -> bytes:
    """What escapes stand for; nothing for a terminal code or NULs."""
    if piece.startswith((b"\x1b", b"\0")):
        return b""
    if piece[1] in b"ux":
        return chr(int(piece[2:], 16)).encode("utf-8", "replace")
    return _LETTERS.get(piece[1:], piece[1::2])


def as_read(value: bytes) -> bytes:
    """The value without its escapes and codes, however it is written."""
    for _ in range(DEEPEST):
        if (one := bare(value)) is None:
            break
        value = one.data
    return value
