"""Bodies in Redis or Valkey, for any number of replicas: compressed, in segments, expiring by themselves."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace

from domain.errors import InvalidField, ResultExpired
from domain.handles import Handle, SessionKey
from domain.ports import Clock, Draft
from domain.results import StoredResult
from storage.redis_client import RedisClient
from storage.redis_count import RedisCount
from storage.redis_draft import RedisDraft, Tasks
from storage.redis_keys import is_safe
from storage.redis_segments import unpack
from storage.redis_shelf import Shelf

DRAFT_SECONDS = 300.0
"""A draft that is not written to for so long expires."""


class RedisStore:
    """Expiry is judged by `clock`; Redis lets go of it by its own, `retention_seconds` after the last use.
    `max_bytes` bounds raw bytes, all replicas together; 0 means no bound."""

    constant_durability = None

    def __init__(
        self,
        client: RedisClient,
        *,
        clock: Clock,
        retention_seconds: float,
        max_bytes: int,
        draft_seconds: float = DRAFT_SECONDS,
    ) -> None:
        self._client = client
        self._clock = clock
        self._retention_ms = int(retention_seconds * 1000)
        self._draft_ms = int(draft_seconds * 1000)
        self._count = RedisCount(client, retention_ms=self._retention_ms, max_bytes=max_bytes)
        self._shelf = Shelf(client, self._count, self._retention_ms)
        self._tasks = Tasks()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._client.warnings

    def draft(self) -> AbstractAsyncContextManager[Draft]:
        return RedisDraft(self._shelf, self._clock, self._tasks, self._draft_ms)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        found = None
        with suppress(InvalidField):
            found = await self._shelf.find(tenant, handle)
        if found is None or found[1] <= self._expired_by():
            return None
        stored, used_at = found
        return replace(stored, expires_at=used_at + self._retention_ms)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        position = max(0, start)
        body = await self._shelf.open_body(stored.tenant, stored.handle, position)
        if body is None:
            raise _gone()
        end = body.size if end is None else min(end, body.size)
        segment = body.first
        while position < end:
            number, offset = divmod(position, body.segment_bytes)
            segment = segment or await self._shelf.segment(body, number)
            if segment is None:
                raise _gone()
            size = min(body.segment_bytes, body.size - number * body.segment_bytes)
            chunk = (await unpack(segment, size))[offset : offset + end - position]
            segment = None
            yield chunk
            position += len(chunk)

    async def touch(self, stored: StoredResult) -> StoredResult:
        used_at = await self._shelf.touch(stored.tenant, stored.handle, self._clock())
        return stored if used_at is None else replace(stored, expires_at=used_at + self._retention_ms)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        used_at = None
        with suppress(InvalidField):
            used_at = await self._shelf.delete(tenant, handle)
        return used_at is not None and used_at > self._expired_by()

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        expired_by = self._expired_by()
        with suppress(InvalidField):
            return sum(used_at > expired_by for used_at in await self._shelf.delete_session(key, epoch))
        return 0

    async def holds(self, keys: Sequence[SessionKey]) -> list[int]:
        safe = [key for key in keys if is_safe(key)]
        counts = dict(zip(safe, await self._shelf.used_after(safe, self._expired_by()), strict=True))
        return [counts.get(key, 0) for key in keys]

    async def sweep(self) -> int:
        return await self._shelf.expire(self._clock())

    async def stored_bytes(self) -> int:
        return await self._count.refresh()

    async def check(self) -> None:
        await self._client.check()
        await self._count.check()

    async def close(self) -> None:
        await self._tasks.close()
        await self._client.close()

    def _expired_by(self) -> int:
        return self._clock() - self._retention_ms


def _gone() -> ResultExpired:
    return ResultExpired("The stored result was deleted or has expired. Call the tool again.")
