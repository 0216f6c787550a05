"""The number of connections to Redis that may be in use at the same time, and who waits for one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from domain.errors import StoreBusy
from domain.ports import Load


class Slots:
    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._most = most
        self._in_use = self._waiting = 0

    @property
    def load(self) -> Load:
        return Load(self._in_use, self._most, self._waiting)

    @asynccontextmanager
    async def one(self, seconds: float) -> AsyncIterator[None]:
        """Holds one of them. Raises StoreBusy if none is free within `seconds`."""
        if self._free.locked():
            self._waiting += 1
            try:
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
            except TimeoutError:
                raise StoreBusy("Every connection to Redis is busy. Try again.") from None
            finally:
                self._waiting -= 1
        else:
            await self._free.acquire()
        self._in_use += 1
        try:
            yield
        finally:
            self._in_use -= 1
            self._free.release()
