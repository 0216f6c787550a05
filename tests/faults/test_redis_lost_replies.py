"""Replies of Redis that are lost: each call is still reserved, stored and accounted once."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from storage.redis.connection import script_source
from tests.faults import audit
from tests.faults.calls import Call, Kept, insist, read_back, text_of
from tests.faults.service_process import Services, service_with
from tests.redis_server import RedisServer
from tests.storage.redis_proxy import Proxy

pytestmark = pytest.mark.anyio

AWAY_SECONDS = 0.2
STEPS = {name: script_source(name)[1].encode() for name in ("publish", "session")}
"""The SHA-1 of a script, as it is called on the wire."""


def some_calls(run: str, *, are_named: bool) -> list[Call]:
    """Two that pass and two that are stored, the last one in two segments."""
    names = [f"{run}-{number}" for number in range(4)]
    sizes = (2_000, 3_000, 20_000, 80_000)
    return [
        Call(run, text_of(name, size), name if are_named else None, is_streamed=size > 50_000)
        for name, size in zip(names, sizes, strict=True)
    ]


async def check_once(client: httpx.AsyncClient, calls: list[Call], answers: list[httpx.Response]) -> None:
    """Each answer has its entry, each handle its body; what is charged is the sum of the entries."""
    kept = []
    for call, answer in zip(calls, answers, strict=True):
        if answer.status_code == 201:
            kept.append(Kept.of(call, answer))
            assert await read_back(client, kept[-1]) == []
        else:
            assert answer.json()["content"].encode() == call.content
    entries = await audit.tool_entries(client, session_id=calls[0].session_id)
    assert audit.misbooked(kept, entries) == []
    booked = Counter(entry["id"] for entry in entries)
    assert set(booked.values()) == {1}
    assert {answer.json()["entry_id"] for answer in answers} <= set(booked)
    session = (await insist(lambda: client.get(f"/sessions/{calls[0].session_id}"))).json()
    assert session["budget"]["reserved_tokens"] == sum(entry["tokens_out"] for entry in entries)
    if calls[0].call_id is not None:
        assert (len(entries), session["stored_results"]) == (len(calls), len(kept))


@pytest.fixture
async def behind_proxy(
    services: Services, tmp_path: Path, redis_url: str, redis_server: RedisServer
) -> AsyncIterator[tuple[Proxy, httpx.AsyncClient]]:
    """A service that has run every script, and the proxy before its Redis."""
    command = service_with("small segments", f"AWAY_SECONDS={AWAY_SECONDS}")
    async with Proxy(redis_server.port) as proxy:
        service = await services.start(tmp_path, command, storage_url=proxy.url)
        async with service.client() as client:
            warm = some_calls("warm", are_named=True)
            await check_once(client, warm, [await insist(partial(call.send, client)) for call in warm])
            yield proxy, client
        assert service.failures() == []


async def test_calls_whose_replies_are_lost_are_reserved_stored_and_accounted_once(
    behind_proxy: tuple[Proxy, httpx.AsyncClient],
) -> None:
    proxy, client = behind_proxy
    for step, marker in STEPS.items():
        # A charge is sent twice; the call that is repeated then finds its receipt.
        for losses in (1, 3, 8):
            calls = some_calls(f"{step}-{losses}", are_named=True)
            proxy.lost = 0
            proxy.lose(marker, losses)
            answers = await asyncio.gather(*[insist(partial(call.send, client)) for call in calls])
            assert proxy.lost == losses
            await check_once(client, calls, list(answers))


async def test_of_calls_without_a_name_those_that_were_answered_are_accounted_once(
    behind_proxy: tuple[Proxy, httpx.AsyncClient],
) -> None:
    proxy, client = behind_proxy
    for losses in (1, 3, 10):
        proxy.lost = 0
        proxy.lose(STEPS["session"], losses)
        for number in itertools.count():
            if proxy.lost == losses:
                break
            await check_answered(client, some_calls(f"{losses}-{number}", are_named=False))


async def check_answered(client: httpx.AsyncClient, calls: list[Call]) -> None:
    """The calls that were answered 503 may or may not be accounted."""
    answers = [await call.send(client) for call in calls]
    answered = [number for number, answer in enumerate(answers) if answer.status_code != 503]
    if len(answered) < len(calls):
        # Redis may be left alone for a moment.
        await asyncio.sleep(AWAY_SECONDS + 0.1)
    if answered:
        await check_once(client, [calls[n] for n in answered], [answers[n] for n in answered])
