"""A replica of PostgreSQL takes over: with synchronous commits nothing is lost, else the lost is counted."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.counts import count, kills
from tests.faults.postgres_load import Load
from tests.faults.service_process import Services, service_with
from tests.postgres_server import PASSWORD_IN_URL, USER, PostgresServer
from tests.redis_server import HOST

pytestmark = pytest.mark.anyio

FAILOVERS = kills(1, 8)
SOME = count(25, 60)
"""Acknowledged before a failover, and after it."""
SOON = ("sweeping often", "SETTLED_SECONDS=0.1")
"""Sweeps at once. A sweep tells what was lost."""


@contextmanager
def pair(*, is_synchronous: bool) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and a replica that follows it."""
    names = ["synchronous_standby_names = 'replica'"] if is_synchronous else []
    with PostgresServer(options=["synchronous_commit = local"]) as primary, primary.replica() as replica:
        primary.configure("synchronous_commit = on", *names)
        primary.sql("SELECT pg_reload_conf()")
        yield primary, replica


def url_of(*servers: PostgresServer) -> str:
    hosts = ",".join(f"{HOST}:{server.port}" for server in servers)
    return f"postgresql://{USER}:{PASSWORD_IN_URL}@{hosts}/ledger"


@pytest.mark.repeated
async def test_after_failovers_with_synchronous_commits_all_that_was_acknowledged_is_there(
    services: Services, tmp_path: Path
) -> None:
    for number in range(FAILOVERS):
        with pair(is_synchronous=True) as (primary, replica):
            places = [tmp_path / f"{number}-{one}" for one in range(2)]
            url = url_of(primary, replica)
            started = [await services.start(place, ledger_url=url) for place in places]
            async with Load(started, name=f"run-{number}", seed=number) as load:
                async with load.writing():
                    await load.until(SOME)
                    primary.kill()
                    replica.promote()
                    await load.until(SOME)
                await load.check()


async def test_after_a_failover_to_a_replica_that_lags_what_is_lost_is_counted(
    services: Services, tmp_path: Path
) -> None:
    with pair(is_synchronous=False) as (primary, replica):
        url = url_of(primary, replica)
        service = await services.start(tmp_path, service_with(*SOON), ledger_url=url)
        async with Load([service]) as load:
            async with load.writing():
                await load.until(SOME)
                replica.lag()
                await load.until(SOME)
                primary.kill()
                replica.promote()
                await load.until(20)
            lost = await load.lost()
            assert lost
            (line,) = await service.logged("PostgreSQL has lost")
            assert line["event"].startswith(f"PostgreSQL has lost {len(lost)} ")
            summary = (await load.clients[0].get("/accounting/summary")).json()
            assert summary["complete"] is False
            # The rest is there once.
            for entry_id in lost:
                del load.acknowledged[entry_id]
            load.named = {call: entry for call, entry in load.named.items() if entry not in lost}
            entries = await load.entries()
            assert load.acknowledged.keys() <= {str(entry["id"]) for entry in entries}


async def test_a_planned_failover_loses_nothing(services: Services, tmp_path: Path) -> None:
    with pair(is_synchronous=True) as (primary, replica):
        service = await services.start(tmp_path, ledger_url=url_of(primary, replica))
        async with Load([service]) as load:
            async with load.writing():
                await load.until(20)
                await asyncio.to_thread(primary.stop)
                replica.promote()
                await load.until(20)
            await load.check()
