"""Sums of the entries of whole hours, so that a summary of weeks reads few rows.

A trigger lists each hour that an entry is added to or deleted from. A sweep sums up the listed hours that are
over. Hours are numbered since 1970.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from domain.accounting import PERIOD_MS, EntryFilter, GroupBy

HOUR_MS = PERIOD_MS[GroupBy.HOUR]

MOST_ENTRIES = 100_000
"""An hour with more stays unsummed: to sum it up would stop the writer for 0.1 s."""

MOST_RANGES = 16
"""With more ranges of unsummed hours, a summary reads the entries of all of its time."""

UNSUMMED = "SELECT tenant, hour FROM unsummed_hours WHERE hour < ?"
_UNSUMMED_OF_TENANTS = (
    "SELECT DISTINCT hour FROM unsummed_hours WHERE ifnull(tenant = ?, TRUE) AND hour >= ? AND hour < ?"
    " ORDER BY hour"
)
_COUNT = "SELECT count(*) FROM entries WHERE tenant = ? AND timestamp >= ? AND timestamp < ?"
_FORGET = "DELETE FROM hour_sums WHERE tenant = ? AND hour = ?"
_SUM_UP = (
    "INSERT INTO hour_sums SELECT tenant, ?, type, tool_name, trigger, outcome, status, model, strategy,"
    " tool_kind, count(*), sum(status = 'failed'), sum(bytes), sum(tokens_in), sum(tokens_out),"
    " sum(tokens_saved), sum(latency), max(latency), total(cost_usd), sum(observed_tokens_saved)"
    " FROM entries WHERE tenant = ? AND timestamp >= ? AND timestamp < ?"
    " GROUP BY type, tool_name, trigger, outcome, status, model, strategy, tool_kind"
)
_FORGET_SUMS = "DELETE FROM hour_sums WHERE rowid IN (SELECT rowid FROM hour_sums WHERE tenant = ? LIMIT ?)"
_FORGET_HOURS = "DELETE FROM unsummed_hours WHERE tenant = ?"
_LISTED = "DELETE FROM unsummed_hours WHERE tenant = ? AND hour = ?"


class Hours(NamedTuple):
    """Hours `first` to before `end`."""

    first: int
    end: int


def sum_up(connection: sqlite3.Connection, tenant: str, hour: int) -> None:
    """Within a transaction of the writer."""
    span = (tenant, hour * HOUR_MS, (hour + 1) * HOUR_MS)
    if connection.execute(_COUNT, span).fetchone()[0] > MOST_ENTRIES:
        return
    connection.execute(_FORGET, (tenant, hour))
    connection.execute(_SUM_UP, (hour, *span))
    connection.execute(_LISTED, (tenant, hour))


def forget_tenant(connection: sqlite3.Connection, tenant: str, most: int) -> bool:
    """Deletes up to `most` sums of a tenant without entries. Returns whether none is left."""
    if connection.execute(_FORGET_SUMS, (tenant, most)).rowcount == most:
        return False
    connection.execute(_FORGET_HOURS, (tenant,))
    return True


def summed_hours(connection: sqlite3.Connection, wanted: EntryFilter, now: int) -> list[Hours]:
    """The ranges of hours that the filter covers whole and that are summed up."""
    since = wanted.since or 0
    until = min(now, now if wanted.until is None else wanted.until)
    first, end = -(-since // HOUR_MS), until // HOUR_MS
    if first >= end:
        return []
    unsummed = [hour for (hour,) in connection.execute(_UNSUMMED_OF_TENANTS, (wanted.tenant, first, end))]
    found = []
    for hour in (*unsummed, end):
        if first < hour:
            found.append(Hours(first, hour))
        first = hour + 1
    return found if len(found) <= MOST_RANGES else []


def unsummed_times(summed: Sequence[Hours], wanted: EntryFilter) -> list[tuple[int | None, int | None]]:
    """The times (Unix ms; None for no bound) of the filter that are outside of `summed`."""
    found: list[tuple[int | None, int | None]] = []
    since = wanted.since
    for hours in summed:
        if since is None or since < hours.first * HOUR_MS:
            found.append((since, hours.first * HOUR_MS))
        since = hours.end * HOUR_MS
    if not summed or wanted.until is None or since is None or since < wanted.until:
        found.append((since, wanted.until))
    return found
