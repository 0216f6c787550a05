"""A failover or a restart that loses acknowledged entries: sums of that time are not called complete."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.runtime import Runtime
from app.sweeper import sweep
from tests.conftest import served
from tests.redis_server import HOST, RedisServer
from tests.storage.redis_proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

SAYS = "The ledger lost entries that it had acknowledged, in a failover or a restart"


async def send(client: httpx.AsyncClient, count: int) -> None:
    for number in range(count):
        sent = {"tool_name": "grep", "content": "x", "session_id": f"run-{number}"}
        assert (await client.post("/results", json=sent)).status_code == 200


async def summary(client: httpx.AsyncClient, **asked: str) -> Any:
    """As soon as Redis can be reached again."""
    async with asyncio.timeout(60):
        while (answer := await client.get("/accounting/summary", params=asked)).status_code == 503:
            await asyncio.sleep(0.05)
    return answer.json()


async def check_told(runtime: Runtime, client: httpx.AsyncClient, url: str) -> None:
    """At once by the process that wrote them, after its sweep by every other one."""
    for asked in ({"group_by": "tool_name"}, {"group_by": "session_id"}, {"type": "extract"}):
        found = await summary(client, **asked)
        assert not found["complete"]
        assert found["warnings"][0].startswith(SAYS)
    await sweep(runtime, left_behind=False)
    await sweep(runtime, left_behind=False)
    notes = (await client.get("/accounting/entries?type=lost")).json()["entries"]
    assert 0 < len(notes) == len({one["session_id"] for one in notes})
    await send(client, 10)
    async with served(storage_url=url) as (_, other):
        found = await summary(other, group_by="day")
        assert (found["complete"], found["total"]["entries"]) == (False, 20 + len(notes))
        assert (await summary(other, until="2020-01-01"))["complete"]


@asynccontextmanager
async def pair(place: Path) -> AsyncIterator[tuple[RedisServer, RedisServer]]:
    """A primary and a replica."""
    at_once = ["--repl-diskless-sync-delay", "0"]
    with RedisServer(place / "a", options=at_once) as primary, RedisServer(place / "b") as replica:
        replica.ask("REPLICAOF", HOST, str(primary.port))
        while b"master_link_status:up" not in replica.ask("INFO", "replication"):
            await asyncio.sleep(0.05)
        yield primary, replica


@pytest.mark.parametrize("is_lagging", [True, False])
async def test_after_a_failover_a_summary_is_complete_only_if_nothing_was_lost(
    tmp_path: Path, is_lagging: bool
) -> None:
    async with (
        pair(tmp_path) as (primary, replica),
        Proxy(primary.port) as proxy,
        served(storage_url=proxy.url) as (runtime, client),
    ):
        await send(client, 10)
        while replica.ask("DBSIZE") != primary.ask("DBSIZE"):
            await asyncio.sleep(0.02)
        if is_lagging:
            replica.ask("REPLICAOF", "NO", "ONE")
            await send(client, 30)
        assert (await summary(client))["complete"]
        replica.ask("REPLICAOF", "NO", "ONE")
        primary.kill()
        proxy.move(replica.port)
        if is_lagging:
            await check_told(runtime, client, replica.url)
            return
        found = await summary(client)
        assert (found["complete"], found["total"]["entries"]) == (True, 10)
        await sweep(runtime, left_behind=False)
        assert (await client.get("/accounting/entries?type=lost")).json()["entries"] == []


async def test_a_restart_that_loses_the_last_writes_is_told(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    with server:
        async with served(storage_url=server.url) as (runtime, client):
            await send(client, 10)
            server.ask("SAVE")
            await send(client, 5)
            server.kill()
            server.start()
            await check_told(runtime, client, server.url)


async def test_a_restart_that_loses_nothing_leaves_sums_complete(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", aof="always") as server:
        async with served(storage_url=server.url) as (runtime, client):
            await send(client, 15)
            server.kill()
            server.start()
            found = await summary(client)
            assert (found["complete"], found["total"]["entries"]) == (True, 15)
            await send(client, 5)
            await sweep(runtime, left_behind=False)
            found = await summary(client)
            assert (found["complete"], found["total"]["entries"]) == (True, 20)
