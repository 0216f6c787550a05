"""The live sessions in memory, and what the open transaction still has to write: a ledger owns its file."""

import sqlite3

from domain.budget import Session
from domain.handles import SessionKey
from storage import sqlite_rows as rows

KEPT = 10_000


class SqliteState:
    """Committed sessions are read on the event loop's thread; all else is the writer thread's. What a
    transaction changes is seen outside it when it is committed, and not before."""

    def __init__(self) -> None:
        self._committed: dict[SessionKey, Session] = {}
        self._changed: dict[SessionKey, Session] = {}
        self._forgotten: set[SessionKey] = set()
        self._entries: list[tuple[object, ...]] = []

    def committed(self, key: SessionKey) -> Session | None:
        """None when it is not in memory: it may be in the database."""
        return self._committed.get(key)

    def read(self, connection: sqlite3.Connection, key: SessionKey) -> Session | None:
        """Within a transaction."""
        return self._changed.get(key) or self._committed.get(key) or rows.read_session(connection, key)

    def save(self, session: Session) -> Session:
        self._changed[session.key] = session
        return session

    def append(self, row: tuple[object, ...]) -> None:
        self._entries.append(row)

    def forget(self, key: SessionKey) -> None:
        self._forgotten.add(key)

    def write(self, connection: sqlite3.Connection) -> None:
        """Once a transaction, however many changes it holds: a session that many charged is written once."""
        if self._entries:
            connection.executemany(rows.APPEND, self._entries)
        for session in self._changed.values():
            connection.execute(rows.SAVE_SESSION, rows.session_row(session))

    def commit(self) -> None:
        self._committed.update(self._changed)
        for key in self._forgotten:
            self._committed.pop(key, None)
        while len(self._committed) > KEPT:
            del self._committed[next(iter(self._committed))]

    def reset(self) -> None:
        """The transaction is over, kept or not."""
        self._changed.clear()
        self._forgotten.clear()
        self._entries.clear()
