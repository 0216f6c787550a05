"""Sessions and accounting in PostgreSQL. storage/base/session_rules.py decides how a session changes."""

from contextlib import suppress
from typing import Literal, Unpack

import asyncpg
import msgspec

from domain import accounting
from domain.accounting import DAY_MS, AccountingEntry, EntryFilter, EntryPage, EntryType
from domain.budget import Session
from domain.errors import StorageError
from domain.handles import Handle, SessionKey
from domain.ports import Charge, Load, LostWrite, SessionPage
from domain.quotas import LedgerUsage, Purged
from storage.base import cursors, session_rules
from storage.base.newest_sessions import cursor_after, position_of
from storage.base.session_rules import LedgerOptions
from storage.base.stepped_ledger import SteppedLedger
from storage.base.summaries import first_kept_day
from storage.postgres.connection import PostgresConnection
from storage.postgres.errors import unkeepable
from storage.postgres.history import PostgresHistory
from storage.postgres.rows import ENTRY_COLUMNS, SESSION_COLUMNS, entry_of, session_of, where
from storage.postgres.sessions import PostgresSessions, short
from storage.postgres.shared_clock import PostgresClock

MOST = 500
"""The most rows that one transaction deletes."""
_ROLLS = 10
"""The most transactions that delete entries for one request."""
WHOLE_DAYS_MS = 7 * DAY_MS
"""If entries are kept for at least this long, those of a day are deleted together, with their partition."""
_CLOSES_AFTER_MS = 3_600_000
"""How long after its end a day is closed."""
_DAY_SECONDS = 1800.0
"""The bound of summing up a day, which takes a second for 100,000 entries."""
_LOCK_MS = 500
"""How long all charges may wait while a partition is made or deleted."""

_SELECT = f"SELECT s.tenant, s.session_id, {SESSION_COLUMNS} FROM spillgate.sessions AS s"  # noqa: S608
_BY_ID = f"{_SELECT} WHERE tenant = $1 AND session_id > $2 AND ended_at IS NULL ORDER BY session_id LIMIT $3"
_BY_USE = (
    f"{_SELECT} WHERE tenant = $1 AND ended_at IS NULL AND (last_used_at < $2 OR last_used_at = $2"
    " AND session_id > $3) ORDER BY last_used_at DESC, session_id LIMIT $4"
)
_STORED_AT = (
    "SELECT max(\"timestamp\") FROM spillgate.entries WHERE tenant = $1 AND handle = $2 AND type = 'tool'"
)
_FINDING = "SELECT text FROM spillgate.findings WHERE tenant = $1 AND session_id = $2 AND name = $3"
_USAGES = (
    "SELECT tenant, sum(sessions)::bigint, sum(bytes)::bigint FROM spillgate.usages GROUP BY tenant"
    " HAVING sum(sessions) <> 0 OR sum(bytes) <> 0"
)
_USAGE = "SELECT sum(sessions)::bigint, sum(bytes)::bigint FROM spillgate.usages WHERE tenant = $1"
_STALE = (
    "SELECT tenant, session_id FROM spillgate.sessions WHERE ended_at IS NULL AND last_used_at <= $1"
    " OR ended_at <= $2 ORDER BY tenant, session_id"
)
_ENDED = "SELECT tenant, session_id FROM spillgate.sessions WHERE ended_at IS NOT NULL"
_ENDED_OF_TENANT = (
    "SELECT session_id FROM spillgate.sessions WHERE tenant = $1 AND ended_at IS NOT NULL"
    " ORDER BY ended_at LIMIT $2"
)
_STORES = (
    "EXISTS (SELECT FROM spillgate.entries AS e WHERE e.tenant = idle.tenant AND e.handle IS NOT NULL"
    " AND e.handle >= 'session-' || idle.session_id || '/'"
    " AND e.handle < 'session-' || idle.session_id || '0')"
)
# Looks only at the 1,000 least recently used sessions.
_IDLE_OF_TENANT = (
    "SELECT session_id FROM (SELECT * FROM spillgate.sessions WHERE tenant = $1 AND ended_at IS NULL"  # noqa: S608
    f" AND last_used_at <= $2 ORDER BY last_used_at LIMIT 1000) AS idle WHERE NOT ($4 AND {_STORES})"
    f" ORDER BY {_STORES}, last_used_at LIMIT $3"
)
_FIRST_USE = "SELECT min(last_used_at) FROM spillgate.sessions WHERE tenant = $1 AND ended_at IS NULL"
_FORGET = "SELECT spillgate.forget($1, $2, $3, $4)"
_DELETE = "SELECT * FROM spillgate.delete_entries($1, $2, $3, $4, $5)"
_ALL = 1 << 62
_encode = msgspec.msgpack.Encoder().encode


