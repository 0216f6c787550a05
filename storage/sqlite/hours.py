"""Sums of the entries of each hour. A summary of 30 days reads 14,000 of them in place of a million entries.

The writer adds new entries to the sums of their hours, MOST_UNSUMMED at a time; entries with a `seq` above
`summed.seq` are not added yet. A trigger lists the hour of each entry that is deleted, and the next sweep
sums up that hour again. Hours are numbered since 1970.
"""

import logging
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from domain.accounting import PERIOD_MS, EntryFilter, GroupBy

log = logging.getLogger("spillgate.storage")

HOUR_MS = PERIOD_MS[GroupBy.HOUR]

MOST_UNSUMMED = 500
"""A summary reads the newest entries one by one, up to about as many. To sum them up takes 1 ms."""

MOST_ENTRIES = 100_000
"""An hour with more is not summed up again: that would stop the writer for 0.1 s."""

MOST_RANGES = 16
"""With more ranges of listed hours, a summary reads the entries of all of its time."""

END = 1 << 62
"""After every time."""
_END = END // HOUR_MS

LISTED = "SELECT tenant, hour FROM unsummed_hours WHERE typeof(hour) = 'integer'"
_LISTED_OF_TENANTS = (
    "SELECT DISTINCT hour FROM unsummed_hours WHERE ifnull(tenant = ?, TRUE) AND hour >= ? AND hour < ?"
    " ORDER BY hour"
)
SUMMED_SEQ = "SELECT seq FROM summed"
_SINCE = "SELECT min(first_seq) FROM hour_sums WHERE tenant = ? AND hour >= ?"
_FIRST_UNSUMMED = f"({SUMMED_SEQ}) + 1"
FROM_HOUR = f"seq >= min(ifnull(({_SINCE}), {_FIRST_UNSUMMED}), {_FIRST_UNSUMMED})"
"""A condition that is true for all entries of a tenant in an hour and later, and for few others."""
_COUNT = "SELECT count(*) FROM entries WHERE tenant = ? AND timestamp >= ? AND timestamp < ?"
_ADD = (
    f"INSERT INTO {{table}} SELECT tenant, timestamp / {HOUR_MS}, type, tool_name, ifnull(trigger, x''),"  # noqa: S608
    " ifnull(outcome, x''), status, ifnull(model, x''), ifnull(strategy, x''), ifnull(tool_kind, x''),"
    " min(seq), count(*), sum(status = 'failed'), sum(bytes), sum(tokens_in), sum(tokens_out),"
    " sum(tokens_saved), sum(latency), max(latency), total(cost_usd), sum(observed_tokens_saved),"
    " sum(stored), sum(first_question), sum(found_nothing), sum(costs_more)"
    " FROM entries {index} WHERE {condition} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
)
_ADD_UP = (
    " ON CONFLICT DO UPDATE SET first_seq = min(first_seq, excluded.first_seq),"
    " entries = entries + excluded.entries, failed = failed + excluded.failed,"
    " bytes = bytes + excluded.bytes, tokens_in = tokens_in + excluded.tokens_in,"
    " tokens_out = tokens_out + excluded.tokens_out, tokens_saved = tokens_saved + excluded.tokens_saved,"
    " latency = latency + excluded.latency, latency_max = max(latency_max, excluded.latency_max),"
    " cost_usd = cost_usd + excluded.cost_usd,"
    " observed_tokens_saved = observed_tokens_saved + excluded.observed_tokens_saved,"
    " stored = stored + excluded.stored, asked_back = asked_back + excluded.asked_back,"
    " found_nothing = found_nothing + excluded.found_nothing, costs_more = costs_more + excluded.costs_more"
)
_ADD_NEW = _ADD.format(table="hour_sums", index="NOT INDEXED", condition=f"seq > ({SUMMED_SEQ})") + _ADD_UP
_ROLL_UP = _ADD.format(table="rolled_sums", index="", condition="seq IN ({seqs})") + _ADD_UP
_FORGET_ROLLED = "DELETE FROM rolled_sums WHERE hour < ?"
_FORGET_ROLLED_OF = "DELETE FROM rolled_sums WHERE tenant = ?"
_MARK = "UPDATE summed SET seq = ifnull((SELECT max(seq) FROM entries), 0)"
_ADD_HOUR = _ADD.format(
    table="hour_sums",
    index="",
    condition=f"tenant = ? AND timestamp >= ? AND timestamp < ? AND seq <= ({SUMMED_SEQ})",
)
_FORGET = "DELETE FROM hour_sums WHERE tenant = ? AND hour = ?"
_UNLIST = "DELETE FROM unsummed_hours WHERE tenant = ? AND hour = ?"
_FORGET_SUMS = (
    "DELETE FROM hour_sums WHERE tenant = ? AND hour <="
    " ifnull((SELECT hour FROM hour_sums WHERE tenant = ? ORDER BY hour LIMIT 1 OFFSET ?), hour)"
)
_FORGET_HOURS = "DELETE FROM unsummed_hours WHERE tenant = ?"


