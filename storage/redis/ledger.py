"""Sessions and accounting in Redis. Each change is one run of session.lua in the shard of its session."""

import heapq
import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Unpack

from domain.accounting import DAY_MS, AccountingEntry, EntryType
from domain.budget import Reported, ReportWarning, Session, SessionChange
from domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidField,
    SessionEnded,
    SpillgateError,
    TenantFull,
)
from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Entered, Load, Receipt, SessionPage
from domain.quotas import LedgerUsage, Purged
from domain.results import UsageReport
from storage.base import cursors, session_rules
from storage.base.session_rules import LedgerBase, LedgerOptions
from storage.base.summaries import sums_of
from storage.redis.connection import RedisConnection
from storage.redis.entries import RedisEntries
from storage.redis.keys import Shard, shard_of, shards_of
from storage.redis.records import (
    LARGEST,
    SEAL,
    DamagedRecord,
    Kept,
    check_counts,
    decode_kept,
    group_of,
    pack,
    pack_entry,
    pack_kept,
    seal,
    unseal,
)

ONCE_MS = 60_000
"""How long Redis keeps the reply to a change, for a client that did not get it and asks again."""

_BATCH = 200
_FRESH_SECONDS = 1.0
_MOST_KNOWN = 1000
"""The most sessions that a replica remembers, so that it need not read one before it changes it."""

_STEP_BYTES = 4096
"""More than a step writes to Redis, beside its texts."""


