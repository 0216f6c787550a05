"""The accounting, as every Ledger has to keep it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from samples import (
    ENTRY_RETENTION,
    KEY,
    RETENTION,
    START,
    TENANT,
    FakeClock,
    charge,
    entry,
    handle,
    stored_entry,
)

from domain import accounting
from domain.accounting import (
    AccountingEntry,
    EntryDetails,
    EntryFilter,
    EntryStatus,
    EntryType,
    GroupBy,
    Summary,
)
from domain.budget import SessionChange
from domain.errors import InvalidField
from domain.handles import SessionKey
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Ledger

pytestmark = pytest.mark.anyio
DAY = 86_400_000


async def listed(ledger: Ledger, limit: int = 100, **wanted: Any) -> list[AccountingEntry]:
    return (await ledger.entries(EntryFilter(**{"tenant": TENANT, **wanted}), limit, None)).entries


async def test_entries_come_back_as_they_went_in_newest_last(ledger: Ledger) -> None:
    full = entry(
        status=EntryStatus.FAILED,
        latency=12.5,
        mcpServer="files",
        command="read",
        charactersIn=3,
        charactersOut=4,
        tokens_in=5,
        tokens_out=6,
        tokens_saved=-7,
        trigger=Trigger.SIZE_CAP,
        outcome=OutcomeKind.STORE,
        model="m",
        provider="p",
        tool_call_id="call-ü",
        turn=3,
        tool_kind="mcp",
        extract_id="entry-1",
        mode="auto",
        strategy="retrieve",
        fallback_reason="no model",
        coverage=0.25,
        stop_reason="end",
        cost_usd=0.25,
        error="timed out",
        details=EntryDetails("session-a/file-b", "size_cap", True, 1, 2, 3, 4, 5, OutcomeKind.CAP, 6),
    )
    charged = charge(5)
    await ledger.append(full)
    await ledger.settle(charged)
    assert await listed(ledger) == [full, charged.entry]


async def test_pages_hold_every_entry_once_even_while_others_arrive(ledger: Ledger) -> None:
    made = [entry() for _ in range(7)]
    for one in made:
        await ledger.append(one)
    seen: list[AccountingEntry] = []
    cursor = None
    for _ in range(4):
        page = await ledger.entries(EntryFilter(TENANT), 2, cursor)
        seen += page.entries
        cursor = page.next_cursor
        if len(seen) == 4:
            made.append(entry())
            await ledger.append(made[-1])
    assert seen == made
    assert cursor is None


async def test_the_newest_come_first_where_that_is_asked_for(ledger: Ledger) -> None:
    sessions = [SessionKey(TENANT, f"run-{number % 3}") for number in range(150)]
    made = [entry(key, at=START + number) for number, key in enumerate(sessions)]
    for one in made:
        await ledger.append(one)
    seen: list[AccountingEntry] = []
    cursor = None
    while True:
        page = await ledger.entries(EntryFilter(TENANT), 40, cursor, newest_first=True)
        seen += page.entries
        # Entries added between two pages are newer than all entries of the next pages.
        await ledger.append(entry(at=START + 1000))
        if (cursor := page.next_cursor) is None:
            break
        with pytest.raises(InvalidField):
            await ledger.entries(EntryFilter(TENANT), 40, cursor)
    assert seen == made[::-1]
    of_time = EntryFilter(TENANT, "run-1", since=START + 10, until=START + 20)
    page = await ledger.entries(of_time, 100, None, newest_first=True)
    assert page.entries == [made[19], made[16], made[13], made[10]]


# The numbers of the entries that a filter lets through.
FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3]),
    ({"session_id": "run-2"}, [3]),
    ({"type": EntryType.LLM}, [1]),
    ({"tool_name": "grep"}, [2]),
    ({"trigger": Trigger.TOKEN_BUDGET}, [2]),
    ({"outcome": OutcomeKind.PASS}, [3]),
    ({"status": EntryStatus.FAILED}, [1]),
    ({"since": START + 2}, [2, 3]),
    ({"until": START + 2}, [0, 1]),
    ({"since": START + 1, "until": START + 3, "type": EntryType.TOOL}, [2]),
    ({"stored": True}, [2]),
    ({"stored": True, "until": START + 2}, []),
    ({"tenant": "other"}, [4]),
    ({"tenant": "unknown"}, []),
]


async def test_a_filter_lets_through_what_it_says(ledger: Ledger) -> None:
    details = EntryDetails(tool_output_handle="session-run-1/file-00000000-0000-4000-8000-000000000000")
    made = [
        entry(at=START),
        entry(at=START + 1, type=EntryType.LLM, status=EntryStatus.FAILED, details=details),
        entry(
            at=START + 2,
            tool_name="grep",
            trigger=Trigger.TOKEN_BUDGET,
            outcome=OutcomeKind.STORE,
            details=details,
        ),
        entry(SessionKey(TENANT, "run-2"), at=START + 3, outcome=OutcomeKind.PASS),
        entry(SessionKey("other", "run-1"), at=START + 4),
    ]
    for one in made:
        await ledger.append(one)
    for wanted, found in FILTERS:
        assert (wanted, await listed(ledger, **wanted)) == (wanted, [made[number] for number in found])


SAVINGS: dict[GroupBy, list[tuple[str | None, int, int]]] = {
    GroupBy.TOOL_NAME: [("read_file", 3, 700), ("grep", 1, -50)],
    GroupBy.SESSION_ID: [("run-1", 3, 550), ("run-2", 1, 100)],
    GroupBy.TRIGGER: [("size_cap", 2, 900), (None, 2, -250)],
    GroupBy.OUTCOME: [("store", 2, 900), (None, 1, -50), ("pass", 1, -200)],
    GroupBy.MODEL: [(None, 3, 850), ("m", 1, -200)],
    GroupBy.TYPE: [("tool", 2, 900), ("read", 1, -50), ("extract", 1, -200)],
    GroupBy.DAY: [("2025-06-15", 3, 850), ("2025-06-16", 1, -200)],
    GroupBy.HOUR: [("2025-06-15T15:00Z", 3, 850), ("2025-06-16T15:00Z", 1, -200)],
    GroupBy.MINUTE: [("2025-06-15T15:06Z", 3, 850), ("2025-06-16T15:06Z", 1, -200)],
    GroupBy.STRATEGY: [(None, 3, 850), ("truncate", 1, -200)],
    GroupBy.TOOL_KIND: [("mcp", 2, 900), (None, 2, -250)],
    GroupBy.MONTH: [("2025-06", 4, 650)],
    GroupBy.KEY: [("ci", 2, 900), (None, 2, -250)],
    GroupBy.DOOR: [("codex", 2, 900), (None, 2, -250)],
}


async def test_a_summary_nets_the_savings_of_each_group(ledger: Ledger) -> None:
    size_cap = {"trigger": Trigger.SIZE_CAP, "outcome": OutcomeKind.STORE, "tool_kind": "mcp"}

    asked = {"type": EntryType.EXTRACT, "model": "m", "outcome": OutcomeKind.PASS, "strategy": "truncate"}
    for one in (
        replace(entry(tokens_saved=800, **size_cap), key="ci", client="codex"),
        replace(entry(SessionKey(TENANT, "run-2"), tokens_saved=100, **size_cap), key="ci", client="codex"),
        entry(at=START + DAY, tokens_saved=-200, **asked),
        entry(type=EntryType.READ, tool_name="grep", tokens_saved=-50),
        entry(SessionKey("other", "run-1"), tokens_saved=9999),
    ):
        await ledger.append(one)
    found = {}
    for group_by in SAVINGS:
        rows = (await ledger.summary(EntryFilter(TENANT), group_by)).rows
        found[group_by] = [(row.group, row.entries, row.tokens_saved) for row in rows]
    assert found == SAVINGS
    assert set(SAVINGS) == set(GroupBy) - {GroupBy.TENANT}


async def test_a_month_ends_where_the_calendar_says(ledger: Ledger, clock: FakeClock) -> None:
    for at in (START, START + 15 * DAY, START + 16 * DAY):
        clock.now = at
        await ledger.append(entry(at=at, tokens_saved=1))
    rows = (await ledger.summary(EntryFilter(TENANT), GroupBy.MONTH, GroupBy.DAY)).rows
    assert [tuple(row.groups.values()) for row in rows] == [
        ("2025-06", "2025-06-15"),
        ("2025-06", "2025-06-30"),
        ("2025-07", "2025-07-01"),
    ]


async def test_a_summary_adds_up(ledger: Ledger) -> None:
    sums = {"tokens_in": 3, "tokens_out": 4, "details": EntryDetails(bytes=50)}
    await ledger.append(entry(latency=1.0, cost_usd=0.5, status=EntryStatus.FAILED, **sums))
    await ledger.append(entry(latency=4.0, cost_usd=0.25, **sums))
    await ledger.append(entry(type=EntryType.LLM, latency=100.0))
    (row,) = (await ledger.summary(EntryFilter(TENANT, type=EntryType.TOOL), GroupBy.TOOL_NAME)).rows
    assert (row.entries, row.failed, row.bytes, row.tokens_in, row.tokens_out) == (2, 1, 100, 6, 8)
    assert (row.latency_ms_mean, row.latency_ms_max, row.cost_usd) == (2.5, 4.0, 0.75)
    assert await ledger.summary(EntryFilter("unknown"), GroupBy.TYPE) == Summary([])


@pytest.mark.parametrize("key", [GroupBy.TOOL_NAME, GroupBy.DAY, GroupBy.SESSION_ID])
async def test_a_summary_counts_stored_results_and_what_became_of_them(
    ledger: Ledger, clock: FakeClock, key: GroupBy
) -> None:
    stored = [handle() for _ in range(3)]
    for one in stored:
        await ledger.settle(charge(1, entry=stored_entry(one)))
    about = EntryDetails(tool_output_handle=str(stored[0]))
    for details in (
        replace(about, found_nothing=True),
        replace(about, found_nothing=True),
        replace(about, costs_more=True),
    ):
        await ledger.append(entry(type=EntryType.READ, details=details))
    for status in EntryStatus:
        await ledger.append(entry(type=EntryType.EXTRACT, status=status, details=about))
    # A person asks: that costs the savings nothing.
    await ledger.append(entry(type=EntryType.EXTRACT, tokens_out=90, details=about))
    await ledger.append(entry(type=EntryType.LLM, details=about))
    await ledger.append(entry())
    await ledger.sweep()
    (row,) = (found := await ledger.summary(EntryFilter(TENANT), key)).rows
    assert (row.stored, row.asked_back, row.found_nothing, row.costs_more) == (3, 4, 2, 1)
    assert (found.total.stored, found.total.asked_back) == (3, 4)
    assert (found.total.found_nothing, found.total.costs_more) == (2, 1)


async def test_a_summary_adds_up_what_observing_policies_would_have_saved(ledger: Ledger) -> None:
    for saved, tool in ((700, "a"), (-20, "a"), (5, "b")):
        observed = EntryDetails(observed_outcome=OutcomeKind.STORE, observed_tokens_saved=saved)
        await ledger.append(entry(tool_name=tool, details=observed))
    await ledger.append(entry(tool_name="a", tokens_saved=3))
    rows = (await ledger.summary(EntryFilter(TENANT), GroupBy.TOOL_NAME)).rows
    assert [(row.group, row.tokens_saved, row.tokens_saved_observed) for row in rows] == [
        ("a", 3, 680),
        ("b", 0, 5),
    ]
    (later,) = (await ledger.summary(EntryFilter(TENANT, tool_name="b"), GroupBy.DAY)).rows
    assert later.tokens_saved_observed == 5


GROUPS: list[tuple[dict[str, Any], str, list[tuple[str, int, int]]]] = [
    (
        {"tenant": None},
        "tenant day model",
        [
            ("red 2025-06-15 m", 2, 500),
            ("blue 2025-06-15 m", 1, 300),
            ("red 2025-06-16 m", 1, 30),
            ("blue 2025-06-15 -", 1, 20),
            ("red 2025-06-15 -", 1, -10),
        ],
    ),
    ({"tenant": "red"}, "tenant model", [("red m", 3, 530), ("red -", 1, -10)]),
    ({"tenant": "blue"}, "model tenant", [("m blue", 1, 300), ("- blue", 1, 20)]),
    ({"tenant": None, "session_id": "run-2"}, "tenant session_id", [("red run-2", 2, 130)]),
    ({"tenant": None, "tool_name": "grep"}, "tool_name tenant", [("grep blue", 1, 300)]),
    (
        {"tenant": None, "since": START, "until": START + DAY},
        "hour tenant type",
        [("2025-06-15T15:00Z red tool", 3, 490), ("2025-06-15T15:00Z blue tool", 2, 320)],
    ),
    ({"tenant": None, "since": START + 1}, "minute outcome", [("2025-06-16T15:06Z -", 1, 30)]),
    ({"tenant": None}, "strategy", [("-", 6, 840)]),
]


async def test_a_summary_groups_by_several_keys_of_one_tenant_or_of_all(
    ledger: Ledger, clock: FakeClock
) -> None:
    red, more, blue = SessionKey("red", "run-1"), SessionKey("red", "run-2"), SessionKey("blue", "run-1")
    for one in (
        entry(red, tokens_saved=400, model="m"),
        entry(more, tokens_saved=100, model="m"),
        entry(red, tokens_saved=-10),
        entry(more, at=START + DAY, tokens_saved=30, model="m"),
        entry(blue, tokens_saved=300, model="m", tool_name="grep"),
        entry(blue, tokens_saved=20),
    ):
        await ledger.append(one)
    for _ in range(2):
        clock.now = START + DAY + 3_600_000
        for wanted, keys, rows in GROUPS:
            asked = tuple(map(GroupBy, keys.split()))
            found = await ledger.summary(EntryFilter(**wanted), *asked)
            told = [
                (" ".join(value or "-" for value in row.groups.values()), row.entries, row.tokens_saved)
                for row in found.rows
            ]
            assert told == rows
            assert {tuple(row.groups) for row in found.rows} == {tuple(keys.split())}
            assert [row.group for row in found.rows] == [row.groups[asked[0]] for row in found.rows]
            assert (found.rest, found.gaps) == (None, {})
        # A sweep adds the hours up, where a ledger does so. It deletes nothing: nothing is too old.
        clock.now = START + 1
        await ledger.sweep()


async def test_groups_past_the_bound_are_added_up_in_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MOST_GROUPS", 3)
    saved = [entry(tool_name=f"tool-{number}", tokens_saved=2**number, latency=number) for number in range(5)]
    for one in (*saved, *(replace(one, id=f"{one.id} again") for one in saved[:3])):
        await ledger.append(one)
    three = await ledger.summary(EntryFilter(TENANT, until=START + 1), GroupBy.TOOL_NAME, GroupBy.TYPE)
    assert three.rest is not None
    assert len(three.rows) == 3
    told = [row.group for row in three.rows]
    assert len(set(told)) == 3
    other = [one for one in (*saved, *saved[:3]) if one.tool_name not in told]
    assert (three.rest.group, three.rest.groups) == (None, {})
    assert three.rest.entries == len(other)
    assert three.rest.tokens_saved == sum(one.tokens_saved for one in other)
    assert three.rest.latency_ms_max == max(one.latency for one in other)
    assert (three.total.entries, three.total.tokens_saved) == (8, 31 + 7)
    whole = await ledger.summary(EntryFilter(TENANT, tool_name="tool-1"), GroupBy.TOOL_NAME)
    assert (whole.rest, len(whole.rows)) == (None, 1)


async def test_the_accounting_remembers_when_a_handle_was_stored(ledger: Ledger) -> None:
    where = handle()
    assert await ledger.stored_at(TENANT, where) is None
    await ledger.append(stored_entry(where, START + 5))
    await ledger.append(stored_entry(where, START + 3))
    reading = EntryDetails(tool_output_handle=str(where))
    await ledger.append(entry(at=START + 9, type=EntryType.EXTRACT, details=reading))
    assert await ledger.stored_at(TENANT, where) == START + 5
    assert await ledger.stored_at("other", where) is None
    assert await ledger.stored_at(TENANT, handle()) is None


async def test_entries_and_ended_sessions_are_forgotten_past_their_retention(
    ledger: Ledger, clock: FakeClock
) -> None:
    where = handle()
    await ledger.append(stored_entry(where, clock()))
    await ledger.put_session(KEY, SessionChange(frozenset()))
    await ledger.put_session(SessionKey(TENANT, "idle"), SessionChange(frozenset()))
    await ledger.end(KEY)
    clock.advance(RETENTION)
    assert await ledger.sweep() == [KEY]
    assert await ledger.session(SessionKey(TENANT, "idle")) is None
    young = entry(at=clock())
    await ledger.append(young)
    clock.advance(ENTRY_RETENTION - RETENTION)
    assert await ledger.sweep() == []
    assert await ledger.session(KEY) is None
    assert await ledger.stored_at(TENANT, where) is None
    assert await listed(ledger) == [young]


@pytest.mark.usefixtures("small_steps")
@pytest.mark.usefixtures("small_steps")
async def test_entries_that_were_written_while_the_clock_was_ahead_keep_no_others(
    ledger: Ledger, clock: FakeClock
) -> None:
    ahead = [entry(at=clock() + 10**9) for _ in range(51)]
    await asyncio.gather(*map(ledger.append, ahead))
    await ledger.append(entry(at=clock()))
    clock.advance(ENTRY_RETENTION + 1)
    await ledger.append(last := entry(at=clock()))
    await ledger.sweep()
    found = (await ledger.entries(EntryFilter(TENANT), 600, None)).entries
    # Redis keeps them from when it was given them on, the others from the time that they name.
    assert {one.id for one in found} - {one.id for one in ahead} == {last.id}


async def test_many_are_forgotten_in_one_sweep(ledger: Ledger, clock: FakeClock) -> None:
    # At most as many at once as there are connections to Redis: on a busy machine more would be refused.
    for start in (0, 60):
        await asyncio.gather(*[ledger.settle(charge(0, f"call-{start + n}")) for n in range(60)])
    clock.advance(ENTRY_RETENTION)
    young = entry(at=clock())
    await ledger.append(young)
    clock.advance(RETENTION)
    await ledger.sweep()
    assert await ledger.session(KEY) is None
    assert await listed(ledger) == [young]
