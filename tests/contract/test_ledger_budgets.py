"""What every Ledger keeps to: sessions, budgets and calls."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import KEY, LIMIT, RETENTION, START, TENANT, WINDOW, FakeClock, OpenLedger, charge, entry, race

from domain.accounting import EntryFilter
from domain.budget import ReportWarning, Session, SessionChange
from domain.errors import Conflict, IdempotencyKeyReused, InvalidField, SessionEnded
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Call, Entered, Ledger
from domain.results import UsageReport

pytestmark = pytest.mark.anyio
OPEN = SessionChange(frozenset())


async def enter(
    ledger: Ledger, call_id: str | None = None, report: UsageReport | None = None, key: SessionKey = KEY
) -> Entered:
    return await ledger.enter(Call(key, WINDOW, True, call_id, report))


async def session(ledger: Ledger, key: SessionKey = KEY) -> Session:
    found = await ledger.session(key)
    assert found is not None
    return found


async def count(ledger: Ledger, tenant: str = TENANT) -> int:
    return len((await ledger.entries(EntryFilter(tenant), 1000, None)).entries)


async def test_a_session_is_written_down_with_its_first_charge(ledger: Ledger, clock: FakeClock) -> None:
    await ledger.check()
    assert await enter(ledger) == Entered(Session(KEY, 0, clock(), clock()))
    assert await ledger.end(KEY) is None
    assert await ledger.reserve(charge(LIMIT + 1)) is None
    with pytest.raises(Conflict):
        # Of a later life of the session.
        await ledger.settle(charge(1, epoch=3))
    assert await ledger.session(KEY) is None
    receipt = await ledger.reserve(charge(300))
    assert receipt is not None
    assert not receipt.is_retry
    assert receipt.budget.remaining_tokens == LIMIT - 300
    assert (await session(ledger)).reserved_tokens == 300
    assert await count(ledger) == 1


async def test_what_does_not_fit_changes_nothing(ledger: Ledger) -> None:
    await ledger.reserve(charge(LIMIT - 10))
    before = await session(ledger)
    assert await ledger.reserve(charge(11, "call")) is None
    assert await session(ledger) == before
    assert await count(ledger) == 1
    assert (await enter(ledger, "call")).receipt is None
    assert await ledger.reserve(charge(10)) is not None
    # Settling goes past the limit.
    budget = (await ledger.settle(charge(50))).budget
    assert (budget.reserved_tokens, budget.remaining_tokens, budget.exhausted) == (LIMIT + 50, 0, True)


async def test_a_budget_that_is_not_enforced_fits_everything(ledger: Ledger) -> None:
    receipt = await ledger.reserve(charge(LIMIT * 5, enforce=False))
    assert receipt is not None
    assert not receipt.budget.enforced
    assert receipt.budget.reserved_tokens == LIMIT * 5


async def test_a_declared_window_is_the_limit(ledger: Ledger) -> None:
    # What is not declared takes at most a third of a declared window.
    for declared, limit in (
        ({"context_window": 900, "buffer_tokens": 50}, 650),
        ({"context_window": 500}, 334),
    ):
        key = SessionKey(TENANT, f"run-{limit}")
        await ledger.put_session(key, SessionChange(frozenset(declared), **declared))
        receipt = await ledger.reserve(charge(limit, key=key, enforce=False))
        assert receipt is not None
        assert receipt.budget.limit_tokens == limit
        assert await ledger.reserve(charge(1, key=key, enforce=False)) is None


async def test_concurrent_reservations_never_exceed_the_limit(ledger: Ledger) -> None:
    receipts = await race(ledger, [charge(10) for _ in range(130)])
    assert sum(receipt is not None for receipt in receipts) == LIMIT // 10
    assert (await session(ledger)).reserved_tokens == LIMIT
    assert await count(ledger) == LIMIT // 10


@given(sizes=st.lists(st.integers(0, LIMIT + 5), min_size=1, max_size=40), used=st.integers(0, LIMIT))
async def test_whatever_the_sizes_what_is_granted_fits_and_what_is_refused_did_not(
    ledger: Ledger, sizes: list[int], used: int
) -> None:
    opened = await ledger.put_session(KEY, OPEN)
    await ledger.report(KEY, UsageReport(used))
    receipts = await race(ledger, [charge(size, epoch=opened.epoch) for size in sizes])
    granted = [size for size, receipt in zip(sizes, receipts, strict=True) if receipt is not None]
    refused = [size for size, receipt in zip(sizes, receipts, strict=True) if receipt is None]
    after = await session(ledger)
    await ledger.end(KEY)
    assert after.reserved_tokens == sum(granted)
    assert used + sum(granted) <= LIMIT
    # At the end the least room was left, so the smallest refused one did not fit even then or earlier.
    assert all(size > LIMIT - used - sum(granted) for size in refused)


async def test_a_call_made_twice_is_charged_once(ledger: Ledger) -> None:
    first = await ledger.settle(charge(100, "call", text="stored", fingerprint="f"))
    again = await ledger.settle(charge(100, "call", text="other words", fingerprint="f"))
    assert again == replace(first, is_retry=True)
    assert (await session(ledger)).reserved_tokens == 100
    assert await count(ledger) == 1
    entered = await enter(ledger, "call")
    assert entered.receipt == again
    with pytest.raises(IdempotencyKeyReused):
        await ledger.settle(charge(100, "call", fingerprint="another"))
    assert (await session(ledger)).reserved_tokens == 100
    # A replay answers the budget of now.
    await ledger.settle(charge(200))
    late = await ledger.reserve(charge(100, "call", fingerprint="f"))
    assert late is not None
    assert (late.is_retry, late.budget.reserved_tokens) == (True, 300)


async def test_a_call_made_by_many_at_once_is_charged_once(ledger: Ledger) -> None:
    # The second time the session is known.
    for number, call_id in enumerate(("call", "again"), start=1):
        receipts = await race(ledger, [charge(100, call_id) for _ in range(30)])
        assert sum(receipt is not None and not receipt.is_retry for receipt in receipts) == 1
        assert len({receipt.entry.id for receipt in receipts if receipt is not None}) == 1
        assert (await session(ledger)).reserved_tokens == 100 * number


async def test_a_replayed_call_ignores_its_report(ledger: Ledger) -> None:
    await ledger.settle(charge(100, "call"))
    entered = await enter(ledger, "call", UsageReport(900, 7))
    assert entered.receipt is not None
    assert entered.warning is ReportWarning.NOT_APPLIED
    assert (await session(ledger)).used_tokens is None
    await ledger.report(KEY, UsageReport(900, 7))
    assert (await enter(ledger, "call", UsageReport(900, 7))).warning is None


async def test_the_same_call_id_in_another_session_or_tenant_is_another_call(ledger: Ledger) -> None:
    await ledger.settle(charge(100, "call"))
    for key in (SessionKey(TENANT, "run-2"), SessionKey("other", KEY.session_id)):
        assert not (await ledger.settle(charge(50, "call", key=key))).is_retry
        assert (await session(ledger, key)).reserved_tokens == 50
    assert (await session(ledger)).reserved_tokens == 100


_SIXTY_FIVE = [(500 + turn, turn) for turn in range(65)]
# The reports of a session, the last one after a charge of 100 tokens; what is used, reserved, warned of then.
REPORTS: list[tuple[list[tuple[int, ...]], int, int, ReportWarning | None]] = [
    ([(500,), (500,)], 500, 100, None),
    ([(500,), (600,)], 600, 0, None),
    ([(500,), (400,)], 400, 0, None),
    ([(500, 3), (500, 3)], 500, 100, None),
    ([(500, 3), (600, 3)], 600, 100, ReportWarning.TURN_CHANGED),
    ([(500, 3), (600, 3), (500, 3)], 500, 100, ReportWarning.TURN_CHANGED),
    ([(500, 3), (700,), (500, 3)], 500, 100, ReportWarning.TURN_CHANGED),
    ([(500, 3), (600, 3), (600, 3)], 600, 100, None),
    ([(500, 3), (500, 4)], 500, 0, None),
    ([(500,), (500, 1)], 500, 0, None),
    ([(500, 3), (500,)], 500, 100, None),
    ([(500, 3), (700,)], 700, 0, None),
    ([(400, 2), (500, 3), (400, 2)], 500, 100, None),
    ([(400, 2), (500, 3), (450, 2)], 450, 0, ReportWarning.NEW_RUN),
    ([(500, 3), (400, 2)], 400, 0, ReportWarning.NEW_RUN),
    ([(500, 3), (0, 0)], 0, 0, ReportWarning.NEW_RUN),
    ([(400, 2), (500, 3), (50, 1), (400, 2)], 400, 0, None),
    ([(400, 2), (500, 3), (700,), (400, 2)], 700, 100, None),
    ([*_SIXTY_FIVE, (501, 1)], 564, 100, None),
    ([*_SIXTY_FIVE, (500, 0)], 500, 0, ReportWarning.NEW_RUN),
]


@pytest.mark.parametrize("by_entering", [True, False])
async def test_what_a_usage_report_does(ledger: Ledger, by_entering: bool) -> None:
    for number, (reports, used, reserved, warning) in enumerate(REPORTS):
        key = SessionKey(TENANT, f"run-{number}")
        *before, last = [UsageReport(*report) for report in reports]
        for report in before:
            await enter(ledger, report=report, key=key)
        await ledger.settle(charge(100, key=key))
        after = await (enter(ledger, "call", last, key) if by_entering else ledger.report(key, last))
        assert after.session == await session(ledger, key)
        told = after.session.used_tokens, after.session.reserved_tokens, after.warning
        assert (reports, *told) == (reports, used, reserved, warning)
        assert len({*after.session.reports}) == len(after.session.reports) <= 64


async def test_parallel_results_of_one_turn_may_all_report_it(ledger: Ledger) -> None:
    report = UsageReport(200, 5)

    async def one(number: int) -> bool:
        await enter(ledger, f"call-{number}", report)
        return await ledger.reserve(charge(100, f"call-{number}")) is not None

    granted = await asyncio.gather(*[one(number) for number in range(20)])
    assert sum(granted) == (LIMIT - 200) // 100


async def test_a_report_opens_an_unknown_session(ledger: Ledger, clock: FakeClock) -> None:
    report = UsageReport(10, 1)
    opened = (await ledger.report(KEY, report)).session
    assert opened == Session(KEY, 0, clock(), clock(), used_tokens=10, turn=1, reports=(report,))
    assert await session(ledger) == opened
    other = SessionKey(TENANT, "run-2")
    assert (await enter(ledger, None, UsageReport(3), other)).session == await session(ledger, other)


async def test_nothing_is_written_to_an_ended_session(ledger: Ledger) -> None:
    await ledger.settle(charge(100, "call"))
    ended = await ledger.end(KEY)
    assert ended is not None
    assert ended.ended_at is not None
    for late in (
        enter(ledger),
        enter(ledger, report=UsageReport(5)),
        ledger.reserve(charge(1)),
        ledger.settle(charge(1)),
        ledger.settle(charge(1, "late")),
        ledger.report(KEY, UsageReport(5)),
    ):
        with pytest.raises(SessionEnded):
            await late
    assert await ledger.end(KEY) == ended
    assert await session(ledger) == ended
    assert (await ledger.settle(charge(100, "call"))).is_retry
    await ledger.append(entry())
    assert await count(ledger) == 2


async def test_a_session_that_is_opened_again_starts_from_nothing(ledger: Ledger) -> None:
    change = SessionChange(frozenset({"context_window", "policy"}), context_window=5000, policy="{}")
    await ledger.put_session(KEY, change)
    await ledger.report(KEY, UsageReport(10, 1))
    await ledger.settle(charge(100, "call"))
    await ledger.end(KEY)
    opened = await ledger.put_session(KEY, OPEN)
    assert opened == Session(KEY, START, opened.created_at, opened.last_used_at)
    with pytest.raises(Conflict):
        await ledger.settle(charge(100, "late"))
    assert (await enter(ledger, "call")).receipt is None
    assert not (await ledger.settle(charge(70, "call", epoch=START))).is_retry
    assert (await session(ledger)).reserved_tokens == 70


async def test_the_default_session_is_emptied_and_never_ends(ledger: Ledger) -> None:
    key = SessionKey(TENANT, DEFAULT_SESSION)
    await ledger.put_session(key, SessionChange(frozenset({"model"}), model="m"))
    await ledger.report(key, UsageReport(10, 4))
    await ledger.settle(charge(100, "call", key))
    emptied = await ledger.end(key)
    assert emptied is not None
    assert emptied == await session(ledger, key)
    assert (emptied.epoch, emptied.ended_at, emptied.model) == (START, None, "m")
    spent = (emptied.used_tokens, emptied.turn, emptied.reserved_tokens, emptied.reports)
    assert spent == (None, None, 0, ())
    with pytest.raises(Conflict):
        await ledger.settle(charge(1, "late", key))
    assert not (await ledger.settle(charge(1, "call", key, epoch=emptied.epoch))).is_retry


async def test_the_epoch_after_an_end_is_later_than_any_before_even_one_that_is_forgotten(
    ledger: Ledger, clock: FakeClock
) -> None:
    for key in (KEY, SessionKey(TENANT, DEFAULT_SESSION)):
        epochs = []
        for pause in (RETENTION + 1, 0, -10):
            before = await ledger.put_session(key, OPEN)
            ended = await ledger.end(key)
            assert ended is not None
            assert before.epoch < ended.first_live_epoch
            after = await ledger.put_session(key, OPEN)
            assert after.epoch == after.first_live_epoch == ended.first_live_epoch
            epochs.append(after.epoch)
            clock.advance(pause)
            await ledger.sweep()
        assert epochs == sorted(set(epochs))


async def test_the_last_use_of_a_session_moves_on_and_never_back(ledger: Ledger, clock: FakeClock) -> None:
    key = SessionKey(TENANT, DEFAULT_SESSION)
    opened = await ledger.put_session(key, OPEN)
    # To empty it restarts its retention.
    clock.advance(RETENTION - 1)
    emptied = await ledger.end(key)
    clock.advance(RETENTION - 1)
    await ledger.sweep()
    assert await ledger.session(key) == emptied
    opened = await ledger.put_session(key, OPEN)
    clock.advance(-RETENTION)
    uses = [
        await ledger.settle(charge(1, key=key, epoch=opened.epoch, entry=entry(key, at=clock()))),
        await ledger.report(key, UsageReport(5, 1)),
        await ledger.put_session(key, OPEN),
        await ledger.append(entry(key, at=clock())),
        await ledger.end(key),
    ]
    assert len(uses) == 5
    assert (await session(ledger, key)).last_used_at == opened.last_used_at


async def test_a_put_sets_what_is_given_and_nothing_else(ledger: Ledger, clock: FakeClock) -> None:
    await ledger.put_session(KEY, SessionChange(frozenset({"model", "policy"}), model="m", policy="{}"))
    await ledger.settle(charge(100))
    clock.advance(5)
    changed = await ledger.put_session(KEY, SessionChange(frozenset({"policy", "context_window"})))
    assert (changed.model, changed.policy, changed.reserved_tokens) == ("m", None, 100)
    assert changed.last_used_at == clock()
    assert changed == await session(ledger)


async def test_one_bad_change_does_not_spoil_its_neighbours(ledger: Ledger) -> None:
    await ledger.put_session(SessionKey(TENANT, "over"), OPEN)
    await ledger.end(SessionKey(TENANT, "over"))
    await ledger.settle(charge(10, "taken", fingerprint="one"))
    outcomes = await asyncio.gather(
        ledger.settle(charge(1)),
        ledger.settle(charge(1, key=SessionKey(TENANT, "over"))),
        ledger.settle(charge(1, "taken", fingerprint="two")),
        ledger.settle(charge(1, epoch=9)),
        ledger.settle(charge(2)),
        return_exceptions=True,
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds[1:4] == [SessionEnded, IdempotencyKeyReused, Conflict]
    assert (await session(ledger)).reserved_tokens == 13
    assert await count(ledger) == 3


async def test_sessions_are_listed_by_id_in_pages_without_the_ended(ledger: Ledger) -> None:
    for name in ("b", "a", "d", "c", "over"):
        await ledger.put_session(SessionKey(TENANT, name), OPEN)
    await ledger.put_session(SessionKey("other", "x"), OPEN)
    await ledger.end(SessionKey(TENANT, "over"))
    seen, cursor = [], None
    for _ in range(2):
        page = await ledger.sessions(TENANT, 2, cursor)
        seen += [found.key.session_id for found in page.sessions]
        cursor = page.next_cursor
    assert (seen, cursor) == (["a", "b", "c", "d"], None)
    assert (await ledger.sessions("unknown", 5, None)).sessions == []


async def test_sessions_are_listed_by_their_last_use_in_pages(ledger: Ledger, clock: FakeClock) -> None:
    for name in ("b", "a", "d", "c", "over", "a"):
        await ledger.put_session(SessionKey(TENANT, name), OPEN)
        clock.advance(1)
    for name in ("y", "x"):
        await ledger.put_session(SessionKey(TENANT, name), OPEN)
    await ledger.put_session(SessionKey("other", "z"), OPEN)
    await ledger.end(SessionKey(TENANT, "over"))
    seen, cursor = [], None
    for _ in range(3):
        page = await ledger.sessions(TENANT, 2, cursor, newest_first=True)
        seen += [found.key.session_id for found in page.sessions]
        cursor = page.next_cursor
    assert (seen, cursor) == (["x", "y", "a", "c", "d", "b"], None)
    by_id = (await ledger.sessions(TENANT, 1, None)).next_cursor
    by_use = (await ledger.sessions(TENANT, 1, None, newest_first=True)).next_cursor
    with pytest.raises(InvalidField):
        await ledger.sessions(TENANT, 1, by_id, newest_first=True)
    with pytest.raises(InvalidField):
        await ledger.sessions(TENANT, 1, by_use)


async def test_a_cursor_that_is_not_ours_is_refused(ledger: Ledger) -> None:
    for cursor in ("", "x", "%%%", "é", "c2Vzc2lvbnM", "ZW50cmllczo5OTk5OTk5OTk5OTk5OTk5OTk5OQ"):
        for page in (ledger.entries(EntryFilter(TENANT), 5, cursor), ledger.sessions(TENANT, 5, cursor)):
            try:
                await page
            except InvalidField:
                continue
            pytest.fail(f"{cursor!r} was taken.")


async def test_an_idle_session_is_forgotten_with_its_calls(ledger: Ledger, clock: FakeClock) -> None:
    await ledger.settle(charge(100, "call", fingerprint="old"))
    clock.advance(RETENTION - 1)
    await ledger.append(entry(at=clock()))
    clock.advance(RETENTION - 1)
    await ledger.sweep()
    assert await ledger.session(KEY) is not None
    clock.advance(1)
    await ledger.sweep()
    assert await ledger.session(KEY) is None
    assert not (await ledger.settle(charge(70, "call", fingerprint="new"))).is_retry
    assert (await session(ledger)).reserved_tokens == 70
    assert await count(ledger) == 3


async def test_everything_survives_a_restart(open_lasting_ledger: OpenLedger) -> None:
    ledger = await open_lasting_ledger()
    await ledger.put_session(KEY, SessionChange(frozenset({"policy"}), policy='{"x": "ü"}'))
    await ledger.report(KEY, UsageReport(100, 2))
    first = await ledger.settle(charge(100, "call", text="stored", fingerprint="f"))
    before = await session(ledger)
    await ledger.close()
    ledger = await open_lasting_ledger()
    assert await session(ledger) == before
    assert (await enter(ledger, "call")).receipt == replace(first, is_retry=True)
    assert await count(ledger) == 1
