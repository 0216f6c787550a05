"""Sessions in Redis. A process decides how a session changes; session.lua writes the change if it is still
the same."""

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from domain import accounting
from domain.accounting import DAY_MS, HISTORY_DAYS, EntryType
from domain.budget import Session
from domain.handles import SessionKey
from storage.base import session_rules
from storage.base.steps import SessionState, Step, SteppedSessions
from storage.base.summaries import amounts_of, group_of, merged
from storage.redis.acknowledged import WRITER_MS, LastAcknowledged
from storage.redis.connection import KEPT_LONGER_MS, RedisConnection
from storage.redis.keys import Shard, shard_of
from storage.redis.records import (
    SEAL,
    DamagedRecord,
    decode_call,
    encoded,
    pack,
    seal,
    unseal,
)

ONCE_MS = 60_000
"""How long Redis keeps the reply to a change, for a client that did not get it and asks again."""


class RedisSessions(SteppedSessions[str]):
    """The sessions in Redis."""

    def __init__(self, connection: RedisConnection, session_ms: int, entry_ms: int) -> None:
        super().__init__()
        self._redis = connection
        self._times = {"session_ms": session_ms + KEPT_LONGER_MS, "once_ms": ONCE_MS}
        self._times |= {"kept_ms": entry_ms, "entry_ms": entry_ms + KEPT_LONGER_MS}
        self._times["sums_ms"] = max(entry_ms, HISTORY_DAYS * DAY_MS) + KEPT_LONGER_MS
        self._prefix = secrets.token_hex(8)
        self._times["writer_ms"] = WRITER_MS
        self.acknowledged = LastAcknowledged()
        self._count = itertools.count(1)

    def reading(self, key: SessionKey, receipt: str = "") -> tuple[str | bytes, ...]:
        """The command whose reply `state_of` reads."""
        return ("HMGET", shard_of(key).key("session", key.session_id), "s", "r", "u", encoded(receipt))

    def state_of(self, key: SessionKey, reply: Sequence[bytes | None] | None) -> SessionState:
        """A damaged session counts as unknown, and so does a damaged receipt. A warning names the key."""
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

    async def _read(self, key: SessionKey, receipt: str) -> SessionState:
        return self.state_of(key, await self._redis.command(*self.reading(key, receipt)))

    def _begun(self) -> str:
        return f"{self._prefix}-{next(self._count):x}"

    async def compare(self, shards: Sequence[Shard]) -> None:
        """Asks whether Redis has all entries of these shards that it acknowledged to this process."""
        known = [
            (shard, newest) for shard in shards if (newest := self.acknowledged.newest(shard)) is not None
        ]
        keys = [shard.key("wrote", self._prefix) for shard, _ in known]
        counts = await self._redis.commands([("GET", key) for key in keys])
        for (shard, newest), key, count in zip(known, keys, counts, strict=True):
            self.acknowledged.compare(shard, newest, self._redis.counter(key, count))

    async def _write(
        self, key: SessionKey, state: SessionState, step: Step, receipt: str, attempt: str
    ) -> SessionState | None:
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
        once = attempt
        if entry is not None:
            once, packed, group = entry.id, pack(entry), pack(group_of(entry))
            others = pack(merged(group_of(entry)))
            change |= {"most_groups": accounting.MOST_GROUPS_OF_DAY, "writer": self._prefix}
            handle = entry.details.tool_output_handle if entry.type is EntryType.TOOL else None
            change |= {"at": entry.timestamp, "day": entry.timestamp // DAY_MS, "handle": handle}
            change["amounts"] = amounts_of(entry)
        fields = pack({name: value for name, value in change.items() if value is not None})
        keys = (shard.key("session", key.session_id), shard.key("once", once))
        is_same = before is not None and record[:SEAL] == state.seal
        args = (fields, state.seal, state.first, b"" if is_same else record, step.text, packed, group, others)
        reply = await self._redis.script("session", keys, args)
        self._redis.note_written(shard)
        if reply is None:
            return None
        used_at, _, number = reply.partition(b" ")
        if entry is not None:
            self.acknowledged.note(shard, newest, int(number), key, entry.timestamp)
        after = session and replace(session, last_used_at=int(used_at))
        return SessionState(after, record[:SEAL] or state.seal)


def _bytes(session: Session | None) -> int:
    return 0 if session is None else session_rules.session_usage(session).bytes
