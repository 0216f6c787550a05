"""`spillgate ledger copy`: a ledger of SQLite or Redis in PostgreSQL, whose sums are the same."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from samples import KEY, TENANT, FakeClock, charge, entry, handle, stored_entry

from app.cli.main import main
from domain import accounting
from domain.accounting import DAY_MS, EntryFilter, EntryStatus, EntryType, Gap, GroupBy
from domain.budget import SessionChange
from domain.handles import SessionKey
from domain.ports import Ledger
from domain.results import UsageReport
from storage import open_ledger

pytestmark = pytest.mark.anyio
KEPT_DAYS = 4


async def opened(url: str, clock: FakeClock) -> Ledger:
    times = {"session_retention_seconds": 86_400.0, "entry_retention_seconds": KEPT_DAYS * 86_400.0}
    return await open_ledger(url, clock=clock, **times)


async def fill(ledger: Ledger, clock: FakeClock) -> None:
    """Of two tenants, more than the retention; tools without number, of which few are told apart."""
    end = clock.now
    for day in range(KEPT_DAYS + 3, -1, -1):
        clock.now = end - day * DAY_MS
        for number in range(7):
            key = SessionKey((TENANT, "other")[number % 2], f"run-{number % 3}")
            made = entry(key, clock.now, tool_name=f"tool-{number}", tokens_saved=number, latency=1.5)
            await ledger.append(replace(made, key="ci", client="codex"))
            llm = entry(
                key, clock.now, type=EntryType.LLM, tool_name=f"tool-{number}", model="m", cost_usd=0.1
            )
            await ledger.append(replace(llm, status=EntryStatus.FAILED if number == 3 else EntryStatus.OK))
        await ledger.sweep()
    clock.now = end
    await ledger.put_session(
        KEY, SessionChange(frozenset({"policy", "model"}), policy='{"x": "ü"}', model="m")
    )
    await ledger.report(KEY, UsageReport(100, 3))
    await ledger.settle(charge(70, "call", entry=replace(stored_entry(handle(), end), tool_call_id="call")))


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_copy_has_all_entries_sums_and_budgets(
    kind: str,
    clock: FakeClock,
    tmp_path: Path,
    redis_url: str,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(accounting, "MOST_GROUPS_OF_DAY", 5)
    monkeypatch.setattr("app.cli.ledger._now", clock)
    url = redis_url if kind == "redis" else f"sqlite://{tmp_path}/ledger.db"
    source = await opened(url, clock)
    await fill(source, clock)
    await source.close()
    monkeypatch.setenv("SPILLGATE_LEDGER_URL", url)
    (tmp_path / "to").write_text(postgres_url)
    (tmp_path / "to").chmod(0o600)
    command = ["ledger", "copy", "--to-file", str(tmp_path / "to")]
    status, shown = await asyncio.to_thread(main, command), capsys.readouterr().out
    assert status == 0, shown
    assert shown.count("equal") == 2
    source, copied = await opened(url, clock), await opened(postgres_url, clock)
    ledgers = source, copied
    for _ in range(2):
        for tenant in (TENANT, "other"):
            listed, others = [
                (await ledger.entries(EntryFilter(tenant), 1000, None)).entries for ledger in (source, copied)
            ]
            assert sorted(listed, key=lambda each: each.id) == sorted(others, key=lambda each: each.id)
            for wanted, keys in (
                (EntryFilter(tenant), (GroupBy.DAY, GroupBy.TYPE)),
                (EntryFilter(tenant, status=EntryStatus.FAILED), (GroupBy.MODEL, GroupBy.KEY)),
                (EntryFilter(tenant, type=EntryType.LLM), (GroupBy.DAY, GroupBy.MODEL)),
            ):
                both = [(await ledger.summary(wanted, *keys)) for ledger in (source, copied)]
                told = [{tuple(row.groups.values()): row.entries for row in found.rows} for found in both]
                assert told[0] == told[1]
                assert both[0].total.cost_usd == pytest.approx(both[1].total.cost_usd)
            by_tool = [
                (await ledger.summary(EntryFilter(tenant), GroupBy.TOOL_NAME)) for ledger in (source, copied)
            ]
            assert (by_tool[0].rest is None) == (by_tool[1].rest is None)
            assert by_tool[0].total.entries == by_tool[1].total.entries
            hours = [(await one.summary(EntryFilter(tenant), GroupBy.HOUR)) for one in ledgers]
            assert hours[0].gaps.keys() == hours[1].gaps.keys() == {Gap.AGE}
        assert await copied.session(KEY) == await source.session(KEY)
        # Both go on alike, also with one that is late.
        new = entry(KEY, clock.now), entry(KEY, clock.now - 2 * DAY_MS, tool_name="tool-1")
        for ledger in ledgers:
            for one in new:
                await ledger.append(one)
            await ledger.sweep()
    await source.close()
    await copied.close()
    assert await asyncio.to_thread(main, command) == 2
    assert "is not empty" in capsys.readouterr().err
