"""Summaries. Whole days, and whole hours without missing entries, come from their sums, all else from
entries."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from domain.accounting import (
    DAY_MS,
    FIELD_OF,
    GAPS_OF_TYPES,
    PERIOD_FORMATS,
    PERIOD_MS,
    EntryFilter,
    EntryType,
    Gap,
    GroupBy,
    Summary,
)
from storage.base.sql import SummaryRows, of_groups
from storage.base.summaries import AMOUNTS, gap_of, sums_answer
from storage.sqlite.database import OF_ENTRY, OF_FEW
from storage.sqlite.rows import where
from storage.sqlite.sums import END, HOUR_MS, NOT_TOLD, SUMS

_OF_ENTRY = {
    **{name: name for name in AMOUNTS},
    "entries": "1",
    "failed": "status = 'failed'",
    "tokens_saved_observed": "observed_tokens_saved",
    "asked_back": "type IN ('extract', 'read') AND status = 'ok'"
    " AND NOT (tokens_saved = 0 AND tokens_out > 0)",
    "latency_max": "latency",
}
"""The amounts of an entry, by their names in sums."""

_NOT_OF_HOURS = {GroupBy.SESSION_ID, GroupBy.MINUTE, GroupBy.KEY, GroupBy.DOOR}

_TOTAL = {"latency_max": "max", "cost_usd": "total"}
_TOTALS = ", ".join(f"{_TOTAL.get(name, 'sum')}({name})" for name in AMOUNTS)
_DELETED = "SELECT max(deleted), max(forgotten) FROM histories WHERE ifnull(tenant = ?, TRUE)"
_OF_DAYS = f"SELECT 1 FROM {SUMS} AS sums WHERE length = {DAY_MS} AND period >= ? AND"  # noqa: S608
_NEEDED = (
    "SELECT max(deleted) FROM histories WHERE ifnull(tenant = ?, TRUE) AND deleted >= ?"  # noqa: S608
    f" AND EXISTS ({_OF_DAYS} sums.tenant = histories.tenant"
    f" AND period <= min(?, deleted) / {DAY_MS} AND {{}})"
)
_NOTES = f"type IN {tuple(GAPS_OF_TYPES)} AND ifnull(tenant = ?, TRUE)"
_NOTES_OF_ENTRIES = (
    f"SELECT DISTINCT type FROM entries WHERE {_NOTES} AND timestamp >= ? AND timestamp < ?"  # noqa: S608
    f" AND (type = '{EntryType.LOST}' OR ifnull(session_id = ?, TRUE))"
)
_NOTES_OF_DAYS = (
    f"SELECT DISTINCT type FROM {SUMS} JOIN histories USING (tenant) WHERE {_NOTES}"  # noqa: S608
    f" AND length = {DAY_MS} AND period >= ? AND period < ? AND (? OR deleted >= ? AND period <= deleted / ?)"
)
_MERGED = f"{_OF_DAYS} period < ? AND tool_name = x'00' AND ifnull(tenant = ?, TRUE) AND {{}} LIMIT 1"


class SummedSpan(NamedTuple):
    """The time from `since` to before `until` (Unix ms). `length`: whole hours or days, which are answered
    from their sums; None: from the entries."""

    length: int | None
    since: int
    until: int


def summary(
    connection: sqlite3.Connection, wanted: EntryFilter, group_by: Sequence[GroupBy], oldest: int
) -> Summary:
    """Runs within a read transaction. `oldest`: entries up to that time (Unix ms) are deleted by age."""
    deleted, forgotten = (one or 0 for one in connection.execute(_DELETED, (wanted.tenant,)).fetchone())
    spans = spans_of(wanted, group_by, deleted)
    gaps = dict(_gaps(connection, wanted, spans, oldest))
    if (wanted.since or 0) < forgotten:
        gaps[Gap.HISTORY] = forgotten
    gaps.update(_noted(connection, wanted, spans))
    collected, count = SummaryRows(group_by), len(group_by)
    for row in connection.execute(*_query(wanted, group_by, spans)) if spans else ():
        collected.add(row[:count], row[count:], is_told=NOT_TOLD not in row[:count])
    return collected.summary(gaps)


def spans_of(wanted: EntryFilter, group_by: Sequence[GroupBy], deleted: int) -> list[SummedSpan]:
    """The spans that answer a summary. Some entries up to `deleted` (Unix ms) are missing."""
    of_hours = wanted.session_id is None and _NOT_OF_HOURS.isdisjoint(group_by)
    lengths = (DAY_MS,) * sums_answer(wanted, group_by) + (HOUR_MS,) * of_hours
    return _spans(wanted.since or 0, END if wanted.until is None else wanted.until, lengths, deleted)


def _spans(since: int, until: int, lengths: tuple[int, ...], deleted: int) -> list[SummedSpan]:
    if since >= until or not lengths:
        return [SummedSpan(None, since, until)] if since < until else []
    length, *shorter = lengths
    # An hour that lacks entries is answered from the remaining entries.
    first = since if length == DAY_MS else max(since, deleted + 1)
    first, last = -(-first // length) * length, until // length * length
    if first >= last:
        return _spans(since, until, tuple(shorter), deleted)
    before = _spans(since, first, tuple(shorter), deleted)
    after = _spans(last, until, tuple(shorter), deleted)
    return [*before, SummedSpan(length, first, last), *after]


def _gaps(
    connection: sqlite3.Connection, wanted: EntryFilter, spans: Sequence[SummedSpan], oldest: int
) -> Iterator[tuple[Gap, int | None]]:
    """Yields the gaps in the spans."""
    known = of_groups(wanted)
    condition, values = where(known)
    tools = "ifnull(tool_name IN (?, x'00'), TRUE)"
    for span in spans:
        if span.length is None:
            bounds = (wanted.tenant, span.since, span.since // DAY_MS, span.until - 1)
            asked = (*bounds, wanted.tool_name, *values)
            (deleted,) = connection.execute(_NEEDED.format(f"{tools} AND {condition}"), asked).fetchone()
            if deleted is not None:
                yield gap_of(deleted, oldest), deleted
        elif span.length == DAY_MS and wanted.tool_name is not None:
            asked = (span.since // DAY_MS, span.until // DAY_MS, wanted.tenant, *values)
            if connection.execute(_MERGED.format(condition), asked).fetchone():
                yield Gap.MERGED, None


def _noted(
    connection: sqlite3.Connection, wanted: EntryFilter, spans: Sequence[SummedSpan]
) -> Iterator[tuple[Gap, None]]:
    """Yields the gaps that entries report. If such entries were deleted, the sums of their days still have
    the types."""
    for span in spans:
        days = span.since // DAY_MS, -(-span.until // DAY_MS)
        asked = (wanted.tenant, *days, span.length == DAY_MS, span.since, DAY_MS)
        found = connection.execute(_NOTES_OF_DAYS, asked).fetchall()
        if span.length != DAY_MS:
            of_span = (wanted.tenant, span.since, span.until, wanted.session_id)
            found += connection.execute(_NOTES_OF_ENTRIES, of_span).fetchall()
        yield from ((GAPS_OF_TYPES[type], None) for (type,) in found)


def _query(
    wanted: EntryFilter, group_by: Sequence[GroupBy], spans: Sequence[SummedSpan]
) -> tuple[str, list[object]]:
    """The query of a summary. Its rows have the group's values and sums, most tokens saved first."""
    parts, values = list[str](), list[object]()
    for span in spans:
        part, more = _part(wanted, group_by, span)
        parts.append(part)
        values += more
    shown = [_shown(key, f"group{number}") for number, key in enumerate(group_by)]
    order = ", ".join(["sum(tokens_saved) DESC", *(f"ifnull({one}, ''), {one} IS NULL" for one in shown)])
    return (
        f"SELECT {', '.join([*shown, _TOTALS])} FROM ({' UNION ALL '.join(parts)})"  # noqa: S608
        f" GROUP BY {', '.join(shown)} ORDER BY {order}"
    ), values


