"""Sessions and accounting in Redis, for many replicas: one script a change, in the slot of its session.

The rules of storage/accounts.py stand a second time in lua/session_*.lua, where they have to be atomic. What
an answer lost on the way has changed is changed once, and answered the same when it is asked again: each
script remembers for a minute what it said, by the id of the entry or of the operation.
"""

import re
from typing import Any

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, SummaryRow
from domain.budget import Budget, Reported, Session, SessionChange, Window
from domain.errors import InvalidField
from domain.handles import Handle, SessionKey
from domain.ports import Charge, Clock, Entered, LedgerUsage, Receipt, SessionPage
from domain.results import UsageReport
from storage import accounts, cursors
from storage.redis_client import RedisClient, Step, command
from storage.redis_entries import START, RedisEntries
from storage.redis_leases import Leases, names_after
from storage.redis_ledger_keys import session_keys, tenant_keys
from storage.redis_outboxes import RedisOutboxes, in_batches
from storage.redis_rows import decode_charged, decode_kept, reported_of, session_of
from storage.redis_sessions import SessionSteps, finding_field
from storage.redis_sums import RedisSums
from storage.redis_sweep import RedisSweep

_PLACE = re.compile(r"[0-9]{1,15}-[0-9]{1,15}")


class RedisLedger:
    """`redis` is the ledger's own: it is closed with it."""

    def __init__(
        self,
        redis: RedisClient,
        *,
        clock: Clock,
        session_retention_seconds: float,
        entry_retention_seconds: float,
    ) -> None:
        # Redis knows no lifetime of 0.
        session_ms = max(1, int(session_retention_seconds * 1000))
        entry_ms = max(1, int(entry_retention_seconds * 1000))
        self._redis = redis
        self._clock = clock
        self._steps = SessionSteps(session_ms, entry_ms)
        self._leases = Leases()
        self._outboxes = RedisOutboxes(redis, entry_ms)
        self._entries = RedisEntries(redis, self._outboxes)
        self._sums = RedisSums(redis, self._entries, entry_ms)
        self._sweep = RedisSweep(redis, self._steps, self._outboxes, clock)
        self._is_closed = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._redis.warnings

    async def enter(
        self,
        key: SessionKey,
        call_id: str | None,
        report: UsageReport | None,
        fallback: Window,
        required: bool,
    ) -> Entered:
        if call_id is None and report is None:
            return Entered(accounts.alive(await self.session(key) or accounts.fresh(key, self._clock())))
        step = self._steps.enter(key, call_id, report, self._clock())
        reply = await (self._redis.run(step) if report is None else self._write(key, step))
        if reply is None:
            return Entered(accounts.fresh(key, self._clock()))
        if isinstance(reply, bytes):
            after = reported_of(key, reply)
            return Entered(accounts.alive(after.session), warning=after.warning)
        session, first = session_of(key, reply[0]), decode_kept(reply[1])
        budget = session.budget(fallback, required)
        receipt = Receipt(first.entry, budget, first.fingerprint, first.text, replayed=True)
        return accounts.reentered(session, receipt, report)

    async def reserve(self, charge: Charge) -> Receipt | None:
        return await self._charge(charge, forced=False)

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._charge(charge, forced=True)
        assert receipt is not None
        return receipt

    async def _charge(self, charge: Charge, forced: bool) -> Receipt | None:
        reply = await self._write(charge.key, self._steps.charge(charge, forced=forced))
        if isinstance(reply, bytes):
            taken = decode_charged(reply)
            await self._booked(charge.key, taken.number)
            budget = Budget(taken.limit_tokens, taken.used_tokens, taken.reserved_tokens, taken.enforced)
            return accounts.receipt(budget, charge)
        said, *found = reply
        if said == b"refused":
            return None
        session = session_of(charge.key, found[0])
        if said == b"replayed":
            first = decode_kept(found[1])
            return accounts.replayed(session, charge, first.entry, first.fingerprint, first.text)
        # It has changed since: this raises.
        accounts.admitted(session, charge)
        return None

    async def append(self, entry: AccountingEntry) -> None:
        key = SessionKey(entry.tenant, entry.session_id)
        await self._booked(key, int(await self._write(key, self._steps.append(entry))))

    async def session(self, key: SessionKey) -> Session | None:
        packed = await self._redis.run(command("GET", session_keys(key).session))
        return None if packed is None else session_of(key, packed)

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        return session_of(key, await self._write(key, self._steps.put(key, change, self._clock())))

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        step = self._steps.enter(key, None, report, self._clock())
        after = reported_of(key, await self._write(key, step))
        accounts.alive(after.session)
        return after

    async def usage(self) -> LedgerUsage:
        return accounts.NOTHING

    async def end(self, key: SessionKey) -> Session | None:
        packed = await self._redis.run(self._steps.end(key, self._clock()))
        return None if packed is None else session_of(key, packed)

    async def sessions(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        after = "" if cursor is None else cursors.decode("sessions", cursor)
        found: list[Session] = []
        while len(found) <= limit:
            names = await self._redis.run(names_after(tenant, after, limit + 1))
            keys = [SessionKey(tenant, name.decode()) for name in names]
            steps = [command("GET", session_keys(key).session) for key in keys]
            kept = zip(keys, await in_batches(self._redis, steps), strict=True)
            read = [session_of(key, packed) for key, packed in kept if packed is not None]
            found += [session for session in read if session.ended_at is None]
            if len(keys) <= limit:
                break
            after = keys[-1].session_id
        page, more = found[:limit], len(found) > limit
        return SessionPage(page, cursors.encode("sessions", page[-1].key.session_id) if more else None)

    async def entries(self, wanted: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        after = START if cursor is None else cursors.decode("entries", cursor)
        if not _PLACE.fullmatch(after):
            raise InvalidField(
                "cursor is not one of ours. Use next_cursor of the page before, or leave it out."
            )
        found = await self._entries.page(wanted, limit + 1, after)
        more = cursors.encode("entries", found[limit - 1][0]) if len(found) > limit else None
        return EntryPage([entry for _, entry in found[:limit]], more)

    async def summary(self, wanted: EntryFilter, group_by: GroupBy) -> list[SummaryRow]:
        return await self._sums.summary(wanted, group_by)

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        await self._outboxes.collect_session(SessionKey(tenant, handle.session_id))
        at = await self._redis.run(command("ZSCORE", tenant_keys(tenant).handles, str(handle)))
        return None if at is None else int(float(at))

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        where = session_keys(key).findings
        text = await self._redis.run(command("HGET", where, finding_field(epoch, name)))
        return None if text is None else str(text, "utf-8")

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        await self._redis.run(self._steps.keep(key, epoch, name, text))

    async def sweep(self) -> list[SessionKey]:
        return await self._sweep.run()

    async def check(self) -> None:
        await self._redis.check()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._redis.close()

    async def _write(self, key: SessionKey, *steps: Step) -> Any:
        """Its session is listed first, in the same round trip: see redis_leases.py."""
        since = self._leases.now()
        listing = self._leases.ahead(key)
        replies = await self._redis.pipeline(*listing, *steps)
        if listing:
            self._leases.take(key, since)
        return replies[-1]

    async def _booked(self, key: SessionKey, number: int) -> None:
        if not self._leases.book(key, number):
            await self._write(key)
