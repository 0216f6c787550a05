"""Readiness: off as soon as anything failed, on again soon after; and the warnings that stand."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.operations.readiness import Readiness
from domain.errors import StoreUnavailable
from storage.memory import MemoryStore
from storage.sqlite.ledger import MemoryLedger
from tests.conftest import Serve, StillClock
from tests.counts import count
from tests.redis_server import RedisServer, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", aof="always") as server:
        yield server


async def status(client: httpx.AsyncClient) -> int:
    return (await client.get("/readyz")).status_code


async def store(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})


async def test_on_disk_it_is_ready_and_has_nothing_to_say(disk_client: httpx.AsyncClient) -> None:
    expected = {"status": "ok", "warnings": []}
    assert (await disk_client.get("/readyz")).json() == expected
    assert expected.items() <= (await disk_client.get("/healthz")).json().items()


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/healthz", "/docs", "/docs/errors", "/ui", "/openapi.json"]
)
async def test_a_monitor_may_ask_with_head(client: httpx.AsyncClient, path: str) -> None:
    told, head = await client.get(path), await client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == told.headers["content-type"]


@pytest.mark.repeated
async def test_a_failed_write_takes_it_back_at_once_and_it_returns(
    serve: Serve, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spillgate.readiness")
    async with serve(storage_url=redis.url) as client:
        for _ in range(count(2, 5)):
            assert await status(client) == 200
            redis.kill()
            assert (await store(client)).status_code == 503
            # Within the second for which a good answer is remembered.
            assert await status(client) == 503
            redis.start()
            async with asyncio.timeout(30):
                while await status(client) != 200:
                    await asyncio.sleep(0.05)
            assert (await store(client)).status_code == 201
            said = [record for record in caplog.records if record.name == "spillgate.readiness"]
            *down, up = [record.getMessage() for record in said]
            assert (set(down), up) == ({"Not ready."}, "Ready again.")
            whys = [record.fields["why"] for record in said[:-1]]  # type: ignore[attr-defined]
            assert len(set(whys)) == len(whys)
            assert all(why.endswith(f" {redis.url}.") for why in whys)
            caplog.clear()


async def test_the_log_names_the_fact_and_the_address_and_the_caller_is_not_told_them(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    where = f"127.0.0.1:{free_port()}/0"
    async with serve(storage_url=f"redis://user:secret@{where}") as client:
        answers = [await store(client) for _ in range(5)]
        answers += [await client.get(path) for path in ("/readyz", "/healthz")]
        assert {one.status_code for one in answers} == {503}
    assert not any("ECONNREFUSED" in one.text or where in one.text for one in answers)
    told = [record.fields for record in caplog.records if hasattr(record, "fields")]
    whys = [fields["why"] for fields in told if "why" in fields]
    assert set(whys) == {
        f"Redis cannot be reached. Try again. Cause: ECONNREFUSED (Connection refused), redis://{where}."
    }
    assert [fields["code"] for fields in told if "route" in fields] == ["store_unavailable"]
    assert "secret" not in str(told)


async def test_a_locked_ledger_is_told_from_one_that_is_read_only(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as client:
        path = tmp_path / "state" / "ledger.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/readyz")).status_code == 200
        ledger = client._transport.app.state.runtime.ledger  # type: ignore[attr-defined]
        while hasattr(ledger, "_inner"):
            ledger = ledger._inner
        ledger._writer._connection.execute("PRAGMA query_only = 1")
        assert (await store(client)).status_code == 503
        assert (await client.get("/readyz")).status_code == 503
    whys = [
        record.fields["why"]  # type: ignore[attr-defined]
        for record in caplog.records
        if record.getMessage() == "Not ready."
    ]
    ends = [why.partition(" Cause: ")[2] for why in whys]
    assert ends == [f"SQLITE_BUSY, {path}.", f"SQLITE_READONLY, {path}."]


class Slow(MemoryStore):
    """Its first check takes until it is told; the next ones fail."""

    def __init__(self) -> None:
        super().__init__(clock=StillClock(), retention_seconds=60, max_bytes=0)
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def check(self) -> None:
        if self.may_end.is_set():
            raise StoreUnavailable("It went away.")
        self.began.set()
        await self.may_end.wait()


async def test_a_check_that_began_before_a_failure_is_not_remembered() -> None:
    store = Slow()
    ledger = MemoryLedger(clock=StillClock(), session_retention_seconds=60, entry_retention_seconds=60)
    readiness = Readiness(store, ledger)
    checking = asyncio.create_task(readiness.check())
    await store.began.wait()
    readiness.invalidate()
    store.may_end.set()
    await checking
    with pytest.raises(StoreUnavailable):
        await readiness.check()


async def test_metrics_are_there_while_the_store_is_away(serve: Serve, redis: RedisServer) -> None:
    async with serve(storage_url=redis.url) as client:
        assert (await store(client)).status_code == 201
        assert "spillgate_stored_bytes 20000.0" in (await client.get("/metrics")).text
        redis.kill()
        assert (await store(client)).status_code == 503
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert "spillgate_stored_bytes 20000.0" in answer.text
        assert 'spillgate_errors_total{code="store_unavailable"}' in answer.text


@pytest.mark.parametrize(
    ("aof", "options", "said"),
    [
        ("no", (), "Redis may lose what is stored when it stops."),
        (
            "always",
            ("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"),
            "Redis may evict what is stored: its maxmemory-policy is allkeys-lru.",
        ),
    ],
    ids=["no-aof", "evicting"],
)
async def test_a_standing_warning_is_in_every_answer_and_once_in_the_log(
    serve: Serve,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    aof: Any,
    options: tuple[str, ...],
    said: str,
) -> None:
    caplog.set_level(logging.WARNING)
    with RedisServer(tmp_path / "redis", aof=aof, options=options) as redis:
        async with serve(storage_url=f"{redis.url}?allow_eviction=true") as client:
            for path in ("/readyz", "/healthz", "/readyz"):
                warnings = (await client.get(path)).json()["warnings"]
                assert len(warnings) == 1
                assert warnings[0].startswith(said)
    logged = [record.message for record in caplog.records if record.name == "spillgate.readiness"]
    assert logged == warnings


async def test_in_memory_it_says_that_it_keeps_nothing(serve: Serve) -> None:
    async with serve(storage_url="memory:") as client:
        warnings = (await client.get("/readyz")).json()["warnings"]
        assert ["memory" in warning for warning in warnings] == [True, True]
        assert (await store(client)).json()["durability"] == "memory"


async def test_a_policy_that_evicts_is_not_ready_without_leave(serve: Serve, tmp_path: Path) -> None:
    options = ("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    with RedisServer(tmp_path / "redis", aof="always", options=options) as redis:
        async with serve(storage_url=redis.url) as client:
            assert await status(client) == 503


@pytest.mark.parametrize(("setting", "cap"), [("storage_max_bytes", 200_000), ("max_sessions", 10)])
async def test_what_is_nearly_full_is_said_from_its_beginning_to_its_end(
    serve: Serve, caplog: pytest.LogCaptureFixture, setting: str, cap: int
) -> None:
    """Sessions of 20,000 stored bytes each, up to the bound and back."""
    caplog.set_level(logging.INFO, "spillgate.readiness")
    name = f"SPILLGATE_{setting.upper()}"

    async def warned() -> bool:
        readiness._checked_at = float("-inf")  # type: ignore[attr-defined]
        answer = await client.get("/readyz")
        assert answer.status_code == 200
        health = (await client.get("/healthz")).json()
        assert health["warnings"] == answer.json()["warnings"]
        return any(name in warning for warning in answer.json()["warnings"])

    async with serve(**{setting: cap}) as client:
        readiness = client._transport.app.state.runtime.readiness  # type: ignore[attr-defined]
        sessions = 0
        while not await warned():
            sessions += 1
            sent = {"tool_name": "t", "content": "x" * 20_000, "session_id": f"s-{sessions}"}
            assert (await client.post("/results", json=sent)).status_code == 201
        assert 3 < sessions <= 12
        while await warned():
            assert (await client.delete(f"/sessions/s-{sessions}")).status_code == 204
            sessions -= 1
        assert sessions == 8
    said = [record.getMessage() for record in caplog.records if name in record.getMessage()]
    assert [one.startswith("This warning has ended: ") for one in said] == [False, True]


async def test_a_redis_that_is_nearly_full_says_so(serve: Serve, tmp_path: Path) -> None:
    options = ("--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
    with RedisServer(tmp_path / "redis", aof="always", options=options) as redis:
        async with serve(storage_url=redis.url) as client:
            assert (await client.get("/readyz")).json()["warnings"] == []
            number = 0
            while int(redis.ask("INFO", "memory").partition(b"used_memory:")[2].split()[0]) < 0.93 * (
                8 << 20
            ):
                redis.ask("SET", f"filler-{number}", "x" * 50_000)
                number += 1
            async with asyncio.timeout(30):
                while not (found := (await client.get("/readyz")).json()["warnings"]):
                    await asyncio.sleep(0.05)
            assert found == ["Redis uses over 90 % of its maxmemory. Delete results, or give it more."]


async def test_each_reason_of_an_outage_is_a_line_of_the_log(
    serve: Serve, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spillgate.readiness")
    async with serve(storage_url=redis.url) as client:

        async def until(reason: str) -> None:
            async with asyncio.timeout(30):
                while reason not in (await client.get("/readyz")).text:
                    await asyncio.sleep(0.05)

        assert await status(client) == 200
        redis.kill()
        await until("cannot be reached")
        redis.start()
        redis.ask("REPLICAOF", "127.0.0.1", "1")
        redis.ask("CONFIG", "SET", "replica-serve-stale-data", "yes")
        await until("read-only replica")
        redis.ask("REPLICAOF", "NO", "ONE")
        await until("ok")
    said = [record for record in caplog.records if record.name == "spillgate.readiness"]
    reasons = [getattr(record, "fields", {}).get("why", record.getMessage()) for record in said]
    assert "cannot be reached" in reasons[0]
    assert any("read-only replica" in reason for reason in reasons)
    assert reasons[-1] == "Ready again."
    assert len(reasons) == len(set(reasons))
