"""Sessions in PostgreSQL. A process decides how a session changes; spillgate.step writes the change if the
session is still the same."""

import hashlib
import secrets
import time
from dataclasses import dataclass

import asyncpg
import msgspec

from domain.accounting import DAY_MS, AccountingEntry
from domain.errors import StoreFull
from domain.handles import SessionKey
from domain.ports import Clock
from storage.base import session_rules
from storage.base.steps import CallRecord, SessionState, Step, SteppedSessions
from storage.postgres.acknowledged import RecentlyAcknowledged
from storage.postgres.connection import PostgresConnection
from storage.postgres.errors import CONFLICTS
from storage.postgres.rows import (
    ENTRY_COLUMNS,
    NO_ENTRY,
    SESSION_COLUMNS,
    entry_arguments,
    entry_of,
    session_arguments,
    session_of,
)

_LONGEST_NAME = 400
"""A longer name of a receipt or a finding is kept as its hash: an index takes no more than 2,700 bytes."""

_AHEAD_DAYS = 2
_FULL_SECONDS = 60.0
_NOT_WRITTEN = (None,) * 13
_SETTLED = "SG001"
_STEP = f"SELECT spillgate.step({', '.join(f'${number}' for number in range(1, 53))})"
_SESSION = f"SELECT {SESSION_COLUMNS} FROM spillgate.sessions AS s WHERE s.tenant = $1 AND s.session_id = $2"  # noqa: S608
_WITH_CALL = (
    f"SELECT {SESSION_COLUMNS}, r.packed, r.at, r.entry_id FROM spillgate.sessions AS s"  # noqa: S608
    " LEFT JOIN spillgate.receipts AS r ON r.tenant = $1 AND r.session_id = $2 AND r.call = $3"
    " WHERE s.tenant = $1 AND s.session_id = $2"
)
_ENTRY = (
    f"SELECT {ENTRY_COLUMNS} FROM spillgate.entries"  # noqa: S608
    ' WHERE tenant = $1 AND "timestamp" = $2 AND id = $3'
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str | None]).decode
_DANGLING = b"-"
"""Stands for a receipt whose entry was deleted."""


@dataclass(slots=True)
class WriteAttempt:
    """An attempt to write a step. `is_lost`: its answer was lost, and it may have been written."""

    is_lost: bool = False


class PostgresSessions(SteppedSessions[WriteAttempt]):
    """The sessions in PostgreSQL."""

    def __init__(self, connection: PostgresConnection, clock: Clock, entry_ms: int) -> None:
        super().__init__()
        self._postgres = connection
        self._clock = clock
        self._entry_ms = entry_ms
        self._days: set[int] = set()
        self._step = connection.sql(_STEP)
        self._full: tuple[StoreFull, float] | None = None
        self.acknowledged = RecentlyAcknowledged(connection)

    async def _read(self, key: SessionKey, receipt: str) -> SessionState:
        if not receipt:
            row = await self._postgres.row(_SESSION, *key)
        else:
            row = await self._postgres.row(_WITH_CALL, *key, short(receipt))
        if row is None:
            return SessionState()
        session = session_of(key, row)
        if not receipt or row["packed"] is None:
            return SessionState(session, row["seal"], is_damaged=session is None)
        found = await self._postgres.row(_ENTRY, key.tenant, row["at"], row["entry_id"])
        entry = None if found is None else entry_of(found)
        if entry is None:
            return SessionState(session, row["seal"], _DANGLING, is_damaged=session is None)
        record = CallRecord(entry, *_decode(row["packed"]))
        return SessionState(session, row["seal"], _DANGLING, record, is_damaged=session is None)

    def forget(self, tenant: str) -> None:
        super().forget(tenant)
        self.acknowledged.forget(tenant)

    def check_room(self) -> None:
        """Raises StoreFull if there was no room for the last entry. What `check` writes needs no room, and
        would not show it."""
        if self._full is not None and time.monotonic() < self._full[1] + _FULL_SECONDS:
            raise StoreFull(self._full[0].detail, cause=self._full[0].cause)

    def _begun(self) -> WriteAttempt:
        return WriteAttempt()

    async def _write(
        self, key: SessionKey, state: SessionState, step: Step, receipt: str, attempt: WriteAttempt
    ) -> SessionState | None:
        session, entry = step.session, step.entry
        seal = new_seal() if session is not None else None
        if attempt.is_lost and entry is not None and await self._has(entry):
            # Written by an attempt whose answer was lost.
            return await self._read(key, "")
        if entry is not None:
            await self._open_day(entry.timestamp // DAY_MS)
        arguments = self._arguments(key, state, step, receipt, seal)

        async def write(connection: asyncpg.Connection, is_again: bool) -> bool:
            attempt.is_lost |= is_again
            try:
                return bool(await connection.fetchval(self._step, *arguments))
            except asyncpg.PostgresError as error:
                if error.sqlstate == _SETTLED or isinstance(error, CONFLICTS):
                    return False
                raise

        try:
            is_written = await self._postgres.run(write)
        except StoreFull as error:
            self._full = error, time.monotonic()
            raise
        if entry is not None and is_written:
            self._full = None
        if not is_written:
            return await self._lost_step(key, step, seal, attempt)
        if entry is not None:
            self.acknowledged.note(entry)
        return SessionState(session, seal or b"")

    async def _lost_step(
        self, key: SessionKey, step: Step, seal: bytes | None, attempt: WriteAttempt
    ) -> SessionState | None:
        """The current session, if an attempt whose answer was lost has written the step."""
        if not attempt.is_lost:
            return None
        state = await self._read(key, "")
        if (seal is not None and state.seal == seal) or (step.entry and await self._has(step.entry)):
            return state
        return None

    def _arguments(
        self, key: SessionKey, state: SessionState, step: Step, receipt: str, seal: bytes | None
    ) -> tuple[object, ...]:
        before, session, entry = state.session, step.session, step.entry
        written = _NOT_WRITTEN if session is None else session_arguments(session)
        only_use = (
            session is not None and before is not None and session_rules.differs_by_charge(before, session)
        )
        old = session_rules.NOTHING if before is None else session_rules.session_usage(before)
        new = session_rules.NOTHING if session is None else session_rules.session_usage(session)
        return (
            *key,
            state.seal or None,
            seal,
            only_use,
            *written,
            new.sessions - old.sessions,
            new.bytes - old.bytes,
            step.ends,
            short(receipt) if receipt else None,
            bool(state.first),
            None if step.finding is None else short(step.finding),
            step.once,
            step.text,
            *(NO_ENTRY if entry is None else entry_arguments(entry)),
        )

    async def _has(self, entry: AccountingEntry) -> bool:
        return await self._postgres.row(_ENTRY, entry.tenant, entry.timestamp, entry.id) is not None

    async def _open_day(self, day: int) -> None:
        """Makes the partition of a day that is near, once."""
        if day in self._days:
            return
        now = self._clock()
        if (now - self._entry_ms) // DAY_MS <= day <= now // DAY_MS + _AHEAD_DAYS:
            await self.open_day(day)

    async def open_day(self, day: int) -> None:
        await self._postgres.value("SELECT spillgate.open_day($1)", day)
        self._days.add(day)


def short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def new_seal() -> bytes:
    return secrets.token_bytes(8)
