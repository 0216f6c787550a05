"""Damaged keys in Redis under a running service: the log names them, and nothing else fails."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from domain.handles import SessionKey, parse_handle
from storage.redis.connection import RedisConnection, open_redis
from storage.redis.keys import file_name, shard_of
from tests.faults.calls import Kept
from tests.faults.service import Services
from tests.faults.test_damage import DAMAGES, FAULTY, logged, store

pytestmark = pytest.mark.anyio

SHARD = shard_of(SessionKey("default", "damaged"))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisConnection]:
    redis = open_redis(url)
    try:
        yield redis
    finally:
        await redis.close()


def result_key(kept: Kept) -> str:
    return SHARD.key("result", file_name(parse_handle(kept.handle)))


async def change(redis: RedisConnection, kept: Kept, field: str, damage: Callable[[bytes], bytes]) -> None:
    found = await redis.command("HGET", result_key(kept), field)
    await redis.command("HSET", result_key(kept), field, damage(found))


async def test_a_damaged_result_is_not_found_by_any_route_and_named_in_one_warning(
    services: Services, tmp_path: Path, redis_url: str
) -> None:
    service = await services.start(tmp_path / "state", (FAULTY, "none"), storage_url=redis_url)
    async with opened(redis_url) as redis, service.client() as client:
        damaged = {name: await store(client, "damaged", name) for name in (*DAMAGES, "used")}
        whole = await store(client, "damaged", "whole")
        for name, kept in damaged.items():
            field, damage = ("info", DAMAGES[name]) if name in DAMAGES else ("used", lambda used: b"soon")
            await change(redis, kept, field, damage)
        for kept in damaged.values():
            path = f"/results/{kept.handle}"
            answers = [
                await client.get(path),
                await client.get(f"{path}/content"),
                await client.get(f"{path}/lines"),
                await client.get(f"{path}/grep", params={"pattern": "x"}),
                await client.get(f"{path}/query", params={"expression": "@"}),
                await client.post("/extract", json={"handle": kept.handle, "extract": "all"}),
            ]
            assert {answer.status_code for answer in answers} == {404}
            (warning,) = await logged(service, result_key(kept))
            assert warning["path"] == result_key(kept)
        assert (await client.get(f"/results/{whole.handle}")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.delete(f"/results/{damaged['empty'].handle}")).status_code in (204, 404)
        unread = await store(client, "damaged", "unread")
        await change(redis, unread, "size", lambda size: b"-1")
        assert (await client.get(f"/results/{unread.handle}/content")).status_code == 410
        await change(redis, whole, "member", lambda member: b"none")
        assert (await client.delete("/sessions/damaged")).status_code == 204
        for kept in (*damaged.values(), whole):
            assert await redis.command("EXISTS", result_key(kept)) == 0
    assert await service.stop() == 0
    assert service.failures() == []
