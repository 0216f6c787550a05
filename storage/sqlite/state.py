"""A cache of sessions and usages, and the changes that the open transaction has to write."""

import sqlite3

from domain.budget import Session
from domain.handles import SessionKey
from domain.ports import LedgerBounds, LedgerUsage
from storage.base import session_rules
from storage.sqlite import rows

KEPT = 1_000
"""Number of cached sessions. A read of another one from the database takes 20 microseconds."""


class SqliteState:
    """Committed sessions and usages are read on the event loop's thread; all else on the writer's thread.
    Readers see the changes of a transaction after its commit."""

    def __init__(self, bounds: LedgerBounds, usages: dict[str, LedgerUsage]) -> None:
        self._bounds = bounds
        self._usages = usages
        self._committed: dict[SessionKey, Session] = {}
        self._changed: dict[SessionKey, Session] = {}
        self._changed_usages: dict[str, LedgerUsage] = {}
        self._forgotten: set[SessionKey] = set()
        self._entries: list[tuple[object, ...]] = []

    def committed(self, key: SessionKey) -> Session | None:
        """None if it is not cached: it may be in the database."""
        return self._committed.get(key)

    def read(self, connection: sqlite3.Connection, key: SessionKey) -> Session | None:
        """Within a transaction."""
        if key in self._changed or key in self._forgotten:
            return self._changed.get(key)
        return self._committed.get(key) or rows.read_session(connection, key)

    def save(self, before: Session | None, session: Session) -> Session:
        """`before` is the session as it was read. Raises StoreFull, TooManySessions if this opens a session
        and the tenant has reached a bound."""
        if before is None or not session_rules.counts_alike(before, session):
            self._count_change(before, session)
        self._changed[session.key] = session
        return session

    def _count_change(self, before: Session | None, session: Session) -> None:
        old = session_rules.NOTHING if before is None else session_rules.session_usage(before)
        new = session_rules.session_usage(session)
        tenant = session.key.tenant
        if new.sessions > old.sessions:
            self.check_room(tenant, opens=True)
        if new != old:
            self.count(tenant, new.sessions - old.sessions, new.bytes - old.bytes)

    def append(self, row: tuple[object, ...], tenant: str) -> None:
        self.count(tenant, 0, rows.row_bytes(row))
        self._entries.append(row)

    def append_now(self, connection: sqlite3.Connection, row: tuple[object, ...], tenant: str) -> None:
        """For the entry of a named call: a retry in the same transaction has to find it."""
        try:
            connection.execute(rows.APPEND, row)
        except sqlite3.IntegrityError:
            # The entry of the same call is damaged: this one takes its place as the receipt.
            connection.execute(rows.FORGET_CALL, rows.call_of(row))
            connection.execute(rows.APPEND, row)
        self.count(tenant, 0, rows.row_bytes(row))

    def forget(self, session: Session) -> None:
        usage = session_rules.session_usage(session)
        self.count(session.key.tenant, -usage.sessions, -usage.bytes)
        self._forgotten.add(session.key)

    def check_room(self, tenant: str, *, opens: bool, admitted: bool = False) -> None:
        """Within a transaction. Raises StoreFull, TooManySessions."""
        session_rules.check_room(self._usage(tenant), self._bounds, opens=opens, admitted=admitted)

    def check_room_now(self, tenant: str, *, opens: bool) -> None:
        """By what is committed. Raises StoreFull, TooManySessions."""
        session_rules.check_room(self._usages.get(tenant, session_rules.NOTHING), self._bounds, opens=opens)

    def count(self, tenant: str, sessions: int, size: int) -> None:
        usage = self._usage(tenant)
        self._changed_usages[tenant] = LedgerUsage(usage.sessions + sessions, usage.bytes + size)

    def most(self) -> LedgerUsage:
        """By what is committed."""
        return session_rules.most(list(self._usages.values()))

    def _usage(self, tenant: str) -> LedgerUsage:
        return self._changed_usages.get(tenant) or self._usages.get(tenant, session_rules.NOTHING)

    def write(self, connection: sqlite3.Connection) -> None:
        """Runs once per transaction: a session that was charged many times is written once."""
        if self._entries:
            connection.executemany(rows.APPEND, self._entries)
        for session in self._changed.values():
            connection.execute(rows.SAVE_SESSION, rows.session_row(session))
        for tenant, usage in self._changed_usages.items():
            connection.execute(rows.SAVE_USAGE, (tenant, usage.sessions, usage.bytes))

    def commit(self) -> None:
        self._usages.update(self._changed_usages)
        self._committed.update(self._changed)
        for key in self._forgotten:
            self._committed.pop(key, None)
        while len(self._committed) > KEPT:
            del self._committed[next(iter(self._committed))]

    def reset(self) -> None:
        """Runs after the transaction, committed or rolled back."""
        self._changed.clear()
        self._changed_usages.clear()
        self._forgotten.clear()
        self._entries.clear()
