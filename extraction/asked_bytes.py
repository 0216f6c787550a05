"""The bytes of a stored result that a strategy may read."""

from bisect import bisect_right
from collections.abc import Iterable
from functools import partial
from itertools import accumulate

from content.source_text import SourceText
from content.threads import in_thread_if_long
from domain.errors import InvalidField
from domain.extraction import ByteRange
from domain.ports import BodyReader
from domain.results import StoredResult


class AskedBytes:
    """One stored result, limited to the ranges of the question. Offsets count within those ranges."""

    def __init__(
        self,
        store: BodyReader,
        stored: StoredResult,
        ranges: Iterable[ByteRange] = (),
        path: str | None = None,
    ) -> None:
        """`path` names the file that the tool returned, if it is known."""
        self._store = store
        self.path = path
        self.stored = stored
        wanted = tuple(ranges)
        self.spans = _merged(wanted or (ByteRange(0, stored.measure.bytes),), stored.measure.bytes)
        if wanted and not self.spans:
            raise InvalidField(f"The `ranges` lie outside the result ({stored.measure.bytes} bytes).")
        # The offset of each span in these bytes, then the end of the last span.
        self._bases = list(accumulate((span.end - span.start for span in self.spans), initial=0))
        self.size = self._bases[-1]

    async def text(self) -> SourceText:
        """All of these bytes, with their format."""
        data = await self.read(0, self.size)
        make = partial(SourceText, data, self.stored.tool_name, self.path)
        return await in_thread_if_long(len(data), make)

    async def read(self, start: int, end: int) -> bytes:
        pieces = [
            piece
            for span in self.located(start, end)
            async for piece in self._store.read(self.stored, span.start, span.end)
        ]
        return b"".join(pieces)

    def located(self, start: int, end: int) -> list[ByteRange]:
        """The spans of the stored result for bytes `start` to before `end` of these bytes."""
        start, end = max(0, start), min(end, self.size)
        ranges = []
        index = bisect_right(self._bases, start) - 1
        while start < end:
            shift = self.spans[index].start - self._bases[index]
            index += 1
            until = min(end, self._bases[index])
            ranges.append(ByteRange(start + shift, until + shift))
            start = until
        return ranges


def _merged(ranges: Iterable[ByteRange], size: int) -> tuple[ByteRange, ...]:
    """Sorts the ranges, limits them to `size` and merges those that overlap."""
    merged: list[ByteRange] = []
    for span in sorted(ranges, key=lambda span: span.start):
        start, end = min(span.start, size), min(span.end, size)
        if merged and start <= merged[-1].end:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].end, end))
        elif start < end:
            merged.append(ByteRange(start, end))
    return tuple(merged)
