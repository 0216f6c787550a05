"""Splits a source into chunks that fit a model's window: balanced, overlapping, cut between records."""

import math
import re
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise

from anyio.to_thread import run_sync

from content.kinds import Kind
from content.passages.text_sections import EVENT
from content.text import DOUBLE_QUOTED
from extraction.prompts import Part
from extraction.source import Source

# The share of the budget kept free: tokens are not spread evenly, and cuts move to record boundaries.
_MARGIN = 0.1

# How far a cut may move: a share of the chunk's own bytes.
_REACH_PERCENT = 5
_MOST_REACH = 32 * 1024

# Bytes read around that range, to recognise records.
_AROUND = 2 * 1024

# A smaller chunk is not the reason for a prompt that is too long.
_SMALLEST = 1024

# With more overlap, a half would hardly be shorter than the whole.
_MOST_OF_HALF_PERCENT = 30

_SLICE = 1 << 20
_INLINE_BYTES = 1 << 13


async def plan(source: Source, kind: Kind, budget_tokens: int, overlap_percent: int) -> list[Part]:
    """Returns the fewest chunks of about equal size that fit `budget_tokens` each, overlap included; none
    for an empty source. Their lines are not counted yet. Assumes evenly spread tokens, with a margin: for a
    chunk that is too long there is `halves`. Reads only the bytes around the cuts."""
    count = _count(source, budget_tokens, overlap_percent)
    own = source.size / max(1, count)
    places = [0]
    for number in range(1, count):
        place = await _cut(source, kind, int(own * number), int(own))
        if places[-1] < place < source.size:
            places.append(place)
    chunks = []
    for number, (start, end) in enumerate(pairwise([*places, source.size]), 1):
        overlap = await _overlap(source, start, int(own), overlap_percent)
        chunks.append(Part(number, len(places), start, end, overlap=overlap))
    return chunks if source.size else []


async def halves(source: Source, kind: Kind, chunk: Part, overlap_percent: int) -> list[Part]:
    """Splits a chunk into two with the same number; returns nothing for a chunk that is too small."""
    own = chunk.size // 2
    if own < _SMALLEST // 2:
        return []
    middle = await _cut(source, kind, chunk.start + own, own)
    overlap_percent = min(overlap_percent, _MOST_OF_HALF_PERCENT)
    before = await _overlap(source, chunk.start, own, overlap_percent)
    between = await _overlap(source, middle, own, overlap_percent)
    return [
        replace(chunk, end=middle, overlap=min(before, chunk.overlap)),
        replace(chunk, start=middle, overlap=between),
    ]


async def with_lines(source: Source, chunks: Sequence[Part], first_line: int = 1) -> list[Part]:
    """Returns the chunks with their lines. They are adjacent; the first begins on `first_line`. Streams their
    bytes once."""
    found = []
    line = first_line
    for chunk in chunks:
        first, last_byte = line, b""
        for start in range(chunk.start, chunk.end, _SLICE):
            data = await source.read(start, min(start + _SLICE, chunk.end))
            line += data.count(b"\n")
            last_byte = data[-1:]
        found.append(replace(chunk, first_line=first, last_line=line - (last_byte == b"\n")))
    return found


def _count(source: Source, budget_tokens: int, overlap_percent: int) -> int:
    measure = source.stored.measure
    tokens = math.ceil(measure.tokens * source.size / max(1, measure.bytes))
    if tokens <= budget_tokens:
        return 1
    own = budget_tokens * (1 - _MARGIN) * (1 - overlap_percent / 100)
    return min(math.ceil(tokens / max(1.0, own)), max(1, source.size))


async def _cut(source: Source, kind: Kind, wished: int, own: int) -> int:
    reach = _reach(own)
    return await _best(source, kind, wished - reach, wished, wished + reach)


async def _overlap(source: Source, start: int, own: int, percent: int) -> int:
    """The number of bytes before `start` that are read again: `percent` of a whole chunk, or a little
    less."""
    if start == 0 or percent == 0:
        return 0
    wished = start - own * percent // (100 - percent)
    if wished <= 0:
        return start
    place = await _best(source, None, wished, wished, min(wished + _reach(own), start))
    return start - place


