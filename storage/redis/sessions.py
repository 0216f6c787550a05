"""Sessions in Redis. A process decides what becomes of one; session.lua writes it if it is still the same."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from domain import accounting
from domain.accounting import DAY_MS, HISTORY_DAYS, AccountingEntry, EntryType
from domain.budget import Session
from domain.errors import SpillgateError
from domain.handles import SessionKey
from storage.base import session_rules
from storage.base.summaries import group_of, merged, sums_of
from storage.redis.acknowledged import WRITER_MS, Acknowledged
from storage.redis.connection import KEPT_LONGER_MS, RedisConnection
from storage.redis.keys import Shard, shard_of
from storage.redis.records import (
    SEAL,
    CallRecord,
    DamagedRecord,
    decode_call,
    encoded,
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
class SessionState:
    """A session, None if it is unknown or damaged, and the receipt of a call. session.lua writes a change if
    Redis still has this `seal`, the beginning of the record, and this `first`, the bytes of the receipt."""

    session: Session | None = None
    seal: bytes = b""
    first: bytes = b""
    receipt: CallRecord | None = None
    is_damaged: bool = False

    @property
    def epoch(self) -> int:
        return 0 if self.session is None else self.session.epoch


class Step(NamedTuple):
    """What `change` writes: the session after the change, None if it is unknown and stays so, and the records
    that belong to the change. `uses`: the session is used now. `text` is a receipt or the text of a finding.
    `once`: keeps a finding that is there. `ends`: also deletes the session's findings."""

    session: Session | None
    entry: AccountingEntry | None = None
    uses: bool = True
    text: bytes = b""
    finding: str | None = None
    once: bool = False
    ends: bool = False


Decide = Callable[[SessionState], Step | None]
"""Pure. Returns None if nothing is to be written; may raise SpillgateError."""


