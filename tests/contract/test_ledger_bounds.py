"""What every Ledger keeps to: the bounds of a tenant."""

from typing import Any

import pytest
from samples import (
    ENTRY_RETENTION,
    KEY,
    LIMIT,
    RETENTION,
    TENANT,
    WINDOW,
    FakeClock,
    OpenBounded,
    charge,
    entry,
)

from domain.accounting import EntryFilter, EntryType
from domain.budget import SessionChange
from domain.errors import StoreFull, TooManySessions
from domain.handles import SessionKey
from domain.ports import Call, Ledger
from domain.results import UsageReport

pytestmark = pytest.mark.anyio
OPEN = SessionChange(frozenset())
ONE, TWO, THREE = (SessionKey(TENANT, name) for name in ("one", "two", "three"))


async def count(ledger: Ledger) -> int:
    return len((await ledger.entries(EntryFilter(TENANT), 1000, None)).entries)


async def fill(ledger: Ledger, **fields: Any) -> int:
    """Settles calls until the ledger refuses one; how many it took."""
    for number in range(1000):
        try:
            await ledger.settle(charge(1, f"call-{number}", **fields))
        except StoreFull:
            return number
    raise AssertionError("it took a thousand")


async def test_no_more_sessions_are_opened_than_a_tenant_may_have(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(sessions=2)
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
        with pytest.raises(TooManySessions, match="SPILLGATE_MAX_SESSIONS"):
            await refused
    assert await ledger.session(THREE) is None
    assert await count(ledger) == 1
    assert (await ledger.usage()).sessions == 2
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
    assert (await ledger.usage()).sessions == 1


async def test_a_full_ledger_takes_no_new_call_and_lets_everything_else_go_on(
    open_bounded_ledger: OpenBounded,
) -> None:
    ledger = await open_bounded_ledger(bytes=20_000)
    await ledger.put_session(KEY, OPEN)
    await ledger.put_session(ONE, OPEN)
    taken = await fill(ledger, text="x" * 1000)
    assert 5 < taken < 20
    before = await ledger.session(KEY)
    for refused in (
        ledger.enter(Call(KEY, WINDOW, False, "new")),
        ledger.enter(Call(KEY, WINDOW, False, "new", UsageReport(900))),
        ledger.reserve(charge(LIMIT + 1)),
        ledger.append(entry()),
        ledger.put_session(TWO, OPEN),
        ledger.report(TWO, UsageReport(5)),
    ):
        with pytest.raises(StoreFull, match="SPILLGATE_LEDGER_MAX_BYTES"):
            await refused
    await ledger.keep_finding(KEY, 0, "name", "text")
    assert await ledger.finding(KEY, 0, "name") is None
    assert await ledger.session(KEY) == before
    assert await count(ledger) == taken
    assert (await ledger.enter(Call(KEY, WINDOW, False, "call-0"))).receipt is not None
    assert (await ledger.settle(charge(1, "call-0", text="x"))).replayed
    assert (await ledger.report(KEY, UsageReport(700))).session.used_tokens == 700
    assert (await ledger.put_session(ONE, SessionChange(frozenset({"model"}), model="m"))).model == "m"
    # What belongs to an extraction that was admitted before is taken.
    await ledger.append(entry(ONE, type=EntryType.LLM))
    asked = entry(ONE, type=EntryType.EXTRACT)
    assert await ledger.reserve(charge(1, key=ONE, entry=asked)) is not None
    assert await count(ledger) == taken + 2
    await ledger.end(KEY)
    assert (await ledger.settle(charge(1, key=SessionKey("other", "one")))).budget is not None


async def test_what_is_forgotten_makes_room(open_bounded_ledger: OpenBounded, clock: FakeClock) -> None:
    ledger = await open_bounded_ledger(bytes=20_000)
    await ledger.put_session(KEY, OPEN)
    empty = (await ledger.usage()).bytes
    for number in range(2):
        await ledger.keep_finding(KEY, 0, "name", "ü" * 1000 * number)
    assert (await ledger.usage()).bytes == empty + 2000
    taken = await fill(ledger, text="ü" * 1000)
    full = (await ledger.usage()).bytes
    clock.advance(RETENTION)
    # The receipts and the finding go with their session, the entries later.
    await ledger.sweep()
    assert (await ledger.usage()).bytes == full - empty - 2000 - 2000 * taken
    clock.advance(ENTRY_RETENTION)
    await ledger.sweep()
    assert (await ledger.usage()).bytes == 0
    assert await fill(ledger) > taken


async def test_a_session_that_ended_counts_until_it_is_forgotten(
    open_bounded_ledger: OpenBounded, clock: FakeClock
) -> None:
    ledger = await open_bounded_ledger(sessions=1, bytes=20_000)
    for number in range(20):
        key = SessionKey(TENANT, f"run-{number}")
        await ledger.put_session(key, OPEN)
        await ledger.keep_finding(key, 0, "name", "text")
        await ledger.end(key)
    with pytest.raises(StoreFull):
        await ledger.put_session(KEY, OPEN)
    clock.advance(ENTRY_RETENTION)
    await ledger.sweep()
    assert (await ledger.usage()).bytes == 0
    await ledger.put_session(KEY, OPEN)


@pytest.mark.parametrize("open_bounded_ledger", ["sqlite://{path}/ledger/ledger.db"], indirect=True)
async def test_the_counts_survive_a_restart(open_bounded_ledger: OpenBounded) -> None:
    ledger = await open_bounded_ledger(sessions=2, bytes=20_000)
    await ledger.put_session(ONE, OPEN)
    await fill(ledger, key=TWO)
    before = await ledger.usage()
    await ledger.close()
    ledger = await open_bounded_ledger(sessions=2, bytes=before.bytes)
    assert await ledger.usage() == before
    with pytest.raises(StoreFull):
        await ledger.append(entry())
    await ledger.close()
    ledger = await open_bounded_ledger(sessions=2)
    with pytest.raises(TooManySessions):
        await ledger.put_session(THREE, OPEN)
    await ledger.append(entry())