def _reach(own: int) -> int:
    return min(own * _REACH_PERCENT // 100, _MOST_REACH)


async def _best(source: Source, kind: Kind | None, low: int, wished: int, high: int) -> int:
    low, high = max(1, low), min(high, source.size)
    start, end = max(0, low - _AROUND), min(high + _AROUND, source.size)
    window = await source.read(start, end)
    cut = partial(best_cut, window, low - start, wished - start, high - start, kind)
    # A window of 70 KiB may take 0.1 s.
    return start + (cut() if len(window) <= _INLINE_BYTES else await run_sync(cut))


Cut = Callable[[bytes, int, int, int], int | None]

_LINE = re.compile(rb"\n")
_WORD = re.compile(rb"\s(?=\S)")
_UNINDENTED = re.compile(rb"\n(?=\S)")
_PARAGRAPH = re.compile(rb"\n\r?\n(?=\S)")
_TAG = re.compile(rb">(?=<)")
_ESCAPED_LINE = re.compile(rb"\\(?<!\\\\)n")

_QUOTE = re.compile(rb'\\.|"', re.DOTALL)
_BRACKET = re.compile(rb'(?>(?:[^"{}\[\]]++|%b)*)([{}\[\]]|\Z)' % DOUBLE_QUOTED, re.DOTALL)
_COMMA = re.compile(rb"%b|,([ \t]*+\r?\n)?" % DOUBLE_QUOTED, re.DOTALL)
_BEFORE_STRING, _AFTER_STRING = {b"{", b"[", b",", b":"}, {b",", b":", b"]", b"}"}
_VOTERS = 100
_COMMA_SIGN = ord(",")

# Quotes that open or close a cell for certain. Two in a row are a quote in a cell, or an empty cell.
_CELL_QUOTE = re.compile(
    rb'((?:(?<=[,;\t|\r\n])|(?<=[,;\t|\r\n] ))"(?>(?:"")*)(?![",;\t|\r\n]))'
    rb'|(?<![",;\t|\r\n\\])"(?>(?:"")*)(?=[,;\t|\r\n])'
)

_GAP = 16


def best_cut(window: bytes, low: int, wished: int, high: int, kind: Kind | None) -> int:
    """The best place from `low` to `high`, among equals the one next to `wished`; in no character and no
    CRLF pair. The rest of the window helps to tell what a record is. Without a kind, cuts between lines."""
    for cut in (*_RECORDS.get(kind, ()), _line, _word):
        if (found := cut(window, low, wished, high)) is not None:
            return found
    return _between_characters(window, wished)


def _after(pattern: re.Pattern[bytes]) -> Cut:
    """Cuts after a match of the pattern."""

    def cut(window: bytes, low: int, wished: int, high: int) -> int | None:
        best = None
        for place in _places(pattern, window, low, high):
            if best is not None and abs(place - wished) > abs(best - wished):
                break
            best = place
        return best

    return cut


def _places(pattern: re.Pattern[bytes], window: bytes, low: int, high: int) -> Iterator[int]:
    """In ascending order."""
    for found in pattern.finditer(window, max(0, low - _GAP)):
        if found.end() > high:
            return
        if found.end() >= low:
            yield found.end()


def _member(window: bytes, low: int, wished: int, high: int) -> int | None:
    """Between two members of the outermost JSON array or object that has any there."""
    start = _out_of_string(window)
    levels: dict[int, list[tuple[int, int]]] = {}
    for depth, first, last in _runs(window, start) if start >= 0 else ():
        if first > high:
            break
        if last >= low:
            levels.setdefault(depth, []).append((first, last))
    for _, runs in sorted(levels.items()):
        places = [place for run in runs for place in _members(window, *run) if low <= place <= high]
        if places:
            return min(places, key=lambda place: abs(place - wished))
    return None


def _runs(window: bytes, start: int) -> Iterator[tuple[int, int, int]]:
    """The runs of text between brackets: depth, start and end."""
    depth = 0
    for found in _BRACKET.finditer(window, start):
        if start < found.start(1):
            yield depth, start, found.start(1)
        depth += 1 if found[1] in b"[{" else -1
        start = found.end()


def _members(window: bytes, first: int, last: int) -> Iterator[int]:
    """The places in a run at which members begin, or at which a line ends between two values."""
    if window[first - 1 : first] in (b"}", b"]") and window[last : last + 1] in (b"{", b"["):
        between = window[first:last]
        if b"\n" in between and between.isspace():
            yield first + between.rfind(b"\n") + 1
    for found in _COMMA.finditer(window, first, last):
        if window[found.start()] == _COMMA_SIGN:
            yield found.end()


def _out_of_string(window: bytes) -> int:
    """The first place outside every JSON string, -1 if unknown. Quotes open and close in turn; the characters
    beside them show which of them open."""
    found = islice((found.start() for found in _QUOTE.finditer(window) if found[0] == b'"'), _VOTERS)
    quotes = list(found)
    if not quotes:
        return -1 if b"\\" in window else 0
    votes = [0, 0]
    for index, quote in enumerate(quotes):
        before = window[max(0, quote - _GAP) : quote].rstrip()[-1:]
        after = window[quote + 1 : quote + 1 + _GAP].lstrip()[:1]
        votes[index % 2] += (before in _BEFORE_STRING) - (after in _AFTER_STRING)
    return 0 if votes[0] >= votes[1] else quotes[0] + 1


def _row(window: bytes, low: int, wished: int, high: int) -> int | None:
    """The end of a row of a table: a newline that is not within quotes, as far as the window shows."""
    quotes = [(found.start(), found[1] is not None) for found in _CELL_QUOTE.finditer(window)]
    if not quotes:
        return None
    doubtful = None
    for place in sorted(_places(_LINE, window, low, high), key=lambda place: abs(place - wished)):
        after = bisect(quotes, (place,))
        opened = after > 0 and quotes[after - 1][1]
        closes = after < len(quotes) and not quotes[after][1]
        if not opened and not closes:
            return place
        if doubtful is None and opened != closes:
            doubtful = place
    return doubtful


def _between_characters(window: bytes, place: int) -> int:
    while 0 < place < len(window) and window[place] & 0xC0 == 0x80:
        place -= 1
    return place - 1 if window[place - 1 : place + 1] == b"\r\n" else place


_line, _word, _escaped_line = _after(_LINE), _after(_WORD), _after(_ESCAPED_LINE)
_event, _unindented, _paragraph = _after(EVENT), _after(_UNINDENTED), _after(_PARAGRAPH)

_RECORDS: dict[Kind | None, tuple[Cut, ...]] = {
    Kind.JSON: (_member, _line, _escaped_line),
    Kind.NDJSON: (_line, _member, _escaped_line),
    Kind.CSV: (_row,),
    Kind.LOG: (_event, _unindented),
    # Also a log whose traces are longer than all the rest.
    Kind.TEXT: (_event, _paragraph, _unindented),
    Kind.MARKDOWN: (_paragraph, _unindented),
    Kind.CODE: (_paragraph, _unindented),
    Kind.HTML: (_line, _after(_TAG)),
    Kind.XML: (_line, _after(_TAG)),
}
