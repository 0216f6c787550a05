"""The database file of the ledger: tables, version, connections."""

import logging
import os
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from domain import __version__
from domain.accounting import EntryStatus, EntryType
from domain.errors import ConfigError
from domain.outcomes import OutcomeKind, Trigger
from storage.base.paths import make_directories, take_lock
from storage.base.schema import Schema, refusal
from storage.sqlite import sums
from storage.sqlite.checkpoints import WAL_BYTES, Checkpoints
from storage.sqlite.migrated_sums import migrate_sums
from storage.sqlite.spare_space import SpareSpace

log = logging.getLogger("spillgate.storage")

VERSION = 12

# Without an adapter, sqlite3 looks for methods of each of these values, and an entry has twenty. These are
# functions in C: `get` of an empty dict returns None.
for _kind in (EntryType, EntryStatus, OutcomeKind, Trigger):
    sqlite3.register_adapter(_kind, str.__str__)
sqlite3.register_adapter(type(None), dict[None, None]().get)
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(bool, int)

_COUNTED = "INTEGER NOT NULL DEFAULT 0"

OF_ENTRY = {
    "id": ("TEXT NOT NULL", "id"),
    "tenant": ("TEXT NOT NULL", "tenant"),
    "session_id": ("TEXT NOT NULL", "session_id"),
    "type": ("TEXT NOT NULL", "type"),
    "timestamp": ("INTEGER NOT NULL", "timestamp"),
    "status": ("TEXT NOT NULL", "status"),
    "tool_name": ("TEXT NOT NULL", "tool_name"),
    "outcome": ("TEXT", "outcome"),
    "model": ("TEXT", "model"),
    "latency": ("REAL NOT NULL", "latency"),
    "bytes": ("INTEGER NOT NULL", "details.bytes"),
    "tokens_in": ("INTEGER NOT NULL", "tokens_in"),
    "tokens_out": ("INTEGER NOT NULL", "tokens_out"),
    "tokens_saved": ("INTEGER NOT NULL", "tokens_saved"),
    "cost_usd": ("REAL NOT NULL", "cost_usd"),
    "observed_tokens_saved": ("INTEGER NOT NULL", "details.observed_tokens_saved"),
    "tool_kind": ("TEXT", "tool_kind"),
}
"""The columns that repeat an attribute of the entry for queries: each with its type and the attribute. The
table, its rows and their insertion are derived from it; a new column needs a migration, too."""

OF_FEW = {
    "trigger": ("TEXT", "trigger"),
    "handle": ("TEXT", "details.tool_output_handle"),
    "strategy": ("TEXT", "strategy"),
    "stored": (_COUNTED, "is_stored"),
    "found_nothing": (_COUNTED, "details.found_nothing"),
    "costs_more": (_COUNTED, "details.costs_more"),
}
"""Likewise, of entries that are not of a passed result. Other entries are inserted without them: sqlite3
takes several times as long for None and a bool as for a text."""

OF_CHARGE = {
    "epoch": "INTEGER",
    "call_id": "TEXT",
    "fingerprint": "TEXT",
    "text": "TEXT",
    "entry": "BLOB NOT NULL",
}
"""The columns after those, with their types: the charge of the entry, and the entry itself as
JSON."""

_SUMS = f"{sums.TABLES}CREATE INDEX entries_of_time ON entries (tenant, timestamp);"
_SCHEMA = """
CREATE TABLE sessions (
  tenant TEXT NOT NULL, session_id TEXT NOT NULL, epoch INTEGER NOT NULL, created_at INTEGER NOT NULL,
  last_used_at INTEGER NOT NULL, context_window INTEGER, buffer_tokens INTEGER, max_output_tokens INTEGER,
  model TEXT, policy TEXT, used_tokens INTEGER, turn INTEGER, reserved_tokens INTEGER NOT NULL,
  ended_at INTEGER, reports TEXT NOT NULL,
  PRIMARY KEY (tenant, session_id)
) WITHOUT ROWID;
CREATE TABLE entries (seq INTEGER PRIMARY KEY, {columns});
{sums}
CREATE INDEX entries_of_session ON entries (tenant, session_id, seq);
CREATE UNIQUE INDEX entries_of_call ON entries (tenant, session_id, epoch, call_id) WHERE call_id IS NOT NULL;
CREATE INDEX entries_of_handle ON entries (tenant, handle) WHERE handle IS NOT NULL;
CREATE TABLE findings (
  tenant TEXT NOT NULL, session_id TEXT NOT NULL, epoch INTEGER NOT NULL, name TEXT NOT NULL,
  text TEXT NOT NULL, PRIMARY KEY (tenant, session_id, epoch, name)
);
CREATE TABLE tenants (
  tenant TEXT PRIMARY KEY, sessions INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE pulse (one INTEGER PRIMARY KEY, beat INTEGER NOT NULL);
INSERT INTO pulse VALUES (1, 0);
CREATE TABLE written_by (one INTEGER PRIMARY KEY, version TEXT NOT NULL);
"""
_COLUMNS = {name: declared for name, (declared, _) in (OF_ENTRY | OF_FEW).items()} | OF_CHARGE
_MIGRATIONS = {
    7: "DROP TRIGGER added;",
    8: f"""
ALTER TABLE entries ADD COLUMN stored {_COUNTED};
ALTER TABLE entries ADD COLUMN first_question {_COUNTED};
ALTER TABLE entries ADD COLUMN found_nothing {_COUNTED};
ALTER TABLE entries ADD COLUMN costs_more {_COUNTED};
UPDATE entries SET stored = 1 WHERE type = 'tool' AND handle IS NOT NULL;""",  # noqa: S608
    9: "",
    10: f"""
DROP TRIGGER deleted; DROP TABLE hour_sums; DROP TABLE unsummed_hours; DROP TABLE IF EXISTS summed;
DROP INDEX sums_of_time;{_SUMS}""",
    11: "ALTER TABLE entries DROP COLUMN first_question;",
}
"""The statements that migrate each older version to the next one. For versions before _SUMS_VERSION, sums are
made after them."""
_SUMS_VERSION = 11


