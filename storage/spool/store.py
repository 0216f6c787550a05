"""Bodies: in Redis; while it is away, on the local disk, where they are read until they expire."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

from domain.errors import ResultExpired, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import Draft, ResultStore
from domain.results import Durability, StoredResult
from storage.spool.outage import Outage, away, refuse

_HELD = 1 << 20
"""A body up to this is held in memory until Redis has it. A larger one is refused if Redis goes away
meanwhile; sent again, it goes to the spool."""


class SpoolStore:
    """Owns both stores."""

    constant_durability = None

    def __init__(self, primary: ResultStore, local: ResultStore, outage: Outage) -> None:
        self._primary = primary
        self._local = local
        self._outage = outage
        outage.ends_after(primary.check)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._primary.warnings

    def draft(self) -> AbstractAsyncContextManager[Draft]:
        return SpoolDraft(self._primary, self._local, self._outage)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises StoreUnavailable where only Redis could know."""
        found = await self._local.find(tenant, handle)
        return found or await self._outage.first(lambda: self._primary.find(tenant, handle), refuse)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        store = self._local if await self._is_local(stored) else self._primary
        try:
            async for chunk in store.read(stored, start, end):
                yield chunk
        except StoreUnavailable as error:
            self._outage.begin(error)
            raise
        except ResultExpired:
            if self._outage.is_on:
                raise away() from None
            raise

    async def touch(self, stored: StoredResult) -> StoredResult:
        if await self._is_local(stored):
            return await self._local.touch(stored)
        return await self._outage.first(lambda: self._primary.touch(stored), refuse)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        deleted = await self._local.delete(tenant, handle)
        return deleted or await self._outage.first(lambda: self._primary.delete(tenant, handle), refuse)

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        """Raises StoreUnavailable while Redis is away, with nothing deleted."""
        deleted = await self._outage.first(lambda: self._primary.delete_session(key, epoch), refuse)
        return deleted + await self._local.delete_session(key, epoch)

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        """Those of the local disk alone while Redis is away."""
        local = await self._local.count_results(keys)

        async def nothing() -> list[int]:
            return [0] * len(keys)

        held = await self._outage.first(lambda: self._primary.count_results(keys), nothing)
        return [one + other for one, other in zip(held, local, strict=True)]

    async def sweep(self) -> int:
        swept = await self._outage.first(self._primary.sweep, _none)
        return swept + await self._local.sweep()

    async def stored_bytes(self) -> int:
        held = await self._outage.first(self._primary.stored_bytes, _none)
        return held + await self._local.stored_bytes()

    async def check(self) -> None:
        await self._outage.first(self._primary.check, self._local.check)

    async def close(self) -> None:
        await self._outage.close()
        await self._primary.close()
        await self._local.close()

    async def _is_local(self, stored: StoredResult) -> bool:
        return await self._local.find(stored.tenant, stored.handle) is not None


class SpoolDraft:
    """In Redis, unless it is away. A body up to _HELD moves to the local disk when it goes away."""

    def __init__(self, primary: ResultStore, local: ResultStore, outage: Outage) -> None:
        self._primary = primary
        self._local = local
        self._outage = outage
        self._held: list[bytes] = []
        self._size = 0
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        store = self._local if self._outage.is_on else self._primary
        self._is_local = store is self._local
        self._draft = await self._opened.enter_async_context(store.draft())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._opened.aclose()
        except StoreUnavailable as failure:
            # What Redis was sent of it expires there.
            self._outage.begin(failure)

    async def write(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if not self._is_local and self._size <= _HELD:
            self._held.append(chunk)
        try:
            await self._draft.write(chunk)
        except StoreUnavailable as error:
            await self._move(error)

    def read(self) -> AsyncIterator[bytes]:
        return self._draft.read()

    async def publish(self, stored: StoredResult) -> Durability:
        try:
            return await self._draft.publish(stored)
        except StoreUnavailable as error:
            await self._move(error)
        return await self._draft.publish(stored)

    async def _move(self, error: StoreUnavailable) -> None:
        """Raises `error` for a body that is not held here."""
        if self._is_local:
            raise error
        self._outage.begin(error)
        if self._size > _HELD:
            raise error
        self._is_local = True
        self._draft = await self._opened.enter_async_context(self._local.draft())
        for chunk in self._held:
            await self._draft.write(chunk)
        self._held.clear()


async def _none() -> int:
    return 0