class RedisLedger(RedisEntries, LedgerBase):
    """Replicas together may exceed the quota of a tenant by what they write in a second."""

    def __init__(self, connection: RedisConnection, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._redis = connection
        self._known: dict[SessionKey, _Found] = {}
        self._usages: dict[str, _Usage] = {}
        self._prefix = secrets.token_hex(8)
        self._count = itertools.count(1)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._redis.warnings

    @property
    def load(self) -> Load:
        return self._redis.load

    async def enter(self, call: Call) -> Entered:
        found, warning = await self._report(call.key, call.report, call.call_id, is_call=True)
        session = found.session or session_rules.fresh(call.key, self._clock())
        if found.receipt is not None:
            first = found.receipt
            return session_rules.reentered(session, call, first.entry, first.fingerprint, first.text)
        return Entered(session, warning=warning)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        found, warning = await self._report(key, report, None, is_call=False)
        assert found.session is not None
        return Reported(found.session, warning)

    async def _report(
        self, key: SessionKey, report: UsageReport | None, call_id: str | None, *, is_call: bool
    ) -> tuple["_Found", ReportWarning | None]:
        """Applies a report, unless the call has a receipt."""
        warning: ReportWarning | None = None
        check_room = await self._room(key.tenant)

        def decide(found: _Found) -> _Step | None:
            nonlocal warning
            if call_id is not None and found.session is not None and found.session.epoch != epoch:
                raise _OtherEpoch
            session = session_rules.alive(found.session or session_rules.fresh(key, self._clock()))
            if found.receipt is not None:
                return None
            if is_call or found.session is None:
                check_room(opens=found.session is None)
            if report is None:
                return None
            after = session_rules.reported(session, report, self._clock())
            warning = after.warning
            return None if after.session is session else _Step(after.session)

        while True:
            # Almost always the epoch is the last known one: one command reads session and receipt.
            known = self._known.get(key, _NOTHING).session
            epoch = 0 if known is None else known.epoch
            with suppress(_OtherEpoch):
                return await self._change(key, decide, _receipt_field(epoch, call_id)), warning

    async def replay(self, line: Charge | AccountingEntry) -> None:
        """Enters a charge or an entry of the spool, once, and beyond every bound. If the session has ended or
        was opened again since then, enters the entry of the charge without charging."""
        entry = line.entry if isinstance(line, Charge) else line
        # One that is still on its way to Redis is entered once because the script knows its id for ONCE_MS.
        if await self.has_entry(entry):
            return
        if isinstance(line, Charge):
            try:
                await self._charge(line, forced=True, is_replay=True)
                return
            except (Conflict, SessionEnded, IdempotencyKeyReused):
                pass
        await self.append(entry, is_replay=True)

    async def _charge(self, charge: Charge, *, forced: bool, is_replay: bool = False) -> Receipt | None:
        check_counts(charge.tokens)
        entry, text = charge.entry, b""
        if charge.call_id is not None:
            text = pack_kept(entry, charge.fingerprint, charge.text)
        admitted = session_rules.is_admitted(entry)
        check_room = await self._room(charge.key.tenant, len(text))

        def decide(found: _Found) -> _Step | None:
            if found.receipt is not None:
                return None
            session, most = session_rules.admitted(found.session, charge), None
            if not is_replay:
                check_room(opens=found.session is None, admitted=admitted)
            budget = session.budget(charge.default_window, charge.enforce)
            if not forced and not budget.fits(charge.tokens):
                raise _Refused
            if not forced and budget.enforced and charge.tokens:
                most = budget.limit_tokens - budget.used_tokens - charge.tokens
            after = session_rules.charged(session, charge)
            return _Step(after, charge.tokens, most, entry, text, session_rules.text_bytes(charge.text))

        try:
            found = await self._change(charge.key, decide, _receipt_field(charge.epoch, charge.call_id))
        except _Refused:
            return None
        assert found.session is not None
        if found.receipt is not None:
            first = found.receipt
            return session_rules.replayed(found.session, charge, first.entry, first.fingerprint, first.text)
        budget = found.session.budget(charge.default_window, charge.enforce)
        return Receipt(entry, budget, charge.fingerprint, charge.text)

    async def append(self, entry: AccountingEntry, *, is_replay: bool = False) -> None:
        admitted = is_replay or session_rules.is_admitted(entry)
        check_room = await self._room(entry.tenant)

        def decide(found: _Found) -> _Step:
            check_room(opens=False, admitted=admitted)
            after = found.session and session_rules.used(found.session, entry.timestamp)
            return _Step(after, 0, entry=entry)

        await self._change(SessionKey(entry.tenant, entry.session_id), decide)

    async def session(self, key: SessionKey) -> Session | None:
        return (await self._read(key)).session

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        check_room = await self._room(key.tenant)

        def decide(found: _Found) -> _Step:
            before = found.session
            if before is None or before.ended_at is not None:
                check_room(opens=True)
            return _Step(session_rules.opened(before, key, change, self._clock()))

        session = (await self._change(key, decide)).session
        assert session is not None
        return session

    async def end(self, key: SessionKey) -> Session | None:
        def decide(found: _Found) -> _Step | None:
            now = self._clock()
            before = session_rules.fresh(key, now) if found.is_damaged else found.session
            after = before and session_rules.ended(before, now)
            return None if after is before else _Step(after, ends=True)

        return (await self._change(key, decide)).session

    async def sessions(self, tenant: str, limit: int, cursor: str | None) -> SessionPage:
        after = "" if cursor is None else cursors.decode("sessions", cursor)
        shards, found = shards_of(tenant), list[Session]()
        while len(found) <= limit:
            span = (f"({after}" if after else "-", "+", "LIMIT", 0, limit + 1)
            lists = await self._redis.commands(
                [("ZRANGEBYLEX", shard.key("live"), *span) for shard in shards]
            )
            names = list(itertools.islice(heapq.merge(*filter(None, lists)), limit + 1))
            keys = [SessionKey(tenant, name.decode()) for name in names]
            replies = await self._redis.commands([_reading(key) for key in keys])
            listed = [self._found(key, reply).session for key, reply in zip(keys, replies, strict=True)]
            # A session may have expired; the next sweep deletes its name.
            found += [session for session in listed if session is not None]
            if len(names) <= limit:
                break
            after = keys[-1].session_id
        page, more = found[:limit], len(found) > limit
        return SessionPage(page, cursors.encode("sessions", page[-1].key.session_id) if more else None)

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        shard = shard_of(SessionKey(tenant, handle.session_id))
        at = await self._redis.command("ZSCORE", shard.key("handles"), str(handle))
        return None if at is None else int(float(at))

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        where = shard_of(key).key("findings", key.session_id)
        text = await self._redis.command("HGET", where, _text(f"{epoch}:{name}"))
        return None if text is None else str(text, "utf-8")

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        packed = _text(text)
        check_room = await self._room(key.tenant, len(packed))

        def decide(found: _Found) -> _Step | None:
            if found.session is None or not session_rules.keeps(found.session, epoch):
                return None
            check_room(opens=False)
            return _Step(found.session, 0, text=packed, finding=f"{epoch}:{name}")

        with suppress(TenantFull):
            await self._change(key, decide)

    async def sweep(self) -> list[SessionKey]:
        now, ended = self._clock(), list[SessionKey]()
        for shard in await self._redis.shards():
            after = b"-"
            while after:
                _, _, after = await self._sweep(shard, now - self._session_ms, now - self._entry_ms, after)
            names = await self._redis.command("ZRANGE", shard.key("ended"), 0, -1)
            ended += [SessionKey(shard.tenant, name.decode()) for name in names or ()]
        return ended

    async def delete_tenant(self, tenant: str) -> Purged:
        purged = Purged(0, 0, True)
        for shard in shards_of(tenant):
            sessions, entries, _ = await self._sweep(shard, LARGEST, LARGEST, b"-")
            if not sessions + entries:
                await self._redis.unregister(shard)
            is_done = purged.is_done and not sessions + entries
            purged = Purged(purged.sessions + sessions, purged.entries + entries, is_done)
        self._usages.pop(tenant, None)
        return purged

    async def _sweep(self, shard: Shard, idle: int, oldest: int, after: bytes) -> tuple[int, int, bytes]:
        """Deletes a batch. Returns how many sessions and entries, and where the next batch begins."""
        names = ("state", "entries", "handles", "days", "live", "ended", "sizes")
        args = (shard.key(""), idle, oldest, _BATCH, after)
        sessions, entries, after = await self._redis.script(
            "sweep", [shard.key(name) for name in names], args
        )
        return sessions, entries, after

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
        replies = await self._redis.commands([*counts, *sizes])
        parts = zip(states, replies[: len(shards)], replies[len(shards) :], strict=True)
        return [
            LedgerUsage(count or 0, self._redis.counter(f"{state} bytes", size))
            for state, count, size in parts
        ]

    async def entry_count(self) -> int:
        shards = await self._redis.shards()
        counts = await self._redis.commands([("XLEN", shard.key("entries")) for shard in shards])
        return sum(filter(None, counts))

    async def check(self) -> None:
        await self._redis.check()

    async def close(self) -> None:
        await self._redis.close()

    async def _change(
        self, key: SessionKey, decide: Callable[["_Found"], "_Step | None"], receipt: str = ""
    ) -> "_Found":
        """Writes what `decide` returns; None: nothing. First it sees the session as this process knows it. If
        the session has changed since, or if `decide` wants nothing written or raises, it sees the session as
        it is in Redis, with the receipt in that field. Returns the session afterwards."""
        once = f"{self._prefix}-{next(self._count):x}"
        found, is_fresh = self._known.get(key), False
        await self._redis.register(shard_of(key))
        while True:
            if found is None:
                found, is_fresh = await self._read(key, receipt), True
            try:
                step = decide(found)
            except (SpillgateError, _Refused, _OtherEpoch):
                if is_fresh:
                    raise
                step = None
            if step is not None:
                after = await self._write(key, found, step, receipt, once)
                if not after.is_other:
                    return after
                found, is_fresh = after, True
            elif is_fresh:
                return found
            else:
                found = None

    async def _read(self, key: SessionKey, receipt: str = "") -> "_Found":
        return self._learn(key, self._found(key, await self._redis.command(*_reading(key, receipt))))

    def _found(self, key: SessionKey, reply: Sequence[bytes | None] | None) -> "_Found":
        """A damaged session counts as unknown, a damaged receipt too; a warning names the key."""
        sealed, reserved, used_at, first = (one or b"" for one in reply or (None,) * 4)
        session = receipt = None
        is_damaged = reply is None
        try:
            session = unseal(key, sealed, reserved, used_at) if sealed else None
            receipt = decode_kept(first) if first else None
        except DamagedRecord:
            is_damaged = session is None
            where = shard_of(key).key("session", key.session_id)
            self._redis.notices.warn(
                where, "is damaged: its session counts as unknown. End it or PUT it again."
            )
        return _Found(session, sealed[:SEAL], first, receipt, is_damaged)

    def _learn(self, key: SessionKey, found: "_Found") -> "_Found":
        self._known.pop(key, None)
        self._known[key] = replace(found, first=b"", receipt=None)
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return found

    async def _write(
        self, key: SessionKey, found: "_Found", step: "_Step", receipt: str, once: str
    ) -> "_Found":
        """Runs session.lua."""
        session, entry, shard, name, day = step.session, step.entry, shard_of(key), key.session_id, 0
        record = packed = group = b""
        is_ended = session is not None and session.ended_at is not None
        asked: dict[str, Any] = {
            "name": name,
            "receipt": receipt,
            "tokens": step.tokens,
            "most": step.most,
            "bytes": step.text_bytes,
            "finding": step.finding,
            "ends": step.ends,
            "session_ms": self._entry_ms if is_ended else self._session_ms,
            "entry_ms": self._entry_ms,
            "once_ms": ONCE_MS,
        }
        if session is not None:
            before = found.session
            asked |= {
                "used_at": session.last_used_at,
                "opens": before is None,
                "score": session.ended_at or 0,
            }
            if step.tokens is None:
                asked |= {"was": before and before.reserved_tokens, "reserved": session.reserved_tokens}
            if step.tokens is None or before is None:
                record = seal(session)
                asked["bytes"] += session_rules.session_usage(session).bytes
                asked["bytes"] -= 0 if before is None else session_rules.session_usage(before).bytes
        if entry is not None:
            day, once = entry.timestamp // DAY_MS, entry.id
            handle = entry.details.tool_output_handle if entry.type is EntryType.TOOL else None
            asked |= {"at": entry.timestamp, "day": day, "handle": handle, "amounts": sums_of(entry)}
            packed, group = pack_entry(entry), pack(group_of(entry))
        lists = [shard.key("ended"), shard.key("live")]
        keys = [shard.key("session", name), shard.key("findings", name), shard.key("once", once)]
        keys += lists if is_ended else lists[::-1]
        keys += [shard.key(one) for one in ("sizes", "state", "entries", "handles", "days")]
        keys.append(shard.key("day", day))
        given = pack(
            {name: value for name, value in asked.items() if value is not None and value is not False}
        )
        args = (given, found.seal, found.first, record, step.text, packed, group)
        reply = await self._redis.script("session", keys, args)
        await self._redis.register(shard)
        if isinstance(reply, list):
            return replace(self._learn(key, self._found(key, reply)), is_other=True)
        after = session and replace(session, reserved_tokens=int(reply))
        seal_after = record[:SEAL] if record else found.seal
        return self._learn(key, _Found(after, seal_after))

    async def _room(self, tenant: str, size: int = 0) -> Callable[..., None]:
        """Returns `check_room` for a tenant who is about to write `size` bytes. Reads the usage of a tenant
        with quotas once a second, and whenever the writes of this replica may have reached one since."""
        most = self._quota_of(tenant)
        if not (most.max_sessions or most.ledger_max_bytes):
            return partial(session_rules.check_room, session_rules.NOTHING, most)
        known, now = self._usages.setdefault(tenant, _Usage()), time.monotonic()
        used = known.usage
        if (
            now > known.counted_at + _FRESH_SECONDS
            or (most.max_sessions and used.sessions + known.steps >= most.max_sessions)
            or (most.ledger_max_bytes and used.bytes + known.size >= most.ledger_max_bytes)
        ):
            counts = await self._used(shards_of(tenant))
            used = LedgerUsage(sum(one.sessions for one in counts), sum(one.bytes for one in counts))
            known.usage, known.counted_at, known.steps, known.size = used, now, 0, 0
        known.steps, known.size = known.steps + 1, known.size + 2 * size + _STEP_BYTES
        return partial(session_rules.check_room, used, most)


@dataclass(frozen=True, slots=True)
class _Found:
    """A session as Redis has it, None if it is unknown or damaged. By `seal`, the beginning of the record, and
    `first`, a receipt, the script sees whether it is still the same; `is_other`: it was not."""

    session: Session | None = None
    seal: bytes = b""
    first: bytes = b""
    receipt: Kept | None = None
    is_damaged: bool = False
    is_other: bool = False


_NOTHING = _Found()


class _Step(NamedTuple):
    """A session as it becomes, None if there is none, and what is written beside it. `tokens` are added to
    those that are reserved, if these are `most` at most; None: nobody else may have changed the session.
    `text` is a receipt, which counts for `text_bytes`, or the text of a finding."""

    session: Session | None
    tokens: int | None = None
    most: int | None = None
    entry: AccountingEntry | None = None
    text: bytes = b""
    text_bytes: int = 0
    finding: str | None = None
    ends: bool = False


class _Refused(Exception):
    """The tokens do not fit."""


class _OtherEpoch(Exception):
    """The receipt that was read is of another life of the session."""


@dataclass(slots=True)
class _Usage:
    """The usage of a tenant at `counted_at`, and upper bounds of what this replica wrote since."""

    usage: LedgerUsage = session_rules.NOTHING
    counted_at: float = float("-inf")
    steps: int = 0
    size: int = 0


def _reading(key: SessionKey, receipt: str = "") -> tuple[str | bytes, ...]:
    return ("HMGET", shard_of(key).key("session", key.session_id), "s", "r", "u", _text(receipt))


def _receipt_field(epoch: int, call_id: str | None) -> str:
    return "" if call_id is None else f"{epoch}:{call_id}"


def _text(text: str) -> bytes:
    """Raises InvalidField for a text that is not Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidField("A text in it cannot be kept. Use valid Unicode.") from None
