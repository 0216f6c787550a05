"""Copies a ledger of another kind into an empty PostgreSQL: entries, sums of days, and open sessions.

Receipts and findings are not copied, because they end with their sessions; nor are sessions that have ended.
"""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from domain.accounting import DAY_MS, EntryFilter, EntryStatus, EntryType, Gap, GroupBy, SummaryRow
from domain.budget import Session
from domain.errors import ConfigError
from domain.ports import Ledger
from storage.base import session_rules
from storage.base.summaries import AMOUNTS
from storage.postgres.ledger import PostgresLedger
from storage.postgres.rows import SESSION_FIELDS, entry_arguments, session_arguments
from storage.postgres.sessions import new_seal

_PAGE = 1_000
_TOLD = ("type", "tool_name", "trigger", "outcome", "model", "strategy", "tool_kind", "key", "door")
_NOT_MERGED = ("trigger", "outcome", "strategy", "key")
_COLUMNS = (
    *("id", "type", "timestamp", "status", "tool_name", "trigger", "outcome", "model", "handle", "latency"),
    *("bytes", "tokens_in", "tokens_out", "tokens_saved", "cost_usd", "observed_tokens_saved", "strategy"),
    *("tool_kind", "key", "client", "stored", "asked_back", "found_nothing", "costs_more", "size", "rest"),
)
_GROUPS = (
    *("type", "tool_name", "trigger", "outcome", "status", "model", "strategy", "tool_kind", "key", "door"),
)
_SUM_COLUMNS = ("tenant", "day", "is_merged", *_GROUPS[:-1], "client", *AMOUNTS)
_END = 1 << 62
_COUNT_USAGE = "SELECT spillgate.count_usage($1, $2, $3, $4)"
_COUNT = 'SELECT count(*) FROM spillgate.entries WHERE tenant = $1 AND "timestamp" >= $2 AND "timestamp" < $3'


class Copied(NamedTuple):
    """What was copied of a tenant, and the days on which the sums of the two ledgers differ."""

    tenant: str
    entries: int
    summed: int
    sessions: int
    cost_usd: float
    differing: list[str]


