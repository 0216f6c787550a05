"""What a strategy may see: the asked-about bytes of one stored result, and nothing else."""

from collections.abc import Iterable

from domain.errors import InvalidField
from domain.extraction import Span
from domain.ports import ResultStore
from domain.results import StoredResult


class Source:
    """One stored result, narrowed to the ranges asked about. Offsets count within those ranges."""

    def __init__(self, store: ResultStore, stored: StoredResult, ranges: Iterable[Span] = ()) -> None:
        self._store = store
        self.stored = stored
        wanted = tuple(ranges)
        self.spans = _merged(wanted or (Span(0, stored.measure.bytes),), stored.measure.bytes)
        if wanted and not self.spans:
            raise InvalidField(f"The `ranges` lie outside the result ({stored.measure.bytes} bytes).")
        self.size = sum(span.end - span.start for span in self.spans)

    async def read(self, start: int, end: int) -> bytes:
        pieces = [
            piece
            for span in self.located(start, end)
            async for piece in self._store.read(self.stored, span.start, span.end)
        ]
        return b"".join(pieces)

    def located(self, start: int, end: int) -> list[Span]:
        """Where in the stored result the bytes `start` to before `end` of this source lie."""
        found = []
        base = 0
        for span in self.spans:
            length = span.end - span.start
            low, high = max(start - base, 0), min(end - base, length)
            if low < high:
                found.append(Span(span.start + low, span.start + high))
            base += length
        return found


def _merged(ranges: Iterable[Span], size: int) -> tuple[Span, ...]:
    """In order, within the result, none overlapping another."""
    merged: list[Span] = []
    for span in sorted(ranges, key=lambda span: span.start):
        start, end = min(span.start, size), min(span.end, size)
        if merged and start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, end))
        elif start < end:
            merged.append(Span(start, end))
    return tuple(merged)
