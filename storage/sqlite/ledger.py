"""Sessions and accounting in SQLite: in one file, or in memory.

With a file, a killed process loses nothing that was acknowledged; a power cut may lose the last seconds of
accounting (`synchronous = NORMAL`), never a stored body.
"""

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, GroupBy, Summary
from domain.budget import Reported, Session, SessionChange
from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Entered, Load, Receipt, SessionPage
from domain.quotas import LedgerUsage, Purged
from domain.results import UsageReport
from storage.base import cursors, session_rules
from storage.base.newest_sessions import cursor_after, position_of
from storage.base.paths import WatchedPath, used_share
from storage.base.session_rules import LedgerBase, LedgerOptions
from storage.base.summaries import first_kept_day
from storage.base.threads import Threads
from storage.sqlite import rows, sums
from storage.sqlite.database import open_database, open_in_memory
from storage.sqlite.group_commit import UNKEEPABLE, GroupCommit, Writer, translated, unkeepable
from storage.sqlite.state import ENDED, MOST, STALE, ExpiryTimes, SqliteState
from storage.sqlite.summary import summary

T = TypeVar("T")


class DatabaseLedger(LedgerBase):
    """Reads by key use the connection `by_key` on the event loop's thread: another thread would take ten
    times as long."""

    _state: SqliteState
    _writer: Writer
    _by_key: sqlite3.Connection
    _long: sqlite3.Connection

    def __init__(self, path: Path, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(**options)
        self._path = path
        self._forgotten_hour = self._first_day = -1

    def _state_of(self, connection: sqlite3.Connection) -> SqliteState:
        usages = {tenant: LedgerUsage(*usage) for tenant, *usage in connection.execute(rows.USAGES)}
        return SqliteState(self._quota_of, self._max_bytes, usages, self._clock, self._idle_ms)

    async def enter(self, call: Call) -> Entered:
        known = self._state.committed(call.key)
        if known is None or call.call_id is not None or call.report is not None:
            return await self._entered(call)
        # Without a call id there is nothing to look up.
        session_rules.alive(known)
        if not self._state.has_room(call.key.tenant, opens=False):
            await self._make_room(call.key.tenant, opens=False)
        return Entered(known)

    async def _entered(self, call: Call) -> Entered:
        key, now = call.key, self._clock()

        def look(connection: sqlite3.Connection) -> tuple[Session | None, Entered]:
            known = self._read_now(connection, key)
            return known, _look(connection, known, call, now)

        known, entered = self._now(look)
        if entered.receipt is not None:
            return entered
        opens = known is None and not self._now(partial(rows.counted_usage, key=key)).sessions
        if not self._state.has_room(key.tenant, opens=opens):
            await self._make_room(key.tenant, opens=opens)
        report = call.report
        if report is None or entered.session.reported(report).session is entered.session:
            return entered

        def apply(connection: sqlite3.Connection) -> Entered:
            before = self._state.read(connection, key)
            entered = _look(connection, before, call, now)
            if entered.receipt is not None:
                return entered
            after = session_rules.reported(entered.session, report, now)
            return Entered(self._state.save(connection, before, after.session), warning=after.warning)

        return await self._writer.run(apply)

    async def _make_room(self, tenant: str, *, opens: bool) -> None:
        """Raises TenantFull, TooManySessions."""
        await self._writer.run(partial(self._state.check_room, tenant=tenant, opens=opens))

    async def _charge(self, charge: Charge, *, forced: bool) -> Receipt | None:
        row = _row(charge.entry, charge)
        return await self._writer.run(partial(_charge, self._state, charge, row, forced, self._clock()))

    async def append(self, entry: AccountingEntry) -> None:
        row = _row(entry)

        def change(connection: sqlite3.Connection) -> None:
            self._state.check_room(
                connection, entry.tenant, opens=False, admitted=session_rules.is_admitted(entry)
            )
            self._state.append(row, entry)
            session = self._state.read(connection, SessionKey(entry.tenant, entry.session_id))
            if session is not None:
                self._state.save(connection, session, session_rules.used(session, self._clock()))

        await self._writer.run(change)

    async def session(self, key: SessionKey) -> Session | None:
        return self._now(lambda connection: self._read_now(connection, key))

    async def put_session(self, key: SessionKey, change: SessionChange) -> Session:
        now = self._clock()

        def put(connection: sqlite3.Connection) -> Session:
            before = self._state.read(connection, key)
            return self._state.save(connection, before, session_rules.opened(before, key, change, now))

        return await self._writer.run(put)

    async def report(self, key: SessionKey, report: UsageReport) -> Reported:
        now = self._clock()

        def apply(connection: sqlite3.Connection) -> Reported:
            before = self._state.read(connection, key)
            after = session_rules.reported(before or session_rules.fresh(key, now), report, now)
            self._state.save(connection, before, after.session)
            return after

        return await self._writer.run(apply)

    async def end(self, key: SessionKey) -> Session | None:
        now = self._clock()

        def end(connection: sqlite3.Connection) -> Session | None:
            before = self._state.read(connection, key)
            if before is None and connection.execute(rows.SESSION, key).fetchone() is None:
                return None
            self._state.forget_findings(connection, key)
            # `before` is None for a damaged session.
            after = session_rules.ended(before or session_rules.fresh(key, now), now)
            return self._state.save(connection, before, after)

        return await self._writer.run(end, deletes=True)

    async def release(self, key: SessionKey) -> Session | None:
        def release(connection: sqlite3.Connection) -> Session | None:
            session = self._state.read(connection, key)
            if session is not None and session.ended_at is None:
                self._state.forget(connection, key)
            return session

        return await self._writer.run(release, deletes=True)

    async def sessions(
        self, tenant: str, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> SessionPage:
        if newest_first:
            used_at, session_id = position_of(cursor)
            values = [tenant, used_at, used_at, session_id, limit + 1]
            records = await self._later(rows.NEWEST_SESSIONS, values)
        else:
            after = "" if cursor is None else cursors.decode("sessions", cursor)
            records = await self._later(rows.SESSIONS, [tenant, after, limit + 1])
        page = [session for row in records[:limit] if (session := rows.session_of(row)) is not None]
        if len(records) <= limit:
            return SessionPage(page, None)
        _, session_id, _, _, used_at, *_ = records[limit - 1]
        more = cursor_after(used_at, session_id) if newest_first else cursors.encode("sessions", session_id)
        return SessionPage(page, more)

    async def entries(
        self, wanted: EntryFilter, limit: int, cursor: str | None, *, newest_first: bool = False
    ) -> EntryPage:
        kind: cursors.ListName = "newest" if newest_first else "entries"
        seq = None if cursor is None else cursors.decode_number(kind, cursor)
        records = await self._later(*rows.entries_query(wanted, seq, limit + 1, newest_first=newest_first))
        page = [entry for row in records[:limit] if (entry := rows.entry_of(*row)) is not None]
        more = cursors.encode(kind, str(records[limit - 1][0])) if len(records) > limit else None
        return EntryPage(page, more)

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        def read() -> Summary:
            with self._long as connection:
                # One snapshot for all statements: an entry may be deleted between two of them.
                connection.execute("BEGIN")
                return summary(connection, wanted, group_by, oldest)

        oldest = self._clock() - self._entry_ms
        return await self._on_thread(read)

    async def stored_at(self, tenant: str, handle: Handle) -> int | None:
        row = self._now(
            lambda connection: connection.execute(rows.STORED_AT, (tenant, str(handle))).fetchone()
        )
        timestamp: int | None = row[0]
        return timestamp

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        values = (*key, epoch, name)
        row = self._now(lambda connection: connection.execute(rows.FINDING, values).fetchone())
        return None if row is None else str(row[0])

    async def keep_finding(
        self, key: SessionKey, epoch: int, name: str, text: str, *, once: bool = False
    ) -> None:
        def keep(connection: sqlite3.Connection) -> None:
            session = self._state.read(connection, key)
            if session is None or not session_rules.keeps(session, epoch):
                return
            if not (once and connection.execute(rows.FINDING, (*key, epoch, name)).fetchone()):
                self._state.keep_finding(connection, key, epoch, name, text)

        await self._writer.run(keep)

    async def sweep(self) -> list[SessionKey]:
        now = self._clock()
        times, state = ExpiryTimes(now, now - self._session_ms, now - self._entry_ms), self._state
        for stale in await self._later(STALE, [times.idle_since, times.oldest]):
            forget = partial(state.forget_session, key=SessionKey(*stale), times=times)
            while not await self._writer.run(forget, deletes=True):
                pass
        while await self._writer.run(partial(state.forget_entries, times=times), deletes=True):
            pass
        await self._forget_sums(times)
        return [SessionKey(*key) for key in await self._later(ENDED, [])]

    async def _forget_sums(self, times: ExpiryTimes) -> None:
        """Deletes old sums, once an hour, after the entries of that hour were deleted."""
        if (hour := times.oldest // sums.HOUR_MS) == self._forgotten_hour:
            return
        first_day = first_kept_day(times.now, times.now - times.oldest)
        for (tenant,) in await self._later(sums.TENANTS, []):
            forget = partial(sums.forget, tenant=tenant, oldest=times.oldest, first_day=first_day, most=MOST)
            while not await self._writer.run(forget, deletes=True):
                pass
            if first_day != self._first_day:
                await self._writer.run(partial(self._state.forget_groups, tenant=tenant), deletes=True)
        self._forgotten_hour, self._first_day = hour, first_day

    async def delete_tenant(self, tenant: str) -> Purged:
        return await self._writer.run(partial(self._state.forget_tenant, tenant=tenant), deletes=True)

    async def usage(self) -> dict[str, LedgerUsage]:
        return self._state.usage()

    async def entry_count(self) -> int:
        """Counted from the lowest row number to the highest, which is fast: entries of a deleted tenant are
        included until they would have expired."""
        count: tuple[int] = self._now(lambda connection: connection.execute(rows.COUNT).fetchone())
        return count[0]

    async def check(self) -> None:
        def beat(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE pulse SET beat = beat + 1")

        await self._writer.run(beat)

    def _read_now(self, connection: sqlite3.Connection, key: SessionKey) -> Session | None:
        return self._state.committed(key) or rows.read_session(connection, key)

    def _now(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return read(self._by_key)
        except UNKEEPABLE:
            raise unkeepable() from None
        except sqlite3.Error as error:
            raise translated(error, str(self._path)) from error

    async def _later(self, query: str, values: list[object]) -> list[tuple[Any, ...]]:
        return await self._on_thread(lambda: self._long.execute(query, values).fetchall())

    async def _on_thread(self, read: Callable[[], T]) -> T:
        try:
            return await self._begin(read)
        except sqlite3.Error as error:
            raise translated(error, str(self._path)) from error

    async def _begin(self, read: Callable[[], T]) -> T:
        """Runs a read on the connection `long`."""
        return read()


class MemoryLedger(DatabaseLedger):
    """A ledger in memory. No method awaits anything, so each is atomic."""

    load = Load()
    warnings = ("Sessions and accounting are kept in the memory of this process: they end with it.",)

    def __init__(self, **options: Unpack[LedgerOptions]) -> None:
        super().__init__(Path(":memory:"), **options)
        self._by_key = self._long = connection = open_in_memory()
        self._state = self._state_of(connection)
        self._writer = Writer(connection, self._state)

    async def close(self) -> None:
        await self._writer.close()


class SqliteLedger(DatabaseLedger):
    """Three connections: the writer on its own thread, one for reads by key, one for long reads on a thread
    of its own."""

    warnings: tuple[str, ...] = ()

    def __init__(self, path: Path, **options: Unpack[LedgerOptions]) -> None:
        # As SQLite does: it follows links, and puts the -wal file beside the file itself. The lock is there,
        # too.
        link, path = path, Path(os.path.realpath(path))
        super().__init__(path, **options)
        database = open_database(path)
        self._lock = database.lock
        self._state = self._state_of(database.writer)
        # Without its -wal file the database lacks all commits since the last checkpoint; without its lock,
        # another process may write to it.
        files = [link, *(path.with_name(f"{path.name}{end}") for end in ("-wal", ".lock"))]
        self._watched = [WatchedPath(one, f"The ledger's file {one.name}") for one in files]
        self._writer = GroupCommit(
            database.writer, self._state, self._check_paths, database.spare, database.checkpoints
        )
        self._by_key = database.by_key
        self._long = database.long
        self._threads = Threads(1, "ledger-read")
        self._is_closed = False

    @property
    def load(self) -> Load:
        return Load(waiting=self._writer.pending, medium_share=used_share(self._path))

    async def _begin(self, read: Callable[[], T]) -> T:
        return await self._threads.run(read)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._threads.close()
        self._long.close()
        self._by_key.close()
        # The writer last: the last connection to close makes a checkpoint of the -wal file.
        await self._writer.close()
        os.close(self._lock)

    def _check_paths(self) -> None:
        for path in self._watched:
            path.check()


def _look(connection: sqlite3.Connection, session: Session | None, call: Call, now: int) -> Entered:
    """Returns the session, and the receipt if the call was settled before. Raises SessionEnded."""
    session = session_rules.alive(session or session_rules.fresh(call.key, now))
    if call.call_id is None:
        return Entered(session)
    first = rows.read_call(connection, call.key, session.epoch, call.call_id)
    return Entered(session) if first is None else session_rules.enter_retry(session, call, *first)


def _charge(
    state: SqliteState, charge: Charge, row: rows.Row, forced: bool, now: int, connection: sqlite3.Connection
) -> Receipt | None:
    before = state.read(connection, charge.key)
    if charge.call_id is not None:
        first = rows.read_call(connection, charge.key, charge.epoch, charge.call_id)
        if first is not None:
            session = before or session_rules.fresh(charge.key, charge.entry.timestamp)
            return session_rules.retry_receipt(session, charge, *first)
    session = session_rules.session_to_charge(before, charge)
    admitted = session_rules.is_admitted(charge.entry)
    opens = before is None and not rows.counted_usage(connection, charge.key).sessions
    state.check_room(connection, charge.key.tenant, opens=opens, admitted=admitted)
    budget = session.budget(charge.default_window, charge.enforce)
    if not forced and not budget.fits(charge.tokens):
        return None
    state.save(connection, before, session_rules.charged(session, charge, now))
    if charge.call_id is None:
        state.append(row, charge.entry)
    else:
        state.append_now(connection, row, charge.entry)
    if charge.text is not None and charge.kept_as is not None:
        state.keep_finding(connection, charge.key, charge.epoch, charge.kept_as, charge.text)
    return session_rules.receipt(budget, charge)


def _row(entry: AccountingEntry, charge: Charge | None = None) -> rows.Row:
    try:
        return rows.entry_row(entry, charge)
    except UNKEEPABLE:
        raise unkeepable() from None
