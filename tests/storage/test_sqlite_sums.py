"""Sums of hours and days: whatever was added and deleted, a summary is that of the ledger in memory, which
has no sums of hours."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from operator import methodcaller
from pathlib import Path

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
    GroupBy,
    SummaryRow,
)
from domain.decisions import OutcomeKind, Trigger
from domain.handles import SessionKey
from domain.ports import Ledger
from storage import open_ledger
from storage.base import summaries
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


def any_change(dice: random.Random, clock: FakeClock) -> Callable[[Ledger], Awaitable[object]]:
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


async def delete_other(ledger: Ledger) -> None:
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


async def compare(ledgers: list[Ledger], wanted: EntryFilter, dice: random.Random) -> None:
    is_newest_first = dice.random() < 0.5
    pages = [await ledger.entries(wanted, 5, None, newest_first=is_newest_first) for ledger in ledgers]
    assert pages[0].entries == pages[1].entries
    group_by = dice.sample(list(GroupBy), dice.choice([1, 1, 2, 3]))
    one, other = [await ledger.summary(wanted, *group_by) for ledger in ledgers]
    # Rows with equal sums of tokens are in any order if their groups differ in "" and None alone.
    assert sorted(map(rounded, one.rows), key=repr) == sorted(map(rounded, other.rows), key=repr)
    assert (one.rest and rounded(one.rest), one.gaps) == (other.rest and rounded(other.rest), other.gaps)


def rounded(row: SummaryRow) -> SummaryRow:
    return replace(row, latency_ms_mean=round(row.latency_ms_mean, 6))


@pytest.mark.parametrize("seed", range(count(3, 30)))
async def test_summaries_agree_with_the_memory_ledger(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(accounting, "MOST_GROUPS_OF_DAY", dice.choice([2, 1000]))
    monkeypatch.setattr(summaries, "HISTORY_DAYS", dice.choice([3, 400]))

    async def opened(url: str) -> Ledger:
        return await open_ledger(
            url,
            clock=clock,
            session_retention_seconds=10**9,
            entry_retention_seconds=RETENTION_HOURS * 3600,
        )

    database = f"sqlite://{tmp_path}/ledger.db"
    ledgers = [await opened("memory:"), await opened(database)]
    began = clock()
    for _ in range(count(60, 200)):
        if dice.random() < 0.02:
            await ledgers.pop().close()
            ledgers.append(await opened(database))
        change = any_change(dice, clock)
        for ledger in ledgers:
            await change(ledger)
        await compare(ledgers, any_filter(dice, began, clock()), dice)
    for ledger in ledgers:
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
