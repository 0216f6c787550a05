"""The child process of a query: what it is given, what bounds it, when it ends."""

import json
import os
import resource
from collections.abc import AsyncIterator

import anyio
import psutil
import pytest

from domain.errors import Overloaded, StoreUnavailable
from extraction.queries import Queries, Query, Read
from extraction.query_child import MEMORY_BYTES

pytestmark = pytest.mark.anyio

ORDERS = json.dumps(
    {"orders": [{"id": n, "status": "ok" if n % 4 else "failed"} for n in range(12)]}
).encode()


def reading(data: bytes) -> Read:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100):
            yield data[start : start + 100]

    return chunks


def of_queries() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if "extraction.query_child" in child.cmdline()]


async def test_the_process_is_confined_and_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_API_KEY", "S3cret")
    seen: list[psutil.Process] = []

    async def chunks() -> AsyncIterator[bytes]:
        [process] = of_queries()
        while process.nice() == os.nice(0):
            await anyio.sleep(0.01)
        assert process.rlimit(resource.RLIMIT_AS)[0] == MEMORY_BYTES
        assert process.rlimit(resource.RLIMIT_CPU)[0] <= 12
        assert process.rlimit(resource.RLIMIT_CORE)[0] == 0
        assert "S3cret" not in str(process.environ())
        assert "status" not in str(process.cmdline())
        seen.append(process)
        yield ORDERS

    found = await Queries().run("t", Query("orders[0].status", 1000), len(ORDERS), chunks)
    assert bytes(found.slice.result) == b'"failed"'
    assert [process.is_running() for process in seen] == [False]


async def test_no_process_outlives_a_query_that_is_cancelled() -> None:
    begun = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"["
        begun.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Queries().run, "t", Query("@", 1000), 10, chunks)
        await begun.wait()
        assert len(of_queries()) == 1
        tasks.cancel_scope.cancel()
    assert of_queries() == []


async def test_no_process_outlives_a_store_that_fails() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"["
        raise StoreUnavailable("The store is gone.")

    with pytest.raises(StoreUnavailable):
        await Queries().run("t", Query("@", 1000), 10, chunks)
    assert of_queries() == []


async def test_a_tenant_has_one_child_and_all_tenants_together_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extraction.queries.WAIT_SECONDS", 0.05)
    monkeypatch.setattr("extraction.queries.AT_A_TIME", 2)
    queries, go_on = Queries(), anyio.Event()
    running: list[object] = []

    async def chunks() -> AsyncIterator[bytes]:
        running.append(None)
        await go_on.wait()
        yield b"[1]"

    async def one(tenant: str) -> None:
        await queries.run(tenant, Query("@", 1000), 3, reading(b"[1]"))

    async with anyio.create_task_group() as tasks:
        for number in range(2):
            if number:
                await one("not yet running")
            tasks.start_soon(queries.run, f"tenant {number}", Query("@", 1000), 3, chunks)
            while len(running) <= number:
                await anyio.sleep(0.01)
            with pytest.raises(Overloaded):
                await one("tenant 0")
        with pytest.raises(Overloaded):
            await one("not yet running")
        go_on.set()
    for number in range(2):
        await one(f"tenant {number}")
