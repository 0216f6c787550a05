"""15,000 runs a day of one tenant, under the quota of sessions that ships: none is refused. `make test` has a
fiftieth of both."""

import asyncio
from pathlib import Path

import pytest
from samples import WINDOW, FakeClock, charge, entry

from app.settings import Settings
from domain.accounting import EntryDetails
from domain.handles import SessionKey
from domain.ports import Call
from domain.quotas import TenantQuota
from storage import open_ledger
from tests.counts import count

pytestmark = pytest.mark.anyio

SCALE = count(50, 1)
RUNS = 15_000 // SCALE
MOST = Settings.model_fields["max_sessions"].default // SCALE
DAY_SECONDS = 86_400


@pytest.mark.repeated
@pytest.mark.parametrize("url", ["memory:", "sqlite://{path}/ledger.db", "{redis}"])
async def test_fifteen_thousand_runs_a_day_are_taken(
    url: str, tmp_path: Path, redis_url: str, clock: FakeClock
) -> None:
    """Nine of ten store nothing; none is ended, and none expires within the day."""
    quota = TenantQuota(max_sessions=MOST)
    ledger = await open_ledger(
        url.format(path=tmp_path, redis=redis_url),
        clock=clock,
        session_retention_seconds=DAY_SECONDS,
        entry_retention_seconds=30 * DAY_SECONDS,
        quota_of=lambda tenant: quota,
    )

    async def run(number: int) -> None:
        key = SessionKey("acme", f"run-{number}")
        stored = f"session-{key.session_id}/file-1" if number % 10 == 0 else None
        details = EntryDetails(tool_output_handle=stored)
        await ledger.enter(Call(key, WINDOW, False))
        await ledger.settle(charge(1, key=key, entry=entry(key, clock.now, details=details)))

    for number in range(RUNS):
        # A task for each, as for each request: how long one may wait for Redis is counted by task.
        await asyncio.create_task(run(number))
        clock.advance(DAY_SECONDS / RUNS)
    usage = (await ledger.usage())["acme"]
    assert MOST * 0.9 < usage.sessions <= MOST
    # All that stored something are still there.
    for number in range(0, RUNS, 500 // SCALE):
        assert await ledger.session(SessionKey("acme", f"run-{number}")) is not None
    assert (await ledger.entry_count()) == RUNS
    await ledger.close()