class Hours(NamedTuple):
    """Hours `first` to before `end`."""

    first: int
    end: int


def sum_up_new(connection: sqlite3.Connection) -> None:
    """Adds the entries after `summed.seq` to their hours, within a transaction of the writer. That goes on if
    they cannot be summed up: a summary reads them one by one then."""
    connection.execute("SAVEPOINT sums")
    try:
        connection.execute(_ADD_NEW)
        connection.execute(_MARK)
    except sqlite3.Error as error:
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO sums")
        log.warning("entries of the accounting cannot be summed up, and are read one by one: %s", error)
    connection.execute("RELEASE sums")


def sum_up_again(connection: sqlite3.Connection, tenant: str, hour: int) -> None:
    """Within a transaction of the writer."""
    span = (tenant, hour * HOUR_MS, (hour + 1) * HOUR_MS)
    if connection.execute(_COUNT, span).fetchone()[0] > MOST_ENTRIES:
        return
    connection.execute(_FORGET, (tenant, hour))
    connection.execute(_ADD_HOUR, span)
    connection.execute(_UNLIST, (tenant, hour))


def roll_up(connection: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Adds entries that are about to be deleted to the sums of what is not kept any more."""
    connection.execute(_ROLL_UP.format(seqs=", ".join(map(str, seqs))))


def forget_rolled(connection: sqlite3.Connection, oldest: int) -> None:
    """Deletes the sums of the hours before `oldest` (Unix ms)."""
    connection.execute(_FORGET_ROLLED, (oldest // HOUR_MS,))


def forget_tenant(connection: sqlite3.Connection, tenant: str, most: int) -> bool:
    """Deletes about `most` sums of a tenant without entries. Returns whether none is left."""
    if connection.execute(_FORGET_SUMS, (tenant, tenant, most)).rowcount > most:
        return False
    connection.execute(_FORGET_HOURS, (tenant,))
    connection.execute(_FORGET_ROLLED_OF, (tenant,))
    return True


def summed_hours(connection: sqlite3.Connection, wanted: EntryFilter) -> list[Hours]:
    """The ranges of hours that the filter covers whole and that are summed up."""
    first = -(-(wanted.since or 0) // HOUR_MS)
    end = _END if wanted.until is None else wanted.until // HOUR_MS
    if first >= end:
        return []
    listed = [hour for (hour,) in connection.execute(_LISTED_OF_TENANTS, (wanted.tenant, first, end))]
    ranges = []
    for hour in (*listed, end):
        if first < hour:
            ranges.append(Hours(first, hour))
        first = hour + 1
    return ranges if len(ranges) <= MOST_RANGES else []


def unsummed_times(summed: Sequence[Hours], wanted: EntryFilter) -> list[tuple[int | None, int | None]]:
    """The times (Unix ms; None for no bound) of the filter that are outside of `summed`."""
    if not summed:
        return [(wanted.since, wanted.until)]
    spans: list[tuple[int | None, int | None]] = []
    since = wanted.since
    for hours in summed:
        if since is None or since < hours.first * HOUR_MS:
            spans.append((since, hours.first * HOUR_MS))
        since = hours.end * HOUR_MS
    if wanted.until is not None and since is not None and since < wanted.until:
        spans.append((since, wanted.until))
    return spans
