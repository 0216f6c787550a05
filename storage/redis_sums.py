"""Summaries: what Redis adds up for this question, and the sums of days that are over, which are kept.

A day is over, for the list, when an entry of a later one has come: from then on nothing is added to it. Its
sums by all that can be asked for, but for the session, are then kept with the list, by the first summary that
needs them; after that a summary looks only through the first day, which may be forgotten in part, the last,
and days that `since` or `until` cuts through: 0.3 s for a million entries of thirty days. What asks for
sessions looks through all of it.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from domain.accounting import EntryFilter, GroupBy, SummaryRow
from domain.errors import StoreFull
from storage.redis_client import RedisClient, command
from storage.redis_entries import START, RedisEntries, is_possible
from storage.redis_ledger_keys import tenant_keys
from storage.redis_rows import Sums, decode_sums, merge, pack

DAY_MS = 86_400_000
FIELDS = ("type", "tool_name", "trigger", "outcome", "status", "model", "day")
MOST_ROWS = 1000
"""A day of more is not worth keeping."""

_LAST = "18446744073709551615"


class RedisSums:
    """`entry_ms` is the retention of entries."""

    def __init__(self, redis: RedisClient, entries: RedisEntries, entry_ms: int) -> None:
        self._redis = redis
        self._entries = entries
        self._entry_ms = entry_ms

    async def summary(self, wanted: EntryFilter, group_by: GroupBy) -> list[SummaryRow]:
        if not is_possible(wanted):
            return []
        await self._entries.collect(wanted)
        groups: dict[tuple[str, ...], Sums] = {}
        if wanted.session_id is not None or group_by is GroupBy.SESSION_ID:
            merge(groups, await self._entries.sums(wanted, [group_by]))
        else:
            async for rows in self._by_days(wanted, group_by):
                merge(groups, rows)
        found = [_row(group_by, sums) for sums in groups.values()]
        return sorted(found, key=lambda row: (-row.tokens_saved, row.group or ""))

    async def _by_days(self, wanted: EntryFilter, group_by: GroupBy) -> AsyncIterator[Iterable[Sums]]:
        first, last, kept = await self._edges(wanted.tenant)
        if first is None or last is None:
            return
        cut: list[tuple[str, str | None]] = [(START, _end(first)), (_end(last - 1), None)]
        for day in range(max(first + 1, _day(wanted.since or 0)), last):
            rows = kept[day] if day in kept else await self._keep(wanted.tenant, day)
            if rows is None or _is_cut(rows, wanted):
                cut.append((_end(day - 1), _end(day)))
            else:
                yield _picked(rows, wanted, group_by)
        for after, upto in cut if first < last else [(START, None)]:
            yield await self._entries.sums(wanted, [group_by], after, upto)

    async def _edges(self, tenant: str) -> tuple[int | None, int | None, dict[int, list[Sums]]]:
        """The first and the last day of the list, None where it is empty, and the days that are kept."""
        where = tenant_keys(tenant)
        first, last, kept = await self._redis.pipeline(
            command("XRANGE", where.entries, "-", "+", "COUNT", 1),
            command("XREVRANGE", where.entries, "+", "-", "COUNT", 1),
            command("HGETALL", where.days),
        )
        if not first or not last:
            return None, None, {}
        begins = _day_of(first[0][0])
        days = {int(day): rows for day, rows in zip(kept[::2], kept[1::2], strict=True)}
        gone = [day for day in days if day <= begins]
        if gone:
            await self._redis.run(command("HDEL", where.days, *gone))
        return begins, _day_of(last[0][0]), {day: decode_sums(days[day]) for day in days if day > begins}

    async def _keep(self, tenant: str, day: int) -> list[Sums] | None:
        """The sums of a day that is over; None when there are too many."""
        rows = await self._entries.sums(EntryFilter(tenant), FIELDS, _end(day - 1), _end(day))
        if len(rows) > MOST_ROWS:
            return None
        where = tenant_keys(tenant).days
        with suppress(StoreFull):
            await self._redis.pipeline(
                command("HSET", where, day, pack(rows)), command("PEXPIRE", where, self._entry_ms)
            )
        return rows


def _day(ms: int) -> int:
    return ms // DAY_MS


def _day_of(place: bytes) -> int:
    return _day(int(place.partition(b"-")[0]))


def _end(day: int) -> str:
    """The last place of a day."""
    return f"{(day + 1) * DAY_MS - 1}-{_LAST}"


def _is_cut(rows: list[Sums], wanted: EntryFilter) -> bool:
    """True when some of what was added up is too early or too late, and some is not."""
    early, late = wanted.since or 0, wanted.until
    return any(
        one.earliest < early <= one.latest or (late is not None and one.earliest < late <= one.latest)
        for one in rows
    )


def _picked(rows: list[Sums], wanted: EntryFilter, group_by: GroupBy) -> list[Sums]:
    place = FIELDS.index(group_by)
    fields = (wanted.type, wanted.tool_name, wanted.trigger, wanted.outcome, wanted.status)
    return [
        replace(row, group=[row.group[place]])
        for row in rows
        if all(value is None or part == f"={value}" for part, value in zip(row.group, fields, strict=False))
        and row.latest >= (wanted.since or 0)
        and (wanted.until is None or row.earliest < wanted.until)
    ]


def _row(group_by: GroupBy, sums: Sums) -> SummaryRow:
    (group,) = sums.group
    value: str | None = group[1:] if group else None
    if value is not None and group_by is GroupBy.DAY:
        value = datetime.fromtimestamp(int(value) * DAY_MS / 1000, UTC).strftime("%Y-%m-%d")
    return SummaryRow(
        group=value,
        entries=sums.entries,
        failed=sums.failed,
        bytes=sums.bytes,
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        tokens_saved=sums.tokens_saved,
        latency_ms_mean=sums.latency / sums.entries,
        latency_ms_max=sums.latency_max,
        cost_usd=sums.cost_usd,
        tokens_saved_observed=sums.tokens_saved_observed,
    )
