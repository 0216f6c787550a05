"""A replica whose clock is wrong or jumps goes by that of PostgreSQL: it deletes nothing too early."""

import asyncio
from pathlib import Path

import pytest

from tests.counts import count
from tests.faults.postgres_load import Load
from tests.faults.service_process import Services, service_with
from tests.faults.test_clocks import HOUR, SOON, swept_twice, until
from tests.faults.test_clocks import _is_ready as is_ready
from tests.moved_clock import MovedClock
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("days", [40, -40][: count(1, 2)])
@pytest.mark.usefixtures("postgres_url")
async def test_a_replica_whose_clock_jumps_loses_nothing_and_books_at_the_right_time(
    services: Services, tmp_path: Path, postgres_server: PostgresServer, days: int
) -> None:
    moved = MovedClock(tmp_path / "clock")
    settings = {"ledger_url": postgres_server.url, "retention_seconds": str(HOUR)}
    command = service_with(*SOON)
    right = await services.start(tmp_path / "right", command, **settings)
    wrong = await services.start(tmp_path / "wrong", command, clock=moved, **settings)
    async with Load([right, wrong]) as load:
        async with load.writing():
            await load.until(12)
            moved.move(days * 24 * HOUR)
            await load.until(12)
            await swept_twice(load.clients[1])
            refused = await load.clients[1].get("/readyz")
            async with asyncio.timeout(60):
                while refused.status_code != 503:
                    await asyncio.sleep(0.05)
                    refused = await load.clients[1].get("/readyz")
            assert "that of PostgreSQL: set it." in refused.json()["detail"]
            assert (await load.clients[1].get("/clock")).json()["sweeps"] is False
            await load.until(12)
            moved.move(0)
            await until(lambda: is_ready(load.clients[1]))
        await load.check()
        times = [int(str(entry["timestamp"])) for entry in await load.entries()]
        assert max(times) - min(times) < HOUR * 1000
        shown = (await load.clients[0].get("/clock")).json()
        assert (shown["reference"], shown["jump_ms"]) == ("postgresql", 0)
