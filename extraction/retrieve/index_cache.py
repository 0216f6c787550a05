"""Keeps the indexes of results in memory, so that a second question about a result needs no new one."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio.to_thread import run_sync

from domain.extraction import Span
from domain.ports import ResultStore
from domain.results import StoredResult
from extraction.retrieve.index import PassageIndex
from extraction.source import Source

MAX_BYTES = 128 << 20

# More at a time would not be faster. Each holds its text meanwhile, and what is made of it.
_AT_A_TIME = 2
_LARGE = 8 << 20
SMALL_AT_A_TIME = 8

_Key = tuple[str, str, str, tuple[Span, ...]]


class IndexCache:
    """Those used last, of at most `max_bytes` together. None outlives its result for long: see `sweep`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.threads = anyio.CapacityLimiter(_AT_A_TIME)
        self._large = anyio.Semaphore(1)
        self._small = anyio.Semaphore(SMALL_AT_A_TIME)
        self._max_bytes = max_bytes
        self._kept: dict[_Key, tuple[StoredResult, PassageIndex]] = {}
        self._building: dict[_Key, anyio.Lock] = {}

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return sum(index.size for _, index in self._kept.values())

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """For a text of `size` bytes to be held: large ones one after the other, of small ones a few."""
        async with self._large if size > _LARGE else self._small:
            yield

    async def of(self, source: Source, data: bytes) -> PassageIndex:
        """`data` are the source's bytes. Whoever comes while it is built waits for it; whoever goes away
        meanwhile ends the building."""
        stored = source.stored
        key = (stored.tenant, str(stored.handle), stored.sha256, source.spans)
        try:
            async with self._building.setdefault(key, anyio.Lock()):
                kept = self._kept.pop(key, None)
                index = kept[1] if kept else await self._built(data, stored.tool_name)
                self._keep(key, stored, index)
                return index
        finally:
            self._building.pop(key, None)

    async def _built(self, data: bytes, tool_name: str) -> PassageIndex:
        stop = threading.Event()
        build = partial(PassageIndex, data, tool_name, stop)
        try:
            return await run_sync(build, abandon_on_cancel=True, limiter=self.threads)
        finally:
            stop.set()

    def _keep(self, key: _Key, stored: StoredResult, index: PassageIndex) -> None:
        if index.size > self._max_bytes:
            return
        self._kept[key] = (stored, index)
        while self.size > self._max_bytes:
            del self._kept[next(iter(self._kept))]

    async def sweep(self, store: ResultStore) -> None:
        """Drops those whose result was deleted or has expired, whoever did it."""
        for key, (stored, _) in list(self._kept.items()):
            if await store.find(stored.tenant, stored.handle) is None:
                self._kept.pop(key, None)