def _part(wanted: EntryFilter, group_by: Sequence[GroupBy], span: SummedSpan) -> tuple[str, list[object]]:
    """The sums of a span by group."""
    if span.length is None:
        amounts, table = _OF_ENTRY, "entries"
        condition, values = where(replace(wanted, since=span.since, until=span.until))
    else:
        amounts, table = {name: name for name in AMOUNTS}, SUMS
        condition, values = where(replace(wanted, since=None, until=None))
        condition += " AND length = ? AND period >= ? AND period < ?"
        values += [span.length, span.since // span.length, span.until // span.length]
    groups = [f"{_value(key, span.length)} AS group{number}" for number, key in enumerate(group_by)]
    sums = [f"{_TOTAL.get(name, 'sum')}({amount}) AS {name}" for name, amount in amounts.items()]
    columns, names = ", ".join([*groups, *sums]), ", ".join(f"group{place}" for place in range(len(group_by)))
    return f"SELECT {columns} FROM {table} WHERE {condition} GROUP BY {names}", values  # noqa: S608


def _value(key: GroupBy, length: int | None) -> str:
    """The expression by which entries, or sums of hours or days, are grouped; for a period, its beginning in
    seconds."""
    name = FIELD_OF.get(key, key.value)
    if key in PERIOD_FORMATS:
        at, step = "timestamp" if length is None else f"period * {length}", PERIOD_MS.get(key, DAY_MS)
        return f"{at} / {step} * {step // 1000}"
    if length is not None:
        return name if key is GroupBy.TENANT else f"nullif({name}, x'')"
    if name in OF_ENTRY or name in OF_FEW:
        return name
    return f"CASE WHEN json_valid(CAST(entry AS TEXT)) THEN CAST(entry AS TEXT) ->> '$.{name}' END"


def _shown(key: GroupBy, group: str) -> str:
    return f"strftime('{PERIOD_FORMATS[key]}', {group}, 'unixepoch')" if key in PERIOD_FORMATS else group
