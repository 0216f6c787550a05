"""Bodies in Redis, or on the local disk while Redis is away; they stay there until they expire."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from domain.errors import StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import Draft, PortAround, ResultStore
from domain.results import Durability, StoredResult
from storage.spool.outage import Outage, refuse

T = TypeVar("T")
_HELD = 1 << 20
"""The most bytes of a draft that are kept in memory until it is published."""


class SpoolStore(PortAround[ResultStore]):
    """Owns both stores: `inner`, which is in Redis, and `local`."""

    constant_durability = None

    def __init__(self, inner: ResultStore, local: ResultStore, outage: Outage) -> None:
        super().__init__(inner)
        self._local = local
        self._first = outage.first
        self._outage = outage
        outage.steps.append(inner.check)

    @asynccontextmanager
    async def draft(self, tenant: str) -> AsyncIterator[Draft]:
        async with self._inner.draft(tenant) as shared, self._local.draft(tenant) as local:
            yield SpoolDraft(shared, local, self._outage)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises StoreUnavailable if Redis is away and the result is not on the local disk."""
        found = await self._local.find(tenant, handle)
        return found or await self._first(self._inner.find, refuse, tenant, handle)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        async for chunk in (await self._place(stored)).read(stored, start, end):
            yield chunk

    async def touch(self, stored: StoredResult) -> StoredResult:
        return await (await self._place(stored)).touch(stored)

    async def _place(self, stored: StoredResult) -> ResultStore:
        """The store that has the body. Raises StoreUnavailable if that is Redis, and Redis is away."""
        if await self._local.find(stored.tenant, stored.handle) is not None:
            return self._local
        return self._inner if self._outage.why is None else await refuse()

    async def delete(self, tenant: str, handle: Handle) -> bool:
        """A named call that was sent before an outage and again during it has a body in both."""
        was_local = await self._local.delete(tenant, handle)
        rest = _answer(True) if was_local else refuse
        return await self._first(self._inner.delete, rest, tenant, handle) or was_local

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        """Raises StoreUnavailable while Redis is away, with nothing deleted."""
        deleted = await self._first(self._inner.delete_session, refuse, key, epoch)
        return deleted + await self._local.delete_session(key, epoch)

    async def delete_tenant(self, tenant: str) -> int:
        """Raises StoreUnavailable while Redis is away, with nothing deleted."""
        deleted = await self._first(self._inner.delete_tenant, refuse, tenant)
        return deleted + await self._local.delete_tenant(tenant)

    async def sweep(self) -> int:
        return await self._first(self._inner.sweep, _answer(0)) + await self._local.sweep()

    async def stored_bytes(self) -> int:
        return await self._first(self._inner.stored_bytes, _answer(0)) + await self._local.stored_bytes()

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        counts = await self._first(self._inner.count_results, _answer([0] * len(keys)), keys)
        return [sum(both) for both in zip(counts, await self._local.count_results(keys), strict=True)]

    async def usage(self) -> dict[str, int]:
        shared = await self._first(self._inner.usage, _answer(dict[str, int]()))
        return dict(Counter(shared) + Counter(await self._local.usage()))

    async def check(self) -> None:
        await self._first(self._inner.check, self._local.check)

    async def close(self) -> None:
        await self._inner.close()
        await self._local.close()


class SpoolDraft:
    """If Redis goes away, a body of up to _HELD bytes moves to the local disk. A larger one is refused; sent
    again, it goes to the local disk."""

    def __init__(self, shared: Draft, local: Draft, outage: Outage) -> None:
        self._draft = shared
        self._local = local
        self._outage = outage
        self._held: list[bytes] = []
        self._size = 0

    async def write(self, chunk: bytes) -> None:
        await self._first(lambda draft: draft.write(chunk))
        self._size += len(chunk)
        self._held.append(chunk)
        if self._size > _HELD:
            self._held.clear()

    def read(self) -> AsyncIterator[bytes]:
        return self._draft.read()

    async def publish(self, stored: StoredResult) -> Durability:
        return await self._first(lambda draft: draft.publish(stored))

    async def _first(self, act: Callable[[Draft], Awaitable[T]]) -> T:
        async def local() -> T:
            if self._size > _HELD:
                raise StoreUnavailable("Redis went away while the result was written. Send it again.")
            self._draft = self._local
            for chunk in self._held:
                await self._local.write(chunk)
            return await act(self._local)

        if self._draft is self._local:
            return await act(self._local)
        return await self._outage.first(lambda: act(self._draft), local)


def _answer(value: T) -> Callable[..., Awaitable[T]]:
    async def answer(*args: object) -> T:
        return value

    return answer
