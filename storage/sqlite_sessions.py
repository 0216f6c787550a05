"""Sessions as the database has them, with the live ones in memory: the ledger is its file's only owner."""

import sqlite3

from domain.budget import Session
from domain.handles import SessionKey
from storage import sqlite_rows as rows

KEPT = 10_000


class SqliteSessions:
    """Read by the event loop's thread, written by the writer's. What a transaction changes is seen outside
    it when it is committed, and not before."""

    def __init__(self) -> None:
        self._committed: dict[SessionKey, Session] = {}
        self._changed: dict[SessionKey, Session] = {}
        self._forgotten: set[SessionKey] = set()

    def seen(self, key: SessionKey) -> Session | None:
        """None when it is not in memory: it may be in the database."""
        return self._committed.get(key)

    def read(self, connection: sqlite3.Connection, key: SessionKey) -> Session | None:
        """Within a transaction."""
        return self._changed.get(key) or self._committed.get(key) or rows.read_session(connection, key)

    def save(self, connection: sqlite3.Connection, session: Session) -> Session:
        connection.execute(rows.SAVE_SESSION, rows.session_row(session))
        self._changed[session.key] = session
        return session

    def charged(self, connection: sqlite3.Connection, session: Session, tokens: int, at: int) -> None:
        """As `save`, at a third of its cost: `session` differs from what is kept by this charge alone."""
        connection.execute(rows.CHARGE_SESSION, (tokens, at, *session.key))
        self._changed[session.key] = session

    def forget(self, key: SessionKey) -> None:
        self._forgotten.add(key)

    def commit(self) -> None:
        self._committed.update(self._changed)
        for key in self._forgotten:
            self._committed.pop(key, None)
        while len(self._committed) > KEPT:
            del self._committed[next(iter(self._committed))]
        self.rollback()

    def rollback(self) -> None:
        self._changed.clear()
        self._forgotten.clear()
