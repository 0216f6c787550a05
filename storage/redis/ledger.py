"""Sessions and accounting in Redis. Each change is one run of session.lua in the shard of its session."""

import hashlib
import heapq
import itertools
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from domain.accounting import DAY_MS, AccountingEntry, EntryType
from domain.budget import REMEMBERED_REPORTS, Reported, ReportWarning, Session, SessionChange
from domain.errors import Conflict, IdempotencyKeyReused, InvalidField, SessionEnded
from domain.handles import DEFAULT_SESSION, Handle, SessionKey
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
    DamagedRecord,
    check_counts,
    decode_kept,
    group_of,
    is_receipt,
    kept_session,
    pack,
    pack_entry,
    pack_kept,
    session_of,
)

ONCE_MS = 60_000
"""How long Redis keeps the reply to a change, for a client that did not get it and asks again."""

_BATCH = 200
_FRESH_SECONDS = 1.0
_SIZES = ("session_bytes", "entry_bytes")
_CHANGED = ("context_window", "buffer_tokens", "max_output_tokens", "model", "policy")


class RedisLedger(RedisEntries, LedgerBase):
    """Replicas together may exceed the quota of a tenant by what they write in a second."""

    def __init__(self, connection: RedisConnection, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._redis = connection
        self._rooms: dict[str, _Room] = {}
        self._prefix = secrets.token_hex(8)
        self._count = itertools.count(1)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._redis.warnings

    @property
    def load(self) -> Load:
        return self._redis.load

    async def enter(self, call: Call) -> Entered:
        asked = {"call": call.call_id, **_reported(call.report)}
        word, packed, *extra = await self._step("enter", call.key, asked)
        session = session_of(call.key, packed)
        if word == b"again":
            first = decode_kept(extra[0])
            return session_rules.reentered(session, call, first.entry, first.fingerprint, first.text)
        return Entered(session, warning=_warning(extra))

    async def replay(self, line: Charge | AccountingEntry) -> None:
        """Enters a charge or an entry of the spool, once, and beyond every bound. If the session has ended or
        was opened again since then, enters the entry of the charge without charging."""
        if isinstance(line, Charge):
            try:
                await self._charge(line, forced=True, is_replay=True)
                return
            except (Conflict, SessionEnded, IdempotencyKeyReused):
                line = line.entry
        await self.append(line, is_replay=True)

    async def _charge(self, charge: Charge, *, forced: bool, is_replay: bool = False) -> Receipt | None:
        window = charge.default_window
        check_counts(charge.tokens, window.context_window, window.buffer_tokens, window.max_output_tokens)
        asked = {
            "in_doubt": is_replay,
            "epoch": charge.epoch,
            "tokens": charge.tokens,
            "forced": forced,
            "enforce": charge.enforce,
            "context_window": window.context_window,
            "buffer_tokens": window.buffer_tokens,
            "max_output_tokens": window.max_output_tokens,
            "call": charge.call_id,
            "text_bytes": session_rules.text_bytes(charge.text),
        }
        kept = b""
        if charge.call_id is not None:
            kept = pack_kept(charge.entry, charge.fingerprint, charge.text)
        elif charge.text is not None and charge.kept_as is not None:
            asked["field"], kept = f"{charge.epoch}:{charge.kept_as}", _text(charge.text)
        word, *packed = await self._step("charge", charge.key, asked, charge.entry, kept)
        if word == b"refused":
            return None
        session = session_of(charge.key, packed[0])
        if word == b"again":
            first = decode_kept(packed[1])
            return session_rules.replayed(session, charge, first.entry, first.fingerprint, first.text)
        budget = session.budget(charge.default_window, charge.enforce)
        return Receipt(charge.entry, budget, charge.fingerprint, charge.text)

    async def append(self, entry: AccountingEntry, *, is_replay: bool = False) -> None:
        key = SessionKey(entry.tenant, entry.session_id)
        await self._step("append", key, {"in_doubt": is_replay}, entry)

    async def session(self, key: SessionKey) -> Session | None:
        where = shard_of(key).key("session", key.session_id)
        return self._found(key, await self._redis.command("HGET", where, "s"))

    def _found(self, key: SessionKey, kept: bytes | None) -> Session | None:
        """A damaged session counts as unknown; a warning names its key."""
        try:
            return None if kept is None else kept_session(key, kept)
        except DamagedRecord:
            self._warn_of(key)
            return None

    def _warn_of(self, key: SessionKey) -> None:
        where = shard_of(key).key("session", key.session_id)
        self._redis.notices.warn(where, "is damaged: its session counts as unknown. End it or PUT it again.")

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        check_counts(change.context_window, change.buffer_tokens, change.max_output_tokens)
        given = {name: getattr(change, name) for name in _CHANGED if name in change.given}
        asked = {
            "set": {name: value for name, value in given.items() if value is not None},
            "clear": [name for name, value in given.items() if value is None],
        }
        _, packed, *_ = await self._step("put", key, asked)
        return session_of(key, packed)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        _, packed, *extra = await self._step("report", key, _reported(report))
        return Reported(session_of(key, packed), _warning(extra))

    async def end(self, key: SessionKey) -> Session | None:
        asked = {"never_ends": key.session_id == DEFAULT_SESSION}
        _, packed, *_ = await self._step("finish", key, asked)
        return session_of(key, packed) if packed else None

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
            asked = [("HGET", shard_of(key).key("session", key.session_id), "s") for key in keys]
            for key, packed in zip(keys, await self._redis.commands(asked), strict=True):
                # The session may have expired; the next sweep deletes its name.
                if (session := self._found(key, packed)) is not None:
                    found.append(session)
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
        asked = {"epoch": epoch, "field": f"{epoch}:{name}"}
        await self._step("keep", key, asked, None, _text(text))

    async def sweep(self) -> list[SessionKey]:
        now, ended = self._clock(), list[SessionKey]()
        idle, oldest = now - self._session_ms, now - self._entry_ms
        for shard in await self._redis.shards():
            keys = [shard.key(name) for name in ("state", "entries", "handles", "days")]
            while await self._redis.script("trim", keys, (shard.key("day", ""), oldest, _BATCH)):
                pass
            keys = [shard.key(name) for name in ("live", "ended", "sizes", "state")]
            prefixes, after = (shard.key("session", ""), shard.key("findings", "")), b""
            while True:
                after = await self._redis.script("forget", keys, (*prefixes, idle, oldest, after, _BATCH))
                if not after:
                    break
            names = await self._redis.command("ZRANGE", shard.key("ended"), 0, -1)
            ended += [SessionKey(shard.tenant, name.decode()) for name in names or ()]
        return ended

    async def delete_tenant(self, tenant: str) -> Purged:
        sessions, entries, is_done = 0, 0, True
        for shard in shards_of(tenant):
            names = ("state", "entries", "handles", "days", "live", "ended", "sizes")
            prefixes = [shard.key(name, "") for name in ("session", "findings", "day")]
            reply = await self._redis.script(
                "clear", [shard.key(name) for name in names], (*prefixes, _BATCH)
            )
            sessions, entries, is_done = sessions + reply[0], entries + reply[1], is_done and reply[2] == 1
            if reply[2] == 1:
                await self._redis.unregister(shard)
        self._rooms.pop(tenant, None)
        return Purged(sessions, entries, is_done)

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
        sizes = [("HMGET", state, *_SIZES) for state in states]
        replies = await self._redis.commands([*counts, *sizes])
        parts = zip(states, replies[: len(shards)], replies[len(shards) :], strict=True)
        return [
            LedgerUsage(count or 0, sum(self._redis.counters(state, _SIZES, size)))
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

    async def _step(
        self,
        step: str,
        key: SessionKey,
        asked: dict[str, Any],
        entry: AccountingEntry | None = None,
        text: str | bytes = b"",
    ) -> list[bytes]:
        """Runs session.lua. Raises SessionEnded, Conflict, StoreFull, TooManySessions, InvalidField."""
        shard, name, day = shard_of(key), key.session_id, 0
        args: list[str | bytes] = [text]
        asked |= {"step": step, "name": name, "now": self._clock(), "once_ms": ONCE_MS}
        admitted = entry is not None and session_rules.is_admitted(entry)
        asked |= {"session_ms": self._session_ms, "entry_ms": self._entry_ms, "admitted": admitted}
        once = f"{self._prefix}-{next(self._count):x}"
        if entry is not None:
            day, once = entry.timestamp // DAY_MS, entry.id
            handle = entry.details.tool_output_handle if entry.type is EntryType.TOOL else None
            asked |= {"id": entry.id, "at": entry.timestamp, "day": day, "handle": handle}
            asked["amounts"] = sums_of(entry)
            args = [pack_entry(entry), pack(group_of(entry)), text]
        keys = [shard.key("session", name), shard.key("findings", name), shard.key("once", once)]
        keys += [shard.key(one) for one in ("live", "ended", "sizes", "state", "entries", "handles", "days")]
        keys.append(shard.key("day", day))
        await self._redis.register(shard)
        while True:
            if not asked.get("in_doubt"):
                asked |= await self._room(key.tenant, sum(map(len, args)))
            packed = pack({name: value for name, value in asked.items() if value is not None})
            reply: list[bytes] = await self._redis.script("session", keys, (packed, *args))
            await self._redis.register(shard)
            match reply[0]:
                case b"ended":
                    raise session_rules.over()
                case b"conflict":
                    raise session_rules.conflict()
                case b"full" | b"crowded":
                    used = self._rooms[key.tenant].usage
                    session_rules.check_room(used, self._quota_of(key.tenant), opens=True, admitted=admitted)
                case b"damaged":
                    self._warn_of(key)
                    asked["replace"] = True
                case b"again" if not is_receipt(reply[2]):
                    self._warn_of(key)
                    asked["damaged"] = hashlib.sha1(reply[2], usedforsecurity=False).hexdigest()
                case _:
                    return reply

    async def _room(self, tenant: str, size: int) -> dict[str, bool]:
        """Returns which quotas the tenant has reached. Asks Redis once a second, and whenever the writes of
        this replica may have reached a bound since."""
        most = self._quota_of(tenant)
        if not (most.max_sessions or most.ledger_max_bytes):
            return {}
        room, now = self._rooms.setdefault(tenant, _Room()), time.monotonic()
        used = room.usage
        if (
            now > room.counted_at + _FRESH_SECONDS
            or (most.max_sessions and used.sessions + room.steps >= most.max_sessions)
            or (most.ledger_max_bytes and used.bytes + room.size >= most.ledger_max_bytes)
        ):
            counts = await self._used(shards_of(tenant))
            used = LedgerUsage(sum(one.sessions for one in counts), sum(one.bytes for one in counts))
            room.usage, room.counted_at, room.steps, room.size = used, now, 0, 0
        room.steps, room.size = room.steps + 1, room.size + 2 * size + 2 * session_rules.SESSION_BYTES
        return {
            "full": 0 < most.ledger_max_bytes <= used.bytes,
            "crowded": 0 < most.max_sessions <= used.sessions,
        }


@dataclass(slots=True)
class _Room:
    """The usage of a tenant at `counted_at`, and upper bounds of what this replica wrote since."""

    usage: LedgerUsage = session_rules.NOTHING
    counted_at: float = float("-inf")
    steps: int = 0
    size: int = 0


def _reported(report: UsageReport | None) -> dict[str, Any]:
    if report is None:
        return {}
    check_counts(report.used_tokens, report.turn)
    return {"used_tokens": report.used_tokens, "turn": report.turn, "most_reports": REMEMBERED_REPORTS}


def _warning(extra: list[bytes]) -> ReportWarning | None:
    return ReportWarning(extra[0].decode()) if extra and extra[0] else None


def _text(text: str) -> bytes:
    """Raises InvalidField for a text that is not Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidField("A text in it cannot be kept. Use valid Unicode.") from None
