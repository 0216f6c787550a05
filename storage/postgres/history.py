"""Summaries. Whole days that are closed come from their sums, all else from the entries."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import asyncpg

from domain.accounting import (
    DAY_MS,
    FIELD_OF,
    GAPS_OF_TYPES,
    PERIOD_MS,
    EntryFilter,
    Gap,
    GroupBy,
    Summary,
)
from domain.ports import Clock
from storage.base.sql import SummaryRows, of_groups
from storage.base.summaries import AMOUNTS, gap_of, sums_answer
from storage.postgres.connection import PostgresConnection
from storage.postgres.rows import where

_PERIODS = {
    GroupBy.MONTH: "YYYY-MM",
    GroupBy.DAY: "YYYY-MM-DD",
    GroupBy.HOUR: 'YYYY-MM-DD"T"HH24":00Z"',
    GroupBy.MINUTE: 'YYYY-MM-DD"T"HH24:MI"Z"',
}
_MERGED = {"tool_name", "tool_kind", "client"}
"""The columns that merged groups do not have. They lack the model, too, except those of model calls."""

_REAL = {"latency", "cost_usd", "latency_max"}
_READ_AT_ONCE = 1000
_FORGOTTEN = "SELECT max(forgotten) FROM spillgate.histories WHERE $1::text IS NULL OR tenant = $1"
_NEEDED = (
    "SELECT max(deleted) FROM spillgate.histories AS h WHERE ($1::text IS NULL OR tenant = $1)"
    " AND deleted >= $2::bigint AND EXISTS (SELECT FROM spillgate.day_sums AS sums"
    " WHERE sums.tenant = h.tenant AND day >= $3::integer AND day <= least($4::bigint, deleted) / 86400000"
    " AND ($5::text IS NULL OR is_merged OR tool_name = $5) AND {})"
)
_MERGED_PART = (
    "SELECT EXISTS (SELECT FROM spillgate.day_sums WHERE is_merged AND day >= $1::integer"
    " AND day < $2::integer AND ($3::text IS NULL OR tenant = $3) AND {})"
)
_NOTES_OF_ENTRIES = (
    "SELECT DISTINCT type FROM spillgate.entries WHERE type IN ('unrecorded', 'lost')"
    ' AND ($1::text IS NULL OR tenant = $1) AND "timestamp" >= $2::bigint AND "timestamp" < $3::bigint'
    " AND (type = 'lost' OR $4::text IS NULL OR session_id = $4)"
)
_NOTES_OF_DAYS = (
    "SELECT DISTINCT type FROM spillgate.day_sums AS sums LEFT JOIN spillgate.histories AS h USING (tenant)"
    " WHERE type IN ('unrecorded', 'lost') AND ($1::text IS NULL OR tenant = $1)"
    " AND day >= $2::integer AND day < $3::integer"
    " AND ($4 OR h.deleted >= $5::bigint AND day <= h.deleted / 86400000)"
)


class TimeSpan(NamedTuple):
    """The time from `since` to before `until` (Unix ms). `is_days`: the span is whole days, and sums of days
    may answer it."""

    since: int
    until: int
    is_days: bool

    @property
    def days(self) -> tuple[int, int]:
        """The first day, and the one after the last."""
        return self.since // DAY_MS, -(-self.until // DAY_MS)


_END = ((1 << 31) - 1) * DAY_MS
"""Later than every time: the number of its day is an integer of 32 bits."""


class PostgresHistory:
    """The part of the ledger that makes summaries."""

    _postgres: PostgresConnection
    _clock: Clock
    _entry_ms: int

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        oldest = self._clock() - self._entry_ms

        async def read(connection: asyncpg.Connection) -> Summary:
            # One snapshot: an entry may be deleted between two statements.
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return await self._summary(connection, wanted, group_by, oldest)

        return await self._postgres.long(read)

    async def _summary(
        self, connection: asyncpg.Connection, wanted: EntryFilter, group_by: Sequence[GroupBy], oldest: int
    ) -> Summary:
        sql = self._postgres.sql
        forgotten = await connection.fetchval(sql(_FORGOTTEN), wanted.tenant)
        spans = spans_of(wanted, group_by)
        gaps = await self._gaps(connection, wanted, spans, oldest)
        if (wanted.since or 0) < (forgotten or 0):
            gaps[Gap.HISTORY] = forgotten
        for span in spans:
            types = await connection.fetch(
                sql(_NOTES_OF_DAYS), wanted.tenant, *span.days, span.is_days, span.since
            )
            types += await connection.fetch(
                sql(_NOTES_OF_ENTRIES), wanted.tenant, span.since, span.until, wanted.session_id
            )
            gaps.update({GAPS_OF_TYPES[type]: None for (type,) in types})
        if not spans:
            return Summary([], None, gaps)
        closed = {
            day for (day,) in await connection.fetch(sql("SELECT day FROM spillgate.days WHERE closed"))
        }
        query, values = _query(wanted, group_by, spans, closed)
        rows = connection.cursor(sql(query), *values, prefetch=_READ_AT_ONCE)
        collected, count = SummaryRows(group_by), len(group_by)
        async for row in rows:
            collected.add(row[:count], row[count + 1 :], is_told=not row[count])
        return collected.summary(gaps)

    async def _gaps(
        self, connection: asyncpg.Connection, wanted: EntryFilter, spans: Sequence[TimeSpan], oldest: int
    ) -> dict[Gap, int | None]:
        """Returns the gaps in the spans."""
        gaps: dict[Gap, int | None] = {}
        known = of_groups(wanted)
        for span in spans:
            first, last = span.days
            if not span.is_days:
                condition, values = where(known, 6)
                asked = (wanted.tenant, span.since, first, span.until - 1, wanted.tool_name, *values)
                deleted = await connection.fetchval(self._postgres.sql(_NEEDED.format(condition)), *asked)
                if deleted is not None:
                    gaps[gap_of(deleted, oldest)] = deleted
            elif wanted.tool_name is not None:
                condition, values = where(known, 4)
                query = self._postgres.sql(_MERGED_PART.format(condition))
                if await connection.fetchval(query, first, last, wanted.tenant, *values):
                    gaps[Gap.MERGED] = None
        return gaps


def spans_of(wanted: EntryFilter, group_by: Sequence[GroupBy]) -> list[TimeSpan]:
    """The spans that answer a summary."""
    since, until = wanted.since or 0, _END if wanted.until is None else min(wanted.until, _END)
    if since >= until:
        return []
    first, last = -(-since // DAY_MS) * DAY_MS, until // DAY_MS * DAY_MS
    if first >= last or not sums_answer(wanted, group_by):
        return [TimeSpan(since, until, False)]
    parts = [TimeSpan(since, first, False), TimeSpan(first, last, True), TimeSpan(last, until, False)]
    return [part for part in parts if part.since < part.until]


def _query(
    wanted: EntryFilter, group_by: Sequence[GroupBy], spans: Sequence[TimeSpan], closed: set[int]
) -> tuple[str, list[object]]:
    """The query of a summary. Its rows have the group's values, whether the group is a merged one, and the
    sums; most tokens saved first."""
    parts, values = list[str](), list[object]()
    for span in spans:
        if span.is_days:
            parts.append(_of_days(wanted, group_by, span, values))
        for since, until in _of_entries(span, closed):
            parts.append(_of_time(wanted, group_by, since, until, values))
    names = ", ".join([*_names(group_by), "is_untold"])
    order = ", ".join(f"coalesce({name}, ''), {name} IS NULL" for name in _names(group_by))
    sums = ", ".join(_total(name, name) for name in AMOUNTS)
    return (
        f"SELECT {names}, {sums} FROM ({' UNION ALL '.join(parts)}) AS parts"  # noqa: S608
        f" GROUP BY {names} ORDER BY sum(tokens_saved) DESC, {order}"
    ), values


def _names(group_by: Sequence[GroupBy]) -> list[str]:
    return [f'group{place} COLLATE "C"' for place in range(len(group_by))]


def _total(name: str, amount: str) -> str:
    if name == "latency_max":
        return f"max({amount}) AS {name}"
    return f"sum({amount}){'' if name in _REAL else '::bigint'} AS {name}"


def _of_entries(span: TimeSpan, closed: set[int]) -> Iterator[tuple[int, int]]:
    """The parts of a span that entries answer: all but closed days."""
    since = span.since
    if span.is_days:
        for day in sorted(one for one in closed if span.since <= one * DAY_MS < span.until):
            if since < day * DAY_MS:
                yield since, day * DAY_MS
            since = (day + 1) * DAY_MS
    if since < span.until:
        yield since, span.until


def _of_time(
    wanted: EntryFilter, group_by: Sequence[GroupBy], since: int, until: int, values: list[object]
) -> str:
    condition, more = where(replace(wanted, since=since, until=until), len(values) + 1)
    values += more
    return _part(group_by, "spillgate.amounts", condition, is_days=False)


def _of_days(wanted: EntryFilter, group_by: Sequence[GroupBy], span: TimeSpan, values: list[object]) -> str:
    condition, more = where(replace(wanted, since=None, until=None), len(values) + 1)
    values += more
    first, last = span.days
    values += (first, last)
    bounds = f"day >= ${len(values) - 1}::integer AND day < ${len(values)}::integer"
    return _part(group_by, "spillgate.day_sums", f"{condition} AND {bounds}", is_days=True)


def _part(group_by: Sequence[GroupBy], table: str, condition: str, *, is_days: bool) -> str:
    groups = [f"{_value(key, is_days=is_days)} AS group{place}" for place, key in enumerate(group_by)]
    groups.append(f"{_untold(group_by)} AS is_untold")
    sums = [_total(name, name) for name in AMOUNTS]
    places = ", ".join(str(place + 1) for place in range(len(groups)))
    return f"SELECT {', '.join([*groups, *sums])} FROM {table} WHERE {condition} GROUP BY {places}"  # noqa: S608


def _value(key: GroupBy, *, is_days: bool) -> str:
    if key in _PERIODS:
        seconds = PERIOD_MS.get(key, DAY_MS) // 1000
        at = f"day * {DAY_MS // 1000}::bigint" if is_days else f'"timestamp" / {seconds * 1000} * {seconds}'
        return f"to_char(to_timestamp({at}) AT TIME ZONE 'UTC', '{_PERIODS[key]}')"
    return f"{FIELD_OF.get(key, key.value)}::text"


def _untold(group_by: Sequence[GroupBy]) -> str:
    fields = {FIELD_OF.get(key, key.value) for key in group_by}
    if fields & _MERGED:
        return "is_merged"
    return "is_merged AND type <> 'llm'" if "model" in fields else "false"
