"""Sessions, entries and filters as SQLite rows and back."""

import sqlite3
from collections.abc import Iterable
from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from domain.accounting import AccountingEntry, EntryFilter
from domain.budget import Session
from domain.handles import SessionKey
from domain.ports import Charge
from domain.quotas import LedgerUsage
from domain.results import UsageReport
from storage.base import session_rules
from storage.base.damage import Notices
from storage.base.sql import conditions
from storage.sqlite.database import OF_ENTRY, OF_FEW
from storage.sqlite.sums import HOUR_MS, SINCE_HOUR

Row = tuple[Any, ...]
"""A row of the entries: the columns _ALWAYS, then the others of _NAMES if one of them has not its default."""

SESSION = "SELECT * FROM sessions WHERE tenant = ? AND session_id = ?"
_COUNTED = (
    "SELECT ended_at IS NULL, ? + ifnull(length(CAST(policy AS BLOB)), 0) + ifnull(length(model), 0)"
    " FROM sessions WHERE tenant = ? AND session_id = ?"
)
SAVE_SESSION = "INSERT OR REPLACE INTO sessions VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
SAVE_USE = "UPDATE sessions SET last_used_at = ?, reserved_tokens = ? WHERE tenant = ? AND session_id = ?"
SESSIONS = (
    "SELECT * FROM sessions WHERE tenant = ? AND session_id > ? AND ended_at IS NULL"
    " ORDER BY session_id LIMIT ?"
)
NEWEST_SESSIONS = (
    "SELECT * FROM sessions WHERE tenant = ? AND ended_at IS NULL"
    " AND (last_used_at < ? OR last_used_at = ? AND session_id > ?)"
    " ORDER BY last_used_at DESC, session_id LIMIT ?"
)
CALL = (
    "SELECT seq, entry, CAST(fingerprint AS TEXT), CAST(text AS TEXT) FROM entries"
    " WHERE tenant = ? AND session_id = ? AND epoch = ? AND call_id = ?"
)
FORGET_CALL = (
    "UPDATE entries SET call_id = NULL WHERE tenant = ? AND session_id = ? AND epoch = ? AND call_id = ?"
)
FINDING = (
    "SELECT CAST(text AS TEXT) FROM findings WHERE tenant = ? AND session_id = ? AND epoch = ? AND name = ?"
)
KEEP_FINDING = "INSERT OR REPLACE INTO findings VALUES (?,?,?,?,?)"
FORGET_FINDINGS = (
    "DELETE FROM findings WHERE tenant = ? AND session_id = ? RETURNING length(CAST(text AS BLOB))"
)
SAVE_USAGE = "INSERT OR REPLACE INTO tenants VALUES (?,?,?)"
FORGET_USAGE = "DELETE FROM tenants WHERE tenant = ?"
USAGES = "SELECT tenant, ifnull(CAST(sessions AS INTEGER), 0), ifnull(CAST(bytes AS INTEGER), 0) FROM tenants"
STORED_AT = (
    "SELECT max(timestamp) FROM entries WHERE tenant = ? AND handle = ? AND handle IS NOT NULL"
    " AND type = 'tool'"
)
COUNT = "SELECT ifnull((SELECT max(seq) FROM entries) - (SELECT min(seq) FROM entries) + 1, 0)"
# NOT INDEXED: with the index of another column, each page would sort all matching entries.
_ENTRIES = "SELECT seq, entry FROM entries NOT INDEXED WHERE "
_ENTRIES_OF_SESSION = "SELECT seq, entry FROM entries INDEXED BY entries_of_session WHERE "
_encoder = msgspec.json.Encoder()
_decode_entry = msgspec.json.Decoder(AccountingEntry).decode
_COLUMN_NAMES = tuple(field.name for field in fields(Session)[1:-1])
_columns_of = attrgetter(*_COLUMN_NAMES)
_values_of, _few_of = (attrgetter(*(name for _, name in columns.values())) for columns in (OF_ENTRY, OF_FEW))
_OF_PASSED = (None, None, None, False, False, False)
_ALWAYS = (*OF_ENTRY, "epoch", "entry")
_NAMES = (*_ALWAYS, *OF_FEW, "call_id", "fingerprint", "text")
_INSERTS = {
    len(names): f"INSERT INTO entries ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    for names in (_ALWAYS, _NAMES)
}
"""The statement for rows of each length."""
_CALL = tuple(map(_NAMES.index, ("tenant", "session_id", "epoch", "call_id")))
_PACKED = _NAMES.index("entry")
_decode_reports = msgspec.json.Decoder(tuple[UsageReport, ...]).decode
_DAMAGES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)
_notices = Notices()


