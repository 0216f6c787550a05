"""A cache of sessions and usages; what the open transaction writes, and what it deletes to make room."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from domain.accounting import AccountingEntry
from domain.budget import Session
from domain.errors import StoreFull, TenantFull, TooManySessions
from domain.handles import SessionKey
from domain.ports import Clock
from domain.quotas import LedgerUsage, Purged, QuotaOf
from storage.base import session_rules
from storage.sqlite import rows, sums

KEPT_SESSIONS = 1_000
"""The number of cached sessions. Reading a session from the database takes 20 microseconds."""
MOST = 500
"""The most rows that one transaction deletes, so that no request waits long for it."""

STALE = (
    "SELECT tenant, session_id FROM sessions WHERE ended_at IS NULL AND last_used_at <= ? OR ended_at <= ?"
)
ENDED = "SELECT tenant, session_id FROM sessions WHERE ended_at IS NOT NULL"
_FORGET_SESSION = "DELETE FROM sessions WHERE tenant = ? AND session_id = ?"
# As session_rules.text_bytes and entry_bytes count, also for damaged columns.
_TEXT_BYTES = "ifnull(length(CAST(text AS BLOB)), 0)"
_ENTRY_BYTES = f"ifnull(2 * length(CAST(entry AS BLOB)), 0) + {_TEXT_BYTES}"
_ENTRY = f"seq, ifnull(tenant, ''), CAST(timestamp AS INTEGER), {_ENTRY_BYTES}"
_CALLS = (
    f"SELECT seq, {_TEXT_BYTES} FROM entries"  # noqa: S608
    " WHERE tenant = ? AND session_id = ? AND call_id IS NOT NULL LIMIT ?"
)
_FORGET_CALL = "UPDATE entries SET call_id = NULL, fingerprint = NULL, text = NULL WHERE seq = ?"
# Leaves out entries of the future, as after a clock was set back: they would hide expired entries.
_OLDEST = (
    f"SELECT {_ENTRY} FROM (SELECT * FROM entries WHERE timestamp <= ? ORDER BY seq LIMIT ?)"  # noqa: S608
    " WHERE timestamp <= ?"
)
_OLDEST_OF_TENANT = f"SELECT {_ENTRY} FROM entries WHERE tenant = ? ORDER BY timestamp LIMIT ?"  # noqa: S608
_ENDED_OF_TENANT = (
    "SELECT session_id FROM sessions WHERE tenant = ? AND ended_at IS NOT NULL ORDER BY ended_at LIMIT ?"
)
# Looks only at the 1,000 least recently used sessions, so that a tenant with many does not hold up the
# writer.
_IDLE_OF_TENANT = (
    "SELECT session_id FROM (SELECT * FROM sessions WHERE tenant = ? AND ended_at IS NULL"
    " AND last_used_at <= ? ORDER BY last_used_at LIMIT 1000) AS idle"
    " ORDER BY EXISTS(SELECT 1 FROM entries WHERE entries.tenant = idle.tenant AND handle IS NOT NULL"
    " AND handle >= 'session-' || idle.session_id || '/' AND handle < 'session-' || idle.session_id || '0'),"
    " last_used_at LIMIT ?"
)
_FIRST_USE = "SELECT min(last_used_at) FROM sessions WHERE tenant = ? AND ended_at IS NULL"
_OF_TENANT = f"SELECT {_ENTRY} FROM entries WHERE tenant = ? LIMIT ?"  # noqa: S608
_SESSIONS_OF_TENANT = (
    "SELECT session_id FROM sessions WHERE tenant = ? AND session_id NOT GLOB '*[^ -~]*' LIMIT ?"
)
_FORGET_DAMAGED = "DELETE FROM sessions WHERE tenant = ?"
_FORGET_ENTRY = "DELETE FROM entries WHERE seq = ?"


@dataclass(frozen=True, slots=True)
class ExpiryTimes:
    """Times in Unix ms. Deleted are sessions whose last use is at or before `idle_since`, and entries that
    were written, and sessions that ended, at or before `oldest`."""

    now: int
    idle_since: int
    oldest: int

    def forget(self, session: Session) -> bool:
        if session.ended_at is not None:
            return session.ended_at <= self.oldest
        return session.last_used_at <= self.idle_since


class SqliteState:
    """Committed sessions and usages are read on the event loop's thread; all else happens on the writer's
    thread. Readers see the changes of a transaction after its commit."""

    def __init__(
        self, quota_of: QuotaOf, max_bytes: int, usages: dict[str, LedgerUsage], clock: Clock, idle_ms: int
    ) -> None:
        """`max_bytes`: see LedgerBase."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._idle_ms = idle_ms
        self._quota_of = quota_of
        self._usages = usages
        self._committed: dict[SessionKey, Session] = {}
        self._changed: dict[SessionKey, Session] = {}
        self._changed_usages: dict[str, LedgerUsage] = {}
        self._committed_total = sum(usage.bytes for usage in usages.values())
        self._changed_total = 0
        self._forgotten: set[SessionKey] = set()
        self._entries: list[rows.Row] = []
        self._sums: sums.Added = {}
        self._groups = sums.SumGroups()

    def committed(self, key: SessionKey) -> Session | None:
        """Returns None if the session is not cached: it may be in the database."""
        return self._committed.get(key)

    def read(self, connection: sqlite3.Connection, key: SessionKey) -> Session | None:
        """Within a transaction."""
        if key in self._changed or key in self._forgotten:
            return self._changed.get(key)
        return self._committed.get(key) or rows.read_session(connection, key)

    def save(self, connection: sqlite3.Connection, before: Session | None, session: Session) -> Session:
        """`before` is the session as it was read. Raises StoreFull, TooManySessions if this opens a session
        and the tenant has reached a bound."""
        if before is None:
            self._count_change(connection, rows.counted_usage(connection, session.key), session)
        elif not session_rules.counts_alike(before, session):
            self._count_change(connection, session_rules.session_usage(before), session)
        self._changed[session.key] = session
        return session

    def _count_change(self, connection: sqlite3.Connection, old: LedgerUsage, session: Session) -> None:
        new = session_rules.session_usage(session)
        tenant = session.key.tenant
        if new.sessions > old.sessions:
            self.check_room(connection, tenant, opens=True)
        if new != old:
            self.count(tenant, new.sessions - old.sessions, new.bytes - old.bytes)

    def append(self, row: rows.Row, entry: AccountingEntry) -> None:
        self._count_entry(row, entry)
        self._entries.append(row)

    def append_now(self, connection: sqlite3.Connection, row: rows.Row, entry: AccountingEntry) -> None:
        """Inserts the entry of a named call at once, so that a retry in the same transaction finds it."""
        try:
            rows.insert(connection.cursor(), [row])
        except sqlite3.IntegrityError:
            # The existing entry of this call is damaged: this one replaces it as the receipt.
            connection.execute(rows.FORGET_CALL, rows.call_of(row))
            rows.insert(connection.cursor(), [row])
        self._count_entry(row, entry)

    def _count_entry(self, row: rows.Row, entry: AccountingEntry) -> None:
        self.count(entry.tenant, 0, rows.row_bytes(row))
        sums.collect(self._sums, entry)

    def forget_session(self, connection: sqlite3.Connection, key: SessionKey, times: ExpiryTimes) -> bool:
        """Returns False if the session has more calls to delete: then call it again."""
        session = self.read(connection, key)
        if session is not None and not times.forget(session):
            return True
        return self._forget_session(connection, key, session)

    def _forget_session(
        self, connection: sqlite3.Connection, key: SessionKey, session: Session | None
    ) -> bool:
        # Calls are deleted first: a new session with the same id must not find them.
        calls = connection.execute(_CALLS, (*key, MOST)).fetchall()
        connection.executemany(_FORGET_CALL, [(seq,) for seq, _ in calls])
        self.count(key.tenant, 0, -sum(size for _, size in calls))
        if len(calls) == MOST:
            return False
        self.forget_findings(connection, key)
        usage = session_rules.session_usage(session) if session else rows.counted_usage(connection, key)
        connection.execute(_FORGET_SESSION, key)
        self.count(key.tenant, -usage.sessions, -usage.bytes)
        self._changed.pop(key, None)
        self._forgotten.add(key)
        return True

    def keep_finding(
        self, connection: sqlite3.Connection, key: SessionKey, epoch: int, name: str, text: str
    ) -> None:
        """Keeps nothing if the tenant has reached its bound of bytes."""
        with suppress(StoreFull):
            self.check_room(connection, key.tenant, opens=False)
            before = connection.execute(rows.FINDING, (*key, epoch, name)).fetchone()
            connection.execute(rows.KEEP_FINDING, (*key, epoch, name, text))
            old = 0 if before is None else session_rules.text_bytes(before[0])
            self.count(key.tenant, 0, session_rules.text_bytes(text) - old)

    def forget_findings(self, connection: sqlite3.Connection, key: SessionKey) -> None:
        forgotten = connection.execute(rows.FORGET_FINDINGS, key).fetchall()
        self.count(key.tenant, 0, -sum(size for (size,) in forgotten))

    def forget_entries(self, connection: sqlite3.Connection, times: ExpiryTimes) -> bool:
        """Returns whether there may be more to delete. Entries are nearly in order of time."""
        gone = connection.execute(_OLDEST, (times.now, MOST, times.oldest)).fetchall()
        self._delete_entries(connection, gone)
        return bool(gone)

    def _delete_entries(
        self, connection: sqlite3.Connection, gone: Sequence[tuple[int, str, int, int]]
    ) -> None:
        """Deletes entries. Each is `seq`, tenant, time and the bytes that it counts for."""
        connection.executemany(_FORGET_ENTRY, [(seq,) for seq, *_ in gone])
        deleted = dict[str, int]()
        for _, tenant, at, size in gone:
            self.count(tenant, 0, -size)
            deleted[tenant] = max(at, deleted.get(tenant, at))
        sums.note_deleted(connection, deleted)

    def forget_groups(self, connection: sqlite3.Connection, tenant: str) -> None:
        """Deletes the groups without sums."""
        sums.forget_groups(connection, tenant)
        self._groups.forget()

    def forget_tenant(self, connection: sqlite3.Connection, tenant: str) -> Purged:
        """Deletes up to MOST entries and sessions, then everything else of the tenant."""
        entries = connection.execute(_OF_TENANT, (tenant, MOST)).fetchall()
        self._delete_entries(connection, entries)
        if entries:
            # Receipts are columns of entries: sessions are deleted after them.
            return Purged(0, len(entries), False)
        names = connection.execute(_SESSIONS_OF_TENANT, (tenant, MOST)).fetchall()
        for (name,) in names:
            key = SessionKey(tenant, name)
            self._forget_session(connection, key, self.read(connection, key))
        if names:
            return Purged(len(names), 0, False)
        # The remains of damaged rows.
        connection.execute(_FORGET_DAMAGED, (tenant,))
        if tenant in self._usages:
            left = self._usage(tenant)
            self.count(tenant, -left.sessions, -left.bytes)
        self._groups.forget()
        return Purged(0, 0, sums.forget_tenant(connection, tenant, MOST))

    def check_room(
        self, connection: sqlite3.Connection, tenant: str, *, opens: bool, admitted: bool = False
    ) -> None:
        """Runs within a transaction. If there is no room, makes room. Raises TenantFull, TooManySessions."""
        self._check_total(connection, admitted=admitted)
        quota = self._quota_of(tenant)
        try:
            session_rules.check_room(self._usage(tenant), quota, opens=opens)
        except (TenantFull, TooManySessions):
            idle = session_rules.idle_to_delete(self._usage(tenant), quota)
            self._make_room(
                connection, tenant, lambda: session_rules.surplus_bytes(self._usage(tenant), quota), idle
            )
            try:
                session_rules.check_room(self._usage(tenant), quota, opens=opens, admitted=admitted)
            except (TenantFull, TooManySessions) as error:
                (used_at,) = connection.execute(_FIRST_USE, (tenant,)).fetchone()
                idle_at = None if used_at is None else used_at + self._idle_ms
                raise session_rules.with_retry_time(error, idle_at, self._clock()) from None

    def _check_total(self, connection: sqlite3.Connection, *, admitted: bool) -> None:
        """Makes room at the bound of all tenants together. Raises StoreFull."""
        if not session_rules.surplus(self._total, self._max_bytes):
            return
        for tenant in session_rules.largest_first(self._usages | self._changed_usages):
            before = self._total
            self._make_room(connection, tenant, lambda: session_rules.surplus(self._total, self._max_bytes))
            if self._total < before:
                break
        session_rules.check_total(self._total, self._max_bytes, admitted=admitted)

    @property
    def _total(self) -> int:
        return self._committed_total + self._changed_total

    def _make_room(
        self, connection: sqlite3.Connection, tenant: str, surplus: Callable[[], int], idle: int = 0
    ) -> None:
        """Deletes, in the order that `Ledger` states, the oldest entries, then ended sessions, then idle
        ones, up to MOST of each, until `surplus` is 0. `idle`: the number of idle sessions to delete in any
        case."""
        has_more = self._delete_oldest(connection, tenant, surplus())
        if surplus() and not has_more:
            self._forget_selected(connection, tenant, _ENDED_OF_TENANT, (tenant, MOST))
        since = self._clock() - self._idle_ms
        count = MOST if surplus() and not has_more else min(idle, MOST)
        self._forget_selected(connection, tenant, _IDLE_OF_TENANT, (tenant, since, count))

    def _delete_oldest(self, connection: sqlite3.Connection, tenant: str, surplus: int) -> bool:
        """Deletes up to MOST entries. Returns whether there may be more of them."""
        gone = list[tuple[int, str, int, int]]()
        for row in connection.execute(_OLDEST_OF_TENANT, (tenant, MOST)) if surplus else ():
            if surplus <= 0:
                break
            gone.append(row)
            surplus -= row[-1]
        self._delete_entries(connection, gone)
        return len(gone) == MOST

    def _forget_selected(
        self, connection: sqlite3.Connection, tenant: str, query: str, values: tuple[object, ...]
    ) -> None:
        for (name,) in connection.execute(query, values).fetchall():
            key = SessionKey(tenant, name)
            if key not in self._changed:
                self.forget(connection, key)

    def forget(self, connection: sqlite3.Connection, key: SessionKey) -> None:
        session = self.read(connection, key)
        while not self._forget_session(connection, key, session):
            pass

    def has_room(self, tenant: str, *, opens: bool) -> bool:
        """Returns the usage as of the last commit."""
        used, quota = self._usages.get(tenant, session_rules.NOTHING), self._quota_of(tenant)
        is_full = (
            session_rules.surplus_bytes(used, quota)
            or session_rules.surplus(self._committed_total, self._max_bytes)
            or (opens and session_rules.idle_to_delete(used, quota))
        )
        return not is_full

    def count(self, tenant: str, sessions: int, size: int) -> None:
        usage = self._usage(tenant)
        # A damaged counter started at 0, so that a subtraction may go below it.
        after = LedgerUsage(max(0, usage.sessions + sessions), max(0, usage.bytes + size))
        self._changed_usages[tenant] = after
        self._changed_total += after.bytes - usage.bytes

    def usage(self) -> dict[str, LedgerUsage]:
        """Returns the usage as of the last commit."""
        return dict(self._usages)

    def _usage(self, tenant: str) -> LedgerUsage:
        return self._changed_usages.get(tenant) or self._usages.get(tenant, session_rules.NOTHING)

    def write(self, cursor: sqlite3.Cursor) -> None:
        """Runs once for each transaction: a session that was charged many times is written once."""
        rows.insert(cursor, self._entries)
        sums.add_newest(cursor, self._groups, self._sums)
        for session in self._changed.values():
            self._write_session(cursor, session)
        for tenant, usage in self._changed_usages.items():
            if usage == session_rules.NOTHING:
                cursor.execute(rows.FORGET_USAGE, (tenant,))
            else:
                cursor.execute(rows.SAVE_USAGE, (tenant, usage.sessions, usage.bytes))

    def _write_session(self, cursor: sqlite3.Cursor, session: Session) -> None:
        before = self._committed.get(session.key)
        if before is not None and session_rules.differs_by_charge(before, session):
            use = session.last_used_at, session.reserved_tokens, *session.key
            if cursor.execute(rows.SAVE_USE, use).rowcount:
                return
        cursor.execute(rows.SAVE_SESSION, rows.session_row(session))

    def commit(self) -> None:
        self._usages.update(self._changed_usages)
        self._committed_total += self._changed_total
        self._groups.commit()
        for tenant, usage in self._changed_usages.items():
            if usage == session_rules.NOTHING:
                del self._usages[tenant]
        self._committed.update(self._changed)
        for key in self._forgotten:
            self._committed.pop(key, None)
        while len(self._committed) > KEPT_SESSIONS:
            del self._committed[next(iter(self._committed))]

    def reset(self) -> None:
        """Runs after the transaction, committed or rolled back."""
        self._changed.clear()
        self._changed_usages.clear()
        self._changed_total = 0
        self._forgotten.clear()
        self._entries.clear()
        self._sums.clear()
        self._groups.reset()
