"""Cuts text between two offsets, at the best kind of place there, the nearest to a wished offset."""

import re
from collections.abc import Callable, Iterator
from itertools import islice

LEAST, AIM, MOST = 120, 260, 600
"""Bytes of a passage. MOST is never exceeded; a short section may be below LEAST."""

REACH = 1200
"""Bytes of a record, row or paragraph that is shown whole."""

EdgeFinder = Callable[[bytes, int, int, int], int]
"""Returns the place from `low` to `high` (included) at which to cut `data`, the nearest to `wished`; 0 if
there is no place."""

_GAP = 16
_SLICE = 1 << 16

PARAGRAPH = re.compile(rb"\n[ \t\r]{0,200}\n(?=[^\n])")
UNINDENTED = re.compile(rb"\n(?=\S)")

# More marks are not headings, and would take too long.
_MOST_MARKS = 100_000

# A long line is cut after one of these, the best first: records, tags, sentences, words.
_MARKS = (b"}, ", b"},", b"><", b". ", b"; ", "。".encode(), b", ", b",", b" ", b"\t")
_INSIDE_LINE = [(mark, 1 if mark == b"><" else len(mark)) for mark in _MARKS]
_BACKSLASH = ord("\\")


def at_ends(pattern: re.Pattern[bytes]) -> EdgeFinder:
    """Cuts at the end of a match."""
    return _at(pattern, re.Match.end)


def at_starts(pattern: re.Pattern[bytes]) -> EdgeFinder:
    """Cuts at the start of a match."""
    return _at(pattern, re.Match.start)


def _at(pattern: re.Pattern[bytes], edge: Callable[[re.Match[bytes]], int]) -> EdgeFinder:
    def find(data: bytes, low: int, wished: int, high: int) -> int:
        best = 0
        for match in pattern.finditer(data, max(0, low - _GAP), high + _GAP):
            place = edge(match)
            if place > high:
                break
            if place >= low:
                if best and abs(place - wished) >= abs(best - wished):
                    break
                best = place
        return best

    return find


def line_end(data: bytes, low: int, wished: int, high: int) -> int:
    before = data.rfind(b"\n", max(0, low - 1), wished) + 1
    until = min(high, 2 * wished - before) if before else high
    return data.find(b"\n", wished, until) + 1 or before


def _inside_line(data: bytes, low: int, wished: int, high: int) -> int:
    place = data.rfind(b"\\n", low, wished)
    while place > 0 and data[place - 1] == _BACKSLASH:
        # An escaped backslash and an `n`.
        place = data.rfind(b"\\n", low, place)
    if place >= 0:
        return place + 2
    for mark, length in _INSIDE_LINE:
        place = data.rfind(mark, low, wished)
        if place >= 0:
            return place + length
    return data.find(b" ", wished, high) + 1


def cut(data: bytes, low: int, wished: int, high: int, finds: tuple[EdgeFinder, ...] = ()) -> int:
    """Returns the place of the first of `finds` that has a place; else a place between lines, within a long
    line, or between characters."""
    return _place(data, low, wished, high, finds) or between_characters(data, wished)


def cut_passage(data: bytes, start: int, finds: tuple[EdgeFinder, ...] = ()) -> int:
    """Returns the end of the passage that begins at `start`."""
    size = len(data)
    if size - start <= AIM + LEAST:
        return size
    high = min(start + MOST, size)
    # A text without any such place is cut into larger pieces.
    return _place(data, start + LEAST, start + AIM, high, finds) or between_characters(data, high)


def _place(data: bytes, low: int, wished: int, high: int, finds: tuple[EdgeFinder, ...]) -> int:
    for find in finds:
        if place := find(data, low, wished, high):
            return place
    return line_end(data, low, wished, high) or _inside_line(data, low, wished, high)


def between_characters(data: bytes, place: int) -> int:
    """Returns the last place up to `place` that splits neither a character nor a CRLF."""
    first = max(0, place - 3)
    while first < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place - 1 if place > 1 and data[place - 1 : place + 1] == b"\r\n" else place


def matches_in_slices(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Like `finditer`, in slices, because each step holds the GIL."""
    start, left = 0, _MOST_MARKS
    while start < len(data) and left > 0:
        end = data.rfind(b"\n", start, start + _SLICE) + 1 or start + _SLICE
        for match in islice(pattern.finditer(data, start, end), left):
            left -= 1
            yield match
        start = end
