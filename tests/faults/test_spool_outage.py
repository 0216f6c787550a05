"""With SPILLGATE_STORE_FALLBACK=disk: Redis is killed, silent or full, and what was acknowledged is kept."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.counts import count
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENCE, PATIENT, SERVE, Service, Services, service_with
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

AWAY, BACK = "Redis is away", "Redis is back"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", aof="always") as server:
        yield server


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spool of every service of the test is below `tmp_path`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
async def service(services: Services, redis: RedisServer) -> Service:
    return await started(services, redis)


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with service.client() as client:
        yield client


async def started(
    services: Services, redis: RedisServer, command: tuple[str, ...] = PATIENT, **settings: str
) -> Service:
    given = {"storage_url": redis.url, "store_fallback": "disk", **settings}
    return await services.start(Path("unused"), command, **given)


async def until(claim: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await claim():
            await asyncio.sleep(0.05)


async def until_degraded(client: httpx.AsyncClient, expected: bool) -> None:
    async def is_so() -> bool:
        answer = await client.get("/readyz")
        return answer.status_code == 200 and bool(answer.json()["degraded"]) is expected

    await until(is_so)


async def stored(client: httpx.AsyncClient, name: str, *, degraded: bool, **which: Any) -> Kept:
    """One result that is acknowledged, and where."""
    call = Call("run", text_of(name, 30_000), **which)
    answer = await call.send(client)
    kept = Kept.of(call, answer)
    assert answer.json()["degraded"] is degraded
    assert answer.json()["durability"] == ("disk" if degraded else "aof")
    return kept


async def readings(client: httpx.AsyncClient, kept: Kept) -> list[str]:
    """What cannot be read of it, by any way of reading."""
    faults = await read_back(client, kept)
    ways = (f"/results/{kept.handle}/lines", f"/results/{kept.handle}/grep?pattern=result")
    for way in ways:
        answer = await client.get(way)
        faults += [] if answer.status_code == 200 else [f"{way}: {answer.status_code}"]
    asked = {"handle": kept.handle, "extract": "the first line", "mode": "truncate"}
    answer = await client.post("/extract", json=asked)
    faults += [] if answer.status_code == 200 else [f"extract {kept.handle}: {answer.text}"]
    return faults


async def handles(client: httpx.AsyncClient, **query: str) -> list[str]:
    """The handles in the accounting, read in pages of two."""
    found: list[str] = []
    cursor = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        answer = await client.get("/accounting/entries", params={"type": "tool", "limit": 2, **query, **more})
        page = answer.json()
        found += [entry["details"]["tool_output_handle"] for entry in page["entries"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def test_what_comes_while_redis_is_dead_is_kept_and_read_then_and_later(
    redis: RedisServer, service: Service, client: httpx.AsyncClient
) -> None:
    before = await stored(client, "before", degraded=False)
    redis.kill()
    during = [await stored(client, f"during-{number}", degraded=True) for number in range(3)]
    during.append(await stored(client, "streamed", degraded=True, is_streamed=True))
    for kept in during:
        assert await readings(client, kept) == []
    assert (await client.get("/tools?session_id=run")).json()["tools"] != []
    assert (await client.get("/sessions/run")).json()["stored_results"] == 4
    answer = await client.get("/accounting/entries")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    sums = (await client.get("/accounting/summary?group_by=outcome,tenant&type=tool")).json()
    assert [(row["groups"], row["entries"]) for row in sums["rows"]] == [
        ({"outcome": "store", "tenant": "default"}, 4)
    ]
    assert sums["complete"] is False
    assert sums["warnings"][0].startswith("Redis is away")
    lines = (
        await client.get("/accounting/summary?group_by=tool_name&type=tool&format=csv")
    ).text.splitlines()
    assert (lines[0].rpartition(",")[2], lines[1].rpartition(",")[2]) == ("complete", "false")
    redis.start()
    await until_degraded(client, expected=False)
    after = await stored(client, "after", degraded=False)
    for kept in (before, *during, after):
        assert await readings(client, kept) == []
    assert await handles(client) == [kept.handle for kept in (before, *during, after)]
    assert (await client.get("/sessions/run")).json()["stored_results"] == 6
    summary = (await client.get("/accounting/summary?group_by=outcome&type=tool")).json()
    assert [(row["group"], row["entries"]) for row in summary["rows"]] == [("store", 6)]
    assert (summary["complete"], summary["warnings"]) == (True, [])
    assert service.failures() == []


async def test_what_only_redis_knows_is_not_called_unknown_or_unspent_while_it_is_dead(
    services: Services, redis: RedisServer
) -> None:
    service = await started(services, redis, llm_base_url="scripted:", llm_models="demo")
    async with service.client() as client:
        kept = await stored(client, "before", degraded=False)
        redis.kill()
        asked = {
            "handle": (await stored(client, "during", degraded=True)).handle,
            "extract": "the first line",
        }
        ways = [f"/results/{kept.handle}{way}" for way in ("", "/content", "/lines", "/grep?pattern=x")]
        answers = [await client.get(way) for way in (*ways, "/sessions/other")]
        answers.append(await client.post("/extract", json={**asked, "mode": "full-chunked"}))
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {
            (503, "store_unavailable")
        }
        redis.start()
        await until_degraded(client, expected=False)
        assert await readings(client, kept) == []
        assert (await client.get("/sessions/other")).status_code == 404
        assert (await client.post("/extract", json={**asked, "mode": "full-chunked"})).status_code == 200


async def test_a_named_call_keeps_its_handle_over_the_switch(
    redis: RedisServer, client: httpx.AsyncClient
) -> None:
    early = await stored(client, "early", degraded=False, call_id="early")
    gone = await stored(client, "gone", degraded=False, call_id="gone")
    redis.kill()
    for name, one in (("early", early), ("gone", gone)):
        assert (await stored(client, name, degraded=True, call_id=name)).handle == one.handle
    assert (await client.delete(f"/results/{gone.handle}")).status_code == 204
    late = await stored(client, "late", degraded=True, call_id="late")
    redis.start()
    await until_degraded(client, expected=False)
    call = Call("run", text_of("late", 30_000), "late")
    again = await call.send(client)
    assert Kept.of(call, again) == late
    other = await Call("run", text_of("other", 30_000), "late").send(client)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert await read_back(client, early) == []
    lines = await handles(client)
    assert [lines.count(one.handle) for one in (early, gone, late)] == [1, 1, 1]
    assert (await client.get("/sessions/run")).json()["stored_results"] == 2
    assert (await client.get(f"/results/{gone.handle}")).status_code == 404
    for one in (early, late):
        assert (await client.delete(f"/results/{one.handle}")).status_code == 204
        assert (await client.get(f"/results/{one.handle}")).status_code == 404


async def test_a_degraded_service_says_so_and_holds_sessions_to_what_was_declared(
    redis: RedisServer, service: Service, client: httpx.AsyncClient
) -> None:
    window = {"context_window": 1000, "buffer_tokens": 0, "max_output_tokens": 0}
    declared = await client.put("/sessions/declared", json={**window, "policy": {"max_bytes": 100}})
    assert declared.status_code == 200

    async def headers(content: str) -> tuple[str | None, str | None]:
        sent = {"tool_name": "t", "content": content}
        found = (await client.post("/results", json=sent, headers={"Accept": "text/plain"})).headers
        return found.get("Spillgate-Durability"), found.get("Spillgate-Degraded")

    assert [await headers(text) for text in ("short", "x" * 20_000)] == [(None, None), ("aof", None)]
    await until_degraded(client, expected=False)
    assert "spillgate_degraded 0.0" in (await client.get("/metrics")).text
    redis.kill()
    kept = [await stored(client, f"during-{number}", degraded=True) for number in range(10)]
    ready = await client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["warnings"][0].startswith("degraded: ")
    health = (await client.get("/healthz")).json()
    assert (health["degraded"], health["stored_bytes"]) == (True, sum(one.size for one in kept))
    assert "spillgate_degraded 1.0" in (await client.get("/metrics")).text
    assert [await headers(text) for text in ("short", "y" * 20_000)] == [(None, "true"), ("disk", "true")]
    small = {"session_id": "declared", "tool_name": "t", "content": "x" * 101}
    over = (await client.post("/results", json=small)).json()
    assert (over["outcome"], over["trigger"], over["degraded"]) == ("store", "size_cap", True)
    assert over["budget"]["limit_tokens"] == 1000
    passed = (await client.post("/results", json={**small, "content": "short"})).json()
    assert (passed["outcome"], passed["durability"], passed["degraded"]) == ("pass", None, True)
    redis.start()
    await until_degraded(client, expected=False)
    assert (await client.get("/readyz")).json()["warnings"] == []
    said = [line["event"][:13] for line in service.lines() if line["event"].startswith((AWAY, BACK))]
    assert said == [AWAY, BACK]


async def test_a_silent_redis_holds_nobody_up_for_long(redis: RedisServer, services: Services) -> None:
    service = await started(services, redis, SERVE)
    async with service.client() as client:
        redis.pause()
        names = [f"during-{number}" for number in range(20)]
        # Far beyond what one operation may wait: what the first one learnt spares the others.
        async with asyncio.timeout(20):
            kept = [await stored(client, name, degraded=True) for name in names]
        redis.resume()
        await until_degraded(client, expected=False)
        for one in kept:
            assert await readings(client, one) == []


@pytest.mark.repeated
async def test_nothing_that_was_acknowledged_is_lost_over_kills_under_load(
    redis: RedisServer, service: Service
) -> None:
    acknowledged: list[tuple[Kept, bool]] = []
    refused: list[str] = []
    is_over = False

    async def send(client: httpx.AsyncClient, worker: int) -> None:
        number = 0
        while not is_over:
            number += 1
            size = (13_000, 60_000, 500_000)[number % 3]
            call = Call(f"run-{worker}", text_of(f"{worker}-{number}", size), is_streamed=bool(number % 2))
            answer = await call.send(client)
            if answer.status_code == 201:
                acknowledged.append((Kept.of(call, answer), answer.json()["degraded"]))
            else:
                refused.append(answer.text)
            await asyncio.sleep(0.02)

    async with service.client() as client, asyncio.TaskGroup() as tasks:
        for worker in range(8):
            tasks.create_task(send(client, worker))
        for _ in range(count(1, 4)):
            for expected in (True, False):
                redis.kill() if expected else redis.start()
                await until(partial(some_more, acknowledged, len(acknowledged), expected))
        is_over = True
    assert refused == []
    async with service.client() as client:
        faults = [fault for kept, _ in acknowledged for fault in await read_back(client, kept)]
        assert faults == []
        lines = [entry for worker in range(8) for entry in await handles(client, session_id=f"run-{worker}")]
    assert {kept.handle for kept, _ in acknowledged} <= set(lines)
    assert service.failures() == []


async def some_more(acknowledged: list[tuple[Kept, bool]], seen: int, degraded: bool) -> bool:
    return sum(was_degraded is degraded for _, was_degraded in acknowledged[seen:]) > 5


async def test_it_starts_without_redis_and_the_spool_outlives_a_kill(
    services: Services, redis: RedisServer
) -> None:
    redis.kill()
    call = Call("run", text_of("during", 30_000), "call")
    first = await started(services, redis)
    async with first.client() as client:
        kept = Kept.of(call, await call.send(client))
    first.kill()
    second = await started(services, redis)
    async with second.client() as client:
        assert await readings(client, kept) == []
        assert Kept.of(call, await call.send(client)) == kept
        redis.start()
        await until_degraded(client, expected=False)
        assert await readings(client, kept) == []
        # The session is in Redis by the replay alone: it ends for good, and may be opened again.
        assert (await client.delete("/sessions/run")).status_code == 204
        assert (await client.get(f"/results/{kept.handle}")).status_code == 410
        assert (await Call("run", b"late").send(client)).status_code == 410
        assert (await client.put("/sessions/run", json={})).status_code == 200
        assert (await Call("run", b"again").send(client)).status_code == 200


@pytest.mark.parametrize("moment", ["amid", "after"])
async def test_a_replay_that_a_kill_ends_enters_each_line_once(
    services: Services, redis: RedisServer, tmp_path: Path, moment: str
) -> None:
    redis.kill()
    first = await started(services, redis, service_with(f"killed {moment} the replay", *PATIENCE))
    async with first.client() as client:
        kept = [await stored(client, name, degraded=True) for name in "ab"]
        kept.append(await stored(client, "c", degraded=True, call_id="named"))
        passed = (await Call("run", b"short").send(client)).json()
        assert (passed["outcome"], passed["degraded"]) == ("pass", True)
        redis.start()
        assert await first.ended() == -9
    # As after a long time: Redis has forgotten the replies to what was repeated at once.
    for key in redis.ask("KEYS", "*:once:*").decode().split("\r\n")[2::2]:
        redis.ask("DEL", key)
    (journal,) = tmp_path.rglob("journal.jsonl")
    second = await started(services, redis)

    async def is_empty() -> bool:
        return journal.stat().st_size == 0

    async with second.client() as client:
        await until(is_empty)
        assert await handles(client) == [*(one.handle for one in kept), None]
        session = (await client.get("/sessions/run")).json()
        assert session["budget"]["reserved_tokens"] == passed["budget"]["reserved_tokens"]
        for one in kept:
            assert await readings(client, one) == []
    assert second.failures() == []


async def test_a_fault_of_the_replay_is_logged_and_it_starts_again(
    services: Services, redis: RedisServer
) -> None:
    redis.kill()
    service = await started(services, redis, command=service_with("replays that raise", *PATIENCE))
    async with service.client() as client:
        kept = await stored(client, "during", degraded=True)
        redis.start()
        await until_degraded(client, expected=False)
        assert await handles(client) == [kept.handle]
        assert 'spillgate_task_faults_total{task="spool"} 2.0' in (await client.get("/metrics")).text
    assert [line["error"]["type"] for line in service.failures()] == ["RuntimeError"] * 2
    assert await service.stop() == 0


async def test_a_damaged_line_of_the_journal_is_skipped_and_the_others_are_replayed(
    services: Services, redis: RedisServer, tmp_path: Path
) -> None:
    redis.kill()
    first = await started(services, redis)
    async with first.client() as client:
        kept = [await stored(client, name, degraded=True) for name in "abcd"]
        assert (await client.put("/sessions/declared", json={"context_window": 900})).status_code == 200
    first.kill()
    (journal,) = tmp_path.rglob("journal.jsonl")
    lines = journal.read_bytes().lstrip().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"execute_shell", b"exec\xffte_shell")
    lines[2] = b'{"type":' + b"[" * 100_000 + b"\n"
    # A crash cuts the last line.
    journal.write_bytes(b"".join(lines) + b'\n{"type":"Charged","char')
    second = await started(services, redis)
    async with second.client() as client:
        kept.append(await stored(client, "e", degraded=True))
        redis.start()
        await until_degraded(client, expected=False)
        assert await handles(client) == [kept[place].handle for place in (0, 3, 4)]
        assert (await client.get("/sessions/declared")).json()["context_window"] == 900


async def test_a_charge_that_the_journal_could_not_take_is_taken_when_it_is_sent_again(
    redis: RedisServer, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    redis.kill()
    first = await stored(client, "first", degraded=True)
    (journal,) = tmp_path.rglob("journal.jsonl")
    away = journal.rename(tmp_path / "away")
    call = Call("run", text_of("named", 30_000), "call")
    for _ in range(2):
        refused = await call.send(client)
        assert refused.status_code == 503, refused.text
        assert refused.json()["stored"] is False
        assert "The journal of the spool was deleted or replaced" in refused.json()["detail"]
    assert (await client.get("/readyz")).status_code == 503
    away.rename(journal)
    second = Kept.of(call, await call.send(client))
    redis.start()
    await until_degraded(client, expected=False)
    assert await handles(client) == [first.handle, second.handle]
    assert len(await handles(client, session_id="run")) == 2


async def test_deleting_works_on_both_and_ending_waits_for_redis(
    redis: RedisServer, client: httpx.AsyncClient
) -> None:
    kept = await stored(client, "kept", degraded=False)
    redis.kill()
    deleted = await stored(client, "deleted", degraded=True)
    spooled = await stored(client, "spooled", degraded=True)
    assert (await client.delete(f"/results/{deleted.handle}")).status_code == 204
    assert (await client.delete(f"/results/{kept.handle}")).status_code == 503
    assert (await client.delete("/sessions/run")).status_code == 503
    assert await read_back(client, spooled) == []
    redis.start()
    await until_degraded(client, expected=False)
    assert (await client.get(f"/results/{deleted.handle}")).status_code == 404
    assert (await client.delete("/sessions/run")).status_code == 204
    for gone in (kept, spooled):
        assert (await client.get(f"/results/{gone.handle}")).status_code == 410
    assert (await Call("run", b"late").send(client)).status_code == 410
    redis.kill()
    assert (await Call("run", b"late").send(client)).status_code == 410


async def test_a_full_redis_is_no_reason_to_spool(services: Services, tmp_path: Path) -> None:
    options = ["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]
    with RedisServer(tmp_path / "redis", aof="always", options=options) as redis:
        service = await started(services, redis)
        async with service.client() as client:
            codes = set()
            for _ in range(60):
                content = os.urandom(100_000).hex().encode()
                codes.add((await Call("run", content).send(client)).status_code)
            assert codes == {201, 507}
            assert "spillgate_degraded 0.0" in (await client.get("/metrics")).text


async def test_a_full_spool_is_full(services: Services, redis: RedisServer) -> None:
    service = await started(services, redis, storage_max_bytes="100000")
    async with service.client() as client:
        redis.kill()
        kept = [await stored(client, f"during-{number}", degraded=True) for number in range(3)]
        answer = await Call("run", text_of("more", 30_000)).send(client)
        assert (answer.status_code, answer.json()["stored"]) == (507, False)
        # A full spool does not keep Redis from being used.
        redis.start()
        await until_degraded(client, expected=False)
        await stored(client, "after", degraded=False)
        for one in kept:
            assert await read_back(client, one) == []