@dataclass(frozen=True, slots=True)
class DatabaseConnections:
    """`lock` is the open lock file. Closing it frees the database for another process."""

    lock: int
    spare: SpareSpace
    checkpoints: Checkpoints
    writer: sqlite3.Connection
    by_key: sqlite3.Connection
    long: sqlite3.Connection


def open_database(path: Path) -> DatabaseConnections:
    """Creates missing directories and tables. Raises ConfigError if the file cannot be used or is in use."""
    with ExitStack() as failed:
        try:
            make_directories(path.parent)
            lock = take_lock(path.with_name(f"{path.name}.lock"), path)
            failed.callback(os.close, lock)
            writer = _connect(_own_file(path), "rw")
            failed.callback(writer.close)
            _prepare(writer, path)
            by_key = _connect(path, "ro")
            failed.callback(by_key.close)
            spare = SpareSpace(path.with_name(f"{path.name}.reserve"))
            failed.callback(spare.close)
            long = _connect(path, "ro")
            failed.callback(long.close)
            checkpoints = Checkpoints(_connect(path, "rw"), path)
            connections = DatabaseConnections(lock, spare, checkpoints, writer, by_key, long)
        # SQLite's message may quote a damaged schema that is not UTF-8.
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            raise ConfigError(
                f"{path} cannot be used as a ledger: {why}. Name a file that this user may write, on a disk "
                "with free space; if it is damaged, restore it from a backup."
            ) from error
        failed.pop_all()
    return connections


def open_in_memory() -> sqlite3.Connection:
    """A connection to a database in memory, for reading and writing. The database ends with it."""
    connection = _connected(":memory:")
    _make_tables(connection, Path(":memory:"))
    return connection


def _own_file(path: Path) -> Path:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # SQLite gives the -wal and -shm files beside it the same mode.
    os.fchmod(fd, 0o600)
    os.close(fd)
    return path


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return _connected(f"{path.as_uri()}?mode={mode}")


def _connected(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None, check_same_thread=False)
    # Without it, a damaged text would be an error of its whole page of entries, and stop each sweep.
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise ConfigError(f"{path} is on a file system without shared memory. Put it on a local disk.")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    # See storage/sqlite/checkpoints.py.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    _make_tables(connection, path)


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Creates the tables, or migrates those of an older version, in one transaction."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    columns = ", ".join(f"{name} {declared}" for name, declared in _COLUMNS.items())
    new = _SCHEMA.format(columns=columns, sums=_SUMS)
    steps = [new] if version == 0 else [_MIGRATIONS.get(at) for at in range(version, VERSION)]
    if not steps or None in steps:
        refused = refusal(str(path), Schema(version, _written_by(connection)), VERSION)
        raise ConfigError(refused)
    connection.executescript(f"BEGIN IMMEDIATE;{''.join(filter(None, steps))}")
    if version:
        log.info("migrating %s to schema %d: about two seconds for 100,000 entries", path, VERSION)
        if version < _SUMS_VERSION:
            migrate_sums(connection, has_rolled=version == _SUMS_VERSION - 1)
    connection.execute("INSERT OR REPLACE INTO written_by VALUES (1, ?)", (__version__,))
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _written_by(connection: sqlite3.Connection) -> str:
    try:
        row = connection.execute("SELECT version FROM written_by").fetchone()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""
