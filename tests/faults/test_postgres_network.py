"""The network before PostgreSQL, as bad as it can be, and a pooler: each call is charged once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.counts import count
from tests.faults.network import Fault, Network, delay, garble, lose, reset, silence, swallow
from tests.faults.postgres_load import Load
from tests.faults.service_process import PATIENT, Services
from tests.pgbouncer import PgBouncer
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio

BEGINS = (b"B", b"P", b"Q")
"""Bind, Parse and Query begin what a client asks."""

SPOILT = 3
SOON = 5.0
"""Seconds: a second on an idle machine. Without a bound of its own an answer would take much longer."""


@asynccontextmanager
async def loaded(
    services: Services, place: Path, server: PostgresServer
) -> AsyncIterator[tuple[Network, Load]]:
    async with Network(server.port, BEGINS) as network:
        service = await services.start(place, ledger_url=server.url_at(network.port))
        async with Load([service]) as load:
            yield network, load


@pytest.mark.parametrize(
    "fault", [silence, swallow, reset, garble, lose, delay], ids=lambda one: one.__name__
)
@pytest.mark.usefixtures("postgres_url")
async def test_whatever_becomes_of_an_answer_each_call_is_charged_once(
    services: Services, tmp_path: Path, postgres_server: PostgresServer, fault: Fault
) -> None:
    async with loaded(services, tmp_path, postgres_server) as (network, load):
        async with load.writing():
            await load.until(10)
            network.spoil(fault, spared=3)
            async with asyncio.timeout(60):
                while network.spoilt < SPOILT:
                    await asyncio.sleep(0.02)
            await network.heal()
            await load.until(20)
        await load.check()
        # A caller learns within a second that it is to try again.
        assert load.longest_refusal < SOON
        assert load.refused.keys() <= {"store_unavailable"}


@pytest.mark.usefixtures("postgres_url")
async def test_a_cut_network_refuses_within_a_second_and_is_used_again_once_it_heals(
    services: Services, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    async with loaded(services, tmp_path, postgres_server) as (network, load):
        async with load.writing():
            await load.until(10)
            await network.refuse()
            async with asyncio.timeout(60):
                while load.refused["store_unavailable"] < SPOILT:
                    await asyncio.sleep(0.02)
            assert (await load.clients[0].get("/readyz")).status_code == 503
            await network.heal()
            await load.until(20)
        await load.check()
        assert load.longest_refusal < SOON
        assert (await load.clients[0].get("/readyz")).status_code == 200


@pytest.mark.usefixtures("postgres_url")
async def test_a_server_that_stands_still_refuses_within_a_second(services: Services, tmp_path: Path) -> None:
    with PostgresServer(syncs=False) as server:
        service = await services.start(tmp_path, ledger_url=server.url)
        async with Load([service]) as load:
            async with load.writing():
                await load.until(10)
                server.pause()
                async with asyncio.timeout(60):
                    while load.refused["store_unavailable"] < SPOILT:
                        await asyncio.sleep(0.02)
                server.resume()
                await load.until(20)
            await load.check()
            assert load.longest_refusal < SOON


@pytest.mark.usefixtures("postgres_url")
async def test_a_pooler_in_transaction_mode_may_stand_between(
    services: Services, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    with PgBouncer(postgres_server) as pooler:
        # More connections to the pooler than it has to the server.
        places = [tmp_path / f"{number}" for number in range(2)]
        url = f"{postgres_server.url_at(pooler.port)}?prepared=false"
        started = [await services.start(place, PATIENT, ledger_url=url) for place in places]
        async with Load(started) as load:
            async with load.writing(12):
                await load.until(count(25, 150))
                pooler.restart()
                await load.until(count(25, 150))
            await load.check()
            assert (await load.clients[0].get("/readyz")).json()["status"] == "ok"
        assert pooler.most_servers() <= pooler.POOL
