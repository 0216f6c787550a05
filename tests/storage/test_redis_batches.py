"""Many results at once: they share round trips to Redis, and nothing else."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from redis_proxy import Proxy
from redis_server import RedisServer
from samples import KEY, RETENTION, TENANT, FakeClock, handle, joined, put

from domain.errors import StoreFull, StoreUnavailable
from domain.handles import Handle
from domain.results import StoredResult
from storage.redis_client import open_redis
from storage.redis_segments import INLINE, SEGMENT
from storage.redis_store import RedisStore

pytestmark = pytest.mark.anyio
Open = Callable[[str], RedisStore]
NOISE = random.Random(3).randbytes(2 * SEGMENT)


@pytest.fixture
async def replica(clock: FakeClock) -> AsyncIterator[Open]:
    opened: list[RedisStore] = []

    def open_it(url: str) -> RedisStore:
        client = open_redis(url)
        opened.append(RedisStore(client, clock=clock, retention_seconds=RETENTION, max_bytes=0))
        return opened[-1]

    yield open_it
    for one in opened:
        await one.close()


def bodies(count: int, size: int) -> list[bytes]:
    return [NOISE[number : number + size] for number in range(count)]


async def put_all(
    store: RedisStore, sent: list[bytes], clock: FakeClock, places: Sequence[Handle | None] = ()
) -> list[StoredResult | BaseException]:
    where = places or [None] * len(sent)
    putting = [put(store, body, clock(), where=one) for body, one in zip(sent, where, strict=True)]
    return await asyncio.gather(*putting, return_exceptions=True)


async def assert_kept(store: RedisStore, sent: list[bytes], found: list[StoredResult | BaseException]) -> int:
    """What was acknowledged is whole and counted once, and nothing else is there. Answers how many."""
    kept = [(body, one) for body, one in zip(sent, found, strict=True) if isinstance(one, StoredResult)]
    for body, one in kept:
        assert await joined(store.read(one)) == body
    assert await store.holds(KEY) == len(kept)
    assert await store.stored_bytes() == sum(len(body) for body, _ in kept)
    return len(kept)


async def test_results_that_arrive_together_share_round_trips(
    replica: Open, clock: FakeClock, redis_server: RedisServer, redis_url: str
) -> None:
    sent = bodies(60, 12_000)
    async with Proxy(redis_server.port) as proxy:
        store = replica(proxy.url)
        await put(store, b"warm", clock(), tenant="other")
        before = proxy.conversations
        found = await put_all(store, sent, clock)
        assert proxy.conversations - before < len(sent) / 4
        await store.delete(TENANT, (await put(store, b"", clock())).handle)
        assert await store.holds(KEY) == len(found) == 60
        await store.close()
    assert [
        await joined(replica(redis_url).read(one)) for one in found if isinstance(one, StoredResult)
    ] == sent


@pytest.mark.parametrize("size", [0, 12_000, 100_000, INLINE + 1])
@pytest.mark.parametrize("lost", [1, 3, 10])
async def test_replies_that_are_lost_store_nothing_twice_and_lose_nothing(
    replica: Open, clock: FakeClock, redis_server: RedisServer, redis_url: str, size: int, lost: int
) -> None:
    sent, places = bodies(20, size), [handle() for _ in range(20)]
    async with Proxy(redis_server.port) as proxy:
        store = replica(proxy.url)
        await store.delete(TENANT, (await put(store, b"warm", clock())).handle)
        proxy.lose(b"EVALSHA", lost)
        found = await put_all(store, sent, clock, places)
        assert proxy.lost > 0
        for _ in range(50):
            if all(isinstance(one, StoredResult) for one in found):
                break
            await asyncio.sleep(0.1)
            found = await put_all(store, sent, clock, places)
        assert await assert_kept(replica(redis_url), sent, found) == 20
        await store.close()


async def test_when_memory_is_full_each_hears_of_its_own_result(
    replica: Open, clock: FakeClock, tmp_path: Path
) -> None:
    with RedisServer(tmp_path, options=["--maxmemory", "8mb"]) as server:
        store = replica(server.url)
        sent = bodies(150, 90_000)
        found = await put_all(store, sent, clock)
        assert all(isinstance(one, StoredResult | StoreFull) for one in found)
        kept = await assert_kept(store, sent, found)
        assert 0 < kept < len(sent)


async def test_behind_a_server_that_hangs_nobody_waits_in_turn(
    replica: Open, clock: FakeClock, tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as server:
        store = replica(server.url)
        await put(store, b"warm", clock())
        server.pause()
        begun = time.monotonic()
        found = await put_all(store, bodies(200, 50_000), clock)
        assert time.monotonic() - begun < 2.5
        assert all(isinstance(one, StoreUnavailable) for one in found)
        server.resume()


async def test_a_caller_who_goes_away_takes_nobody_along(
    replica: Open, clock: FakeClock, redis_url: str
) -> None:
    store = replica(redis_url)
    await put(store, b"warm", clock(), tenant="other")
    sent = bodies(30, 12_000)
    putting = [asyncio.create_task(put(store, body, clock())) for body in sent]
    for _ in range(5):
        await asyncio.sleep(0)
    for task in putting[::3]:
        task.cancel()
    found = await asyncio.gather(*putting, return_exceptions=True)
    stayed = [one for number, one in enumerate(found) if number % 3]
    assert all(isinstance(one, StoredResult) for one in stayed)
    for number, one in enumerate(found):
        if isinstance(one, StoredResult):
            assert await joined(store.read(one)) == sent[number]
