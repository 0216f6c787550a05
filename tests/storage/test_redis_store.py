"""The Redis store: lost replies, full memory, TTLs, and what reading and keeping cost."""

import asyncio
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples import KEY, RETENTION, TENANT, FakeClock, handle, joined, put, stored_result

from domain.errors import ResultExpired, StoreFull, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.results import StoredResult
from storage.redis import connection
from storage.redis import draft as draft_module
from storage.redis.connection import KEPT_LONGER_MS, open_redis
from storage.redis.draft import RedisDraft
from storage.redis.keys import body_key, file_name, shard_of
from storage.redis.store import GRACE_MS, RedisStore
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]
Open = Callable[..., RedisStore]
TEXT = b"".join(
    b"2026-05-04 10:%02d:07 INFO request %d served in %d ms\n" % (n % 60, n, n % 97) for n in range(90_000)
)
LARGE = TEXT[:3_500_000]


@pytest.fixture
async def replica(clock: FakeClock) -> AsyncIterator[Open]:
    """Opens stores, each with connections of its own; closes them."""
    opened: list[RedisStore] = []

    def open_it(url: str, **given: Any) -> RedisStore:
        options = {"clock": clock, "retention_seconds": RETENTION, "max_bytes": 0, **given}
        opened.append(RedisStore(open_redis(url), **options))
        return opened[-1]

    yield open_it
    for one in opened:
        await one.close()


def lines(server: RedisServer, *asked: str) -> dict[str, str]:
    """The fields of an INFO section."""
    reply = server.ask("INFO", *asked).decode().splitlines()
    return dict(line.split(":", 1) for line in reply if ":" in line)


def keys(server: RedisServer) -> list[str]:
    return [line for line in server.ask("KEYS", "*").decode().splitlines() if line.startswith("spillgate:")]


async def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def wholly(store: RedisStore, where: Handle, body: bytes) -> bool:
    """Found, whole, and counted once."""
    found = await store.find(TENANT, where)
    assert found is not None
    assert await joined(store.read(found)) == body
    return await store.count_results([KEY]) == [1] and await store.stored_bytes() == len(body)


async def filled(store: RedisStore, body: bytes, clock: FakeClock) -> list[StoredResult]:
    """What was stored until memory was full."""
    kept: list[StoredResult] = []
    with suppress(StoreFull):
        while True:
            kept.append(await put(store, body, clock()))
    return kept


async def test_full_memory_leaves_nothing_half_visible_and_reading_goes_on(
    replica: Open, clock: FakeClock, tmp_path: Path
) -> None:
    noise = random.Random(1).randbytes(2_500_000)
    with RedisServer(tmp_path, options=["--maxmemory", "12mb"]) as server:
        store = replica(server.url)
        kept = await filled(store, noise, clock)
        assert len(kept) > 1
        assert await store.count_results([KEY]) == [len(kept)]
        assert await store.stored_bytes() == len(noise) * len(kept)
        assert len([key for key in keys(server) if ":body:" in key]) == len(kept)
        for size in (20_000, 1000, 10):
            kept += await filled(store, noise[:size], clock)
        total = await store.stored_bytes()
        clock.advance(RETENTION - 1)
        touched = await store.touch(kept[0])
        assert touched.expires_at == clock() + RETENTION * 1000
        assert await joined(store.read(kept[0])) == noise
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreFull):
            await store.check()
        clock.advance(1)
        assert await store.sweep() == len(kept) - 1
        assert await store.stored_bytes() == len(noise) < total
        assert await store.delete(TENANT, kept[0].handle)
        assert await store.stored_bytes() == 0
        assert await store.count_results([KEY]) == [0]


async def abandoned(store: RedisStore, body: bytes) -> RedisDraft:
    """A draft whose replica died: its context is never left."""
    draft = store.draft(TENANT)
    assert isinstance(draft, RedisDraft)
    await draft.write(body)
    return draft


async def test_a_draft_that_nobody_publishes_expires(
    replica: Open, clock: FakeClock, redis_server: RedisServer, redis_url: str
) -> None:
    store = replica(redis_url, draft_seconds=0.3)
    await abandoned(store, LARGE)
    assert len([key for key in keys(redis_server) if ":body:" in key]) == 1
    await eventually(lambda: not [key for key in keys(redis_server) if ":body:" in key])
    assert await replica(redis_url).stored_bytes() == 0


