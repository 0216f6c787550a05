"""Sessions and accounting in Redis. storage/base/session_rules.py decides how a session changes."""

import heapq
import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Unpack

from domain.accounting import AccountingEntry, EntryType
from domain.budget import Session
from domain.errors import StoreFull
from domain.handles import Handle, SessionKey
from domain.ports import Charge, Load, LostWrite, SessionPage
from domain.quotas import LedgerUsage, Purged
from storage.base import cursors, session_rules
from storage.base.newest_sessions import newest_page
from storage.base.session_rules import LedgerOptions
from storage.base.stepped_ledger import SteppedLedger
from storage.redis.connection import RedisConnection
from storage.redis.history import RedisHistory
from storage.redis.keys import Shard, shard_of, shards_of
from storage.redis.records import check_count, encoded, pack
from storage.redis.sessions import RedisSessions
from storage.redis.shared_clock import RedisClock

_BATCH = 200
_ROLLS = 10
"""The most batches of entries that one request deletes."""
_LISTED_AT_ONCE = 1000


class RedisLedger(RedisHistory, SteppedLedger):
    _sessions: RedisSessions

    def __init__(self, connection: RedisConnection, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._redis = connection
        self._sessions = RedisSessions(connection, self._session_ms, self._entry_ms)
        self.shared_clock = RedisClock(connection)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._redis.warnings

    @property
    def load(self) -> Load:
        return self._redis.load

    def _packed_call(self, charge: Charge) -> bytes:
        return pack((charge.entry, charge.fingerprint, charge.text))

    def _packed_text(self, text: str) -> bytes:
        return encoded(text)

    def _check_count(self, number: int) -> None:
        check_count(number)

    async def append(self, entry: AccountingEntry) -> None:
        await super().append(entry)
        if entry.type is EntryType.LOST:
            key = SessionKey(entry.tenant, entry.session_id)
            self._sessions.acknowledged.told(LostWrite(key, entry.timestamp))

    async def release(self, key: SessionKey) -> Session | None:
        session = (await self._sessions.read(key)).session
        if session is not None and session.ended_at is None:
            await self._leave(shard_of(key), "live", 0, 1, name=key.session_id)
        return session

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        if newest_first:
            # The index of live sessions is by name. An index by last use would have to be written with each
            # charge.
            live, more = list[Session](), None
            while True:
                page = await self.sessions(tenant, _LISTED_AT_ONCE, more)
                live += page.sessions
                if (more := page.next_cursor) is None:
                    return newest_page(live, limit, cursor)
        return await self._sessions_by_id(tenant, limit, cursor)

    async def _sessions_by_id(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        after = "" if cursor is None else cursors.decode("sessions", cursor)
        shards, live = shards_of(tenant), list[Session]()
        while len(live) <= limit:
            span = (f"({after}" if after else "-", "+", "LIMIT", 0, limit + 1)
            lists = await self._redis.commands(
                [("ZRANGEBYLEX", shard.key("live"), *span) for shard in shards]
            )
            names = list(itertools.islice(heapq.merge(*filter(None, lists)), limit + 1))
            keys = [SessionKey(tenant, name.decode()) for name in names]
            replies = await self._redis.commands([self._sessions.reading(key) for key in keys])
            for key, reply in zip(keys, replies, strict=True):
                # The session may have expired; the next sweep deletes its name.
                if (session := self._sessions.state_of(key, reply).session) is not None:
                    live.append(session)
            if len(names) <= limit:
                break
            after = keys[-1].session_id
        page, more = live[:limit], len(live) > limit
        return SessionPage(page, cursors.encode("sessions", page[-1].key.session_id) if more else None)

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        shard = shard_of(SessionKey(tenant, handle.session_id))
        at = await self._redis.command("ZSCORE", shard.key("handles"), str(handle))
        return None if at is None else int(float(at))

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        where = shard_of(key).key("findings", key.session_id)
        text = await self._redis.command("HGET", where, encoded(f"{epoch}:{name}"))
        return None if text is None else str(text, "utf-8")

    async def sweep(self) -> list[SessionKey]:
        ended, closed = list[SessionKey](), dict[str, set[int]]()
        for shard in await self._redis.shards(is_new=True):
            after = begin = b"-"
            while after:
                _, _, after, begin, days = await self._sweep(shard, after, begin)
            closed.setdefault(shard.tenant, set()).update(map(int, days))
            names = await self._redis.command("ZRANGE", shard.key("ended"), 0, -1)
            ended += [SessionKey(shard.tenant, name.decode()) for name in names or ()]
        # If a full Redis has no room to pack sums, they stay as they are.
        with suppress(StoreFull):
            for tenant, numbers in closed.items():
                if numbers:
                    await self._pack_days(tenant, sorted(numbers))
        await self._forget_days(closed)
        return ended

    async def lost_writes(self) -> list[LostWrite]:
        acknowledged = self._sessions.acknowledged
        await self._sessions.compare(acknowledged.shards())
        return acknowledged.lost()

    async def delete_tenant(self, tenant: str) -> Purged:
        purged = Purged(0, 0, True)
        for shard in shards_of(tenant):
            sessions, entries, *_ = await self._sweep(shard, is_all=True)
            is_done = purged.is_done and not sessions + entries
            purged = Purged(purged.sessions + sessions, purged.entries + entries, is_done)
        self._usages.pop(tenant, None)
        self._sessions.forget(tenant)
        return purged

    async def _sweep(
        self, shard: Shard, after: bytes = b"-", begin: bytes = b"-", *, is_all: bool = False
    ) -> tuple[int, int, bytes, bytes, list[bytes]]:
        """Deletes a batch. Returns how many sessions and entries, where the next batch begins in both, and
        the days whose sums are to be packed."""
        names = ("state", "entries", "handles", "days", "live", "ended", "sizes")
        kept = (0, 0) if is_all else (self._session_ms, self._entry_ms)
        args = (shard.key(""), *kept, _BATCH, after, begin, "" if is_all else self._clock())
        sessions, entries, after, begin, days = await self._redis.script(
            "sweep", [shard.key(name) for name in names], args
        )
        return sessions, entries, after, begin, days

    async def usage(self) -> dict[str, LedgerUsage]:
        shards = await self._redis.shards()
        usages: dict[str, LedgerUsage] = {}
        for shard, used in zip(shards, await self._used(shards), strict=True):
            if used != session_rules.NOTHING:
                before = usages.get(shard.tenant, session_rules.NOTHING)
                usages[shard.tenant] = LedgerUsage(before.sessions + used.sessions, before.bytes + used.bytes)
        return usages

    async def _usage_of(self, tenant: str) -> LedgerUsage:
        counts = await self._used(shards_of(tenant))
        return LedgerUsage(sum(one.sessions for one in counts), sum(one.bytes for one in counts))

    async def _used(self, shards: Sequence[Shard]) -> list[LedgerUsage]:
        counts = [("ZCARD", shard.key("live")) for shard in shards]
        states = [shard.key("state") for shard in shards]
        sizes = [("HGET", state, "bytes") for state in states]
        replies = await self._redis.counts([*counts, *sizes])
        parts = zip(states, replies[: len(shards)], replies[len(shards) :], strict=True)
        return [
            LedgerUsage(count or 0, self._redis.counter(f"{state} bytes", size))
            for state, count, size in parts
        ]

    async def entry_count(self) -> int:
        shards = await self._redis.shards()
        counts = await self._redis.counts([("XLEN", shard.key("entries")) for shard in shards])
        return sum(filter(None, counts))

    async def check(self) -> None:
        await self._redis.check()

    async def close(self) -> None:
        await self._redis.close()

    async def _roll_up(self, tenant: str, surplus: int) -> int:
        """A batch of one shard at a time. The sums of their days were written with them."""
        shards, freed = shards_of(tenant), 0
        for _ in range(_ROLLS):
            heads = await self._redis.commands(
                [("XRANGE", shard.key("entries"), "-", "+", "COUNT", 1) for shard in shards]
            )
            oldest = [
                (int(items[0][0].partition(b"-")[0]), shard.number, shard)
                for items, shard in zip(heads, shards, strict=True)
                if items
            ]
            if surplus <= freed or not oldest:
                break
            *_, shard = min(oldest)
            keys = [shard.key("state"), shard.key("entries")]
            _, size = await self._redis.script("roll", keys, (_BATCH, surplus - freed))
            freed += size
        return freed

    async def _forget_sessions(
        self,
        tenant: str,
        names: Literal["live", "ended"],
        idle_ms: int,
        count: int,
        *,
        only_empty: bool = False,
    ) -> tuple[int, int]:
        gone, first = 0, 0
        for shard in shards_of(tenant):
            left, use = await self._leave(shard, names, idle_ms, count - gone, only_empty=only_empty)
            gone, first = gone + left, min(first or use, use or first)
        return gone, first

    async def _leave(
        self,
        shard: Shard,
        names: str,
        idle_ms: int,
        count: int,
        *,
        only_empty: bool = False,
        name: str = "",
    ) -> tuple[int, int]:
        keys = [shard.key(one) for one in ("state", "sizes", names)]
        args = (shard.key(""), idle_ms, max(0, count), "empty" if only_empty else "", name)
        gone, first = await self._redis.script("leave", keys, args)
        return gone, first
