"""What every Ledger keeps to: findings of extractions, kept until their session ends."""

import pytest
from samples import KEY, RETENTION, FakeClock, OpenLedger, charge, handle, stored_entry

from domain.budget import SessionChange
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Ledger, given_name

pytestmark = pytest.mark.anyio


async def test_a_finding_is_found_in_its_session_under_its_name(ledger: Ledger) -> None:
    await ledger.settle(charge(1))
    await ledger.keep_finding(KEY, 0, "chunk 1", "first")
    await ledger.keep_finding(KEY, 0, "chunk 1", "second")
    other = SessionKey(KEY.tenant, "other")
    assert await ledger.finding(KEY, 0, "chunk 1") == "second"
    assert await ledger.finding(KEY, 0, "chunk 2") is None
    assert await ledger.finding(other, 0, "chunk 1") is None
    assert await ledger.finding(KEY._replace(tenant="other"), 0, "chunk 1") is None


async def test_findings_end_with_their_session(ledger: Ledger, clock: FakeClock) -> None:
    await ledger.put_session(KEY, SessionChange(frozenset()))
    await ledger.keep_finding(KEY, 0, "n", "old")
    await ledger.end(KEY)
    assert await ledger.finding(KEY, 0, "n") is None
    await ledger.keep_finding(KEY, 0, "n", "late")
    session = await ledger.put_session(KEY, SessionChange(frozenset()))
    assert await ledger.finding(KEY, 0, "n") is None
    await ledger.keep_finding(KEY, 0, "n", "of the life before")
    assert await ledger.finding(KEY, session.epoch, "n") is None
    await ledger.keep_finding(KEY, session.epoch, "n", "new")
    assert await ledger.finding(KEY, session.epoch, "n") == "new"
    # It is forgotten with an idle session, too.
    clock.advance(RETENTION + 1)
    await ledger.sweep()
    session = await ledger.put_session(KEY, SessionChange(frozenset()))
    assert await ledger.finding(KEY, session.epoch, "n") is None


async def test_emptying_the_default_session_forgets_its_findings(ledger: Ledger) -> None:
    key = SessionKey(KEY.tenant, DEFAULT_SESSION)
    await ledger.put_session(key, SessionChange(frozenset()))
    await ledger.keep_finding(key, 0, "n", "old")
    emptied = await ledger.end(key)
    assert emptied is not None
    assert await ledger.finding(key, 0, "n") is None
    assert await ledger.finding(key, emptied.epoch, "n") is None


async def test_findings_survive_a_restart(open_lasting_ledger: OpenLedger) -> None:
    ledger = await open_lasting_ledger()
    await ledger.put_session(KEY, SessionChange(frozenset()))
    await ledger.keep_finding(KEY, 0, "n", "kept \N{SNOWMAN}")
    await ledger.close()
    assert await (await open_lasting_ledger()).finding(KEY, 0, "n") == "kept \N{SNOWMAN}"


async def test_a_charge_keeps_the_text_about_a_stored_result(ledger: Ledger) -> None:
    about, named, late = (stored_entry(handle()) for _ in range(3))
    other = charge(1, text="of no stored result")
    receipt = await ledger.settle(charge(1, entry=about, text="given \N{SNOWMAN}"))
    assert receipt.text == "given \N{SNOWMAN}"
    assert await ledger.finding(KEY, 0, given_name(about.id)) == "given \N{SNOWMAN}"
    await ledger.settle(charge(1, "call", entry=named, text="in the receipt"))
    assert (await ledger.settle(other)).text == other.text
    assert await ledger.reserve(charge(1 << 40, entry=late, text="too long")) is None
    kept = [await ledger.finding(KEY, 0, given_name(one.id)) for one in (named, other.entry, late)]
    assert kept == [None, None, None]
    await ledger.end(KEY)
    assert await ledger.finding(KEY, 0, given_name(about.id)) is None


async def test_a_finding_that_is_kept_once_stays_as_it_was_first(ledger: Ledger) -> None:
    await ledger.put_session(KEY, SessionChange(frozenset()))
    for text in ("first", "second"):
        await ledger.keep_finding(KEY, 0, "once", text, once=True)
    assert await ledger.finding(KEY, 0, "once") == "first"
    await ledger.keep_finding(KEY, 0, "once", "third")
    assert await ledger.finding(KEY, 0, "once") == "third"
