"""The child process of a query: what it is given, what bounds it, when it ends."""

import json
import os
import resource
from collections.abc import AsyncIterator

import anyio
import psutil
import pytest

from domain.errors import BadQuery, Overloaded, StoreUnavailable
from extraction.queries import OpenBody, Queries
from extraction.query_child import MEMORY_BYTES, READ_SECONDS
from extraction.query_terms import DataQuery

pytestmark = pytest.mark.anyio

ORDERS = json.dumps(
    {"orders": [{"id": n, "status": "ok" if n % 4 else "failed"} for n in range(12)]}
).encode()


def reading(data: bytes) -> OpenBody:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100):
            yield data[start : start + 100]

    return chunks


_OTHERS: list[psutil.Process] = []


def of_queries() -> list[psutil.Process]:
    """The children that this test started: a service of other tests in this process may keep one."""
    children = [child for child in psutil.Process().children() if child not in _OTHERS]
    return list(filter(_runs_queries, children))


def _runs_queries(child: psutil.Process) -> bool:
    try:
        return "extraction.query_child" in child.cmdline()
    except psutil.NoSuchProcess:
        # A zombie: the process has ended, and its parent has not waited for it yet.
        return False


@pytest.fixture(autouse=True)
def others() -> None:
    _OTHERS[:] = psutil.Process().children()


ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b"


async def running() -> psutil.Process:
    """The child of a query, once it has set its limits."""
    with anyio.fail_after(30):
        while not (found := of_queries()) or found[0].nice() == os.nice(0):
            await anyio.sleep(0.01)
    return found[0]


async def test_the_process_is_confined_and_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_API_KEY", "S3cret")
    queries = Queries()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queries.run, "t", DataQuery(ENDLESS, 1000), len(ORDERS), reading(ORDERS))
        process = await running()
        assert process.rlimit(resource.RLIMIT_AS)[0] == MEMORY_BYTES
        assert process.rlimit(resource.RLIMIT_CPU)[0] <= READ_SECONDS + 1
        assert process.rlimit(resource.RLIMIT_CORE)[0] == 0
        assert process.num_threads() <= 2
        assert process.environ().keys() <= {"PYTHONPATH", "MALLOC_ARENA_MAX", "LD_LIBRARY_PATH", "LC_CTYPE"}
        assert "range" not in str(process.cmdline())
        tasks.cancel_scope.cancel()
    assert not process.is_running()


async def test_a_process_is_kept_for_the_next_query_over_the_same_data() -> None:
    queries, reads = Queries(), list[str]()

    def read(name: str) -> OpenBody:
        async def chunks() -> AsyncIterator[bytes]:
            reads.append(name)
            yield ORDERS

        return chunks

    async def count(tenant: str, name: str, sql: str = "SELECT count(*) FROM data") -> bytes:
        answer = await queries.run(tenant, DataQuery(sql, 1000), len(ORDERS), read(name), name)
        return bytes(answer.slice.result)

    for _ in range(3):
        assert await count("t", "one") == b'[{"count(*)":12}]'
    with pytest.raises(BadQuery):
        await count("t", "one", "SELECT nothing(")
    assert await count("t", "one", "SELECT count(*) n FROM lines") == b'[{"n":1}]'
    assert reads == ["one"]
    # Other data of the tenant takes its place, and of three tenants the one that was not asked longest goes.
    await count("t", "two")
    await count("u", "two")
    assert (len(of_queries()), reads) == (2, ["one", "two", "two"])
    await count("v", "three")
    assert len(of_queries()) == 2
    await count("t", "two")
    assert reads == ["one", "two", "two", "three", "two"]
    await queries.aclose()
    assert of_queries() == []


async def test_a_process_that_is_not_asked_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extraction.queries.KEPT_SECONDS", 0.01)
    queries = Queries()
    await queries.run("t", DataQuery("SELECT 1", 1000), len(ORDERS), reading(ORDERS), "one")
    with anyio.fail_after(30):
        while of_queries():
            await anyio.sleep(0.01)
    await queries.aclose()


async def test_no_process_outlives_a_query_that_is_cancelled() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Queries().run, "t", DataQuery(ENDLESS, 1000), len(ORDERS), reading(ORDERS))
        await running()
        tasks.cancel_scope.cancel()
    assert of_queries() == []


async def test_no_process_outlives_a_store_that_fails() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"["
        raise StoreUnavailable("The store is gone.")

    with pytest.raises(StoreUnavailable):
        await Queries().run("t", DataQuery("@", 1000), 10, chunks)
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
        await queries.run(tenant, DataQuery("@", 1000), 3, reading(b"[1]"))

    async with anyio.create_task_group() as tasks:
        for number in range(2):
            if number:
                await one("not yet running")
            tasks.start_soon(queries.run, f"tenant {number}", DataQuery("@", 1000), 3, chunks)
            while len(running) <= number:
                await anyio.sleep(0.01)
            with pytest.raises(Overloaded):
                await one("tenant 0")
        with pytest.raises(Overloaded):
            await one("not yet running")
        go_on.set()
    for number in range(2):
        await one(f"tenant {number}")
