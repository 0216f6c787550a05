"""Sums of each hour and each day by group, written in the transaction of their entries. A summary of 30 days
reads them in place of a million entries.

Sums of hours are faster to read than entries, and are deleted with them; they have neither key nor client.
Sums of days outlive their entries: see storage/base/summaries.py.

Hours and days are numbered since 1970. In a group, the column of a value that an entry does not have is x'',
because NULL is not unique; the column of a merged value is x'00'.
"""

import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from itertools import compress

from domain import accounting
from domain.accounting import DAY_MS, GAPS_OF_TYPES, PERIOD_MS, AccountingEntry, GroupBy
from storage.base.summaries import (
    AMOUNTS,
    GROUPED,
    MERGED,
    Amounts,
    FieldValue,
    Group,
    added_up,
    amounts_of,
    group_of,
    merged,
)

HOUR_MS = PERIOD_MS[GroupBy.HOUR]

NOT_TOLD = b"\0"
"""The value of a field in the sums of merged groups."""

_MOST_KNOWN = 20_000

END = (1 << 62) // DAY_MS * DAY_MS
"""Later than every time."""

_REAL = ("latency", "cost_usd", "latency_max")
_AMOUNTS = ", ".join(f"{name} {'REAL' if name in _REAL else 'INTEGER'} NOT NULL" for name in AMOUNTS)
_NAMES = ", ".join(GROUPED)

TABLES = f"""
CREATE TABLE sum_groups (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, {", ".join(f"{name} TEXT NOT NULL" for name in GROUPED)},
  UNIQUE (tenant, {_NAMES})
);
CREATE TABLE period_sums (
  tenant TEXT NOT NULL, length INTEGER NOT NULL, period INTEGER NOT NULL, group_id INTEGER NOT NULL,
  first_seq INTEGER NOT NULL, {_AMOUNTS},
  PRIMARY KEY (tenant, length, period, group_id)
) WITHOUT ROWID;
CREATE INDEX entries_of_gaps ON entries (tenant, timestamp) WHERE type IN {tuple(GAPS_OF_TYPES)};
CREATE TABLE histories (
  tenant TEXT PRIMARY KEY, deleted INTEGER NOT NULL DEFAULT -1, forgotten INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""
"""Sums refer to their group by a number, which takes half the time and space. `first_seq`: no entry of the
period has a lower `seq`. `histories` has a row for each tenant with sums: some entries up to `deleted`, and
some sums of days up to `forgotten` (Unix ms), are missing."""

SUMS = f"(SELECT period_sums.*, {_NAMES} FROM period_sums CROSS JOIN sum_groups ON id = group_id)"  # noqa: S608
"""Sums with the values of their groups, as a table for queries. CROSS JOIN makes SQLite read in the order of
the periods."""

_ID = f"SELECT id FROM sum_groups WHERE (tenant, {_NAMES}) = (?{', ?' * len(GROUPED)})"  # noqa: S608
_NEW_ID = f"INSERT INTO sum_groups (tenant, {_NAMES}) VALUES (?{', ?' * len(GROUPED)})"  # noqa: S608
_ADDED = {name: f"{name} = {name} + ?" for name in AMOUNTS} | {
    "latency_max": "latency_max = max(latency_max, ?)"
}
_PLACE = " WHERE tenant = ? AND length = ? AND period = ? AND group_id = ?"
_INSERT = f"INSERT INTO period_sums VALUES (?, ?, ?, ?, ?{', ?' * len(AMOUNTS)})"  # noqa: S608
_FIRST_SEQ = "SELECT ifnull(max(seq), 0) - ? + 1 FROM entries"
_COUNT = "SELECT count(*) FROM period_sums WHERE tenant = ? AND length = ? AND period = ?"
_BEGIN_HISTORY = "INSERT OR IGNORE INTO histories (tenant) VALUES (?)"
_NOTE_DELETED = (
    "INSERT INTO histories (tenant, deleted) VALUES (?, ?)"
    " ON CONFLICT DO UPDATE SET deleted = max(deleted, excluded.deleted)"
)
_NOTE_FORGOTTEN = "UPDATE histories SET forgotten = ? WHERE tenant = ? AND forgotten < ?"
_END_HISTORY = "DELETE FROM histories WHERE tenant = ?"
TENANTS = "SELECT tenant FROM histories"
_STEP = (
    "SELECT period + 1 FROM period_sums WHERE tenant = ? AND length = ? AND period < ?"
    " ORDER BY period LIMIT 1 OFFSET ?"
)
_FORGET = "DELETE FROM period_sums WHERE tenant = ? AND length = ? AND period < ?"
_FORGET_GROUPS = (
    "DELETE FROM sum_groups WHERE tenant = ?"
    " AND id NOT IN (SELECT group_id FROM period_sums WHERE period_sums.tenant = ?)"
)

SINCE_HOUR = (
    f"seq >= ifnull((SELECT min(first_seq) FROM period_sums WHERE tenant = ? AND length = {HOUR_MS}"  # noqa: S608
    f" AND period >= ?), {END})"
)
"""A condition that is true for all entries of a tenant from an hour on, and for few others."""

Added = dict[tuple[str, int, Group], list[Amounts]]
"""Amounts of new entries by tenant, hour and group."""


def collect(added: Added, entry: AccountingEntry) -> None:
    key = entry.tenant, entry.timestamp // HOUR_MS, group_of(entry)
    added.setdefault(key, []).append(amounts_of(entry))


class SumGroups:
    """The numbers of groups that the writer knows. Numbers from a transaction are kept once it is
    committed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Group], tuple[int, int]] = {}
        self._new: dict[tuple[str, Group], tuple[int, int]] = {}

    def numbers(self, cursor: sqlite3.Cursor, tenant: str, group: Group) -> tuple[int, int]:
        """The numbers of the group in sums of hours and in sums of days."""
        key = tenant, group
        found = self._known.get(key) or self._new.get(key)
        if found is None:
            of_hours = _number(cursor, tenant, (*group[:-2], MERGED, MERGED))
            found = self._new[key] = of_hours, _number(cursor, tenant, group)
        return found

    def commit(self) -> None:
        if self._new:
            self._known.update(self._new)
        if len(self._known) > _MOST_KNOWN:
            self.forget()

    def reset(self) -> None:
        """After each transaction, committed or rolled back."""
        self._new.clear()

    def forget(self) -> None:
        self._known.clear()


