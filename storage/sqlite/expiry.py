"""Deletes expired sessions and entries in bounded batches, so that no request waits long for one."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from domain.budget import Session
from domain.handles import SessionKey
from storage.base import session_rules
from storage.sqlite.rows import FORGET_FINDINGS
from storage.sqlite.state import SqliteState

MOST = 500
STALE = (
    "SELECT tenant, session_id FROM sessions WHERE ended_at IS NULL AND last_used_at <= ? OR ended_at <= ?"
)
ENDED = "SELECT tenant, session_id FROM sessions WHERE ended_at IS NOT NULL"
_FORGET_SESSION = "DELETE FROM sessions WHERE tenant = ? AND session_id = ?"
_CALLS = "SELECT seq, text FROM entries WHERE tenant = ? AND session_id = ? AND call_id IS NOT NULL LIMIT ?"
_FORGET_CALL = "UPDATE entries SET call_id = NULL, fingerprint = NULL, text = NULL WHERE seq = ?"
_OLDEST = "SELECT seq, timestamp, tenant, entry, text FROM entries ORDER BY seq LIMIT ?"
_FORGET_ENTRY = "DELETE FROM entries WHERE seq = ?"


@dataclass(frozen=True, slots=True)
class Times:
    """Unix ms. Sessions last used up to `idle_since` are deleted; entries written, and sessions ended, up to
    `oldest`."""

    idle_since: int
    oldest: int

    def forget(self, session: Session) -> bool:
        if session.ended_at is not None:
            return session.ended_at <= self.oldest
        return session.last_used_at <= self.idle_since

    @property
    def stale(self) -> list[object]:
        return [self.idle_since, self.oldest]


def forget_session(key: SessionKey, times: Times, state: SqliteState) -> Callable[[sqlite3.Connection], bool]:
    """The change returns False if the session has more calls to delete; then run it again."""

    def change(connection: sqlite3.Connection) -> bool:
        session = state.read(connection, key)
        if session is not None and not times.forget(session):
            return True
        # Calls first: a new session of the same id must not find them.
        calls = connection.execute(_CALLS, (*key, MOST)).fetchall()
        connection.executemany(_FORGET_CALL, [(seq,) for seq, _ in calls])
        state.count(key.tenant, 0, -sum(session_rules.text_bytes(text) for _, text in calls))
        if len(calls) == MOST:
            return False
        forget_findings(connection, key, state)
        connection.execute(_FORGET_SESSION, key)
        state.forget(session or session_rules.fresh(key, 0))
        return True

    return change


def forget_findings(connection: sqlite3.Connection, key: SessionKey, state: SqliteState) -> None:
    forgotten = connection.execute(FORGET_FINDINGS, key).fetchall()
    state.count(key.tenant, 0, -sum(size for (size,) in forgotten))


def forget_entries(times: Times, state: SqliteState) -> Callable[[sqlite3.Connection], bool]:
    """The change returns whether there may be more to delete. Entries are nearly in order of time."""

    def change(connection: sqlite3.Connection) -> bool:
        oldest = connection.execute(_OLDEST, (MOST,)).fetchall()
        gone = [(seq, *rest) for seq, timestamp, *rest in oldest if timestamp <= times.oldest]
        connection.executemany(_FORGET_ENTRY, [(seq,) for seq, *_ in gone])
        for _, tenant, entry, text in gone:
            state.count(tenant, 0, -session_rules.entry_bytes(entry, text))
        return bool(gone)

    return change
