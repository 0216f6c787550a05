"""The Redis store: lost replies, full memory, TTLs, and what reading and keeping cost."""

import asyncio
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis_proxy import Proxy
from samples import KEY, RETENTION, START, TENANT, FakeClock, handle, joined, put, stored_result

from domain.errors import ResultExpired, StoreFull, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.results import StoredResult
from storage.redis import connection
from storage.redis import store as store_module
from storage.redis.connection import open_redis
from storage.redis.draft import SEGMENT, RedisDraft
from storage.redis.keys import Shard, body_key, file_name, shard_of
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


def calls(server: RedisServer, name: str) -> int:
    stats = lines(server, "commandstats").get(f"cmdstat_{name}", "calls=0,")
    return int(stats.removeprefix("calls=").partition(",")[0])


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


@pytest.mark.parametrize("size", [12_000, SEGMENT, 3_500_000])
@pytest.mark.parametrize("marker", [b"EVALSHA", b"UNLINK", b"PEXPIRE"])
async def test_what_loses_its_reply_happens_once(
    replica: Open, redis_server: RedisServer, redis_url: str, size: int, marker: bytes
) -> None:
    async with Proxy(redis_server.port) as proxy:
        store = replica(proxy.url)
        await store.delete(TENANT, (await put(store, b"warm", START)).handle)
        proxy.lose(marker)
        kept = await put(store, LARGE[:size], START)
        assert await wholly(store, kept.handle, LARGE[:size])
        proxy.lose(marker)
        await put(store, LARGE[:size], START, where=kept.handle)
        assert await wholly(store, kept.handle, LARGE[:size])
        proxy.lose(marker)
        await store.touch(kept)
        assert await store.delete(TENANT, kept.handle) is True
        assert await store.delete(TENANT, kept.handle) is False
        assert await store.stored_bytes() == 0
        for _ in range(3):
            await put(store, LARGE[:size], START)
        proxy.lose(marker)
        assert await store.delete_session(KEY, 1) == 3
        assert await store.stored_bytes() == 0
        assert proxy.lost >= 3 * (marker == b"EVALSHA")
        await store.close()


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
    with RedisServer(tmp_path, options=["--maxmemory", "9mb"]) as server:
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
    replica: Open, clock: FakeClock, redis_url: str
) -> None:
    store = replica(redis_url, draft_seconds=3)
    begun, written = time.monotonic(), LARGE
    async with store.draft(TENANT) as draft:
        await draft.write(LARGE)
        while time.monotonic() - begun < 3.5:
            await asyncio.sleep(0.3)
            await draft.write(b"x")
            written += b"x"
        stored = stored_result(written, clock())
        await draft.publish(stored)
    assert await wholly(store, stored.handle, written)


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


