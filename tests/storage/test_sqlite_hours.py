"""Sums of whole hours: whatever was added and deleted, a summary is the one that the entries give."""

import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from samples import KEY, TENANT, FakeClock, charge, entry

from domain.accounting import EntryFilter, EntryStatus, EntryType, GroupBy
from domain.decisions import OutcomeKind, Trigger
from domain.handles import SessionKey
from storage import open_ledger
from storage.sqlite import hours
from tests.counts import count

pytestmark = [pytest.mark.anyio, pytest.mark.repeated]

HOUR = hours.HOUR_MS
RETENTION_HOURS = 30


@pytest.mark.parametrize("seed", range(count(3, 30)))
async def test_summaries_agree_with_the_memory_ledger(tmp_path: Path, clock: FakeClock, seed: int) -> None:
    dice = random.Random(seed)
    ledgers = [
        await open_ledger(
            url,
            clock=clock,
            session_retention_seconds=10**9,
            entry_retention_seconds=RETENTION_HOURS * 3600,
        )
        for url in ("memory:", f"sqlite://{tmp_path}/ledger.db")
    ]
    began = clock()
    for _ in range(count(60, 200)):
        step = dice.random()
        if step < 0.6:
            made = entry(
                SessionKey(dice.choice([TENANT, TENANT, "other"]), f"s{dice.randrange(3)}"),
                # Late entries come too, into hours that are summed up already.
                at=clock() - dice.choice([0, 0, 0, HOUR, 5 * HOUR]),
                type=dice.choice([EntryType.TOOL, EntryType.EXTRACT]),
                tool_name=dice.choice(["a", "b"]),
                trigger=dice.choice([None, Trigger.SIZE_CAP]),
                outcome=dice.choice([None, OutcomeKind.STORE]),
                status=dice.choice(list(EntryStatus)),
                latency=float(dice.randrange(50)),
                tokens_saved=dice.randrange(-50, 500),
                cost_usd=dice.randrange(8) / 4,
            )
            for ledger in ledgers:
                await ledger.append(made)
        elif step < 0.7:
            made_call = charge(5, call_id=f"call-{dice.randrange(10**9)}")
            made_call = replace(made_call, entry=replace(made_call.entry, timestamp=clock()))
            for ledger in ledgers:
                await ledger.settle(made_call)
        elif step < 0.85:
            clock.now += dice.choice([HOUR // 3, HOUR, 7 * HOUR])
        else:
            for ledger in ledgers:
                await ledger.sweep()
        wanted = EntryFilter(
            dice.choice([TENANT, "other", None]),
            session_id=dice.choice([None, None, None, "s1"]),
            tool_name=dice.choice([None, None, "a"]),
            since=dice.choice([None, began, clock() - dice.randrange(RETENTION_HOURS * HOUR)]),
            until=dice.choice([None, None, clock() - dice.randrange(3 * HOUR)]),
        )
        group_by = dice.sample(list(GroupBy), dice.choice([1, 1, 2, 3]))
        one, other = [(await ledger.summary(wanted, *group_by)).rows for ledger in ledgers]
        assert [replace(row, latency_ms_mean=round(row.latency_ms_mean, 6)) for row in one] == [
            replace(row, latency_ms_mean=round(row.latency_ms_mean, 6)) for row in other
        ]
    for ledger in ledgers:
        await ledger.close()


async def test_a_week_is_answered_from_its_sums(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(
        f"sqlite://{path}", clock=clock, session_retention_seconds=10**9, entry_retention_seconds=10**9
    )
    for _ in range(48):
        for _ in range(5):
            await ledger.append(entry(KEY, at=clock(), tokens_saved=7))
        clock.now += HOUR
    await ledger.sweep()
    # Without its entries the database can only answer from the sums.
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM unsummed_hours").fetchone() == (0,)
        connection.execute("DROP TRIGGER deleted")
        connection.execute("DELETE FROM entries")
    (row,) = (await ledger.summary(EntryFilter(None), GroupBy.TYPE)).rows
    assert (row.entries, row.tokens_saved) == (48 * 5, 48 * 5 * 7)
    assert len((await ledger.summary(EntryFilter(TENANT), GroupBy.TENANT, GroupBy.HOUR)).rows) == 48
    await ledger.close()


async def test_an_hour_with_very_many_entries_stays_unsummed(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hours, "MOST_ENTRIES", 3)
    ledger = await open_ledger(
        f"sqlite://{tmp_path}/ledger.db",
        clock=clock,
        session_retention_seconds=10**9,
        entry_retention_seconds=10**9,
    )
    for _ in range(4):
        await ledger.append(entry(KEY, at=clock()))
    clock.now += 2 * HOUR
    await ledger.sweep()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        assert connection.execute("SELECT count(*) FROM unsummed_hours").fetchone() == (1,)
    (row,) = (await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)).rows
    assert row.entries == 4
    await ledger.close()
