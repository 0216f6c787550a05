"""The process of a query as its service runs it: what it is given, what bounds it, when it ends."""

import json
import os
import resource
from collections.abc import AsyncIterator

import anyio
import psutil
import pytest

from domain.errors import Overloaded, StoreUnavailable
from extraction import querying
from extraction.query_process import MEMORY_BYTES, Asked
from extraction.querying import Queries, Read

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
    return [child for child in children if "extraction.query_process" in child.cmdline()]


async def in_words(instruction: str, data: bytes = ORDERS) -> tuple[str, object] | None:
    asked = Asked(max_bytes=1000, instruction=instruction)
    found = await Queries().answer(asked, len(data), reading(data))
    return None if found is None else (found.expression, json.loads(bytes(found.slice.result)))


async def test_a_plain_question_in_words_is_answered() -> None:
    assert await in_words("How many orders are there?") == ("length(orders[])", 12)
    assert await in_words("list the ids of all orders where status is failed") == (
        'orders[?status == `"failed"`].id',
        [0, 4, 8],
    )


@pytest.mark.parametrize(
    ("instruction", "data"),
    [
        ("why did they fail?", ORDERS),
        ("how many customers are there?", ORDERS),
        ("list the orders where status is FAILED", ORDERS),
        ("how many orders are there?", b"plain words"),
        ("how many orders are there?", b'{"orders": [{"id": '),
        ("list the records with the most x", b"[]"),
    ],
)
async def test_any_other_is_left_to_others(instruction: str, data: bytes) -> None:
    assert await in_words(instruction, data) is None


async def test_a_question_in_words_that_is_none_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(querying, "_COMMAND", ("/nonexistent",))
    assert await in_words("why did they fail?") is None


async def test_the_process_is_confined_and_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_API_KEY", "S3cret")
    seen: list[psutil.Process] = []

    async def chunks() -> AsyncIterator[bytes]:
        [process] = of_queries()
        while process.nice() == os.nice(0):
            await anyio.sleep(0.01)
        assert process.rlimit(resource.RLIMIT_AS)[0] == MEMORY_BYTES
        assert process.rlimit(resource.RLIMIT_CPU)[0] <= 6
        assert process.rlimit(resource.RLIMIT_CORE)[0] == 0
        assert "S3cret" not in str(process.environ())
        assert "status" not in str(process.cmdline())
        seen.append(process)
        yield ORDERS

    found = await Queries().ask(Asked(1000, "orders[0].status"), len(ORDERS), chunks)
    assert bytes(found.slice.result) == b'"failed"'
    assert [process.is_running() for process in seen] == [False]


async def test_no_process_outlives_a_query_that_is_cancelled() -> None:
    begun = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"["
        begun.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Queries().ask, Asked(1000, "@"), 10, chunks)
        await begun.wait()
        assert len(of_queries()) == 1
        tasks.cancel_scope.cancel()
    assert of_queries() == []


async def test_no_process_outlives_a_store_that_fails() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"["
        raise StoreUnavailable("The store is gone.")

    with pytest.raises(StoreUnavailable):
        await Queries().ask(Asked(1000, "@"), 10, chunks)
    assert of_queries() == []


async def test_those_that_wait_too_long_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(querying, "WAIT_SECONDS", 0.05)
    queries, go_on = Queries(), anyio.Event()
    running: list[object] = []

    async def chunks() -> AsyncIterator[bytes]:
        running.append(None)
        await go_on.wait()
        yield b"[1]"

    async with anyio.create_task_group() as tasks:
        for _ in range(querying.AT_A_TIME):
            tasks.start_soon(queries.ask, Asked(1000, "@"), 3, chunks)
        while len(running) < querying.AT_A_TIME:
            await anyio.sleep(0.01)
        with pytest.raises(Overloaded):
            await queries.ask(Asked(1000, "@"), 3, reading(b"[1]"))
        go_on.set()
    assert (await queries.ask(Asked(1000, "@"), 3, reading(b"[1]"))).slice.total == 1
