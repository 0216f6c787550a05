"""Sessions in Redis: a session is read, changed in this process, and written if it is still the same."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from domain.accounting import DAY_MS, AccountingEntry, EntryType
from domain.budget import Session
from domain.errors import SpillgateError
from domain.handles import SessionKey
from storage.base import session_rules
from storage.base.summaries import sums_of
from storage.redis.connection import RedisConnection
from storage.redis.keys import shard_of
from storage.redis.records import (
    SEAL,
    DamagedRecord,
    Kept,
    decode_kept,
    encoded,
    group_of,
    pack,
    pack_entry,
    seal,
    unseal,
)

ONCE_MS = 60_000
"""How long Redis keeps the reply to a change, for a client that did not get it and asks again."""

_MOST_KNOWN = 10_000
"""The most sessions that a process remembers, so that it need not read one before it changes it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A session, None if it is unknown or damaged, and the receipt of a call. By `seal`, the beginning of the
    record, and `first`, the bytes of the receipt, session.lua sees that both are still the same."""

    session: Session | None = None
    seal: bytes = b""
    first: bytes = b""
    receipt: Kept | None = None
    is_damaged: bool = False

    @property
    def epoch(self) -> int:
        return 0 if self.session is None else self.session.epoch


class Step(NamedTuple):
    """What is to be written: the session after the change, None if it ends up without one, and what belongs
    to the change. `tokens` are added to the reserved tokens if these are at most `most`; without `tokens` the
    step is written only if nothing else has changed the session since it was read. `text` is a receipt, which
    counts for `text_bytes`, or the text of a finding."""

    session: Session | None
    tokens: int | None = None
    most: int | None = None
    entry: AccountingEntry | None = None
    text: bytes = b""
    text_bytes: int = 0
    finding: str | None = None
    ends: bool | None = None


Decide = Callable[[Found], Step | None]


class Refused(Exception):
    """The tokens do not fit."""


class Sessions:
    """The sessions that one process reads and changes, and those that it has seen last."""

    def __init__(self, connection: RedisConnection, session_ms: int, entry_ms: int) -> None:
        self._redis = connection
        self._times = {"session_ms": session_ms, "entry_ms": entry_ms, "once_ms": ONCE_MS}
        self._known: dict[SessionKey, Found] = {}
        self._turns: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._prefix = secrets.token_hex(8)
        self._count = itertools.count(1)

    def reading(self, key: SessionKey, receipt: str = "") -> tuple[str | bytes, ...]:
        """The command to whose reply `found` belongs."""
        return ("HMGET", shard_of(key).key("session", key.session_id), "s", "r", "u", encoded(receipt))

    def found(self, key: SessionKey, reply: Sequence[bytes | None] | None) -> Found:
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
            what = "is damaged: its session counts as unknown. End it or PUT it again."
            self._redis.notices.warn(where, what)
        return Found(session, sealed[:SEAL], first, receipt, is_damaged)

    def forget(self, tenant: str) -> None:
        self._known = {key: found for key, found in self._known.items() if key.tenant != tenant}

    async def read(self, key: SessionKey, call_id: str | None = None, epoch: int | None = None) -> Found:
        """Reads the receipt of the call in `epoch`; None: that of the session, both at one moment."""
        guess = self._known.get(key, _UNKNOWN).epoch if epoch is None else epoch
        found = self.found(key, await self._redis.command(*self.reading(key, _field(call_id, guess))))
        while call_id is not None and epoch is None and found.epoch != guess:
            guess = found.epoch
            found = self.found(key, await self._redis.command(*self.reading(key, _field(call_id, guess))))
        return self._learn(key, found)

    async def change(
        self, key: SessionKey, decide: Decide, call_id: str | None = None, epoch: int | None = None
    ) -> Found:
        """Writes what `decide` returns; None: nothing. It sees the session as this process knows it; if that
        changed, or if `decide` returns None or raises, again as it is in Redis, with the receipt of the call.
        Returns the session afterwards."""
        once = f"{self._prefix}-{next(self._count):x}"
        await self._redis.register(shard_of(key))
        if key in self._turns:
            # What is decided before the change that is on its way would have to be decided again.
            async with self._turns[key]:
                pass
        found = await self._try(key, decide, call_id, epoch, once)
        if found is None:
            # Changes of the record take turns in this process, and so does what another change came before.
            async with self._turns.setdefault(key, asyncio.Lock()):
                while found is None:
                    found = await self._try(key, decide, call_id, epoch, once, has_turn=True)
        return found

    async def _try(
        self,
        key: SessionKey,
        decide: Decide,
        call_id: str | None,
        epoch: int | None,
        once: str,
        *,
        has_turn: bool = False,
    ) -> Found | None:
        """Returns the session afterwards, None if another change came first, or is on its way and this one
        needs a turn."""
        found, step = self._known.get(key), None
        if found is not None:
            with suppress(SpillgateError, Refused):
                step = decide(found)
        if found is None or step is None:
            found = await self.read(key, call_id, epoch)
            step = decide(found)
            if step is None:
                return found
        receipt = _field(call_id, found.epoch if epoch is None else epoch)
        if has_turn or step.tokens is not None:
            return await self._write(key, found, step, receipt, once)
        if key in self._turns:
            return None
        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self._write(key, found, step, receipt, once)

    def _learn(self, key: SessionKey, found: Found) -> Found:
        self._known.pop(key, None)
        self._known[key] = replace(found, first=b"", receipt=None)
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return found

    async def _write(
        self, key: SessionKey, found: Found, step: Step, receipt: str, once: str
    ) -> Found | None:
        """Returns the session afterwards; None if it was not as it was found."""
        shard, before, session, entry = shard_of(key), found.session, step.session, step.entry
        record = packed = group = b""
        asked: dict[str, Any] = {"shard": shard.key(""), "name": key.session_id, "bytes": step.text_bytes}
        asked |= {"tokens": step.tokens, "most": step.most, "finding": step.finding, "ends": step.ends}
        asked |= {"receipt": receipt, **self._times}
        if session is not None:
            asked |= {"used_at": session.last_used_at, "ended_at": session.ended_at}
            if step.tokens is None:
                asked |= {"was": before and before.reserved_tokens, "reserved": session.reserved_tokens}
            if step.tokens is None or before is None:
                record = seal(session)
                asked["opens"] = True if before is None else None
                asked["bytes"] += _bytes(session) - _bytes(before)
        if entry is not None:
            once, packed, group = entry.id, pack_entry(entry), pack(group_of(entry))
            handle = entry.details.tool_output_handle if entry.type is EntryType.TOOL else None
            asked |= {"at": entry.timestamp, "day": entry.timestamp // DAY_MS, "handle": handle}
            asked["amounts"] = sums_of(entry)
        given = pack({name: value for name, value in asked.items() if value is not None})
        keys = (shard.key("session", key.session_id), shard.key("once", once))
        args = (given, found.seal, found.first, record, step.text, packed, group)
        reply = await self._redis.script("session", keys, args)
        await self._redis.register(shard)
        if isinstance(reply, list):
            now = self.found(key, reply)
            self._learn(key, now)
            if now.first:
                # What is known of a session has no receipts: both are read again.
                del self._known[key]
            return None
        reserved, used_at = map(int, reply.split())
        after = session and replace(session, reserved_tokens=reserved, last_used_at=used_at)
        return self._learn(key, Found(after, record[:SEAL] or found.seal))


_UNKNOWN = Found()


def _field(call_id: str | None, epoch: int) -> str:
    return "" if call_id is None else f"{epoch}:{call_id}"


def _bytes(session: Session | None) -> int:
    return 0 if session is None else session_rules.session_usage(session).bytes