def read_session(connection: sqlite3.Connection, key: SessionKey) -> Session | None:
    row = connection.execute(SESSION, key).fetchone()
    return None if row is None else session_of(row)


def counted_usage(connection: sqlite3.Connection, key: SessionKey) -> LedgerUsage:
    """The usage of a session as `session_rules.session_usage` counts it, from its row, even a damaged one."""
    row = connection.execute(_COUNTED, (session_rules.SESSION_BYTES, *key)).fetchone()
    return session_rules.NOTHING if row is None else LedgerUsage(*row)


def session_of(row: tuple[Any, ...]) -> Session | None:
    """None for a damaged row, which a warning names."""
    try:
        # The columns stand in the order of the fields.
        columns = dict(zip(_COLUMN_NAMES, row[2:-1], strict=True))
        session = {"key": row[:2], **columns, "reports": _decode_reports(row[-1])}
        return msgspec.convert(session, Session)
    except _DAMAGES:
        _notices.warn(
            f"ledger: session {row[0]}/{row[1]}", "is damaged and counts as unknown. PUT or end it."
        )
        return None


def entry_of(seq: int, packed: Any) -> AccountingEntry | None:
    """None for a damaged entry, which a warning names. `seq` is the number of its row."""
    try:
        return _decode_entry(packed)
    except _DAMAGES:
        _notices.warn(f"ledger: entry {seq}", "is damaged and left out.")
        return None


def read_call(
    connection: sqlite3.Connection, key: SessionKey, epoch: int, call_id: str
) -> tuple[AccountingEntry, str, str | None] | None:
    """The entry, the fingerprint and the text of a call that was settled before; None if it was not, or if
    its entry is damaged."""
    row = connection.execute(CALL, (*key, epoch, call_id)).fetchone()
    if row is None or (entry := entry_of(row[0], row[1])) is None:
        return None
    return entry, row[2], row[3]


def session_row(session: Session) -> tuple[object, ...]:
    reports = _encoder.encode(session.reports).decode() if session.reports else "[]"
    return (*session.key, *_columns_of(session), reports)


def entry_row(entry: AccountingEntry, charge: Charge | None = None) -> Row:
    packed = _encoder.encode(entry)
    row = (*_values_of(entry), None if charge is None else charge.epoch, packed)
    few = _few_of(entry)
    if charge is not None and charge.call_id is not None:
        return (*row, *few, charge.call_id, charge.fingerprint, charge.text)
    return row if few == _OF_PASSED else (*row, *few, None, None, None)


def insert(cursor: sqlite3.Cursor, entries: Iterable[Row]) -> None:
    for length, alike in groupby(entries, len):
        cursor.executemany(_INSERTS[length], alike)


def row_bytes(row: Row) -> int:
    """Returns the bytes for which the row counts in its tenant's quota."""
    return session_rules.entry_bytes(row[_PACKED], row[-1] if len(row) == len(_NAMES) else None)


def call_of(row: Row) -> Row:
    """The row of a call with an id."""
    return tuple(row[at] for at in _CALL)


def where(wanted: EntryFilter) -> tuple[str, list[object]]:
    """Returns the condition and its parameters."""
    # As a list of all tenants, because each index begins with the tenant.
    every = [] if wanted.tenant is not None else ["tenant IN (SELECT tenant FROM histories)"]
    given = conditions(wanted)
    return " AND ".join([*every, *(f"{text} ?" for text, _ in given)]), [value for _, value in given]


def entries_query(
    wanted: EntryFilter, seq: int | None, limit: int, *, newest_first: bool
) -> tuple[str, list[object]]:
    """`seq` is that of the row before the first one; None at the start."""
    condition, values = where(wanted)
    if wanted.tenant is not None and wanted.since is not None:
        # Entries are nearly in order of time: does not read those of earlier hours.
        condition += f" AND {SINCE_HOUR}"
        values += [wanted.tenant, wanted.since // HOUR_MS]
    sign, order = ("<", "DESC") if newest_first else (">", "ASC")
    if seq is not None:
        condition, values = f"{condition} AND seq {sign} ?", [*values, seq]
    select = _ENTRIES if wanted.session_id is None else _ENTRIES_OF_SESSION
    return f"{select}{condition} ORDER BY seq {order} LIMIT ?", [*values, limit]
