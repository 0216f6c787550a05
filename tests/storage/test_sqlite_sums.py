"""Sums of hours and days: whatever was added and deleted, a summary is that of a list of entries, without
sums of hours."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from samples import KEY, TENANT, FakeClock, charge, entry, handle

from domain import accounting
from domain.accounting import (
    DAY_MS,
    AccountingEntry,
    EntryDetails,
    EntryFilter,
    EntryStatus,
    EntryType,
    Gap,
    GroupBy,
    Summary,
    SummaryRow,
)
from domain.handles import SessionKey
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Charge, Ledger
from domain.quotas import Purged
from storage import open_ledger
from storage.base import summaries
from storage.base.summaries import (
    Group,
    GroupedSums,
    Sums,
    amounts_of,
    group_of,
    matches,
    may_tell_of_gap,
    merged,
    sums_answer,
)
from storage.sqlite import sums
from tests.counts import count

pytestmark = [pytest.mark.anyio, pytest.mark.repeated]

HOUR = sums.HOUR_MS
RETENTION_HOURS = 30
HANDLE = handle("s1")


def any_entry(dice: random.Random, now: int) -> AccountingEntry:
    made = entry(
        SessionKey(dice.choice([TENANT, TENANT, "other"]), f"s{dice.randrange(3)}"),
        # Late entries come too, into hours that are summed up already.
        at=now - dice.choice([0, 0, 0, HOUR, 5 * HOUR]),
        type=EntryType.LOST if dice.random() < 0.03 else dice.choice([EntryType.TOOL, EntryType.EXTRACT]),
        tool_name=dice.choice(["a", "b"]),
        trigger=dice.choice([None, Trigger.SIZE_CAP]),
        outcome=dice.choice([None, OutcomeKind.STORE]),
        model=dice.choice([None, "", "m"]),
        status=dice.choice(list(EntryStatus)),
        latency=float(dice.randrange(50)),
        tokens_saved=dice.randrange(-50, 500),
        cost_usd=dice.randrange(8) / 4,
        client=dice.choice([None, "codex"]),
        details=EntryDetails(
            dice.choice([None, str(HANDLE)]),
            found_nothing=dice.random() < 0.5,
            costs_more=dice.random() < 0.5,
        ),
    )
    return replace(made, key=dice.choice([None, "ci"]))


def any_change(dice: random.Random, clock: FakeClock) -> Callable[[Any], Awaitable[object]]:
    step = dice.random()
    if step < 0.6:
        return methodcaller("append", any_entry(dice, clock()))
    if step < 0.7:
        made = charge(5, call_id=f"call-{dice.randrange(10**9)}")
        made = replace(made, entry=replace(made.entry, timestamp=clock()))
        return methodcaller("settle", made)
    if step < 0.73:
        # The next entries get the numbers of the newest that are deleted.
        return delete_other
    if step < 0.85:
        clock.now += dice.choice([HOUR // 3, HOUR, 7 * HOUR, 40 * HOUR])
    return methodcaller("sweep")


async def delete_other(ledger: Any) -> None:
    while not (await ledger.delete_tenant("other")).is_done:
        pass


def any_filter(dice: random.Random, began: int, now: int) -> EntryFilter:
    return EntryFilter(
        dice.choice([TENANT, "other", None]),
        session_id=dice.choice([None, None, None, "s1"]),
        tool_name=dice.choice([None, None, "a"]),
        since=dice.choice([None, began, now - dice.randrange(RETENTION_HOURS * HOUR), midnight(dice, now)]),
        until=dice.choice([None, None, now - dice.randrange(3 * HOUR), midnight(dice, now)]),
    )


def midnight(dice: random.Random, now: int) -> int:
    return (now // DAY_MS - dice.randrange(5)) * DAY_MS


class Listed:
    """The entries of a ledger in a list, and their sums of days."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.kept: list[AccountingEntry] = []
        self._days: dict[tuple[str, int], dict[Group, Sums]] = {}
        self._deleted: dict[str, int] = {}
        self._forgotten: dict[str, int] = {}

    async def append(self, entry: AccountingEntry) -> None:
        self.kept.append(entry)
        groups = self._days.setdefault((entry.tenant, entry.timestamp // DAY_MS), {})
        group = group_of(entry)
        if group not in groups and len(groups) >= accounting.MOST_GROUPS_OF_DAY:
            group = merged(group)
        if group in groups:
            groups[group].add(Sums(*amounts_of(entry)))
        else:
            groups[group] = Sums(*amounts_of(entry))

    async def settle(self, charge: Charge) -> None:
        await self.append(charge.entry)

    async def sweep(self) -> None:
        oldest = self._clock() - RETENTION_HOURS * HOUR
        for one in self.kept:
            if one.timestamp <= oldest:
                self._deleted[one.tenant] = max(one.timestamp, self._deleted.get(one.tenant, -1))
        self.kept = [one for one in self.kept if one.timestamp > oldest]
        first = summaries.first_kept_day(self._clock(), RETENTION_HOURS * HOUR)
        for tenant, day in [key for key in self._days if key[1] < first]:
            del self._days[tenant, day]
            self._forgotten[tenant] = first * DAY_MS

    async def delete_tenant(self, tenant: str) -> Purged:
        self.kept = [one for one in self.kept if one.tenant != tenant]
        self._days = {key: groups for key, groups in self._days.items() if key[0] != tenant}
        self._deleted.pop(tenant, None)
        self._forgotten.pop(tenant, None)
        return Purged(0, 0, True)

    def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        sums, is_by_day = GroupedSums(wanted, group_by), sums_answer(wanted, group_by)
        summed = set[tuple[str, int]]()
        for tenant, until in self._forgotten.items():
            if wanted.tenant in (None, tenant) and (wanted.since or 0) < until:
                sums.note(Gap.HISTORY, until)
        for (tenant, day), groups in self._days.items():
            deleted = self._deleted.get(tenant, -1)
            if wanted.tenant not in (None, tenant):
                continue
            if is_by_day and sums.covers(day):
                summed.add((tenant, day))
                for group, one in groups.items():
                    sums.add_day(tenant, day, group, copy(one))
            elif sums.reaches(day) and max(wanted.since or 0, day * DAY_MS) <= deleted:
                sums.note_deleted(groups, deleted, self._clock() - RETENTION_HOURS * HOUR)
        for one in self.kept:
            if (one.tenant, one.timestamp // DAY_MS) in summed:
                continue
            if may_tell_of_gap(one, wanted):
                sums.note_type(one.type)
            if matches(one, wanted):
                sums.add_entry(one)
        return sums.summary()


async def compare(listed: Listed, ledger: Ledger, wanted: EntryFilter, dice: random.Random) -> None:
    page = await ledger.entries(wanted, 1000, None)
    assert page.entries == [one for one in listed.kept if matches(one, wanted)]
    group_by = dice.sample(list(GroupBy), dice.choice([1, 1, 2, 3]))
    one, other = listed.summary(wanted, *group_by), await ledger.summary(wanted, *group_by)
    assert list(map(rounded, one.rows)) == list(map(rounded, other.rows))
    assert (one.rest and rounded(one.rest), one.gaps) == (other.rest and rounded(other.rest), other.gaps)


def rounded(row: SummaryRow) -> SummaryRow:
    return replace(row, latency_ms_mean=round(row.latency_ms_mean, 6))


@pytest.mark.parametrize("seed", range(count(3, 30)))
async def test_summaries_agree_with_a_list_of_entries(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(accounting, "MOST_GROUPS_OF_DAY", dice.choice([2, 1000]))
    monkeypatch.setattr(summaries, "HISTORY_DAYS", dice.choice([3, 400]))

    async def opened() -> Ledger:
        return await open_ledger(
            f"sqlite://{tmp_path}/ledger.db",
            clock=clock,
            session_retention_seconds=10**9,
            entry_retention_seconds=RETENTION_HOURS * 3600,
        )

    listed, ledger, began = Listed(clock), await opened(), clock()
    for _ in range(count(60, 200)):
        if dice.random() < 0.02:
            await ledger.close()
            ledger = await opened()
        change = any_change(dice, clock)
        await change(listed)
        await change(ledger)
        await compare(listed, ledger, any_filter(dice, began, clock()), dice)
    await ledger.close()


async def test_numbers_past_64_bits_stop_neither_the_writer_nor_other_sums(
    tmp_path: Path, clock: FakeClock
) -> None:
    ledger = await open_ledger(
        f"sqlite://{tmp_path}/ledger.db",
        clock=clock,
        session_retention_seconds=10**9,
        entry_retention_seconds=10**9,
    )
    sent = [entry(KEY, tokens_in=tokens) for tokens in (1, 1 << 62, 1 << 62, *range(20))]
    await asyncio.gather(*map(ledger.append, sent))
    await ledger.check()
    assert len((await ledger.entries(EntryFilter(TENANT), 1000, None)).entries) == 23
    (row,) = (await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)).rows
    assert (row.entries, row.tokens_out) == (23, 0)
    await ledger.close()
