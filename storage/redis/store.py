"""Bodies in Redis, compressed in segments. A body of one segment is stored in the hash of its result."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Any

import msgspec

from domain.errors import InvalidField, ResultExpired
from domain.handles import Handle, SessionKey
from domain.ports import Clock, Draft, Load
from domain.quotas import QuotaOf, unbounded
from domain.results import Durability, StoredResult
from storage.base.damage import DamagedInfo, decode_info, encode_info
from storage.base.quota import SharedQuota
from storage.redis.connection import KEPT_LONGER_MS, RedisConnection
from storage.redis.draft import SEGMENT, RedisDraft, unpack
from storage.redis.keys import Shard, body_key, file_name, shard_of, shards_of
from storage.redis.shared_clock import RedisClock

DRAFT_SECONDS = 300.0
"""A draft expires after this time without a write."""

GRACE_MS = 60_000
"""How long a deleted body of several segments stays readable for readers that have started."""

_BATCH = 100
_FRESH_SECONDS = 1.0
_MANY, _REUSED = 1000, 20
"""A count of more than _MANY shards is reused for _REUSED times as long as it took."""

_decode = msgspec.json.Decoder(StoredResult).decode


class RedisStore:
    """Results expire by the clock of the server that has them, `retention_seconds` after the last use.

    `max_bytes` (0: no bound) and the quotas are for all replicas together. A replica counts its own drafts,
    and knows the bytes of the others as of a second ago, or longer ago if there are thousands of shards."""

    def __init__(
        self,
        connection: RedisConnection,
        *,
        clock: Clock,
        retention_seconds: float,
        max_bytes: int,
        quota_of: QuotaOf = unbounded,
        draft_seconds: float = DRAFT_SECONDS,
    ) -> None:
        self.connection = connection
        self.shared_clock = RedisClock(connection)
        self.clock = clock
        self.retention_ms = int(retention_seconds * 1000)
        self.draft_ms = int(draft_seconds * 1000)
        self.jobs: set[asyncio.Task[Any]] = set()
        self.quota = SharedQuota(max_bytes, quota_of)
        self._all_counted_at = self._count_began = self._reused_until = float("-inf")
        self._pause = 0.0
        self._counting = asyncio.Lock()
        self._counted_at: dict[str, float] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.connection.warnings

    @property
    def load(self) -> Load:
        return self.connection.load

    @property
    def body_ms(self) -> int:
        """A body is deleted with its result; if that fails, it expires after this time (ms)."""
        return 2 * self.retention_ms + KEPT_LONGER_MS

    @property
    def _keep_ms(self) -> int:
        return self.retention_ms + KEPT_LONGER_MS

    def draft(self, tenant: str) -> AbstractAsyncContextManager[Draft]:
        return RedisDraft(self, tenant)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        try:
            key = shard_of(SessionKey(tenant, handle.session_id)).key("result", file_name(handle))
        except InvalidField:
            return None
        found = await self.connection.script("find", [key], [self.retention_ms])
        if not found:
            return None
        info, used = found
        try:
            stored, used_at = decode_info(info, _decode), _number(used)
            if (stored.tenant, stored.handle) != (tenant, handle):
                raise DamagedInfo("it belongs to another result")
        except DamagedInfo as damage:
            self.connection.notices.warn(key, f"is damaged ({damage}): its result is not found. Delete it.")
            return None
        return replace(stored, expires_at=used_at + self.retention_ms)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        key = shard_of(stored.key).key("result", file_name(stored.handle))
        fields = await self.connection.command("HMGET", key, "size", "body", "segment")
        total, body, only = fields or (None, None, None)
        if total is None:
            raise ResultExpired
        try:
            size, position = _number(total), max(0, start)
        except DamagedInfo as damage:
            raise self._unreadable(key, damage) from None
        end = size if end is None else min(end, size)
        while position < end:
            number, offset = divmod(position, SEGMENT)
            segment = only
            if body:
                key = body_key(body.decode())
                segment = await self.connection.command("HGET", key, number)
            if segment is None:
                raise ResultExpired
            try:
                whole = await unpack(segment, min(SEGMENT, size - number * SEGMENT))
            except DamagedInfo as damage:
                raise self._unreadable(key, damage) from None
            yield whole[offset : offset + end - position]
            position = (number + 1) * SEGMENT

    def _unreadable(self, key: str, damage: DamagedInfo) -> ResultExpired:
        self.connection.notices.warn(key, f"is damaged ({damage}): its result is not read. Delete it.")
        return ResultExpired()

    async def touch(self, stored: StoredResult) -> StoredResult:
        shard = shard_of(stored.key)
        keys = (*_result_keys(shard, stored.handle), shard.key("due"))
        args = (self.retention_ms, self._keep_ms, stored.handle.file_id)
        reply = await self.connection.script("touch", keys, args)
        if not reply:
            return stored
        used, body = reply
        if body:
            await self._renew(keys[0], body)
        return replace(stored, expires_at=int(used) + self.retention_ms)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        key = SessionKey(tenant, handle.session_id)
        return await self._remove(key, "one", *handle) > 0

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        return await self._remove(key, "session", key.session_id, epoch)

    async def delete_tenant(self, tenant: str) -> int:
        return sum([await self._remove_due(shard, "") for shard in shards_of(tenant)])

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        since = f"({self.clock() - self.retention_ms}"
        commands: dict[SessionKey, tuple[str, ...]] = {}
        for key in keys:
            with suppress(InvalidField):
                commands[key] = ("ZCOUNT", shard_of(key).key("results", key.session_id), since, "+inf")
        counts = dict(zip(commands, await self.connection.commands(list(commands.values())), strict=True))
        return [int(counts.get(key) or 0) for key in keys]

    async def sweep(self) -> int:
        """Deletes expired results, shard by shard."""
        swept = 0
        for shard in await self.connection.shards(is_new=True):
            while removed := await self._remove_due(shard, self.clock()):
                swept += removed
                if removed < _BATCH:
                    break
        return swept

    async def _remove_due(self, shard: Shard, now: int | str) -> int:
        """Deletes a batch of results that have expired; with '' for `now`, of any. Returns how many."""
        removed = await self._removed(shard, "due", now, _BATCH)
        await self._let_go("UNLINK", [body for body in removed[1::2] if body])
        return len(removed) // 2

    async def stored_bytes(self) -> int:
        if time.monotonic() >= self._reused_until:
            await self._count_all()
        return self.quota.used

    async def _count_all(self) -> None:
        """Counts the bytes of all tenants. A count of many shards is not repeated for as long as it took."""
        called_at = time.monotonic()
        async with self._counting:
            if self._count_began >= called_at - self._pause:
                return
            began, shards = time.monotonic(), await self.connection.shards()
            await self._count(shards, self.quota.usage())
            self._all_counted_at = time.monotonic()
            took = self._all_counted_at - began if len(shards) > _MANY else 0.0
            self._count_began, self._pause, self._reused_until = began, 2 * took, began + _REUSED * took

    async def usage(self) -> dict[str, int]:
        await self.stored_bytes()
        return self.quota.usage()

    async def _count(self, shards: Sequence[Shard], tenants: Iterable[str]) -> None:
        """Counts the bytes of these tenants, and of the tenants of these shards."""
        keys = [shard.key("held") for shard in shards]
        counters = await self.connection.counts([("GET", key) for key in keys])
        counts = self.quota.drafted()
        for shard, key, one in zip(shards, keys, counters, strict=True):
            counts[shard.tenant] += self.connection.counter(key, one)
        for tenant in {*tenants, *(shard.tenant for shard in shards)}:
            self.quota.set(tenant, counts[tenant])

    async def check(self) -> None:
        await self.connection.check()
        await self.stored_bytes()
        self.quota.check()

    async def close(self) -> None:
        await asyncio.gather(*self.jobs, return_exceptions=True)
        await self.connection.close()

    async def take(self, tenant: str, size: int) -> None:
        """Counts bytes of a draft. Raises StoreFull, TenantFull; nothing is counted then."""
        quota, old = self.quota, time.monotonic() - _FRESH_SECONDS
        if quota.max_bytes and self._all_counted_at < old:
            await self.stored_bytes()
        if quota.max_bytes and quota.used + size > quota.max_bytes:
            await self._count_all()
        if most := quota.most(tenant):
            counted_at = max(self._all_counted_at, self._counted_at.get(tenant, float("-inf")))
            if counted_at < old or quota.used_by(tenant) + size > most:
                await self._count(shards_of(tenant), [tenant])
                self._counted_at[tenant] = time.monotonic()
        quota.take(tenant, size)

    async def put_info(
        self, stored: StoredResult, size: int, body: str, segment: bytes, gone: str = "?"
    ) -> tuple[str, int, Durability]:
        """Publishes a result with the key `body`, or, if that is empty, with its only segment. `gone` is a
        body that has expired. Returns the body in use, the bytes stored in addition, and the durability."""
        shard, handle = shard_of(stored.key), stored.handle
        keys = (*_result_keys(shard, handle), shard.key("due"), shard.key("held"))
        change = {
            "sha": stored.sha256,
            "epoch": stored.epoch,
            "size": size,
            "body": body,
            "handle": file_name(handle),
            "file": handle.file_id,
            "retention": self.retention_ms,
            "keep_ms": self._keep_ms,
            "gone": gone,
        }
        args = (msgspec.msgpack.encode(change), encode_info(stored), segment)
        reply, durability = await self.connection.durable("publish", keys, args)
        self.connection.note_written(shard)
        more, in_use, unused = reply
        if unused:
            await self._let_go("PEXPIRE", [unused], GRACE_MS)
        is_other = bool(in_use) and in_use.decode() != body
        if is_other and not await self._renew(keys[0], in_use):
            # The earlier body of the same content has expired: publish with the new one.
            return await self.put_info(stored, size, body, segment, in_use.decode())
        return in_use.decode(), more, durability

    async def _remove(self, key: SessionKey, *what: str | int) -> int:
        """Returns how many of the removed results had not expired."""
        try:
            shard = shard_of(key)
        except InvalidField:
            return 0
        removed = await self._removed(shard, *what)
        await self._let_go("PEXPIRE", [body for body in removed[1::2] if body], GRACE_MS)
        return removed[::2].count(b"1")

    async def _removed(self, shard: Shard, *what: str | int) -> list[bytes]:
        keys = (shard.key("due"), shard.key("held"), shard.key("once", secrets.token_hex(8)))
        args = (shard.key(""), self.retention_ms, *what)
        return list(await self.connection.script("remove", keys, args))

    async def _renew(self, result: str, body: bytes) -> bool:
        """Restarts the expiry of the body of the result with the key `result`. Returns False if the body has
        expired."""
        has_body = bool(await self.connection.command("PEXPIRE", body_key(body.decode()), self.body_ms))
        if await self.connection.command("HGET", result, "body") != body:
            # The result was deleted at the same time: its body expires like that of any deleted result.
            await self._let_go("PEXPIRE", [body], GRACE_MS)
        return has_body

    async def _let_go(self, command: str, bodies: Sequence[bytes], *args: int) -> None:
        await self.connection.commands([(command, body_key(body.decode()), *args) for body in bodies])


def _result_keys(shard: Shard, handle: Handle) -> tuple[str, str]:
    return shard.key("result", file_name(handle)), shard.key("results", handle.session_id)


def _number(field: bytes | None) -> int:
    """Raises DamagedInfo."""
    if field is None or not field.isdigit():
        raise DamagedInfo("a number is missing or is none")
    return int(field)