class PostgresLedger(PostgresHistory, SteppedLedger):
    _sessions: PostgresSessions

    def __init__(self, connection: PostgresConnection, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._postgres = self.connection = connection
        self._sessions = PostgresSessions(connection, self._clock, self._entry_ms)
        self.shared_clock = PostgresClock(connection)
        self._first_day = -1

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._postgres.warnings

    @property
    def load(self) -> Load:
        return self._postgres.load

    def _packed_call(self, charge: Charge) -> bytes:
        try:
            return _encode((charge.fingerprint, charge.text))
        except UnicodeEncodeError:
            raise unkeepable() from None

    def _packed_text(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise unkeepable() from None

    def _check_count(self, number: int) -> None:
        if abs(number) >= 1 << 63:
            raise unkeepable()

    async def append(self, entry: AccountingEntry) -> None:
        await super().append(entry)
        if entry.type is EntryType.LOST:
            key = SessionKey(entry.tenant, entry.session_id)
            self._sessions.acknowledged.told(LostWrite(key, entry.timestamp))

    async def lost_writes(self) -> list[LostWrite]:
        await self._sessions.acknowledged.compare()
        return self._sessions.acknowledged.lost()

    async def release(self, key: SessionKey) -> Session | None:
        session = (await self._sessions.read(key)).session
        if session is not None and session.ended_at is None:
            await self._postgres.value(_FORGET, *key, _ALL, -1)
        return session

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        if newest_first:
            used_at, session_id = position_of(cursor)
            rows = await self._postgres.many(_BY_USE, tenant, used_at, session_id, limit + 1)
        else:
            after = "" if cursor is None else cursors.decode("sessions", cursor)
            rows = await self._postgres.fetch(_BY_ID, tenant, after, limit + 1)
        read = (session_of(SessionKey(row["tenant"], row["session_id"]), row) for row in rows[:limit])
        page = [session for session in read if session is not None]
        if len(rows) <= limit:
            return SessionPage(page, None)
        last = rows[limit - 1]
        by_id, used_at = last["session_id"], last["last_used_at"]
        return SessionPage(
            page, cursor_after(used_at, by_id) if newest_first else cursors.encode("sessions", by_id)
        )

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        kind: cursors.ListName = "newest" if newest_first else "entries"
        condition, values = where(wanted)
        if cursor is not None:
            at, _, seq = cursors.decode(kind, cursor).partition(" ")
            values += [cursors.number_in(at), cursors.number_in(seq)]
            sign, place = "<" if newest_first else ">", len(values)
            # The comparison of times alone lets PostgreSQL skip partitions.
            condition += f' AND "timestamp" {sign}= ${place - 1}'
            condition += f' AND ("timestamp", seq) {sign} (${place - 1}, ${place})'
        order = "DESC" if newest_first else "ASC"
        query = (
            f"SELECT seq, {ENTRY_COLUMNS} FROM spillgate.entries WHERE {condition}"  # noqa: S608
            f' ORDER BY "timestamp" {order}, seq {order} LIMIT ${len(values) + 1}'
        )
        rows = await self._postgres.many(query, *values, limit + 1)
        page = [entry for row in rows[:limit] if (entry := entry_of(row)) is not None]
        if len(rows) <= limit:
            return EntryPage(page, None)
        last = rows[limit - 1]
        return EntryPage(page, cursors.encode(kind, f"{last['timestamp']} {last['seq']}"))

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        at: int | None = await self._postgres.value(_STORED_AT, tenant, str(handle))
        return at

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        text = await self._postgres.value(_FINDING, *key, short(f"{epoch}:{name}"))
        return None if text is None else bytes(text).decode()

    async def usage(self) -> dict[str, LedgerUsage]:
        rows = await self._postgres.fetch(_USAGES)
        return {tenant: LedgerUsage(max(0, sessions), max(0, size)) for tenant, sessions, size in rows}

    async def _usage_of(self, tenant: str) -> LedgerUsage:
        sessions, size = await self._postgres.row(_USAGE, tenant)
        return LedgerUsage(max(0, sessions or 0), max(0, size or 0))

    async def entry_count(self) -> int:
        return max(0, await self._postgres.value("SELECT sum(entries)::bigint FROM spillgate.usages") or 0)

    async def check(self) -> None:
        await self._postgres.check()
        self._sessions.check_room()

    async def close(self) -> None:
        await self._postgres.close()

    async def _roll_up(self, tenant: str, surplus: int) -> int:
        freed = 0
        for _ in range(_ROLLS):
            _, more = await self._postgres.row(_DELETE, tenant, None, surplus - freed, MOST, True)
            freed += more
            if not more or freed >= surplus:
                break
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
        until, gone = self._clock() - idle_ms, 0
        if names == "ended":
            rows = await self._postgres.fetch(_ENDED_OF_TENANT, tenant, max(0, count))
        else:
            rows = await self._postgres.fetch(_IDLE_OF_TENANT, tenant, until, max(0, count), only_empty)
        bounds = (-1, _ALL) if names == "ended" else (until, -1)
        for (name,) in rows:
            gone += bool(await self._postgres.value(_FORGET, tenant, name, *bounds))
        return gone, await self._postgres.value(_FIRST_USE, tenant) or 0

    async def sweep(self) -> list[SessionKey]:
        now = self._clock()
        oldest = now - self._entry_ms
        for tenant, name in await self._postgres.many(_STALE, now - self._session_ms, oldest):
            await self._postgres.value(_FORGET, tenant, name, now - self._session_ms, oldest)
        await self._sweep_days(now, oldest)
        return [SessionKey(*key) for key in await self._postgres.many(_ENDED)]

    async def _sweep_days(self, now: int, oldest: int) -> None:
        with suppress(StorageError):
            # If the partition cannot be made now, the first entry of its day or the next sweep makes it.
            await self._sessions.open_day(now // DAY_MS)
            await self._sessions.open_day(now // DAY_MS + 1)
        for day, closed in await self._postgres.fetch(
            "SELECT day, closed FROM spillgate.days WHERE partition IS NOT NULL"
        ):
            ends = (day + 1) * DAY_MS
            if not closed and ends + _CLOSES_AFTER_MS <= now:
                await self._day("SELECT spillgate.close_day($1, $2)", day, accounting.MOST_GROUPS_OF_DAY)
            if ends <= oldest:
                await self._day("SELECT spillgate.close_day($1, $2)", day, accounting.MOST_GROUPS_OF_DAY)
                await self._day("SELECT spillgate.detach_day($1)", day)
                await self._day("SELECT spillgate.drop_day($1)", day)
        if self._entry_ms < WHOLE_DAYS_MS:
            await self._delete_old(oldest)
        elif (first := oldest // DAY_MS * DAY_MS) > 0:
            # Entries that came after their partition was deleted.
            await self._delete_old(first - 1)
        await self._forget_sums(first_kept_day(now, self._entry_ms))

    async def _delete_old(self, until: int) -> None:
        while (await self._postgres.row(_DELETE, None, until, _ALL, MOST, True))[0]:
            pass

    async def _day(self, query: str, *values: object) -> None:
        async def act(connection: asyncpg.Connection) -> None:
            await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_MS}ms'")
            await connection.execute(self._postgres.sql(query), *values)

        await self._postgres.long(act, _DAY_SECONDS)

    async def _forget_sums(self, first: int) -> None:
        if first == self._first_day:
            return
        await self._postgres.many("SELECT spillgate.forget_days($1)", first)
        self._first_day = first

    async def delete_tenant(self, tenant: str) -> Purged:
        self._usages.pop(tenant, None)
        self._sessions.forget(tenant)
        deleted, _ = await self._postgres.row(_DELETE, tenant, None, _ALL, MOST, False)
        if deleted:
            return Purged(0, deleted, False)
        names = await self._postgres.fetch(
            "SELECT session_id FROM spillgate.sessions WHERE tenant = $1 ORDER BY session_id LIMIT $2",
            tenant,
            MOST,
        )
        for (name,) in names:
            await self._postgres.value(_FORGET, tenant, name, _ALL, _ALL)
        if names:
            return Purged(len(names), 0, False)
        await self._postgres.value("SELECT spillgate.forget_tenant($1)", tenant)
        return Purged(0, 0, True)


assert session_rules.SESSION_BYTES == 1024, "spillgate.forget counts as many"
