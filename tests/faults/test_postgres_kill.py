"""PostgreSQL and replicas killed at any moment: what was acknowledged is there, accounted once."""

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from tests.counts import count, kills
from tests.faults.postgres_load import Load
from tests.faults.service_process import Service, Services, service_with
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio

CYCLES = kills(4, 40)
REPLICAS = 2
MOST = count(30, 60)
"""Acknowledged before a kill."""


async def replica(services: Services, place: Path, server: PostgresServer) -> Service:
    return await services.start(place, ledger_url=server.url)


@pytest.mark.repeated
async def test_through_many_kills_under_load_all_that_was_acknowledged_is_there(
    services: Services, tmp_path: Path
) -> None:
    source = random.Random(1)
    with PostgresServer() as server:
        spawned = [await replica(services, tmp_path / f"{n}", server) for n in range(REPLICAS)]
        async with Load(spawned) as load:
            for cycle in range(CYCLES):
                async with load.writing():
                    await load.until(source.randrange(5, MOST))
                    if cycle % 4 == 3:
                        await replace(services, tmp_path, server, load, cycle // 4 % REPLICAS)
                    else:
                        (server.stop if cycle % 4 == 2 else server.kill)()
                        await asyncio.to_thread(server.start)
                    await load.until(10)
                await load.check()
            assert load.retried > 0
            assert len(load.acknowledged) > MOST // 3 * CYCLES


async def replace(services: Services, place: Path, server: PostgresServer, load: Load, number: int) -> None:
    load.services[number].kill()
    load.services[number] = await replica(services, place / f"{number}", server)
    load.clients[number].base_url = load.services[number].client().base_url


async def test_a_postgresql_that_does_not_wait_for_its_disk_loses_what_it_acknowledged_and_that_is_told(
    services: Services, tmp_path: Path
) -> None:
    careless = ["synchronous_commit = off", "wal_writer_delay = 10s", "wal_writer_flush_after = 0"]
    with PostgresServer(options=careless) as server:
        # A sweep tells what was lost.
        often = service_with("sweeping often", "SETTLED_SECONDS=0.1")
        service = await services.start(tmp_path, often, ledger_url=server.url)
        async with Load([service]) as load:
            client = load.clients[0]
            ready = (await client.get("/readyz")).json()
            assert "synchronous_commit is off" in " ".join(ready["warnings"])
            async with load.writing():
                await load.until(40)
                server.kill()
                await asyncio.to_thread(server.start)
                await load.until(1)
            lost = await load.lost()
            assert lost
            (line,) = await service.logged("PostgreSQL has lost")
            assert line["event"].startswith(f"PostgreSQL has lost {len(lost)} ")
            async with asyncio.timeout(60):
                while not (told := await lost_entries(client)):
                    await asyncio.sleep(0.1)
            assert len(told) == 1
            assert (await client.get("/accounting/summary")).json()["complete"] is False


async def lost_entries(client: httpx.AsyncClient) -> list[object]:
    found = await client.get("/accounting/entries", params={"type": "lost"})
    return list(found.json()["entries"])
