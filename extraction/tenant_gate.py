"""A gate for long work: no tenant can hold all of its places."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import anyio


class TenantGate:
    """Admits `most` holders at a time, at most one of each tenant."""

    def __init__(self, most: int) -> None:
        self._all = anyio.Semaphore(most)
        self._slots: WeakValueDictionary[str, anyio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        slot = self._slots.setdefault(tenant, anyio.Semaphore(1))
        async with slot, self._all:
            yield
