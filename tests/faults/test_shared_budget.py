"""Replicas over one ledger share each session's budget exactly, with any number of results at once."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.counts import count
from tests.faults.service_process import PATIENCE, PATIENT, Services, service_with
from tests.faults.uploads import Connections, Streams

pytestmark = pytest.mark.anyio

SEEDS = count(1, 20)
REPLICAS = count(3, 4)
CALLS = count(90, 200)
TOKENS = 100
LIMIT = CALLS // 2 * TOKENS
LOOK_SECONDS = count(0.2, 0.02)
WINDOW = {"context_window": LIMIT, "buffer_tokens": 0, "max_output_tokens": 0}


@dataclass
class Race:
    """The outcomes of one session's calls, and samples of the session taken during the calls."""

    outcomes: Counter[tuple[int, str | None]] = field(default_factory=Counter)
    passed: list[int] = field(default_factory=list)
    """Per sample: the tokens of all results that had passed."""
    held: list[int] = field(default_factory=list)
    """Per sample: at most the reserved tokens of the session without those of handle messages."""


async def race(lines: Sequence[Streams], clients: Sequence[httpx.AsyncClient], run: str, seed: int) -> Race:
    """Sends CALLS calls at once, each on its own connection. Samples the session at each replica until they
    have ended."""
    found = Race()
    while (await clients[0].put(f"/sessions/{run}", json=WINDOW)).status_code == 503:
        await asyncio.sleep(0.1)
    chosen = random.Random(seed).sample(lines, CALLS)
    calling = asyncio.gather(
        *[_call(line, run, f"call-{number}", found) for number, line in enumerate(chosen)]
    )

    async def watch(client: httpx.AsyncClient) -> None:
        while not calling.done():
            await _look(client, run, found)
            await asyncio.sleep(LOOK_SECONDS)

    await asyncio.gather(calling, *[watch(client) for client in clients])
    while not await _look(clients[0], run, found):
        await asyncio.sleep(0.1)
    return found


async def _call(line: Streams, run: str, call_id: str, found: Race) -> None:
    """Repeats the call while it is answered 503: on a busy machine a server may exceed its time limit."""
    content = " a" * TOKENS
    sent = {"session_id": run, "tool_name": "read_file", "tool_call_id": call_id, "content": content}
    body = json.dumps(sent).encode()
    while (answer := await _post(line, body)).get("code") == "store_unavailable":
        await asyncio.sleep(0.1)
    assert answer["measure"]["tokens"] == TOKENS
    found.outcomes[TOKENS if answer["content"] == content else 0, answer["trigger"]] += 1


async def _post(line: Streams, body: bytes) -> dict[str, Any]:
    """Opens another connection if this one was closed: the service closes it after a 503 sent early."""
    reader, writer = line
    if not reader.at_eof():
        return await _answer(reader, writer, body)
    reader, writer = await asyncio.open_connection(*writer.get_extra_info("peername"))
    try:
        return await _answer(reader, writer, body)
    finally:
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> dict[str, Any]:
    head = f"POST /results HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    top = await reader.readuntil(b"\r\n\r\n")
    size = int(top.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    answer: dict[str, Any] = json.loads(await reader.readexactly(size))
    return answer


async def _look(client: httpx.AsyncClient, session_id: str, found: Race) -> bool:
    """Takes one sample. Returns False if a server exceeded its time limit."""
    session = await client.get(f"/sessions/{session_id}")
    # The entries are read second: they include all handle messages that the session had when it was read.
    wanted = {"type": "tool", "session_id": session_id}
    headers = {"Accept": "application/x-ndjson"}
    read = await client.get("/accounting/entries", params=wanted, headers=headers)
    if 503 in (session.status_code, read.status_code):
        await asyncio.sleep(0.1)
        return False
    entries = [json.loads(line) for line in read.text.splitlines()]
    messages = sum(entry["tokens_out"] for entry in entries if entry["outcome"] == "store")
    found.passed.append(sum(entry["tokens_out"] for entry in entries if entry["outcome"] == "pass"))
    found.held.append(session.json()["budget"]["reserved_tokens"] - messages)
    return True


@asynccontextmanager
async def replicas(
    services: Services, place: Path, shared: dict[str, str], command: tuple[str, ...]
) -> AsyncIterator[tuple[list[Streams], list[httpx.AsyncClient]]]:
    """Starts the replicas and opens 1.5 connections per call. Each run uses a random sample of them."""
    spawned = [services.spawn(place, command, **shared) for _ in range(REPLICAS)]
    started = [await service.listening() for service in spawned]
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(Connections())
        lines = [await connections.open(started[number % REPLICAS]) for number in range(CALLS * 3 // 2)]
        yield lines, [await stack.enter_async_context(one.client()) for one in started]
    for service in started:
        assert service.failures() == []


@pytest.fixture(params=["redis", "postgres"])
def shared(request: pytest.FixtureRequest, redis_url: str) -> dict[str, str]:
    """The settings of all replicas, by the kind of their ledger."""
    if request.param == "redis":
        return {"storage_url": redis_url}
    return {"storage_url": redis_url, "ledger_url": request.getfixturevalue("postgres_url")}


@pytest.mark.repeated
async def test_of_many_results_at_once_exactly_those_pass_that_fit(
    services: Services, tmp_path: Path, shared: dict[str, str]
) -> None:
    fitting, samples = LIMIT // TOKENS, 0
    async with replicas(services, tmp_path, shared, PATIENT) as (lines, clients):
        for seed in range(SEEDS):
            found = await race(lines, clients, f"run-{seed}", seed)
            assert found.outcomes == {(TOKENS, None): fitting, (0, "reserve_failed"): CALLS - fitting}
            assert max(found.passed) == LIMIT
            assert max(found.held) == LIMIT == found.held[-1]
            session = (await clients[seed % REPLICAS].get(f"/sessions/run-{seed}")).json()
            assert session["stored_results"] == CALLS - fitting
            samples += len(found.held)
    assert samples >= 2 * SEEDS


async def test_a_charge_without_the_atomic_check_exceeds_the_budget(
    services: Services, tmp_path: Path, shared: dict[str, str]
) -> None:
    async with replicas(services, tmp_path, shared, service_with(*PATIENCE, "look-first")) as (
        lines,
        clients,
    ):
        found = await race(lines, clients[:1], "run", 0)
    assert found.outcomes[TOKENS, None] > LIMIT // TOKENS
    assert max(found.passed) > LIMIT