async def test_a_small_body_costs_one_conversation(
    replica: Open,
    clock: FakeClock,
    redis_server: RedisServer,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Once a second there is one more, to see whether it still syncs always.
    monkeypatch.setattr(connection, "FACTS_SECONDS", 60.0)
    async with Proxy(redis_server.port) as proxy:
        store = replica(proxy.url)
        await put(store, TEXT[:100_000], clock())
        steps: list[tuple[Callable[[], Awaitable[Any]], int]] = [
            (lambda: put(store, TEXT[:100_000], clock()), 1),
            (lambda: store.find(TENANT, kept.handle), 1),
            (lambda: store.touch(kept), 1),
            (lambda: joined(store.read(kept)), 1),
            (lambda: store.count_results([KEY._replace(session_id=f"run-{n}") for n in range(100)]), 1),
            (lambda: store.delete(TENANT, kept.handle), 1),
        ]
        kept = await put(store, TEXT[:12_000], clock())
        await store.touch(kept)
        await store.delete(TENANT, (await put(store, b"", clock())).handle)
        for act, most in steps:
            before = proxy.conversations
            await act()
            assert proxy.conversations - before == most
        await store.close()


@pytest.mark.parametrize(
    ("start", "end", "hget"),
    [
        (0, 10, 1),
        (2 * SEGMENT + 5, 2 * SEGMENT + 9, 1),
        (SEGMENT - 1, SEGMENT + 1, 2),
        (SEGMENT, None, 3),
        (0, None, 4),
        (3_499_999, None, 1),
        (3_500_000, None, 0),
    ],
)
async def test_a_range_fetches_only_the_segments_it_needs(
    replica: Open,
    clock: FakeClock,
    redis_server: RedisServer,
    redis_url: str,
    start: int,
    end: int | None,
    hget: int,
) -> None:
    store = replica(redis_url)
    kept = await put(store, LARGE, clock())
    await joined(store.read(kept))
    redis_server.ask("CONFIG", "RESETSTAT")
    assert await joined(store.read(kept, start, end)) == LARGE[start:end]
    assert (calls(redis_server, "hmget"), calls(redis_server, "hget")) == (1, hget)


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
    replica: Open, redis_server: RedisServer, redis_url: str
) -> None:
    store = replica(redis_url, clock=lambda: time.time_ns() // 1_000_000, retention_seconds=0.4)
    kept = [await put(store, body, time.time_ns() // 1_000_000) for body in (b"small", LARGE)]
    lasting = [key for key in keys(redis_server) if redis_server.ask("PTTL", key) == b":-1\r\n"]
    assert {key.rpartition(":")[2] for key in lasting} == {"due", "held"}
    await asyncio.sleep(0.25)
    await store.touch(kept[1])
    await asyncio.sleep(0.25)
    assert await store.find(TENANT, kept[0].handle) is None
    assert await store.find(TENANT, kept[1].handle) is not None
    await eventually(
        lambda: not [key for key in keys(redis_server) if not key.endswith((":due", ":held", ":shards"))]
    )
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


async def test_a_draft_says_how_durable_it_became(replica: Open, clock: FakeClock, redis_url: str) -> None:
    store = replica(redis_url)
    async with store.draft(TENANT) as draft:
        await draft.write(b"body")
        assert await draft.publish(stored_result(b"body", clock())) == "aof"
    await store.check()
    assert store.warnings == ()


class Counted:
    """The clock of `storage.redis.store`, in seconds. Listing the shards of `store` takes one, and yields."""

    def __init__(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.counts = 0
        listed = store.connection.shards

        async def shards() -> list[Shard]:
            self.counts += 1
            self.now += 1
            await asyncio.sleep(0)
            return await listed()

        monkeypatch.setattr(store_module, "time", self)
        monkeypatch.setattr(store.connection, "shards", shards)

    def monotonic(self) -> float:
        return self.now


async def test_a_full_store_counts_again_before_it_refuses_but_not_for_each_request(
    replica: Open, clock: FakeClock, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MANY", 0)
    store, other = replica(redis_url, max_bytes=10), replica(redis_url)
    await put(other, b"", clock())
    counted = Counted(store, monkeypatch)
    kept = await put(store, b"0123456789", clock())
    assert await other.delete(TENANT, kept.handle)
    counted.now += 1.5
    await put(store, b"9876543210", clock())
    counted.now += 3
    before = counted.counts
    refused = [put(store, b"x", clock()) for _ in range(20)]
    assert {type(one) for one in await asyncio.gather(*refused, return_exceptions=True)} == {StoreFull}
    assert counted.counts == before + 1
    with pytest.raises(StoreFull):
        await put(store, b"x", clock())
    assert counted.counts == before + 1
    # Readiness and metrics reuse the count for longer.
    assert await store.stored_bytes() == 10
    assert counted.counts == before + 1


async def test_few_shards_are_counted_each_time_however_long_it_took(
    replica: Open, clock: FakeClock, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SHARDS_SECONDS", 0.0)
    store, other = replica(redis_url), replica(redis_url)
    Counted(store, monkeypatch)
    assert await store.stored_bytes() == 0
    await put(other, b"0123456789", clock())
    assert await store.stored_bytes() == 10


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


async def test_a_list_of_shards_is_reused_and_has_what_this_process_has_written_since(
    replica: Open, clock: FakeClock, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SHARDS_SECONDS", 60.0)
    store, other = replica(redis_url), replica(redis_url)
    assert await store.connection.shards() == await other.connection.shards() == []
    await put(store, b"0123456789", clock())
    assert await store.connection.shards() == [shard_of(KEY)]
    assert await other.connection.shards() == []
