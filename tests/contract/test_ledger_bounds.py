"""What every Ledger keeps to: the quotas of a tenant, and deleting one."""

import pytest
from samples import (
    ENTRY_RETENTION,
    KEY,
    LIMIT,
    RETENTION,
    START,
    TENANT,
    WINDOW,
    FakeClock,
    OpenBounded,
    charge,
    entry,
)

from domain.accounting import EntryDetails, EntryFilter, EntryType, Gap, GroupBy
from domain.budget import SessionChange
from domain.errors import StoreFull, TenantFull, TooManySessions
from domain.handles import Handle, SessionKey
from domain.ports import Call, Ledger, given_name
from domain.quotas import LedgerUsage
from domain.results import UsageReport

pytestmark = pytest.mark.anyio
OPEN = SessionChange(frozenset())
ONE, TWO, THREE = (SessionKey(TENANT, name) for name in ("one", "two", "three"))


async def used(ledger: Ledger) -> LedgerUsage:
    return (await ledger.usage()).get(TENANT, LedgerUsage(0, 0))


async def count(ledger: Ledger) -> int:
    return len((await ledger.entries(EntryFilter(TENANT), 1000, None)).entries)


async def test_no_more_sessions_are_opened_than_a_tenant_may_have(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(max_sessions=2)
    await ledger.put_session(ONE, OPEN)
    await ledger.settle(charge(5, "call", TWO))
    for refused in (
        ledger.put_session(THREE, OPEN),
        ledger.report(THREE, UsageReport(5)),
        ledger.enter(Call(THREE, WINDOW, False)),
        ledger.enter(Call(THREE, WINDOW, False, "call", UsageReport(5))),
        ledger.reserve(charge(1, key=THREE)),
        ledger.settle(charge(1, "call", THREE)),
    ):
        with pytest.raises(TooManySessions, match=r"`max_sessions` of 2.*SPILLGATE_MAX_SESSIONS"):
            await refused
    assert await ledger.session(THREE) is None
    assert await count(ledger) == 1
    assert (await used(ledger)).sessions == 2
    # Those that are open go on, and another tenant has sessions of its own.
    await ledger.put_session(ONE, OPEN)
    await ledger.report(TWO, UsageReport(5))
    assert await ledger.reserve(charge(1, key=TWO)) is not None
    await ledger.put_session(SessionKey("other", "one"), OPEN)
    # An ended one makes room; to open it again takes room.
    await ledger.end(ONE)
    await ledger.put_session(THREE, OPEN)
    with pytest.raises(TooManySessions):
        await ledger.put_session(ONE, OPEN)
    # So does one that is forgotten.
    clock.advance(RETENTION)
    await ledger.sweep()
    await ledger.put_session(ONE, OPEN)
    assert (await used(ledger)).sessions == 1


async def test_idle_sessions_leave_for_new_ones_those_that_stored_nothing_first(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(max_sessions=3)
    first, *others = (SessionKey(TENANT, name) for name in ("stores", "first", "second"))
    kept = charge(5, key=first, entry=entry(first, details=about(first)))
    await ledger.settle(kept)
    for key in others:
        clock.advance(1)
        await ledger.settle(charge(5, key=key, entry=entry(key, clock.now)))
    with pytest.raises(TooManySessions) as refused:
        await ledger.put_session(ONE, OPEN)
    # The one that was used longest ago is idle after a quarter of the retention.
    assert (refused.value.retryable, refused.value.retry_after) == (True, RETENTION // 4 - 2)
    clock.advance(RETENTION / 4)
    for new, gone in zip((ONE, TWO, THREE), (*others, first), strict=True):
        await ledger.settle(charge(1, key=new, entry=entry(new, clock.now)))
        assert await ledger.session(gone) is None
        assert (await used(ledger)).sessions == 3
    with pytest.raises(TooManySessions):
        await ledger.put_session(KEY, OPEN)
    assert await count(ledger) == 6


async def test_a_session_that_is_released_is_forgotten_and_may_come_again(
    open_bounded_ledger: OpenBounded,
) -> None:
    ledger = await open_bounded_ledger(max_sessions=1)
    assert await ledger.release(KEY) is None
    await ledger.settle(charge(5, "call", text="x"))
    await ledger.keep_finding(KEY, 0, "name", "text")
    released = await ledger.release(KEY)
    assert released is not None
    assert released.reserved_tokens == 5
    assert await ledger.session(KEY) is None
    assert await ledger.finding(KEY, 0, "name") is None
    assert await count(ledger) == 1
    await ledger.put_session(ONE, OPEN)
    await ledger.release(ONE)
    again = await ledger.settle(charge(7, "call", text="x"))
    assert not again.is_retry
    assert again.budget.reserved_tokens == 7
    # An ended session stays ended.
    await ledger.end(KEY)
    ended = await ledger.release(KEY)
    assert ended is not None
    assert await ledger.session(KEY) == ended


async def test_at_its_bound_the_oldest_entries_go_into_sums(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(ledger_max_bytes=28_000)
    other = SessionKey("other", "one")
    await ledger.settle(charge(1, key=other))
    for number in range(140):
        clock.advance(1)
        key = (KEY, ONE)[number % 2]
        await ledger.settle(charge(1, key=key, entry=entry(key, clock.now, tokens_in=number)))
        assert (await used(ledger)).bytes < 30_000
    kept = (await ledger.entries(EntryFilter(TENANT), 1000, None)).entries
    assert 10 < len(kept) < 130
    assert [one.tokens_in for one in kept][-10:] == [*range(130, 140)]
    for group_by in (GroupBy.TOOL_NAME, GroupBy.DAY, GroupBy.MONTH, GroupBy.KEY, GroupBy.DOOR):
        found = await ledger.summary(EntryFilter(TENANT), group_by)
        assert (found.total.entries, found.total.tokens_in, found.gaps) == (140, sum(range(140)), {})
    assert (await ledger.summary(EntryFilter(None), GroupBy.TYPE)).total.entries == 141
    assert (await ledger.summary(EntryFilter(TENANT, tool_name="other"), GroupBy.TYPE)).total.entries == 0
    deleted = (await ledger.summary(EntryFilter(TENANT), GroupBy.HOUR)).gaps[Gap.BYTES]
    assert deleted is not None
    for wanted, group_by, count in (
        (EntryFilter(TENANT), GroupBy.SESSION_ID, 140),
        (EntryFilter(TENANT), GroupBy.HOUR, 140),
        (EntryFilter(TENANT, since=START + 1), GroupBy.TYPE, 140),
        (EntryFilter(None, until=clock.now + 1), GroupBy.TENANT, 141),
        (EntryFilter(TENANT, session_id=KEY.session_id), GroupBy.TYPE, 70),
        (EntryFilter(TENANT, session_id=ONE.session_id), GroupBy.TYPE, 70),
    ):
        found = await ledger.summary(wanted, group_by)
        mine = [one for one in kept if wanted.session_id in (None, one.session_id)]
        assert found.total.entries == len(mine) + (wanted.tenant is None)
        assert found.total.entries == count or found.gaps == {Gap.BYTES: deleted}
    later = await ledger.summary(EntryFilter(TENANT, since=deleted + 1), GroupBy.SESSION_ID)
    assert (later.total.entries, later.gaps) == ((clock.now - deleted) // 1000, {})
    await ledger.sweep()
    assert (await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)).total.entries == 140


async def test_at_the_bound_of_all_tenants_the_largest_give_their_oldest_entries(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(max_bytes=25_000, ledger_max_bytes=22_500)
    small = SessionKey("small", "one")
    await ledger.settle(charge(1, key=small))
    keys = [SessionKey(f"team-{number}", f"run-{number}") for number in range(6)]
    for number in range(144):
        clock.advance(1)
        # The first team sends half of all.
        key = keys[0] if number % 2 else keys[number // 2 % 6]
        await ledger.settle(charge(1, key=key, entry=entry(key, clock.now)))
    usages = await ledger.usage()
    assert sum(used.bytes for used in usages.values()) < 27_500
    sizes = [usages[key.tenant].bytes for key in keys]
    assert max(sizes) < 22_500
    assert min(sizes) > 1_600
    assert len((await ledger.entries(EntryFilter("small"), 10, None)).entries) == 1
    for key in keys:
        found = await ledger.summary(EntryFilter(key.tenant), GroupBy.TYPE)
        assert (found.total.entries, found.gaps) == (84 if key is keys[0] else 12, {})
    first = await ledger.summary(EntryFilter("team-0"), GroupBy.SESSION_ID)
    assert set(first.gaps) == {Gap.BYTES}


async def test_sessions_of_all_tenants_that_take_all_of_the_bound_let_no_new_call_in(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(max_bytes=40_000)
    keys = [SessionKey(f"team-{number}", "one") for number in range(4)]
    for key in keys:
        await ledger.put_session(key, OPEN)
        await ledger.keep_finding(key, 0, "name", "x" * 9_500)
    with pytest.raises(StoreFull, match="SPILLGATE_LEDGER_TOTAL_MAX_BYTES") as full:
        await ledger.enter(Call(SessionKey("other", "one"), WINDOW, False))
    assert not isinstance(full.value, TenantFull)
    assert await ledger.session(keys[0]) is not None
    assert (await ledger.report(keys[0], UsageReport(700))).session.used_tokens == 700
    # Idle ones go, of the largest tenant first.
    clock.advance(RETENTION / 4)
    await ledger.settle(charge(1, key=SessionKey("other", "one")))
    assert sum([await ledger.session(key) is None for key in keys]) >= 1


async def test_a_ledger_full_of_sessions_in_use_takes_no_new_call_and_lets_everything_else_go_on(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(ledger_max_bytes=20_000)
    await ledger.put_session(KEY, OPEN)
    await ledger.put_session(ONE, OPEN)
    await ledger.keep_finding(KEY, 0, "large", "x" * 18_000)
    with pytest.raises(TenantFull):
        await ledger.settle(charge(1, "call-0", text="x" * 1000)), await ledger.append(entry())
    before = await ledger.session(KEY)
    for refused in (
        ledger.enter(Call(KEY, WINDOW, False, "new")),
        ledger.enter(Call(KEY, WINDOW, False, "new", UsageReport(900))),
        ledger.reserve(charge(LIMIT + 1)),
        ledger.append(entry()),
        ledger.put_session(TWO, OPEN),
        ledger.report(TWO, UsageReport(5)),
    ):
        with pytest.raises(
            TenantFull, match=r"`ledger_max_bytes` of 20,000.*SPILLGATE_LEDGER_MAX_BYTES"
        ) as full:
            await refused
        assert (full.value.retryable, full.value.retry_after) == (True, RETENTION // 4)
    await ledger.keep_finding(KEY, 0, "name", "text")
    assert await ledger.finding(KEY, 0, "name") is None
    assert await ledger.session(KEY) == before
    assert (await ledger.report(KEY, UsageReport(700))).session.used_tokens == 700
    assert (await ledger.put_session(ONE, SessionChange(frozenset({"model"}), model="m"))).model == "m"
    # What belongs to an extraction that was admitted before is taken.
    await ledger.append(entry(ONE, type=EntryType.LLM))
    asked = entry(ONE, type=EntryType.EXTRACT, details=about(ONE))
    assert await ledger.reserve(charge(1, key=ONE, entry=asked, text="an answer")) is not None
    assert await ledger.finding(ONE, 0, given_name(asked.id)) is None
    assert (await ledger.settle(charge(1, key=SessionKey("other", "one")))).budget is not None
    clock.advance(RETENTION / 4)
    await ledger.append(entry())
    assert await ledger.session(KEY) is None


def about(key: SessionKey) -> EntryDetails:
    return EntryDetails(tool_output_handle=f"session-{key.session_id}/file-1")


async def test_what_is_forgotten_makes_room(open_bounded_ledger: OpenBounded, clock: FakeClock) -> None:
    ledger = await open_bounded_ledger(ledger_max_bytes=20_000)
    await ledger.put_session(KEY, OPEN)
    empty = (await used(ledger)).bytes
    sizes = [empty]
    for length in (0, 1000, 1000, 2):
        await ledger.keep_finding(KEY, 0, "name", "ü" * length)
        sizes.append((await used(ledger)).bytes)
    assert sizes[1] <= sizes[4] < sizes[2] == sizes[3]
    assert 2000 <= sizes[2] - empty < 3000
    for number in range(3):
        await ledger.settle(charge(1, f"call-{number}", text="ü" * 1000))
    full = (await used(ledger)).bytes
    clock.advance(RETENTION)
    # The receipts and the finding go with their session, the entries later.
    await ledger.sweep()
    entries = (await used(ledger)).bytes
    assert 3 * 2000 <= full - sizes[4] - entries < 3 * 3000
    clock.advance(ENTRY_RETENTION)
    await ledger.sweep()
    assert (await used(ledger)).bytes == 0


async def test_a_session_that_ended_counts_until_it_is_forgotten(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(max_sessions=1, ledger_max_bytes=20_000)
    for number in range(19):
        key = SessionKey(TENANT, f"run-{number}")
        await ledger.put_session(key, OPEN)
        await ledger.keep_finding(key, 0, "name", "text")
        await ledger.end(key)
        clock.advance(0.1)
    assert (await used(ledger)).bytes >= 19 * 1024
    # At the bound those that ended first are forgotten, before a new one is refused.
    for number in range(19, 40):
        key = SessionKey(TENANT, f"run-{number}")
        await ledger.put_session(key, OPEN)
        await ledger.end(key)
        clock.advance(0.1)
    assert await ledger.session(SessionKey(TENANT, "run-0")) is None
    assert await ledger.session(SessionKey(TENANT, "run-39")) is not None
    clock.advance(ENTRY_RETENTION)
    await ledger.sweep()
    assert (await used(ledger)).bytes == 0


@pytest.mark.parametrize("open_bounded_ledger", ["sqlite://{path}/ledger/ledger.db"], indirect=True)
async def test_the_counts_survive_a_restart(open_bounded_ledger: OpenBounded) -> None:
    ledger = await open_bounded_ledger(max_sessions=2, ledger_max_bytes=20_000)
    await ledger.put_session(ONE, OPEN)
    await ledger.settle(charge(1, "call", key=TWO, text="x" * 1000))
    before = await used(ledger)
    await ledger.close()
    ledger = await open_bounded_ledger(max_sessions=2, ledger_max_bytes=2000)
    assert await used(ledger) == before
    with pytest.raises(TenantFull):
        await ledger.append(entry())
    await ledger.close()
    ledger = await open_bounded_ledger(max_sessions=2)
    with pytest.raises(TooManySessions):
        await ledger.put_session(THREE, OPEN)
    await ledger.append(entry())


@pytest.mark.usefixtures("small_steps")
async def test_a_deleted_tenant_leaves_nothing_and_others_stay(open_bounded_ledger: OpenBounded) -> None:
    ledger = await open_bounded_ledger(ledger_max_bytes=10_000_000, max_sessions=200)
    other = SessionKey("other", "one")
    handle = Handle("run-0", "0b9e4c1e-2f34-8d5a-9c1b-6f0d3f7a2e11")
    for number in range(200):
        # Spread over the shards, more than one step deletes.
        key = SessionKey(TENANT, f"run-{number}")
        details = EntryDetails(tool_output_handle=str(handle)) if number == 0 else EntryDetails()
        await ledger.settle(charge(1, "call", key, text="x", entry=entry(key, details=details)))
    await ledger.keep_finding(SessionKey(TENANT, "run-1"), 0, "name", "text")
    await ledger.end(SessionKey(TENANT, "run-2"))
    await ledger.put_session(SessionKey(TENANT, "run-3"), SessionChange(frozenset({"model"}), model="m"))
    await ledger.settle(charge(3, "call", other))
    # Of the hour before: a sweep may sum it up.
    await ledger.append(entry(SessionKey(TENANT, "run-0"), START - 450_000))
    await ledger.sweep()
    kept = (await ledger.usage())["other"], await ledger.session(other)
    assert (await used(ledger)).sessions == 199

    steps = [await ledger.delete_tenant(TENANT)]
    while not steps[-1].is_done:
        steps.append(await ledger.delete_tenant(TENANT))
    assert len(steps) > 1
    assert (sum(step.sessions for step in steps), sum(step.entries for step in steps)) == (200, 201)
    assert await ledger.delete_tenant(TENANT) == (0, 0, True)

    assert await used(ledger) == LedgerUsage(0, 0)
    assert TENANT not in await ledger.usage()
    assert await count(ledger) == 0
    assert (await ledger.summary(EntryFilter(TENANT), GroupBy.TOOL_NAME)).rows == []
    assert await ledger.stored_at(TENANT, handle) is None
    assert (await ledger.sessions(TENANT, 10, None)).sessions == []
    for name in ("run-0", "run-2", "run-3"):
        assert await ledger.session(SessionKey(TENANT, name)) is None
    assert await ledger.finding(SessionKey(TENANT, "run-1"), 0, "name") is None
    assert ((await ledger.usage())["other"], await ledger.session(other)) == kept
    assert len((await ledger.entries(EntryFilter("other"), 10, None)).entries) == 1

    # The tenant may come back: its calls are new ones.
    again = await ledger.settle(charge(5, "call", SessionKey(TENANT, "run-0")))
    assert not again.is_retry
    assert again.budget.reserved_tokens == 5
    assert (await used(ledger)).sessions == 1
    (row,) = (await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)).rows
    assert row.entries == 1