async def copy(source: Ledger, target: PostgresLedger, now: int) -> AsyncIterator[Copied]:
    """Nothing else may write to either ledger. Raises ConfigError if the target has entries or sessions."""
    postgres = target.connection
    if await target.usage() or await target.entry_count():
        raise ConfigError("The ledger to copy into is not empty. Name another schema or database.")
    everyone = await source.summary(EntryFilter(None), GroupBy.TENANT)
    tenants = sorted({*await source.usage(), *(row.group for row in everyone.rows if row.group)})
    days = {tenant: await _days(source, tenant) for tenant in tenants}
    for day in sorted({day for some in days.values() for day in some}):
        await postgres.value("SELECT spillgate.open_day($1)", day)
    for tenant in tenants:
        await _copy_rows(source, target, tenant)
    # Sums are copied after all entries: an entry that comes after the sums of its day is added to them.
    summed = {day for some in days.values() for day in some if day < now // DAY_MS}
    for tenant, some in days.items():
        summed |= {day for day in some if day not in summed and await _lacks(source, target, tenant, day)}
    for tenant in tenants:
        await _copy_sums(source, target, tenant, [day for day in days[tenant] if day in summed])
    for day in summed:
        await postgres.value("SELECT spillgate.note_copied($1)", day)
    for tenant in tenants:
        yield await _compared(source, target, tenant)


async def _copy_rows(source: Ledger, target: PostgresLedger, tenant: str) -> None:
    entries, size = await _copy_entries(source, target, tenant)
    sessions = [session async for session in _sessions(source, tenant)]
    await _write_sessions(target, sessions)
    size += sum(session_rules.session_usage(one).bytes for one in sessions)
    await target.connection.value(_COUNT_USAGE, tenant, len(sessions), entries, size)


async def _days(source: Ledger, tenant: str) -> list[int]:
    found = await source.summary(EntryFilter(tenant), GroupBy.DAY)
    return sorted(_number(row.group) for row in found.rows if row.group)


def _number(day: str) -> int:
    return int(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1000 // DAY_MS


async def _copy_entries(source: Ledger, target: PostgresLedger, tenant: str) -> tuple[int, int]:
    """Returns the number of entries, and the bytes for which they count."""
    count, size, cursor = 0, 0, None
    while True:
        page = await source.entries(EntryFilter(tenant), _PAGE, cursor)
        rows = [(*entry_arguments(one), tenant, one.session_id) for one in page.entries]
        count, size = count + len(rows), size + sum(int(str(row[len(_COLUMNS) - 2])) for row in rows)
        await target.connection.copy_in("entries", (*_COLUMNS, "tenant", "session_id"), rows)
        if (cursor := page.next_cursor) is None:
            return count, size


async def _sessions(source: Ledger, tenant: str) -> AsyncIterator[Session]:
    cursor = None
    while True:
        page = await source.sessions(tenant, _PAGE, cursor)
        for session in page.sessions:
            yield session
        if (cursor := page.next_cursor) is None:
            return


async def _write_sessions(target: PostgresLedger, sessions: list[Session]) -> None:
    columns = ("tenant", "session_id", *SESSION_FIELDS, "reports", "seal")
    rows = [(*one.key, *session_arguments(one), new_seal()) for one in sessions]
    await target.connection.copy_in("sessions", columns, rows)


async def _lacks(source: Ledger, target: PostgresLedger, tenant: str, day: int) -> bool:
    """Whether the source has deleted entries of the day."""
    of_day = _of(tenant, day)
    count = await target.connection.value(_COUNT, tenant, of_day.since, of_day.until)
    return bool(count != (await source.summary(of_day, GroupBy.TYPE)).total.entries)


def _of(tenant: str, day: int) -> EntryFilter:
    return EntryFilter(tenant, since=day * DAY_MS, until=(day + 1) * DAY_MS)


async def _copy_sums(source: Ledger, target: PostgresLedger, tenant: str, days: list[int]) -> None:
    for day in days:
        rows = [row async for row in _sums(source, _of(tenant, day))]
        await target.connection.copy_in("day_sums", _SUM_COLUMNS, [(tenant, day, *row) for row in rows])
    gaps = (await source.summary(EntryFilter(tenant), GroupBy.SESSION_ID, GroupBy.HOUR)).gaps
    deleted = max((at for gap in (Gap.AGE, Gap.BYTES) if (at := gaps.get(gap)) is not None), default=-1)
    forgotten = (await source.summary(EntryFilter(tenant), GroupBy.DAY)).gaps.get(Gap.HISTORY) or 0
    await target.connection.copy_in(
        "histories", ("tenant", "deleted", "forgotten"), [(tenant, deleted, forgotten)]
    )


async def _sums(source: Ledger, of_day: EntryFilter) -> AsyncIterator[tuple[object, ...]]:
    """The rows of sums of a day, without the columns of tenant and day."""
    for status in EntryStatus:
        wanted = replace(of_day, status=status)
        found = await source.summary(wanted, *map(GroupBy, _TOLD))
        for row in found.rows:
            groups = dict(zip(_TOLD, row.groups.values(), strict=True))
            yield _row(groups | {"status": status}, _amounts(row), is_merged=False)
        if found.rest is not None:
            async for merged in _merged(source, wanted, found.rows):
                yield merged


async def _merged(
    source: Ledger, wanted: EntryFilter, told: Sequence[SummaryRow]
) -> AsyncIterator[tuple[object, ...]]:
    """The sums of merged tools: the sums over all tools, minus those of the tools that are listed."""
    for type in EntryType:
        keys = (*_NOT_MERGED, "model") if type is EntryType.LLM else _NOT_MERGED
        for row in (await source.summary(replace(wanted, type=type), *map(GroupBy, keys))).rows:
            amounts = _amounts(row)
            for one in told:
                if one.groups["type"] == type and all(one.groups[key] == row.groups[key] for key in keys):
                    less = _amounts(one)
                    amounts = {
                        name: amount if name == "latency_max" else amount - less[name]
                        for name, amount in amounts.items()
                    }
            if amounts["entries"] > 0:
                groups = dict(row.groups) | {"type": type, "status": wanted.status}
                yield _row(groups, amounts, is_merged=True)


def _row(
    groups: Mapping[str, object], amounts: Mapping[str, float], *, is_merged: bool
) -> tuple[object, ...]:
    return (is_merged, *(groups.get(name) for name in _GROUPS), *(amounts[name] for name in AMOUNTS))


def _amounts(row: SummaryRow) -> dict[str, float]:
    beside = {"latency": row.latency_ms_mean * row.entries, "latency_max": row.latency_ms_max}
    return {name: beside[name] if name in beside else getattr(row, name) for name in AMOUNTS}


async def _compared(source: Ledger, target: PostgresLedger, tenant: str) -> Copied:
    """Compares the sums of each day and type."""
    keys = (GroupBy.DAY, GroupBy.TYPE)
    found = [await ledger.summary(EntryFilter(tenant), *keys) for ledger in (source, target)]
    both = [{tuple(row.groups.values()): _amounts(row) for row in one.rows} for one in found]
    places = sorted({*both[0], *both[1]}, key=str)
    differing = [
        " ".join(map(str, place)) for place in places if not _alike(*(one.get(place) for one in both))
    ]
    count = await target.connection.value(_COUNT, tenant, 0, _END)
    usage = (await target.usage()).get(tenant, session_rules.NOTHING)
    total = found[1].total
    return Copied(tenant, count, total.entries, usage.sessions, total.cost_usd, differing)


def _alike(one: dict[str, float] | None, other: dict[str, float] | None) -> bool:
    return (
        one is not None
        and other is not None
        and all(math.isclose(one[name], other[name], rel_tol=1e-9, abs_tol=1e-6) for name in AMOUNTS)
    )
