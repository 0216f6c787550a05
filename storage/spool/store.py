"""Bodies in Redis, or on the local disk while Redis is away; they stay there until they expire."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

from domain.errors import ResultExpired, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import Draft, Load, ResultStore
from domain.results import Durability, StoredResult
from storage.spool import Outage, away, refuse

_HELD = 1 << 20
"""A body up to this size is held in memory until Redis has it. If Redis goes away while a larger one is
written, the write is refused; a retry goes to the spool."""


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

    @property
    def load(self) -> Load:
        return self._primary.load

    def draft(self, tenant: str) -> AbstractAsyncContextManager[Draft]:
        return SpoolDraft(self._primary, self._local, self._outage, tenant)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises StoreUnavailable if Redis is away and the result is not on the local disk."""
        found = await self._local.find(tenant, handle)
        return found or await self._outage.first(self._primary.find, refuse, tenant, handle)

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
        return await self._outage.first(self._primary.touch, refuse, stored)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        deleted = await self._local.delete(tenant, handle)
        return deleted or await self._outage.first(self._primary.delete, refuse, tenant, handle)

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        """Raises StoreUnavailable while Redis is away, with nothing deleted."""
        deleted = await self._outage.first(self._primary.delete_session, refuse, key, epoch)
        return deleted + await self._local.delete_session(key, epoch)

    async def delete_tenant(self, tenant: str) -> int:
        """Raises StoreUnavailable while Redis is away, with nothing deleted."""
        deleted = await self._outage.first(self._primary.delete_tenant, refuse, tenant)
        return deleted + await self._local.delete_tenant(tenant)

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        """Counts only those on the local disk while Redis is away."""
        local = await self._local.count_results(keys)

        async def nothing(keys: Sequence[SessionKey]) -> list[int]:
            return [0] * len(keys)

        held = await self._outage.first(self._primary.count_results, nothing, keys)
        return [one + other for one, other in zip(held, local, strict=True)]

    async def sweep(self) -> int:
        swept = await self._outage.first(self._primary.sweep, _none)
        return swept + await self._local.sweep()

    async def stored_bytes(self) -> int:
        held = await self._outage.first(self._primary.stored_bytes, _none)
        return held + await self._local.stored_bytes()

    async def usage(self) -> dict[str, int]:
        async def nothing() -> dict[str, int]:
            return {}

        held = Counter(await self._outage.first(self._primary.usage, nothing))
        held.update(await self._local.usage())
        return dict(held)

    async def check(self) -> None:
        await self._outage.first(self._primary.check, self._local.check)

    async def close(self) -> None:
        await self._outage.close()
        await self._primary.close()
        await self._local.close()

    async def _is_local(self, stored: StoredResult) -> bool:
        return await self._local.find(stored.tenant, stored.handle) is not None


class SpoolDraft:
    """Written to Redis, or to the local disk if Redis is away. If Redis goes away during the draft, a body of
    up to _HELD bytes moves to the local disk."""

    def __init__(self, primary: ResultStore, local: ResultStore, outage: Outage, tenant: str) -> None:
        self._primary = primary
        self._local = local
        self._outage = outage
        self._tenant = tenant
        self._held: list[bytes] = []
        self._size = 0
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        store = self._local if self._outage.is_on else self._primary
        self._is_local = store is self._local
        self._draft = await self._opened.enter_async_context(store.draft(self._tenant))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._opened.aclose()
        except StoreUnavailable as failure:
            # The segments in Redis expire.
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
        """Moves the draft to the local disk. Raises `error` if the body is not held in memory."""
        if self._is_local:
            raise error
        self._outage.begin(error)
        if self._size > _HELD:
            raise error
        self._is_local = True
        self._draft = await self._opened.enter_async_context(self._local.draft(self._tenant))
        for chunk in self._held:
            await self._draft.write(chunk)
        self._held.clear()


async def _none() -> int:
    return 0
