"""Where a text has values that are known to be secrets: one pass for all of them."""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import compress

from content.redaction.spans import SecretSpan

SHORTEST = 8
"""Bytes of the shortest value that is looked for: shorter ones are in too many texts by chance."""

_WORD = 4
_STEP_BYTES = 1 << 17
"""The text is read in steps of this size. A step holds the interpreter for up to 4 ms."""


class Values:
    """Values of at least SHORTEST bytes to look for, each with its kind.

    The text is read as aligned words of four bytes. Wherever a value stands, one of its first four words is
    aligned: a word that is none of them takes one look-up, whatever the number of values."""

    def __init__(self, kinds: Mapping[bytes, str]) -> None:
        self._kinds = kinds
        self._sorted = sorted(kinds)
        self._longest = max(map(len, self._sorted), default=0)
        self._within = [*_prefixes(self._sorted)]
        self._offsets = dict[int, list[int]]()
        for offset in reversed(range(_WORD)):
            for word in {value[offset : offset + _WORD] for value in self._sorted}:
                self._offsets.setdefault(int.from_bytes(word, sys.byteorder), []).append(offset)

    def occurrences(self, data: bytes) -> Iterator[SecretSpan]:
        """In order; the longest value at each place."""
        if not self._sorted:
            return
        whole = memoryview(data)
        for base in range(0, len(data), _STEP_BYTES):
            words = whole[base : base + _STEP_BYTES]
            words = words[: len(words) // _WORD * _WORD].cast("I")
            known = map(self._offsets.__contains__, words)
            for number in compress(range(len(words)), known):
                for offset in self._offsets[words[number]]:
                    yield from self._at(data, base + number * _WORD - offset)

    def _at(self, data: bytes, at: int) -> Iterator[SecretSpan]:
        if at < 0:
            return
        # A value at this place is the last value that is not greater than the text, or a beginning of it.
        number = bisect_right(self._sorted, data[at : at + self._longest]) - 1
        if number < 0:
            return
        chain = (*self._within[number], number)
        count = bisect_left(chain, True, key=lambda one: not data.startswith(self._sorted[one], at))
        if count:
            value = self._sorted[chain[count - 1]]
            yield SecretSpan(at, at + len(value), self._kinds[value])


def _prefixes(values: list[bytes]) -> Iterator[tuple[int, ...]]:
    """For each of the sorted values the numbers of the others that it begins with, the shortest first. They
    are at most as many as its bytes."""
    open_values: tuple[int, ...] = ()
    for number, value in enumerate(values):
        while open_values and not value.startswith(values[open_values[-1]]):
            open_values = open_values[:-1]
        yield open_values
        open_values += (number,)
