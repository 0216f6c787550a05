"""Results in an object store expire by the clock of the Redis that has the ledger, not by that of a
replica."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.service_process import PATIENCE, Services, service_with
from tests.moved_clock import MovedClock
from tests.objects.conftest import CREDENTIALS
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

OFTEN = service_with(*PATIENCE, "sweeping often", "SETTLED_SECONDS=0.1")
WAIT_SECONDS = 60.0


@pytest.mark.parametrize("hours", [5, -5])
async def test_a_replica_whose_clock_is_wrong_deletes_nothing_from_the_bucket(
    services: Services,
    tmp_path: Path,
    url: Callable[[int], str],
    s3_port: int,
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    wrong = MovedClock(tmp_path / "clock")
    wrong.move(hours * 3600)
    with RedisServer(tmp_path / "redis", aof="always") as redis:
        settings = {"storage_url": url(s3_port), "ledger_url": redis.url, "retention_seconds": "3600"}
        right = await services.start(tmp_path, OFTEN, **settings)
        other = await services.start(tmp_path, OFTEN, clock=wrong, **settings)
        async with right.client() as client, other.client() as elsewhere:
            handles = list[str]()
            for number in range(6):
                one = (client, elsewhere)[number % 2]
                body = {"session_id": f"run-{number}", "tool_name": "t", "content": "a line\n" * 5000}
                handles.append((await one.post("/results", json=body)).json()["handle"])
            deadline = time.monotonic() + WAIT_SECONDS
            while not (await client.get("/clock")).json()["sweeps"]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            assert (await elsewhere.get("/clock")).json()["sweeps"] is False
            assert (await elsewhere.get("/readyz")).status_code == 503
            for one in (client, elsewhere):
                codes = {(await one.get(f"/results/{handle}/content")).status_code for handle in handles}
                assert codes == {200}
