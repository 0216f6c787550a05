"""Bodies in Redis, or on the local disk while Redis is away; they stay there until they expire."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from domain.errors import StoreUnavailable
from domain.handles import Handle, SessionKey, parse_handle
from domain.ports import Draft, PortAround, ResultStore
from domain.results import Durability, StoredResult
from storage.spool.outage import Line, Outage

T = TypeVar("T")
_HELD = 1 << 20
"""The most bytes of a draft that are kept in memory until it is published."""


class SpoolStore(PortAround[ResultStore]):
    """Owns both stores: `inner`, which is in Redis, and `local`. What only Redis can do raises
    StoreUnavailable while Redis is away, with nothing done."""

    constant_durability = None

    def __init__(self, inner: ResultStore, local: ResultStore, outage: Outage) -> None:
        super().__init__(inner)
        self._local = local
        self._outage = outage
        outage.checks += [inner.check, self._delete_all]
        outage.replays.append(self._enter)

    @asynccontextmanager
    async def draft(self, tenant: str) -> AsyncIterator[Draft]:
        async with self._inner.draft(tenant) as shared, self._local.draft(tenant) as local:
            yield SpoolDraft(shared, local, self._outage)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        found = await self._local.find(tenant, handle)
        return found or await self._outage.only(self._inner.find, tenant, handle)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        async for chunk in (await self._place(stored)).read(stored, start, end):
            yield chunk

    async def touch(self, stored: StoredResult) -> StoredResult:
        return await (await self._place(stored)).touch(stored)

    async def _place(self, stored: StoredResult) -> ResultStore:
        is_local = await self._local.find(stored.tenant, stored.handle) is not None
        return self._local if is_local else self._inner

    async def delete(self, tenant: str, handle: Handle) -> bool:
        was_deleted = await self._outage.first(self._inner.delete, self._delete, tenant, handle)
        return await self._local.delete(tenant, handle) or was_deleted

    async def _delete(self, tenant: str, handle: Handle) -> bool:
        found = await self._local.find(tenant, handle)
        if found is None:
            return await self._outage.only(self._inner.delete, tenant, handle)
        deletion = Line(deleted=found)
        await self._local.delete(tenant, handle)
        await self._outage.unless_away(self._delete_there, self._outage.journal.write, deletion)
        return True

    async def _delete_all(self) -> None:
        """Before Redis is read again, and before it has room for the other lines."""
        for line in list(self._outage.journal.lines):
            await self._delete_there(line)

    async def _delete_there(self, line: Line) -> None:
        if (gone := line.deleted) is not None:
            found = await self._inner.find(gone.tenant, gone.handle)
            # Another instance may have stored it again since.
            if found is not None and found.stored_at <= gone.stored_at:
                await self._inner.delete(gone.tenant, gone.handle)

    async def _enter(self, line: Line) -> None:
        """Redis may have the body too: it was sent before as well, or its reply was lost."""
        if (one := line.charge) and (name := one.entry.details.tool_output_handle):
            tenant, handle = one.key.tenant, parse_handle(name)
            kept, found = await self._local.find(tenant, handle), await self._inner.find(tenant, handle)
            if kept and found and kept.stored_at <= one.entry.timestamp:
                await self._inner.touch(found)
                await self._local.delete(tenant, handle)

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        deleted = await self._outage.only(self._inner.delete_session, key, epoch)
        return deleted + await self._local.delete_session(key, epoch)

    async def delete_tenant(self, tenant: str) -> int:
        deleted = await self._outage.only(self._inner.delete_tenant, tenant)
        return deleted + await self._local.delete_tenant(tenant)

    async def sweep(self) -> int:
        return sum(await self._both("sweep"))

    async def stored_bytes(self) -> int:
        return sum(await self._both("stored_bytes"))

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        return list(map(sum, zip(*await self._both("count_results", keys), strict=True)))

    async def usage(self) -> dict[str, int]:
        return dict(sum(map(Counter, await self._both("usage")), Counter[str]()))

    async def _both(self, name: str, *args: Any) -> list[Any]:
        """The answers of both stores; while Redis is away, that of the local one."""
        there = await self._outage.unless_away(getattr(self._inner, name), _nothing, *args)
        return [one for one in (there, await getattr(self._local, name)(*args)) if one is not None]

    async def check(self) -> None:
        await self._outage.first(self._inner.check, self._local.check)

    async def close(self) -> None:
        await self._inner.close()
        await self._local.close()
        await self._outage.journal.close()


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
        async def move(shared: Draft) -> T:
            if self._size > _HELD:
                raise StoreUnavailable("Redis went away while the result was written. Send it again.")
            self._draft = self._local
            for chunk in self._held:
                await self._local.write(chunk)
            return await act(self._local)

        if self._draft is self._local:
            return await act(self._local)
        if self._outage.why is not None:
            return await move(self._draft)
        return await self._outage.unless_away(act, move, self._draft)


async def _nothing(*args: object) -> None:
    return None
