"""Splits the data into chunks that fit a model's window: balanced, overlapping, cut between records."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from anyio.to_thread import run_sync

from content.formats import OF_KIND
from content.formats.cuts import cut
from content.kind import Kind
from content.source_text import SourceText
from extraction.asked_bytes import AskedBytes
from extraction.prompts import Part

# The share of the token budget kept free: tokens are not spread evenly, and cuts move to ends of records.
_MARGIN = 0.1

# How far a cut may move: a share of the chunk's own bytes.
_REACH_PERCENT = 5
_MOST_REACH = 32 * 1024

# Bytes read around that range, to recognise records.
_AROUND = 2 * 1024

# Bytes. A smaller chunk is not the reason why a prompt is too long.
_SMALLEST = 1024

# With more overlap, a half would be hardly shorter than the whole chunk.
_MOST_OF_HALF_PERCENT = 30

_SLICE = 1 << 20


async def plan(asked: AskedBytes, kind: Kind, budget_tokens: int, overlap_percent: int) -> list[Part]:
    """Returns the fewest chunks of about equal size that fit `budget_tokens` each, overlap included; none for
    empty data. Their lines are not counted yet. Assumes evenly spread tokens, with a margin; `halves` splits
    a chunk that is still too long. Reads only the bytes around the cuts."""
    count = _count(asked, budget_tokens, overlap_percent)
    own = asked.size / max(1, count)
    places = [0]
    for number in range(1, count):
        place = await _cut(asked, kind, int(own * number), int(own))
        if places[-1] < place < asked.size:
            places.append(place)
    chunks = []
    for number, (start, end) in enumerate(pairwise([*places, asked.size]), 1):
        overlap = await _overlap(asked, start, int(own), overlap_percent)
        chunks.append(Part(number, len(places), start, end, overlap=overlap))
    return chunks if asked.size else []


async def halves(asked: AskedBytes, kind: Kind, chunk: Part, overlap_percent: int) -> list[Part]:
    """Splits a chunk into two with the same number; returns nothing for a chunk that is too small."""
    own = chunk.size // 2
    if own < _SMALLEST // 2:
        return []
    middle = await _cut(asked, kind, chunk.start + own, own)
    overlap_percent = min(overlap_percent, _MOST_OF_HALF_PERCENT)
    before = await _overlap(asked, chunk.start, own, overlap_percent)
    between = await _overlap(asked, middle, own, overlap_percent)
    return [
        replace(chunk, end=middle, overlap=min(before, chunk.overlap)),
        replace(chunk, start=middle, overlap=between),
    ]


async def with_lines(asked: AskedBytes, chunks: Sequence[Part], first_line: int = 1) -> list[Part]:
    """Returns the chunks with their lines. They are adjacent; the first begins on `first_line`. Streams their
    bytes once."""
    parts = []
    line = first_line
    for chunk in chunks:
        first, last_byte = line, b""
        for start in range(chunk.start, chunk.end, _SLICE):
            data = await asked.read(start, min(start + _SLICE, chunk.end))
            line += data.count(b"\n")
            last_byte = data[-1:]
        parts.append(replace(chunk, first_line=first, last_line=line - (last_byte == b"\n")))
    return parts


def _count(asked: AskedBytes, budget_tokens: int, overlap_percent: int) -> int:
    measure = asked.stored.measure
    tokens = math.ceil(measure.tokens * asked.size / max(1, measure.bytes))
    if tokens <= budget_tokens:
        return 1
    own = budget_tokens * (1 - _MARGIN) * (1 - overlap_percent / 100)
    return min(math.ceil(tokens / max(1.0, own)), max(1, asked.size))


async def _cut(asked: AskedBytes, kind: Kind, wished: int, own: int) -> int:
    reach = _reach(own)
    return await _best(asked, kind, wished - reach, wished, wished + reach)


async def _overlap(asked: AskedBytes, start: int, own: int, percent: int) -> int:
    """The number of bytes before `start` that are repeated: `percent` of a whole chunk, or a little less."""
    if start == 0 or percent == 0:
        return 0
    wished = start - own * percent // (100 - percent)
    if wished <= 0:
        return start
    place = await _best(asked, None, wished, wished, min(wished + _reach(own), start))
    return start - place


def _reach(own: int) -> int:
    return min(own * _REACH_PERCENT // 100, _MOST_REACH)


async def _best(asked: AskedBytes, kind: Kind | None, low: int, wished: int, high: int) -> int:
    low, high = max(1, low), min(high, asked.size)
    start, end = max(0, low - _AROUND), min(high + _AROUND, asked.size)
    window = await asked.read(start, end)
    find = partial(best_cut, window, low - start, wished - start, high - start, kind, asked.stored.tool_name)
    # A window of 70 KiB may take 0.1 s.
    return start + await run_sync(find)


def best_cut(window: bytes, low: int, wished: int, high: int, kind: Kind | None, tool_name: str = "") -> int:
    """The best place for a cut from `low` to `high`, near `wished`; never within a character or a CRLF. The
    rest of the window helps to recognise records. Without a `kind`, cuts between lines."""
    text = SourceText(window, tool_name)
    low, wished, high = (text.data_at(place) for place in (low, wished, high))
    boundary = cut if kind is None else OF_KIND[kind].boundary
    return text.stored_at(boundary(text.data, low, wished, high))