def add_newest(cursor: sqlite3.Cursor, groups: SumGroups, added: Added) -> None:
    """Adds the sums of entries at the end of the transaction that has inserted them."""

    def first_seq() -> int:
        count = sum(map(len, added.values()))
        seq: int = cursor.execute(_FIRST_SEQ, (count,)).fetchone()[0]
        return seq

    add(cursor, groups, added, first_seq)


def add(cursor: sqlite3.Cursor, groups: SumGroups, added: Added, first_seq: Callable[[], int]) -> None:
    """Adds sums to their hours and days. `first_seq`: none of their entries has a lower one."""
    for (tenant, hour, group), each in added.items():
        amounts, day = added_up(each), hour * HOUR_MS // DAY_MS
        of_hours, of_days = groups.numbers(cursor, tenant, group)
        # Only amounts that are not 0, which are few: each column takes as long as a small statement.
        addition, values = _addition(tuple(map(bool, amounts))), (*filter(None, amounts), tenant)
        if not cursor.execute(addition, (*values, HOUR_MS, hour, of_hours)).rowcount:
            cursor.execute(_INSERT, (tenant, HOUR_MS, hour, of_hours, first_seq(), *amounts))
        if cursor.execute(addition, (*values, DAY_MS, day, of_days)).rowcount:
            continue
        cursor.execute(_BEGIN_HISTORY, (tenant,))
        (count,) = cursor.execute(_COUNT, (tenant, DAY_MS, day)).fetchone()
        if count >= accounting.MOST_GROUPS_OF_DAY:
            of_days = _number(cursor, tenant, merged(group))
            if cursor.execute(addition, (*values, DAY_MS, day, of_days)).rowcount:
                continue
        cursor.execute(_INSERT, (tenant, DAY_MS, day, of_days, first_seq(), *amounts))


def _number(cursor: sqlite3.Cursor, tenant: str, group: Group) -> int:
    values = (tenant, *map(_column, group))
    row = cursor.execute(_ID, values).fetchone()
    return row[0] if row else cursor.execute(_NEW_ID, values).lastrowid or 0


@cache
def _addition(are_there: tuple[bool, ...]) -> str:
    """Adds the amounts that are not 0."""
    added = ", ".join(compress(_ADDED.values(), are_there))
    return f"UPDATE period_sums SET {added}{_PLACE}"  # noqa: S608


def _column(value: FieldValue) -> str | bytes:
    if value is None:
        return b""
    return NOT_TOLD if value is MERGED else str(value)


def note_deleted(connection: sqlite3.Connection, deleted: Mapping[str, int]) -> None:
    """`deleted`: the newest time (Unix ms) of the entries of each tenant that are deleted."""
    connection.executemany(_NOTE_DELETED, deleted.items())


def forget(connection: sqlite3.Connection, tenant: str, oldest: int, first_day: int, most: int) -> bool:
    """Deletes sums of hours that end at or before `oldest` (Unix ms), whose entries are deleted, and of days
    before `first_day`. Returns True if none is left; else it has deleted about `most`."""
    count, is_all = _forget_before(connection, tenant, DAY_MS, first_day, most)
    if count:
        forgotten = first_day * DAY_MS
        connection.execute(_NOTE_FORGOTTEN, (forgotten, tenant, forgotten))
    return is_all and _forget_before(connection, tenant, HOUR_MS, (oldest + 1) // HOUR_MS, most)[1]


def forget_tenant(connection: sqlite3.Connection, tenant: str, most: int) -> bool:
    """Deletes about `most` sums of a tenant without entries. Returns whether none is left."""
    if not all(_forget_before(connection, tenant, length, END, most)[1] for length in (HOUR_MS, DAY_MS)):
        return False
    connection.execute(_FORGET_GROUPS, (tenant, tenant))
    connection.execute(_END_HISTORY, (tenant,))
    return True


def forget_groups(connection: sqlite3.Connection, tenant: str) -> None:
    """Deletes groups without sums, because the names of tools in them must not outlive the data."""
    connection.execute(_FORGET_GROUPS, (tenant, tenant))


def _forget_before(
    connection: sqlite3.Connection, tenant: str, length: int, period: int, most: int
) -> tuple[int, bool]:
    """Returns how many rows it deleted, whole periods, and whether there are no more."""
    step = connection.execute(_STEP, (tenant, length, period, most)).fetchone()
    before = period if step is None else step[0]
    return connection.execute(_FORGET, (tenant, length, before)).rowcount, step is None
