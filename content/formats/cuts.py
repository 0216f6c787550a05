"""Where text is cut: at the best kind of place that there is between two offsets, the nearest to a wish."""

import re
from collections.abc import Callable, Iterator
from itertools import islice

LEAST, AIM, MOST = 120, 260, 600
"""Bytes of a passage. MOST is never exceeded; a short section may be below LEAST."""

REACH = 1200
"""Bytes of a record, row or paragraph that is shown whole."""

Find = Callable[[bytes, int, int, int], int]
"""The place from `low` to `high` (included) at which to cut `data`, the nearest to `wished`; 0 if there is
none."""

_GAP = 16
_SLICE = 1 << 16

# More marks are not headings, and would take too long.
_MOST_MARKS = 100_000

# Not an escaped backslash and an `n`.
_ESCAPED_LINE = re.compile(rb"\\(?<!\\\\)n")
# A long line is cut after one of these, the best first: records, tags, sentences, words.
_INSIDE_LINE = (b"}, ", b"},", b"><", b". ", b"; ", "。".encode(), b", ", b",", b" ", b"\t")


def at_ends(pattern: re.Pattern[bytes]) -> Find:
    """Cuts at the end of a match."""

    def find(data: bytes, low: int, wished: int, high: int) -> int:
        best = 0
        for found in pattern.finditer(data, max(0, low - _GAP), min(len(data), high + _GAP)):
            place = found.end()
            if place > high:
                break
            if place >= low:
                if best and abs(place - wished) >= abs(best - wished):
                    break
                best = place
        return best

    return find


def after(mark: bytes) -> Find:
    """Cuts behind `mark`."""
    size = len(mark)

    def find(data: bytes, low: int, wished: int, high: int) -> int:
        place = data.rfind(mark, max(0, low - size), wished)
        # What is nearer than that.
        until = min(high, 2 * wished - place - size) if place >= 0 else high
        behind = data.find(mark, max(0, wished - size), until)
        places = [one + size for one in (place, behind) if one >= 0 and low <= one + size <= high]
        return min(places, key=lambda one: abs(one - wished), default=0)

    return find


def before(mark: bytes, length: int) -> Find:
    """Cuts `length` bytes behind the beginning of the last `mark` up to the wished place."""

    def find(data: bytes, low: int, wished: int, high: int) -> int:
        place = data.rfind(mark, max(0, low - length), wished)
        return place + length if place >= 0 and place + length <= high else 0

    return find


line_end = after(b"\n")
_inside_line: list[Find] = [
    at_ends(_ESCAPED_LINE),
    *(before(mark, 1 if mark == b"><" else len(mark)) for mark in _INSIDE_LINE),
    after(b" "),
]


def cut(data: bytes, low: int, wished: int, high: int, finds: tuple[Find, ...] = ()) -> int:
    """The place where the first of `finds` that has one cuts; else between lines, within a long line, between
    characters."""
    for find in (*finds, line_end, *_inside_line):
        if place := find(data, low, wished, high):
            return place
    return between_characters(data, wished)


def cut_passage(data: bytes, start: int, finds: tuple[Find, ...] = ()) -> int:
    """Where the passage that begins at `start` ends."""
    if len(data) - start <= AIM + LEAST:
        return len(data)
    low, wished, high = start + LEAST, start + AIM, min(start + MOST, len(data))
    for find in (*finds, line_end, *_inside_line):
        if place := find(data, low, wished, high):
            return place
    # A text without any such place is cut into fewer pieces.
    return between_characters(data, high)


def between_characters(data: bytes, place: int) -> int:
    """The last place up to `place` that splits no character and no CRLF."""
    first = max(0, place - 3)
    while first < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place - 1 if place > 1 and data[place - 1 : place + 1] == b"\r\n" else place


def found_in_slices(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Like `finditer`, in slices, because each step holds the GIL."""
    start, left = 0, _MOST_MARKS
    while start < len(data) and left > 0:
        end = data.rfind(b"\n", start, start + _SLICE) + 1 or start + _SLICE
        for found in islice(pattern.finditer(data, start, end), left):
            left -= 1
            yield found
        start = end
