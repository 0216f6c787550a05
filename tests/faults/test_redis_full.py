"""When Redis holds all that its maxmemory allows, the service refuses, says so, and goes on reading."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.readings import check_told_in_sums, counted, read_in_every_way, sums_say_that_they_lack_some
from tests.faults.service_process import PATIENCE, PATIENT, Services, service_with
from tests.faults.test_full_disk import SMALL, fill_by_service
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

OPTIONS = ("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")


async def warnings(client: httpx.AsyncClient) -> list[str]:
    """A full store is ready: reads and deletes must reach it."""
    answer = await client.get("/readyz")
    assert answer.status_code == 200
    found: list[str] = answer.json()["warnings"]
    return found


async def test_a_full_redis_is_507_and_reads_and_deletes_go_on(services: Services, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", aof="always", options=OPTIONS) as server:
        service = await services.start(tmp_path, PATIENT, storage_url=server.url)
        async with service.client() as client:
            assert (await client.put("/sessions/other", json={})).status_code == 200
            kept = await fill_by_service(client, 200_000, "large")
            kept += await fill_by_service(client, 13_000, "small")
            assert len(kept) > 15
            # Redis frees the buffers of its clients now and then: one that was full may take one more.
            kept += await fill_by_service(client, 1_100_000, "huge")
            while not (await Call("full", SMALL).send(client)).json()["warnings"]:
                await asyncio.sleep(0.02)
            # Redis frees the memory of idle connections now and then: then it holds a little more.
            while not any("that its maxmemory allows" in warning for warning in await warnings(client)):
                await Call("full", SMALL).send(client)
                await asyncio.sleep(0.1)
            assert (await client.delete("/sessions/other")).status_code == 204
            assert [fault for one in kept for fault in await read_back(client, one)] == []
            for view in ("lines", "grep?pattern=result", "content"):
                assert (await client.get(f"/results/{kept[0].handle}/{view}")).status_code == 200
            for path in ("/sessions/full", "/sessions", "/tools?session_id=full", "/accounting/summary"):
                assert (await client.get(path)).status_code == 200
            for one in kept[:10]:
                assert (await client.delete(f"/results/{one.handle}")).status_code == 204
            after = Call("full", text_of("after", 13_000))
            kept = [*kept[10:], Kept.of(after, await after.send(client))]
            assert not any("that its maxmemory allows" in warning for warning in await warnings(client))
            assert [fault for one in kept for fault in await read_back(client, one)] == []
            assert audit.misbooked(kept, await audit.tool_entries(client)) == []
            assert (await client.delete("/sessions/full")).status_code == 204
        assert service.failures() == []


async def test_a_replica_that_starts_on_a_full_redis_deletes_and_passes(
    services: Services, tmp_path: Path
) -> None:
    """Also after the scripts of Redis were flushed, as after its restart."""
    with RedisServer(tmp_path / "redis", aof="always", options=OPTIONS) as server:
        first = await services.start(tmp_path / "first", PATIENT, storage_url=server.url)
        async with first.client() as client:
            assert (await client.put("/sessions/other", json={})).status_code == 200
            calls = [Call("full", text_of(f"before-{number}", 13_000)) for number in range(3)]
            kept = [Kept.of(call, await call.send(client)) for call in calls]
        assert await first.stop() == 0
        async with redis_of(server) as redis:
            await redis.script_flush()
            await fill(redis)
        second = await services.start(tmp_path / "second", PATIENT, storage_url=server.url)
        async with second.client() as client:
            assert (await client.delete("/sessions/other")).status_code == 204
            report = {
                "session_id": "full",
                "tool_name": "t",
                "context": {"used_tokens": 9},
                "content": "small",
            }
            passed = await client.post("/results", json=report)
            assert (passed.status_code, passed.json()["outcome"]) == (200, "pass"), passed.json()
            assert [fault for one in kept for fault in await read_back(client, one)] == []
            assert (await client.delete(f"/results/{kept[0].handle}")).status_code == 204
            assert (await client.delete("/sessions/full")).status_code == 204
            assert (await client.get(f"/results/{kept[1].handle}")).status_code == 410
        assert second.failures() == []


async def test_on_a_full_redis_models_ask_read_and_hand_on_and_it_is_told_once_there_is_room(
    services: Services, tmp_path: Path
) -> None:
    export = tmp_path / "entries.ndjson"
    often = service_with(*PATIENCE, "sweeping often")
    with RedisServer(tmp_path / "redis", options=OPTIONS) as server:
        service = await services.start(tmp_path, often, storage_url=server.url, accounting_export=str(export))
        async with service.client() as client:
            call = Call("full", text_of("before", 100_000))
            kept = Kept.of(call, await call.send(client))
            # So far below what is used that nothing that Redis frees makes room.
            assert server.ask("CONFIG", "SET", "maxmemory", "1mb") == b"+OK\r\n"
            assert (await Call("full", SMALL).send(client)).json()["warnings"]
            entries = await read_in_every_way(client, kept)
            assert await counted(client, "spillgate_readings_unrecorded_total") == sum(entries.values())
            await sums_say_that_they_lack_some(client)
            assert (await client.get("/sessions/reader")).json()["reads"] == ["full"]
            assert server.ask("CONFIG", "SET", "maxmemory", "100mb") == b"+OK\r\n"
            await check_told_in_sums(client, export, entries, 1)
        assert await service.stop() == 0
        assert service.failures() == []
        service = await services.start(tmp_path, PATIENT, storage_url=server.url)
        async with service.client() as client:
            assert (await client.get("/sessions/reader")).json()["reads"] == ["full"]
            assert (await client.get("/sessions/full")).json()["turn"] == 7


async def used_ratios(client: httpx.AsyncClient) -> list[float]:
    """What one scrape says of the memory of Redis: that of the store, that of the ledger."""
    text = (await client.get("/metrics")).text
    name = "spillgate_medium_used_ratio"
    told = dict(re.findall(rf'^{name}{{backend="(\w+)"}} (\S+)$', text, re.M))
    return [float(told["store"]), float(told["ledger"])]


def real_ratio(server: RedisServer) -> float:
    told = dict(
        line.split(":", 1) for line in server.ask("INFO", "memory").decode().split("\r\n") if ":" in line
    )
    return int(told["used_memory"]) / int(told["maxmemory"])


async def test_the_memory_used_is_told_right_after_a_fast_fill_and_after_another_bound(
    services: Services, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "redis", options=("--maxmemory", "12mb", *OPTIONS[2:])) as server:
        service = await services.start(tmp_path, PATIENT, storage_url=server.url)
        async with service.client() as client:
            assert (await client.put("/sessions/full", json={})).status_code == 200
            assert max(await used_ratios(client)) < 0.7
            async with redis_of(server) as redis:
                with suppress(OutOfMemoryError):
                    for number in itertools.count():
                        await redis.set(f"other-{number}", b"x" * 200_000)
            await until_told(client, 0.9, 1.5)
            assert await used_ratios(client) == pytest.approx([real_ratio(server)] * 2, abs=0.1)
            for most, told in (("2mb", (4.0, 8.0)), ("1gb", (0.0, 0.1))):
                assert server.ask("CONFIG", "SET", "maxmemory", most) == b"+OK\r\n"
                await until_told(client, *told)
        assert service.failures() == []


async def until_told(client: httpx.AsyncClient, least: float, most: float) -> None:
    """A check is reused for a second."""
    async with asyncio.timeout(60):
        while not all(least < one < most for one in await used_ratios(client)):
            await asyncio.sleep(0.1)


async def test_the_memory_used_is_that_of_the_smaller_server_after_a_failover(
    services: Services, tmp_path: Path
) -> None:
    with (
        RedisServer(tmp_path / "large", options=("--maxmemory", "100mb")) as primary,
        RedisServer(tmp_path / "small", options=OPTIONS) as replica,
    ):
        assert replica.ask("REPLICAOF", primary.host, str(primary.port)) == b"+OK\r\n"
        conf = tmp_path / "sentinel.conf"
        conf.write_text(
            f"sentinel monitor mymaster {primary.host} {primary.port} 1\n"
            "sentinel down-after-milliseconds mymaster 300\n"
            "sentinel failover-timeout mymaster 2000\n"
        )
        with RedisServer(tmp_path / "s", config=conf, options=["--sentinel"]) as sentinel:
            url = f"redis+sentinel://{sentinel.host}:{sentinel.port}/mymaster"
            # It looks for replicas at once, and not after ten seconds.
            sentinel.ask("SENTINEL", "DEBUG", "INFO-PERIOD", "200")
            service = await services.start(tmp_path, PATIENT, storage_url=url)
            async with service.client() as client, redis_of(primary) as redis:
                await redis.set("other", b"x" * 4_500_000)
                assert max(await used_ratios(client)) < 0.2
                async with asyncio.timeout(60):
                    while b"num-slaves\r\n$1\r\n1" not in sentinel.ask("SENTINEL", "MASTER", "mymaster"):
                        await asyncio.sleep(0.05)
                    while replica.ask("STRLEN", "other") != b":4500000\r\n":
                        await asyncio.sleep(0.05)
                primary.kill()
                await until_told(client, 1.0, 4.0)


@asynccontextmanager
async def redis_of(server: RedisServer) -> AsyncIterator[Redis]:
    client: Redis = Redis.from_url(server.url)
    try:
        yield client
    finally:
        await client.aclose()


async def fill(redis: Redis) -> None:
    with suppress(OutOfMemoryError):
        for number in itertools.count():
            await redis.set(f"filler-{number}", b"x" * 50_000)
    while await redis_has_room(redis):
        # The memory that Redis has in use rises and falls by its own buffers.
        with suppress(OutOfMemoryError):
            await redis.append("filler", b"x" * 1000)


async def redis_has_room(redis: Redis) -> bool:
    try:
        await redis.set("probe", b"x")
    except OutOfMemoryError:
        return False
    return True
