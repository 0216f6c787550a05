"""What every Ledger keeps to: findings of extractions, kept until their session ends."""

import pytest
from samples import KEY, RETENTION, FakeClock, OpenLedger, charge

from domain.budget import SessionChange
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Ledger

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
