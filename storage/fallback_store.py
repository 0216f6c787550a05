"""Redis first; while it is away, a local spool. What was spooled stays there until its retention ends, and is
looked for there when Redis does not have it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from domain.errors import ResultExpired, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.ports import Draft, ResultStore
from domain.results import StoredResult
from storage.fallback_draft import Doubled, FallbackDraft, Opening
from storage.outage import Outage, away


class FallbackStore:
    """Owns both. A time-out leaves it open whether Redis has kept a body: then both may have it, and each
    forgets its own in time."""

    constant_durability = None

    def __init__(self, primary: ResultStore, spool: ResultStore, outage: Outage) -> None:
        self._primary = primary
        self._spool = spool
        self._outage = outage
        self._doubled = Doubled()
        self._leaving: set[asyncio.Task[bool | None]] = set()
        self._owed: set[tuple[str, Handle]] = set()
        outage.ends_after(primary.check)
        outage.ends_with(self._pay)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._primary.warnings

    def draft(self) -> AbstractAsyncContextManager[Draft]:
        primary = None if self._outage.is_on else self._primary.draft()
        return FallbackDraft(primary, self._spool.draft(), self._outage, self._doubled, self._abandon)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises StoreUnavailable where only Redis could know."""
        found = await self._asked_primary(tenant, handle)
        if found is None:
            found = await self._spool.find(tenant, handle)
        if found is None and self._outage.is_on:
            raise away()
        return found

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        position = max(0, start)
        if not self._outage.is_on:
            try:
                async for chunk in self._primary.read(stored, position, end):
                    yield chunk
                    position += len(chunk)
                return
            except StoreUnavailable as error:
                self._outage.begin(error)
            except ResultExpired:
                pass
        try:
            async for chunk in self._spool.read(stored, position, end):
                yield chunk
        except ResultExpired:
            if self._outage.is_on:
                raise away() from None
            raise

    async def touch(self, stored: StoredResult) -> StoredResult:
        async def nothing() -> StoredResult:
            return stored

        touched = await self._outage.first(lambda: self._primary.touch(stored), nothing)
        return await self._spool.touch(stored) if touched == stored else touched

    async def delete(self, tenant: str, handle: Handle) -> bool:
        """While Redis is away, a copy that it may have is deleted when it is back."""

        async def later() -> bool:
            self._owed.add((tenant, handle))
            return False

        deleted = await self._outage.first(lambda: self._primary.delete(tenant, handle), later)
        return await self._spool.delete(tenant, handle) or deleted

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        """Raises StoreUnavailable while Redis is away, with nothing deleted."""

        async def refuse() -> int:
            raise away()

        deleted = await self._outage.first(lambda: self._primary.delete_session(key, epoch), refuse)
        return deleted + await self._spool.delete_session(key, epoch)

    async def holds(self, keys: Sequence[SessionKey]) -> list[int]:
        """Of the spool alone while Redis is away."""

        async def nothing() -> list[int]:
            return [0] * len(keys)

        held = await self._outage.first(lambda: self._primary.holds(keys), nothing)
        return [one + other for one, other in zip(held, await self._spool.holds(keys), strict=True)]

    async def sweep(self) -> int:
        """The spool alone while Redis is away."""
        return await self._outage.first(self._primary.sweep, _none) + await self._spool.sweep()

    async def stored_bytes(self) -> int:
        """Of the spool alone while Redis is away."""
        held = await self._outage.first(self._primary.stored_bytes, _none)
        return held + await self._spool.stored_bytes() - self._doubled.bytes

    async def check(self) -> None:
        """Of whichever is in use."""
        await self._outage.first(self._primary.check, self._spool.check)

    async def close(self) -> None:
        await self._outage.close()
        if self._leaving:
            await asyncio.wait(self._leaving)
        await self._primary.close()
        await self._spool.close()

    async def _asked_primary(self, tenant: str, handle: Handle) -> StoredResult | None:
        async def nothing() -> None:
            return None

        return await self._outage.first(lambda: self._primary.find(tenant, handle), nothing)

    def _abandon(self, draft: Opening) -> None:
        """It leaves by itself: that too may wait for a Redis that is silent."""

        async def leave() -> bool | None:
            return await draft.__aexit__(None, None, None)

        task = asyncio.create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _pay(self) -> bool:
        """Deletes in Redis what was deleted while it was away."""
        if not self._owed:
            return False
        one = next(iter(self._owed))
        await self._primary.delete(*one)
        self._owed.discard(one)
        return True


async def _none() -> int:
    return 0
