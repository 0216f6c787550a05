"""What every Ledger keeps to: sums of days outlive their entries, and a summary says what it lacks."""

import asyncio
from collections.abc import Sequence

import pytest
from samples import ENTRY_RETENTION, KEY, START, TENANT, FakeClock, entry

from domain import accounting
from domain.accounting import DAY_MS, HISTORY_DAYS, AccountingEntry, EntryFilter, EntryType, Gap, GroupBy
from domain.handles import SessionKey
from domain.ports import Ledger
from domain.structs import replace

pytestmark = pytest.mark.anyio

FIRST = START // DAY_MS
MIDNIGHT = FIRST * DAY_MS
SESSIONS = [SessionKey(tenant, f"run-{number}") for tenant in (TENANT, "other") for number in range(5)]
BY_DAY = (GroupBy.TENANT, GroupBy.DAY, GroupBy.MODEL, GroupBy.KEY)


async def fill(
    ledger: Ledger,
    clock: FakeClock,
    days: int,
    sessions: Sequence[SessionKey] = SESSIONS,
    sweep_days: int = 1,
) -> list[AccountingEntry]:
    """Entries of two tenants on each day. A sweep every `sweep_days` days leaves none."""
    made = []
    for day in range(FIRST, FIRST + days):
        for place, key in enumerate(sessions):
            clock.now = day * DAY_MS + place * 3_600_000
            one = entry(
                key, clock.now, type=EntryType.LLM, model=f"m{place % 3}", cost_usd=0.25, tokens_in=place
            )
            made.append(replace(one, key=f"key-{place % 2}", client="codex"))
            await ledger.append(made[-1])
        clock.now = (day + 1) * DAY_MS
        if (clock.now // DAY_MS - FIRST) % sweep_days == 0:
            await ledger.sweep()
    return made


async def test_the_costs_of_a_month_are_all_there_when_its_entries_are_not(
    ledger: Ledger, clock: FakeClock
) -> None:
    made = await fill(ledger, clock, 40, SESSIONS[::3], sweep_days=8)
    assert (await ledger.entries(EntryFilter(TENANT), 1000, None)).entries == []
    since, until = MIDNIGHT + 3 * DAY_MS, MIDNIGHT + 34 * DAY_MS
    asked = [one for one in made if since <= one.timestamp < until]
    for wanted in (
        EntryFilter(TENANT, since=since, until=until),
        EntryFilter(None, since=since, until=until),
    ):
        found = await ledger.summary(wanted, *BY_DAY)
        mine = [one for one in asked if wanted.tenant in (None, one.tenant)]
        groups = {(one.tenant, one.timestamp // DAY_MS, one.model, one.key) for one in mine}
        assert (len(found.rows), found.total.entries, found.gaps) == (len(groups), len(mine), {})
        assert (found.total.cost_usd, found.total.tokens_in) == (
            len(mine) / 4,
            sum(one.tokens_in for one in mine),
        )
    assert (await ledger.usage()).get(TENANT) is None


async def test_what_only_entries_answer_is_told_to_be_missing_once_they_are_gone(
    ledger: Ledger, clock: FakeClock
) -> None:
    fine = (GroupBy.SESSION_ID, GroupBy.HOUR, GroupBy.MINUTE)
    made = await fill(ledger, clock, 3)
    last = max(one.timestamp for one in made if one.tenant == TENANT)
    for wanted in (
        EntryFilter(TENANT),
        EntryFilter(TENANT, since=last),
        EntryFilter(TENANT, tool_name="read_file", type=EntryType.LLM),
    ):
        for group_by in fine:
            found = await ledger.summary(wanted, group_by)
            assert (found.rows, found.gaps) == ([], {Gap.AGE: last})
    for wanted in (
        EntryFilter(TENANT, since=last + 1),
        EntryFilter(TENANT, until=MIDNIGHT),
        EntryFilter(TENANT, tool_name="other"),
        EntryFilter("unknown"),
    ):
        for group_by in fine:
            found = await ledger.summary(wanted, group_by)
            assert (found.rows, found.gaps) == ([], {})
    await ledger.append(entry(KEY, clock.now))
    for group_by in fine:
        found = await ledger.summary(EntryFilter(TENANT, since=MIDNIGHT + 3 * DAY_MS), group_by)
        assert (found.total.entries, found.gaps) == (1, {})


async def test_a_day_that_is_cut_lacks_what_is_not_kept_of_it(ledger: Ledger, clock: FakeClock) -> None:
    made = await fill(ledger, clock, 3)
    last = max(one.timestamp for one in made if one.tenant == TENANT)
    cut = await ledger.summary(EntryFilter(TENANT, since=MIDNIGHT + DAY_MS + 1), GroupBy.DAY)
    assert [(row.group, row.entries) for row in cut.rows] == [("2025-06-17", 5)]
    assert cut.gaps == {Gap.AGE: last}
    until = MIDNIGHT + 2 * DAY_MS + 1
    cut = await ledger.summary(EntryFilter(TENANT, until=until), GroupBy.TYPE)
    assert (cut.total.entries, cut.gaps) == (10, {Gap.AGE: last})


async def test_sums_of_days_are_kept_for_13_months(ledger: Ledger, clock: FakeClock) -> None:
    assert HISTORY_DAYS >= 31 + 366
    await fill(ledger, clock, 2)
    clock.now = (FIRST + HISTORY_DAYS) * DAY_MS
    await ledger.sweep()
    found = await ledger.summary(EntryFilter(TENANT), GroupBy.DAY)
    assert ([row.group for row in found.rows], found.gaps) == (["2025-06-15", "2025-06-16"], {})
    clock.now += DAY_MS
    await ledger.sweep()
    for tenant in (TENANT, None):
        found = await ledger.summary(EntryFilter(tenant), GroupBy.DAY)
        assert [row.group for row in found.rows] == ["2025-06-16"]
        assert found.gaps == {Gap.HISTORY: MIDNIGHT + DAY_MS}
        later = await ledger.summary(EntryFilter(tenant, since=MIDNIGHT + DAY_MS), GroupBy.DAY)
        assert ([row.group for row in later.rows], later.gaps) == (["2025-06-16"], {})


async def test_a_tenant_of_which_only_sums_are_left_can_be_deleted(ledger: Ledger, clock: FakeClock) -> None:
    await fill(ledger, clock, 2)
    while not (await ledger.delete_tenant(TENANT)).is_done:
        pass
    for group_by in (GroupBy.DAY, GroupBy.HOUR):
        found = await ledger.summary(EntryFilter(TENANT), group_by)
        assert (found.rows, found.gaps) == ([], {})
    assert (await ledger.summary(EntryFilter("other"), GroupBy.DAY)).total.entries == 10
    await ledger.append(entry(KEY, clock.now))
    found = await ledger.summary(EntryFilter(TENANT), GroupBy.SESSION_ID)
    assert (found.total.entries, found.gaps) == (1, {})


async def test_entries_that_were_lost_are_missing_from_every_summary_of_their_time(
    ledger: Ledger, clock: FakeClock
) -> None:
    made = await fill(ledger, clock, 2)
    lost = entry(KEY, MIDNIGHT + 2 * DAY_MS, type=EntryType.LOST, tool_name="lost")
    await ledger.append(lost)
    for _ in range(2):
        for wanted in (
            EntryFilter(TENANT, tool_name="read_file"),
            EntryFilter(TENANT, type=EntryType.LLM, since=lost.timestamp, until=lost.timestamp + DAY_MS),
            EntryFilter(None),
        ):
            for group_by in (GroupBy.DAY, GroupBy.MODEL):
                found = await ledger.summary(wanted, group_by)
                assert found.gaps == {Gap.LOST: None}
        for wanted in (
            EntryFilter(TENANT, until=lost.timestamp),
            EntryFilter(TENANT, since=lost.timestamp + DAY_MS),
            EntryFilter("other", since=MIDNIGHT),
        ):
            assert (await ledger.summary(wanted, GroupBy.DAY)).gaps == {}
        by_hour = await ledger.summary(EntryFilter(TENANT, since=lost.timestamp), GroupBy.HOUR)
        assert Gap.LOST in by_hour.gaps
        clock.advance(3 * 86_400)
        await ledger.sweep()
    assert (await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)).total.entries == len(made) // 2 + 1


async def test_names_without_number_take_bounded_room_and_costs_stay_told_apart(
    ledger: Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MOST_GROUPS_OF_DAY", 4)
    made = []
    for number in range(60):
        one = entry(SessionKey(TENANT, f"run-{number}"), tool_name=f"tool-{number}", tokens_saved=number)
        llm = {
            "type": EntryType.LLM,
            "model": f"m{number % 2}",
            "tool_name": f"tool-{number}",
            "cost_usd": 0.5,
        }
        made += [replace(one, key=f"key-{number % 2}"), replace(entry(one_key(one), **llm), key="key-0")]
    await asyncio.gather(*map(ledger.append, made))
    clock.advance(2 * 86_400 + ENTRY_RETENTION)
    for _ in range(2):
        await ledger.sweep()
    by_tool = await ledger.summary(EntryFilter(TENANT), GroupBy.TOOL_NAME)
    assert by_tool.rest is not None
    assert 0 < len(by_tool.rows) <= 4 < by_tool.rest.entries
    assert (by_tool.total.entries, by_tool.total.tokens_saved, by_tool.gaps) == (120, sum(range(60)), {})
    by_key = await ledger.summary(EntryFilter(TENANT, type=EntryType.LLM), GroupBy.KEY, GroupBy.MODEL)
    assert sorted((*row.groups.values(), row.cost_usd) for row in by_key.rows) == [
        ("key-0", "m0", 15.0),
        ("key-0", "m1", 15.0),
    ]
    assert (by_key.rest, by_key.gaps) == (None, {})
    of_one = await ledger.summary(EntryFilter(TENANT, tool_name="tool-59"), GroupBy.TYPE)
    assert of_one.gaps == {Gap.MERGED: None}


def one_key(one: AccountingEntry) -> SessionKey:
    return SessionKey(one.tenant, one.session_id)