async def test_a_draft_lives_for_as_long_as_it_is_written_to(
    replica: Open,
    clock: FakeClock,
    redis_server: RedisServer,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = FakeClock(0)
    monkeypatch.setattr(draft_module, "time", SimpleNamespace(monotonic=later))
    store = replica(redis_url, draft_seconds=300)
    async with store.draft(TENANT) as draft:
        await draft.write(LARGE)
        (body,) = [key for key in keys(redis_server) if ":body:" in key]
        for _ in range(3):
            redis_server.ask("PEXPIRE", body, "60000")
            later.advance(100)
            await draft.write(b"x")
            assert int(redis_server.ask("PTTL", body)[1:]) > 200_000
        stored = stored_result(LARGE + b"xxx", clock())
        await draft.publish(stored)
    assert await wholly(store, stored.handle, LARGE + b"xxx")


async def test_a_draft_that_has_expired_is_not_published(
    replica: Open, clock: FakeClock, redis_server: RedisServer, redis_url: str
) -> None:
    store = replica(redis_url, draft_seconds=0.2)
    stored = stored_result(LARGE, clock())
    async with store.draft(TENANT) as draft:
        await draft.write(LARGE)
        await eventually(lambda: not [key for key in keys(redis_server) if ":body:" in key])
        with pytest.raises(StoreUnavailable):
            await draft.publish(stored)
    assert await store.find(TENANT, stored.handle) is None
    assert await store.stored_bytes() == 0


async def test_text_takes_a_third_of_its_size_in_memory_at_most(
    replica: Open, clock: FakeClock, tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as server:
        store = replica(server.url)
        await put(store, b"warm", clock())
        before = int(lines(server, "memory")["used_memory"])
        sizes = [12_300, 20_000, 50_000, 100_000, 1_500_000]
        for number in range(100):
            await put(store, TEXT[number * 1000 :][: sizes[number % 5]], clock())
        raw = await store.stored_bytes()
        assert int(lines(server, "memory")["used_memory"]) - before < 0.35 * raw


async def test_large_bodies_pass_in_constant_memory(replica: Open, clock: FakeClock, redis_url: str) -> None:
    store = replica(redis_url)
    stored = stored_result(b"", clock())
    size = 0
    await put(store, LARGE, clock())
    tracemalloc.start()
    async with store.draft(TENANT) as draft:
        for _ in range(600):
            await draft.write(TEXT[:65_536])
        await draft.publish(stored)
    async for chunk in store.read(stored):
        size += len(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 600 * 65_536
    assert peak < 8_000_000


async def test_everything_expires_by_itself_and_its_bytes_come_back(
    replica: Open, clock: FakeClock, redis_server: RedisServer, redis_url: str
) -> None:
    store = replica(redis_url)
    kept = [await put(store, body, clock()) for body in (b"small", LARGE)]
    left = {key: int(redis_server.ask("PTTL", key)[1:]) for key in keys(redis_server)}
    assert {key.rpartition(":")[2] for key, ms in left.items() if ms < 0} == {"due", "held"}
    assert max(left.values()) <= 2 * RETENTION * 1000 + KEPT_LONGER_MS
    expiring = [key for key, ms in left.items() if ms > 0]
    for key in expiring:
        redis_server.ask("PEXPIRE", key, "10000")
    clock.advance(RETENTION / 2)
    await store.touch(kept[1])
    lengthened = [key for key in expiring if int(redis_server.ask("PTTL", key)[1:]) > 10_000]
    assert any(":body:" in key for key in lengthened)
    assert any(":result:" in key for key in lengthened)
    for key in expiring:
        redis_server.ask("PEXPIRE", key, "0")
    assert [await store.find(TENANT, one.handle) for one in kept] == [None, None]
    clock.advance(RETENTION)
    assert await store.sweep() == 2
    assert await store.stored_bytes() == 0
    assert await store.count_results([KEY]) == [0]


async def test_what_another_replica_uses_is_not_swept(
    replica: Open, clock: FakeClock, redis_url: str
) -> None:
    one, other = replica(redis_url), replica(redis_url)
    used, unused = await put(one, b"used", clock()), await put(one, b"unused", clock())
    clock.advance(RETENTION / 8)
    touched = await other.touch(used)
    clock.advance(RETENTION * 7 / 8)
    assert await one.sweep() == 1
    assert await one.find(TENANT, used.handle) == touched
    assert await one.find(TENANT, unused.handle) is None
    assert await other.stored_bytes() == 4
    clock.advance(RETENTION / 8)
    assert await other.sweep() == 1
    assert await one.stored_bytes() == 0


async def test_replicas_share_the_quota(replica: Open, clock: FakeClock, redis_url: str) -> None:
    one, other = (replica(redis_url, max_bytes=3_000_000) for _ in range(2))
    kept = await put(one, LARGE[:2_000_000], clock())
    with pytest.raises(StoreFull):
        await put(other, LARGE[:1_000_001], clock())
    await put(other, LARGE[:1_000_000], clock())
    for store in (one, other):
        with pytest.raises(StoreFull):
            await store.check()
        with pytest.raises(StoreFull):
            await put(store, b"x", clock())
    await other.delete(TENANT, kept.handle)
    await put(one, LARGE[:2_000_000], clock())


@pytest.mark.parametrize("again", [LARGE, b"other"])
async def test_a_body_that_is_stored_over_another_takes_its_place_and_disturbs_no_reader(
    replica: Open, clock: FakeClock, redis_url: str, again: bytes
) -> None:
    store = replica(redis_url)
    kept = await put(store, LARGE, clock())
    chunks = store.read(kept)
    first = await anext(chunks)
    await put(store, again, clock(), where=kept.handle)
    assert first + await joined(chunks) == LARGE
    assert await wholly(store, kept.handle, again)


async def test_what_is_deleted_is_soon_gone_from_redis(
    replica: Open, clock: FakeClock, redis_server: RedisServer, redis_url: str
) -> None:
    store = replica(redis_url)
    for body in (b"small", LARGE):
        kept = await put(store, body, clock())
        assert await store.delete(TENANT, kept.handle)
    left = [key for key in keys(redis_server) if not key.endswith((":held", ":shards"))]
    assert all(":once:" in key or ":body:" in key for key in left)
    assert all(0 < int(redis_server.ask("PTTL", key)[1:]) <= GRACE_MS for key in left)
    with pytest.raises(ResultExpired):
        await joined(store.read(kept))


async def test_a_body_that_is_damaged_is_not_handed_out(
    replica: Open, clock: FakeClock, redis_url: str
) -> None:
    store, client = replica(redis_url), open_redis(redis_url)
    for body in (TEXT[:5000], LARGE):
        kept = await put(store, body, clock())
        where, field = shard_of(KEY).key("result", file_name(kept.handle)), "segment"
        body = await client.command("HGET", where, "body")
        if body:
            where, field = body_key(body.decode()), "0"
        segment = bytearray(await client.command("HGET", where, field))
        segment[len(segment) // 2] ^= 0xFF
        await client.command("HSET", where, field, bytes(segment))
        with pytest.raises(ResultExpired):
            await joined(store.read(kept))
    await client.close()


async def test_nothing_is_asked_for_under_names_that_are_not_safe(
    replica: Open, clock: FakeClock, redis_url: str
) -> None:
    store = replica(redis_url)
    await put(store, TEXT, clock())
    for tenant in ("a}b", "", "a/b", "a b"):
        assert await store.find(tenant, handle()) is None
        assert await store.delete(tenant, handle()) is False
        assert await store.count_results([SessionKey(tenant, "run-1"), KEY]) == [0, 1]
        assert await store.delete_session(SessionKey(tenant, "run-1"), 1) == 0


async def test_what_a_replica_has_stored_is_found_and_swept_by_another_that_never_saw_its_tenant(
    replica: Open, clock: FakeClock, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SHARDS_SECONDS", 0.0)
    store, other = replica(redis_url), replica(redis_url)
    assert await other.connection.shards() == []
    await put(store, b"0123456789", clock())
    # Keys that look like those of a shard, more than one answer of SCAN has.
    await store.connection.commands([("SET", f"spillgate:{{x}}:due{n}", n) for n in range(3000)])
    assert await other.connection.shards() == [shard_of(KEY)]
    assert await other.usage() == {TENANT: 10}
    clock.advance(RETENTION)
    assert await other.sweep() == 1
    assert await other.connection.shards() == []
