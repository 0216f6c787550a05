"""Damaged keys in Redis under a running service: the log names them, and nothing else fails."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from domain.handles import SessionKey, parse_handle
from storage.redis.connection import RedisConnection, open_redis
from storage.redis.keys import file_name, shard_of
from tests.faults.calls import Call, Kept, statuses, text_of
from tests.faults.service_process import PATIENCE, Services, service_with
from tests.faults.test_damage import DAMAGES, store

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

SWEEPING = service_with("sweeping often", "SETTLED_SECONDS=0.1", *PATIENCE)
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


def session_key(session_id: str) -> str:
    key = SessionKey("default", session_id)
    return shard_of(key).key("session", session_id)


async def change(redis: RedisConnection, kept: Kept, field: str, damage: Callable[[bytes], bytes]) -> None:
    found = await redis.command("HGET", result_key(kept), field)
    await redis.command("HSET", result_key(kept), field, damage(found))


async def test_a_damaged_result_is_not_found_by_any_route_and_named_in_one_warning(
    services: Services, tmp_path: Path, redis_url: str
) -> None:
    service = await services.start(tmp_path / "state", SWEEPING, storage_url=redis_url)
    async with opened(redis_url) as redis, service.client() as client:
        damaged = {name: await store(client, "damaged", name) for name in (*DAMAGES, "used", "another type")}
        whole = await store(client, "damaged", "whole")
        other = damaged["another type"]
        await redis.command("SET", result_key(other), "text")
        for name, kept in damaged.items() - {("another type", other)}:
            field, damage = ("info", DAMAGES[name]) if name in DAMAGES else ("used", lambda used: b"soon")
            await change(redis, kept, field, damage)
        for kept in damaged.values():
            assert await statuses(client, kept.handle) == {404}
            (warning,) = await service.logged(result_key(kept))
            assert warning["path"] == result_key(kept)
        assert (await client.get(f"/results/{whole.handle}")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        for name in ("empty", "another type"):
            assert (await client.delete(f"/results/{damaged[name].handle}")).status_code == 404
        unread = await store(client, "damaged", "unread")
        await change(redis, unread, "size", lambda size: b"-1")
        assert (await client.get(f"/results/{unread.handle}/content")).status_code == 410
        segment = await store(client, "damaged", "segment")
        await change(redis, segment, "segment", lambda packed: packed[:-9] + b"?" * 9)
        assert (await client.get(f"/results/{segment.handle}/content")).status_code == 410
        await change(redis, whole, "member", lambda member: b"none")
        assert (await client.delete("/sessions/damaged")).status_code == 204
        for kept in (*damaged.values(), whole):
            assert await redis.command("EXISTS", result_key(kept)) == 0
    assert await service.stop() == 0
    assert service.failures() == []


KINDS: dict[str, Callable[[bytes], tuple[str | bytes | int, ...]]] = {
    "type": lambda record: ("SET", "text"),
    "flipped": lambda record: ("HSET", "s", record[:-1] + bytes([record[-1] ^ 1])),
    "text": lambda record: ("HSET", "s", "no record"),
    "deep": lambda record: ("HSET", "s", b"\x91" * 100_000),
    "reserved": lambda record: ("HSET", "r", "many"),
}


async def damage_session(redis: RedisConnection, session_id: str, kind: str) -> None:
    key = session_key(session_id)
    command, *args = KINDS[kind](await redis.command("HGET", key, "s"))
    if command == "SET":
        await redis.command("DEL", key)
    await redis.command(command, key, *args)


async def swept(redis: RedisConnection) -> None:
    """Returns when a sweep has passed every shard."""
    shards = await redis.shards()
    for shard in shards:
        await redis.command("ZADD", shard.key("live"), 0, "zzz")
    async with asyncio.timeout(30):
        for shard in shards:
            while await redis.command("ZSCORE", shard.key("live"), "zzz") is not None:
                await asyncio.sleep(0.02)


async def test_a_damaged_session_is_unknown_and_can_be_replaced_and_ended_and_stops_no_other(
    services: Services, tmp_path: Path, redis_url: str
) -> None:
    service = await services.start(tmp_path / "state", SWEEPING, storage_url=redis_url)
    async with opened(redis_url) as redis, service.client() as client:
        results = {
            f"{kind}-{use}": await store(client, f"{kind}-{use}", kind)
            for kind in KINDS
            for use in ("put", "end", "used")
        }
        await store(client, "whole", "whole")
        for session_id in results:
            await damage_session(redis, session_id, session_id.partition("-")[0])
        for session_id in 2 * list(results):
            assert (await client.get(f"/sessions/{session_id}")).status_code == 404
        listed = {one["session_id"] for one in (await client.get("/sessions")).json()["sessions"]}
        assert listed == {"whole"}
        await swept(redis)
        for kind in KINDS:
            put, end, used = f"{kind}-put", f"{kind}-end", f"{kind}-used"
            answer = await client.put(f"/sessions/{put}", json={"context_window": 50_000})
            assert answer.status_code == 200
            assert (await client.get(f"/sessions/{put}")).json()["context_window"] == 50_000
            assert (await client.delete(f"/sessions/{end}")).status_code == 204
            assert (await client.get(f"/sessions/{end}")).status_code == 410
            assert (await client.get(f"/results/{results[end].handle}")).status_code == 410
            await store(client, used, "again")
            assert (await client.get(f"/sessions/{used}")).status_code == 200
            for session_id in (put, end, used):
                assert len(await service.logged(session_key(session_id))) == 1
        assert (await client.get("/readyz")).status_code == 200
    assert await service.stop() == 0
    assert service.failures() == []


async def test_damaged_entries_sums_and_receipts_are_left_out_and_stop_no_other(
    services: Services, tmp_path: Path, redis_url: str
) -> None:
    old = shard_of(SessionKey("default", "old")).key("entries")
    async with opened(redis_url) as redis:
        await redis.command("XADD", old, "1-1", "e", "no entry")
        service = await services.start(tmp_path / "state", SWEEPING, storage_url=redis_url)
        async with service.client() as client:
            kept = [await store(client, "old", f"call {number}") for number in range(2)]
            call = Call("damaged", text_of("named", 20_000), call_id="call-1")
            kept.append(Kept.of(call, await call.send(client)))
            stream = SHARD.key("entries")
            placed = [
                await redis.command("XADD", stream, "*", *fields)
                for fields in (("e", b"\x91" * 9_000), ("x", "y"), ("e", b"\x81\xa2id\x01"))
            ]
            kept.append(await store(client, "damaged", "after"))
            for _ in range(2):
                page = (await client.get("/accounting/entries")).json()
                assert sorted(one["id"] for one in page["entries"]) == sorted(one.entry_id for one in kept)
            for place in placed:
                assert len(await service.logged(f"{stream} {place.decode()}")) == 1
            await swept(redis)
            assert await redis.command("XRANGE", old, "1-1", "1-1") == []
            sums = (await client.get("/accounting/summary", params={"group_by": "type"})).json()
            (day,) = await redis.command("ZRANGE", SHARD.key("days"), 0, -1)
            day_key = SHARD.key("day", day.decode())
            (group,) = await redis.command("HKEYS", day_key)
            await redis.command("HSET", day_key, group, b"\x93\x01\x02\x03")
            again = (await client.get("/accounting/summary", params={"group_by": "type"})).json()
            assert (again["rows"], again["total"]) == (sums["rows"], sums["total"])
            kept.append(await store(client, "damaged", "later"))
            rows = (await client.get("/accounting/summary", params={"group_by": "type"})).json()
            assert rows["rows"][0]["entries"] == len(kept)
            # The sums of a day are whole, though entries of it are damaged.
            assert [one["complete"] for one in (sums, again, rows)] == [True, False, False]
            assert "A record is damaged" in rows["warnings"][0]
            asked = {"group_by": "hour,tenant", "since": int(day) * 86_400_000, "format": "csv"}
            text = (await client.get("/accounting/summary", params=asked)).text
            assert {row["complete"] for row in csv.DictReader(io.StringIO(text))} == {"false"}
            assert len(await service.logged(day_key)) == 1
            (receipt,) = [
                field for field in await redis.command("HKEYS", session_key("damaged")) if b"call-1" in field
            ]
            await redis.command("HSET", session_key("damaged"), receipt, "no receipt")
            resent = [Kept.of(call, await call.send(client)) for _ in range(2)]
            assert resent[0] == resent[1]
            await redis.command("HDEL", result_key(resent[0]), "info", "body")
            assert Kept.of(call, await call.send(client)) == resent[0]
            stored = await client.get(f"/results/{resent[0].handle}/content")
            assert stored.content == call.content
        assert await service.stop() == 0
        assert service.failures() == []


COUNTERS = ("bytes", "wait")


@pytest.mark.parametrize("damage", ["letters", "fraction", "missing", "another type"])
async def test_damaged_counters_stop_nothing_and_the_bytes_of_results_are_counted_again(
    services: Services, tmp_path: Path, redis_url: str, damage: str
) -> None:
    held, state, sizes, stream = (SHARD.key(name) for name in ("held", "state", "sizes", "entries"))
    options = {"storage_max_bytes": "1000000", "ledger_max_bytes": "10000000"}
    service = await services.start(tmp_path / "state", SWEEPING, storage_url=redis_url, **options)
    async with opened(redis_url) as redis, service.client() as client:

        async def damage_counters() -> None:
            await redis.command("DEL", held)
            if damage == "another type":
                await redis.command("SADD", held, "text")
                for key in (state, sizes):
                    await redis.command("DEL", key)
                    await redis.command("SET", key, "text")
                return
            for key, names in ((state, COUNTERS), (sizes, ("damaged",))):
                for name in names:
                    if damage == "missing":
                        await redis.command("HDEL", key, name)
                    else:
                        await redis.command("HSET", key, name, "abc" if damage == "letters" else "1.5")
            if damage != "missing":
                await redis.command("SET", held, "abc" if damage == "letters" else "1.5")

        kept = [await store(client, "damaged", f"before {number}") for number in range(3)]
        await damage_counters()
        for path in ("/readyz", "/metrics", "/accounting/summary?group_by=type"):
            assert (await client.get(path)).status_code == 200
        page = await client.get("/accounting/entries", params={"until": 1 << 43})
        assert len(page.json()["entries"]) == len(kept)
        kept.append(await store(client, "damaged", "after"))
        assert int(await redis.command("GET", held)) == sum(one.size for one in kept)
        if damage != "missing":
            assert len(await service.logged(held)) == 1
            where = state if damage == "another type" else f"{state} bytes"
            assert len(await service.logged(where)) == 1
        await damage_counters()
        assert (await client.put("/sessions/damaged", json={"model": "gpt-4o"})).status_code == 200
        await damage_counters()
        assert (await client.delete(f"/results/{kept.pop().handle}")).status_code == 204
        assert int(await redis.command("GET", held)) == sum(one.size for one in kept)
        await damage_counters()
        # An expired entry, and names of sessions that have expired: the sweep counts them down.
        expired = await redis.command("XADD", stream, "*", "e", "expired", "t", 1)
        await swept(redis)
        assert int(await redis.command("HGET", state, "bytes")) == 0
        async with asyncio.timeout(30):
            while await redis.command("XRANGE", stream, expired, expired):
                await asyncio.sleep(0.02)
        await damage_counters()
        await redis.command("XADD", stream, "9000000000000-7", "e", "no entry")
        kept.append(await store(client, "damaged", "after the last id"))
        entries = (await client.get("/accounting/entries")).json()["entries"]
        assert {one.entry_id for one in kept} <= {one["id"] for one in entries}
        assert (await client.delete("/sessions/damaged")).status_code == 204
        assert (await client.get("/readyz")).status_code == 200
    assert await service.stop() == 0
    assert service.failures() == []
