"""Sessions and accounting in Redis: what becomes of a session is decided by storage/base/session_rules.py."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Unpack

from domain.accounting import AccountingEntry, EntryType
from domain.budget import Reported, ReportWarning, Session, SessionChange
from domain.errors import StoreFull, TenantFull, TooManySessions
from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Entered, Load, LostWrite, Receipt, SessionPage
from domain.quotas import LedgerUsage, Purged, TenantQuota
from domain.results import UsageReport
from storage.base import cursors, session_rules
from storage.base.newest_sessions import newest_page
from storage.base.session_rules import LedgerBase, LedgerOptions
from storage.redis.connection import RedisConnection
from storage.redis.history import RedisHistory
from storage.redis.keys import Shard, shard_of, shards_of
from storage.redis.records import check_count, encoded, pack_call
from storage.redis.sessions import Sessions, SessionState, Step
from storage.redis.shared_clock import RedisClock

_BATCH = 200
_PAUSE_MS = 1000
"""The time until the next attempt to make room, after an attempt that deleted nothing."""
_ROLLS = 10
"""The most batches of entries that one request deletes."""
_LISTED_AT_ONCE = 1000
_FRESH_SECONDS = 1.0
_STEP_BYTES = 4096
"""An upper bound of the bytes that a step writes to Redis, without its texts."""


class RedisLedger(RedisHistory, LedgerBase):
    """Replicas together may exceed the quota of a tenant by what they write in a second."""

    def __init__(self, connection: RedisConnection, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._redis = connection
        self._sessions = Sessions(connection, self._session_ms, self._entry_ms)
        self._usages: dict[str, _TenantUsage] = {}
        self._total = _TotalUsage()
        self.shared_clock = RedisClock(connection)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._redis.warnings

    @property
    def load(self) -> Load:
        return self._redis.load

    async def enter(self, call: Call) -> Entered:
        state, warning = await self._report(call.key, call.report, call.call_id, is_call=True)
        session = state.session or session_rules.fresh(call.key, self._clock())
        if state.receipt is not None:
            first = state.receipt
            return session_rules.enter_retry(session, call, first.entry, first.fingerprint, first.text)
        return Entered(session, warning=warning)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        state, warning = await self._report(key, report, None, is_call=False)
        assert state.session is not None
        return Reported(state.session, warning)

    async def _report(
        self, key: SessionKey, report: UsageReport | None, call_id: str | None, *, is_call: bool
    ) -> tuple[SessionState, ReportWarning | None]:
        """Applies a report, unless the call has a receipt."""
        warning: ReportWarning | None = None
        check_room = await self._room(key.tenant)

        def decide(state: SessionState) -> Step | None:
            nonlocal warning
            session = session_rules.alive(state.session or session_rules.fresh(key, self._clock()))
            if state.receipt is not None:
                return None
            if is_call or state.session is None:
                check_room(opens=state.session is None)
            if report is None:
                return None
            after = session_rules.reported(session, report, self._clock())
            warning = after.warning
            return None if after.session is session else Step(after.session)

        state, _ = await self._sessions.change(key, decide, call_id)
        return state, warning

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        check_count(charge.tokens)
        entry, text, finding = charge.entry, b"", None
        if charge.call_id is not None:
            text = pack_call(entry, charge.fingerprint, charge.text)
        elif charge.text is not None and charge.kept_as is not None:
            text, finding = encoded(charge.text), f"{charge.epoch}:{charge.kept_as}"
        admitted = session_rules.is_admitted(entry)
        check_room = await self._room(charge.key.tenant, len(text))

        def decide(state: SessionState) -> Step | None:
            if state.receipt is not None:
                return None
            session = session_rules.admitted(state.session, charge)
            check_room(opens=state.session is None, admitted=admitted)
            budget = session.budget(charge.default_window, charge.enforce)
            if not forced and not budget.fits(charge.tokens):
                return None
            used = Step(session_rules.charged(session, charge, self._clock()), entry)
            if finding is not None:
                try:
                    check_room(opens=False)
                except TenantFull:
                    return used
            return used._replace(text=text, finding=finding)

        state, step = await self._sessions.change(charge.key, decide, charge.call_id, charge.epoch)
        if state.session is not None and state.receipt is not None:
            first = state.receipt
            return session_rules.retry_receipt(
                state.session, charge, first.entry, first.fingerprint, first.text
            )
        if step is None:
            return None
        assert state.session is not None
        budget = state.session.budget(charge.default_window, charge.enforce)
        return Receipt(entry, budget, charge.fingerprint, charge.text)

    async def append(self, entry: AccountingEntry) -> None:
        admitted = session_rules.is_admitted(entry)
        check_room = await self._room(entry.tenant)

        def decide(state: SessionState) -> Step:
            check_room(opens=False, admitted=admitted)
            after = state.session and session_rules.used(state.session, self._clock())
            return Step(after, entry)

        key = SessionKey(entry.tenant, entry.session_id)
        await self._sessions.change(key, decide)
        if entry.type is EntryType.LOST:
            self._sessions.acknowledged.told(LostWrite(key, entry.timestamp))

    async def session(self, key: SessionKey) -> Session | None:
        return (await self._sessions.read(key)).session

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        check_room = await self._room(key.tenant)

        def decide(state: SessionState) -> Step:
            before = state.session
            if before is None or before.ended_at is not None:
                check_room(opens=True)
            return Step(session_rules.opened(before, key, change, self._clock()))

        state, _ = await self._sessions.change(key, decide)
        assert state.session is not None
        return state.session

    async def end(self, key: SessionKey) -> Session | None:
        def decide(state: SessionState) -> Step | None:
            now = self._clock()
            before = session_rules.fresh(key, now) if state.is_damaged else state.session
            if before is None:
                return None
            after = session_rules.ended(before, now)
            # The session `default` is emptied, and used by that.
            return None if after is before else Step(after, uses=after.ended_at is None, ends=True)

        state, _ = await self._sessions.change(key, decide)
        return state.session

    async def release(self, key: SessionKey) -> Session | None:
        session = (await self._sessions.read(key)).session
        if session is not None and session.ended_at is None:
            await self._leave(shard_of(key), "live", 0, 1, name=key.session_id)
        return session

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        if newest_first:
            # The index of live sessions is by name: a second one would be written with each charge.
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

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        packed = encoded(text)
        check_room = await self._room(key.tenant, len(packed))

        def decide(state: SessionState) -> Step | None:
            if state.session is None or not session_rules.keeps(state.session, epoch):
                return None
            check_room(opens=False)
            return Step(state.session, uses=False, text=packed, finding=f"{epoch}:{name}", once=once)

        with suppress(TenantFull):
            await self._sessions.change(key, decide)

    async def sweep(self) -> list[SessionKey]:
        ended, closed = list[SessionKey](), dict[str, set[int]]()
        for shard in await self._redis.shards(is_new=True):
            after = begin = b"-"
            while after:
                _, _, after, begin, days = await self._sweep(shard, after, begin)
            closed.setdefault(shard.tenant, set()).update(map(int, days))
            names = await self._redis.command("ZRANGE", shard.key("ended"), 0, -1)
            ended += [SessionKey(shard.tenant, name.decode()) for name in names or ()]
        # Sums that a full Redis has no room to pack stay as they are.
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

    async def _room(self, tenant: str, size: int = 0) -> Callable[..., None]:
        """Returns `check_room` for a tenant who is about to write `size` bytes. Reads the usage of a tenant
        with quotas once a second, and whenever the writes of this replica may have reached one since."""
        await self._total_room(size)
        most = self._quota_of(tenant)
        if not (most.max_sessions or most.ledger_max_bytes):
            return partial(self._check_room, _TenantUsage(), most)
        tally, now = self._usages.setdefault(tenant, _TenantUsage()), time.monotonic()
        used = tally.usage
        if (
            now > tally.counted_at + _FRESH_SECONDS
            or (most.max_sessions and used.sessions + tally.steps >= most.max_sessions)
            or (most.ledger_max_bytes and used.bytes + tally.size >= most.ledger_max_bytes)
        ):
            used = await self._counted(tenant, tally)
        if session_rules.surplus_bytes(used, most) or session_rules.idle_to_delete(used, most):
            used = await self._make_room(tenant, tally, most)
        tally.steps, tally.size = tally.steps + 1, tally.size + 2 * size + _STEP_BYTES
        return partial(self._check_room, tally, most)

    def _check_room(
        self, tally: "_TenantUsage", most: TenantQuota, *, opens: bool, admitted: bool = False
    ) -> None:
        session_rules.check_total(self._total.used, self._max_bytes, admitted=admitted)
        try:
            session_rules.check_room(tally.usage, most, opens=opens, admitted=admitted)
        except (TenantFull, TooManySessions) as error:
            idle_at = tally.first_use and tally.first_use + self._idle_ms
            raise session_rules.with_retry_time(error, idle_at or None, self._clock()) from None

    async def _total_room(self, size: int) -> None:
        """Makes room at the bound of all tenants together. Counts them where the writes of this replica may
        have reached it, and where they are a hundredth of it."""
        total, most = self._total, self._max_bytes
        total.written += size + _STEP_BYTES // 4
        is_near = total.used + total.written >= most or total.written >= most // 100
        if not most or not is_near or self._clock() < total.try_at:
            return
        async with total.making:
            usages = await self.usage()
            total.used, total.written = sum(used.bytes for used in usages.values()), 0
            surplus = session_rules.surplus(total.used, most)
            for tenant in session_rules.largest_first(usages) if surplus else ():
                if freed := await self._free(tenant, surplus):
                    total.used -= freed
                    break
            else:
                # Nothing is to be freed: asked again in a while.
                total.try_at = self._clock() + (_PAUSE_MS if surplus else 0)

    async def _free(self, tenant: str, surplus: int) -> int:
        """Deletes the oldest entries, or else ended sessions and idle ones. Returns how many bytes."""
        if freed := await self._roll_up(tenant, surplus):
            return freed
        before = await self._counted(tenant, _TenantUsage())
        await self._leave_all(tenant, "ended", 0, _BATCH)
        await self._leave_all(tenant, "live", self._idle_ms, _BATCH)
        return before.bytes - (await self._counted(tenant, _TenantUsage())).bytes

    async def _make_room(self, tenant: str, tally: "_TenantUsage", most: TenantQuota) -> LedgerUsage:
        """Deletes the oldest entries, then ended sessions, then idle ones, and returns the usage afterwards.
        Concurrent callers wait for the first one. If nothing can be deleted, it tries once a second."""
        async with tally.making:
            used = await self._counted(tenant, tally)
            if self._clock() < tally.try_at:
                return used
            if surplus := session_rules.surplus_bytes(used, most):
                await self._roll_up(tenant, surplus)
                used = await self._counted(tenant, tally)
            if session_rules.surplus_bytes(used, most):
                await self._leave_all(tenant, "ended", 0, _BATCH)
                used = await self._counted(tenant, tally)
            is_full = session_rules.surplus_bytes(used, most) > 0
            if count := _BATCH if is_full else session_rules.idle_to_delete(used, most):
                gone, _ = await self._leave_all(tenant, "live", self._idle_ms, count, only_empty=True)
                left, tally.first_use = await self._leave_all(tenant, "live", self._idle_ms, count - gone)
                used = await self._counted(tenant, tally)
                if not gone + left:
                    tally.try_at = self._clock() + _PAUSE_MS
            return used

    async def _counted(self, tenant: str, tally: "_TenantUsage") -> LedgerUsage:
        counts = await self._used(shards_of(tenant))
        used = LedgerUsage(sum(one.sessions for one in counts), sum(one.bytes for one in counts))
        tally.usage, tally.counted_at, tally.steps, tally.size = used, time.monotonic(), 0, 0
        return used

    async def _roll_up(self, tenant: str, surplus: int) -> int:
        """Deletes the oldest entries of the tenant, a batch of one shard at a time. The sums of their days
        were written with them. Returns how many bytes."""
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

    async def _leave_all(
        self, tenant: str, names: str, idle_ms: int, count: int, *, only_empty: bool = False
    ) -> tuple[int, int]:
        """Forgets up to `count` sessions of all shards that were not used for `idle_ms`. Returns how many it
        forgot, and the earliest last use of the others, 0 if there are none."""
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


@dataclass(slots=True)
class _TenantUsage:
    """The usage of a tenant at `counted_at`, and upper bounds of what this replica wrote since. `first_use`:
    the earliest last use of its sessions, as of the last time that room was made, 0 if it has none."""

    usage: LedgerUsage = session_rules.NOTHING
    counted_at: float = float("-inf")
    steps: int = 0
    size: int = 0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    try_at: int = 0
    first_use: int = 0


@dataclass(slots=True)
class _TotalUsage:
    """The bytes of all tenants when they were last counted, and about those that this replica wrote since."""

    used: int = 0
    written: int = 1 << 62
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    try_at: int = 0
