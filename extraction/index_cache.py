"""The cache that keeps indexes of results for later questions."""

import threading
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from content.source_text import SourceText
from domain.extraction import ByteRange
from domain.ports import ResultStore
from domain.results import StoredResult
from extraction.asked_bytes import AskedBytes

if TYPE_CHECKING:  # Imported by `_built`.
    from extraction.passage_index import PassageIndex

MAX_INDEX_BYTES = 128 << 20

# More threads would not be faster. Each holds its text and the index that it builds.
_AT_A_TIME = 2
_LARGE = 8 << 20
SMALL_AT_A_TIME = 8

_Key = tuple[str, str, str, str | None, tuple[ByteRange, ...]]


class IndexCache:
    """Keeps the most recently used indexes, in at most `max_bytes` of memory together. `sweep` drops those
    whose result is gone."""

    def __init__(self, max_bytes: int = MAX_INDEX_BYTES) -> None:
        self.threads = anyio.CapacityLimiter(_AT_A_TIME)
        self._large = anyio.Semaphore(1)
        self._small = anyio.Semaphore(SMALL_AT_A_TIME)
        self._max_bytes = max_bytes
        self._indexes: dict[_Key, tuple[StoredResult, PassageIndex]] = {}
        self._building: dict[_Key, anyio.Lock] = {}

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        return sum(index.size for _, index in self._indexes.values())

    def gate(self, size: int) -> anyio.Semaphore:
        """The semaphore to hold while a text of `size` bytes is in memory. One admits a single text above
        8 MiB, the other eight smaller texts."""
        return self._large if size > _LARGE else self._small

    async def of(self, asked: AskedBytes, text: SourceText) -> "PassageIndex":
        """Returns the index of `text`, the text of `asked`. Results with the same bytes share an index;
        concurrent calls share one build. Cancelling the call that builds stops the build."""
        stored = asked.stored
        key = (stored.tenant, stored.sha256, stored.tool_name, asked.path, asked.spans)
        try:
            async with self._building.setdefault(key, anyio.Lock()):
                entry = self._indexes.pop(key, None)
                index = entry[1] if entry else await self._built(text)
                if index.size <= self._max_bytes:
                    self._indexes[key] = (stored, index)
                    self.trim()
                return index
        finally:
            self._building.pop(key, None)

    async def _built(self, text: SourceText) -> "PassageIndex":
        # Imported late: a twentieth of the service's start (bench/README.md, start).
        from extraction.passage_index import PassageIndex

        stop = threading.Event()
        build = partial(PassageIndex, text, stop)
        try:
            return await run_sync(build, abandon_on_cancel=True, limiter=self.threads)
        finally:
            stop.set()

    def trim(self) -> None:
        """Drops the least recently used indexes until the others fit. Call it after vectors were added to an
        index."""
        while self.size > self._max_bytes:
            del self._indexes[next(iter(self._indexes))]

    async def sweep(self, store: ResultStore) -> None:
        """Drops the indexes of results that were deleted or have expired."""
        for key, (stored, _) in list(self._indexes.items()):
            if await store.find(stored.tenant, stored.handle) is None:
                self._indexes.pop(key, None)