class Sessions:
    """The sessions that one process reads and changes, and those that it has seen last."""

    def __init__(self, connection: RedisConnection, session_ms: int, entry_ms: int) -> None:
        self._redis = connection
        self._times = {"session_ms": session_ms + KEPT_LONGER_MS, "once_ms": ONCE_MS}
        self._times |= {"kept_ms": entry_ms, "entry_ms": entry_ms + KEPT_LONGER_MS}
        self._times["sums_ms"] = max(entry_ms, HISTORY_DAYS * DAY_MS) + KEPT_LONGER_MS
        self._known: dict[SessionKey, SessionState] = {}
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._prefix = secrets.token_hex(8)
        self._times["writer_ms"] = WRITER_MS
        self.acknowledged = Acknowledged()
        self._count = itertools.count(1)

    def reading(self, key: SessionKey, receipt: str = "") -> tuple[str | bytes, ...]:
        """The command whose reply `state_of` reads."""
        return ("HMGET", shard_of(key).key("session", key.session_id), "s", "r", "u", encoded(receipt))

    def state_of(self, key: SessionKey, reply: Sequence[bytes | None] | None) -> SessionState:
        """A damaged session counts as unknown, a damaged receipt too; a warning names the key."""
        sealed, reserved, used_at, first = (one or b"" for one in reply or (None,) * 4)
        session = receipt = None
        is_damaged = reply is None
        try:
            session = unseal(key, sealed, reserved, used_at) if sealed else None
            receipt = decode_call(first) if first and session else None
        except DamagedRecord:
            is_damaged = session is None
            where = shard_of(key).key("session", key.session_id)
            what = "is damaged: its session counts as unknown. End it or PUT it again."
            self._redis.notices.warn(where, what)
        return SessionState(session, sealed[:SEAL], first, receipt, is_damaged)

    def forget(self, tenant: str) -> None:
        self._known = {key: state for key, state in self._known.items() if key.tenant != tenant}

    async def read(
        self, key: SessionKey, call_id: str | None = None, epoch: int | None = None
    ) -> SessionState:
        """Reads the receipt of the call in `epoch`; None: that of the session, both at one moment."""
        guess = self._known.get(key, _UNKNOWN).epoch if epoch is None else epoch
        state = self.state_of(key, await self._redis.command(*self.reading(key, _field(call_id, guess))))
        while call_id is not None and epoch is None and state.epoch != guess:
            guess = state.epoch
            state = self.state_of(key, await self._redis.command(*self.reading(key, _field(call_id, guess))))
        return self._learn(key, state)

    async def change(
        self, key: SessionKey, decide: Decide, call_id: str | None = None, epoch: int | None = None
    ) -> tuple[SessionState, Step | None]:
        """Calls `decide` with the session as this process last saw it, and writes the step that it returns.
        If it returns None or raises, or if Redis holds another state, reads the session and the receipt of
        the call from Redis and calls `decide` again. Returns the session afterwards, and the step written."""
        if self._known_step(key, decide) is None:
            # Without the lock: most calls that only read the session end here.
            state = await self.read(key, call_id, epoch)
            if decide(state) is None:
                return state, None
        once = f"{self._prefix}-{next(self._count):x}"
        # Changes of this process wait for each other: otherwise all but one would be decided again.
        async with self._locks.setdefault(key, asyncio.Lock()):
            while True:
                state, step = self._known.get(key, _UNKNOWN), self._known_step(key, decide)
                if step is None:
                    state = await self.read(key, call_id, epoch)
                    step = decide(state)
                if step is None:
                    return state, None
                receipt = _field(call_id, state.epoch if epoch is None else epoch)
                after = await self._write(key, state, step, receipt, once)
                if after is not None:
                    return after, step

    async def compare(self, shards: Sequence[Shard]) -> None:
        """Asks whether Redis has all entries of these shards that it acknowledged to this process."""
        known = [
            (shard, newest) for shard in shards if (newest := self.acknowledged.newest(shard)) is not None
        ]
        keys = [shard.key("wrote", self._prefix) for shard, _ in known]
        counts = await self._redis.commands([("GET", key) for key in keys])
        for (shard, newest), key, count in zip(known, keys, counts, strict=True):
            self.acknowledged.compare(shard, newest, self._redis.counter(key, count))

    def _known_step(self, key: SessionKey, decide: Decide) -> Step | None:
        state = self._known.get(key)
        if state is None:
            return None
        try:
            return decide(state)
        except SpillgateError:
            # It may be the error of a session that another replica has changed since.
            return None

    def _learn(self, key: SessionKey, state: SessionState) -> SessionState:
        self._known.pop(key, None)
        self._known[key] = replace(state, first=b"", receipt=None)
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return state

    async def _write(
        self, key: SessionKey, state: SessionState, step: Step, receipt: str, once: str
    ) -> SessionState | None:
        """Returns the session afterwards; None if another replica has changed it."""
        shard, before, session, entry = shard_of(key), state.session, step.session, step.entry
        newest = self.acknowledged.newest(shard)
        record = packed = group = others = b""
        change: dict[str, Any] = {"shard": shard.key(""), "name": key.session_id, "bytes": 0}
        change |= {
            "finding": step.finding,
            "keep_first": step.once or None,
            "ends": step.ends or None,
            "receipt": receipt,
            **self._times,
        }
        if session is not None:
            record = seal(session)
            change |= {"is_known": True, "uses": step.uses, "has_ended": session.ended_at is not None}
            change |= {"was": before and before.reserved_tokens, "reserved": session.reserved_tokens}
            change["opens"] = True if before is None else None
            change["bytes"] += _bytes(session) - _bytes(before)
        if entry is not None:
            once, packed, group = entry.id, pack_entry(entry), pack(group_of(entry))
            others = pack(merged(group_of(entry)))
            change |= {"most_groups": accounting.MOST_GROUPS_OF_DAY, "writer": self._prefix}
            handle = entry.details.tool_output_handle if entry.type is EntryType.TOOL else None
            change |= {"at": entry.timestamp, "day": entry.timestamp // DAY_MS, "handle": handle}
            change["amounts"] = sums_of(entry)
        fields = pack({name: value for name, value in change.items() if value is not None})
        keys = (shard.key("session", key.session_id), shard.key("once", once))
        is_same = before is not None and record[:SEAL] == state.seal
        args = (fields, state.seal, state.first, b"" if is_same else record, step.text, packed, group, others)
        reply = await self._redis.script("session", keys, args)
        self._redis.note_written(shard)
        if reply is None:
            self._known.pop(key, None)
            return None
        used_at, _, number = reply.partition(b" ")
        if entry is not None:
            self.acknowledged.note(shard, newest, int(number), key, entry.timestamp)
        after = session and replace(session, last_used_at=int(used_at))
        return self._learn(key, SessionState(after, record[:SEAL] or state.seal))


_UNKNOWN = SessionState()


def _field(call_id: str | None, epoch: int) -> str:
    return "" if call_id is None else f"{epoch}:{call_id}"


def _bytes(session: Session | None) -> int:
    return 0 if session is None else session_rules.session_usage(session).bytes
