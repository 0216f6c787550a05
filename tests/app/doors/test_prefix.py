"""What once entered a context is never rewritten: a conversation that is sent again with one more turn begins
with the same bytes, through every door. So the provider's prompt cache stays whole."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import pytest

from policies.outcomes.store import TOO_LARGE
from tests.app.doors.payloads import LARGE, payload
from tests.app.doors.test_hooks import CASES, large
from tests.app.doors.test_litellm import PATH, call, recorded, result
from tests.conftest import Serve

pytestmark = pytest.mark.anyio

TURNS = 6
SETTINGS: list[dict[str, Any]] = [{}, {"context_window": 34_000, "require_budget": True}]
"""With a small budget that is enforced, later results find less room: earlier ones must not change for it."""


@pytest.fixture(params=SETTINGS, ids=["size cap", "budget"])
async def client(request: pytest.FixtureRequest, serve: Serve) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(**request.param) as served:
        yield served


def contents() -> list[str]:
    """Large and small results; the first comes a second time. Of those of 11 KB the budget holds two."""
    middle = ["".join(f"{part} line {line}\n" for line in range(1000))[:11_000] for part in range(3)]
    return [middle[0], LARGE, middle[1], "small", middle[2], LARGE]


def rows(turns: int) -> list[dict[str, Any]]:
    """The conversation up to this turn."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "Is anything wrong?"}]
    for number, content in enumerate(contents()[:turns]):
        found += [call(f"c{number}"), result(f"c{number}", content)]
        found.append({"role": "assistant", "content": f"Turn {number} is read."})
    return found


async def by_guardrail(surface: str, client: httpx.AsyncClient, sent: list[dict[str, Any]]) -> list[Any]:
    body = {**recorded(surface), "structured_messages": sent}
    answer = (await client.post(PATH, json=body)).json()
    return list(answer.get("structured_messages", sent))


async def by_compress(client: httpx.AsyncClient, sent: list[dict[str, Any]]) -> list[Any]:
    answer = await client.post("/v1/compress", json={"messages": sent})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["messages"])


async def by_results(client: httpx.AsyncClient, sent: list[dict[str, Any]]) -> list[Any]:
    """As an adapter that governs each result of the request again."""
    governed = []
    for row in sent:
        if row["role"] == "tool":
            named = {"session_id": "s", "tool_name": "bash", "tool_call_id": row["tool_call_id"]}
            answer = await client.post("/results", json={**named, "content": row["content"]})
            assert answer.status_code in (200, 201), answer.text
            row = {**row, "content": answer.json()["content"]}
        governed.append(row)
    return governed


Door = Callable[[httpx.AsyncClient, list[dict[str, Any]]], Awaitable[list[Any]]]


DOORS: dict[str, Door] = {
    surface: partial(by_guardrail, surface) for surface in ("chat completions", "messages", "responses")
} | {"compress": by_compress, "results": by_results}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_a_conversation_with_one_more_turn_begins_with_the_same_bytes(
    client: httpx.AsyncClient, door: Door
) -> None:
    before: list[str] = []
    for turns in range(1, TURNS + 1):
        told = [json.dumps(row, ensure_ascii=False) for row in await door(client, rows(turns))]
        assert told[: len(before)] == before
        before = told
    assert TOO_LARGE in before[5]
    assert TOO_LARGE not in before[2]


@pytest.mark.parametrize("accept", ["application/json", "text/plain"])
async def test_a_text_that_is_sent_again_as_text_is_answered_with_the_same_bytes(
    client: httpx.AsyncClient, accept: str
) -> None:
    headers = {"Content-Type": "text/plain", "Accept": accept}

    async def told(number: int, content: str) -> str:
        query = f"/results?session_id=s&tool_name=bash&tool_call_id=c{number}"
        answer = await client.post(query, content=content.encode(), headers=headers)
        return answer.text if accept == "text/plain" else str(answer.json()["content"])

    before: list[str] = []
    for turns in range(1, TURNS + 1):
        now = [await told(number, content) for number, content in enumerate(contents()[:turns])]
        assert now[: len(before)] == before
        before = now


async def test_a_hook_that_runs_again_for_a_call_answers_with_the_same_bytes(
    client: httpx.AsyncClient,
) -> None:
    """Other results of the session come in between, and take of its budget."""
    agent, name, path, _ = CASES[0]
    sent = large(agent, payload(agent, name), path, LARGE)
    first = await client.post(f"/hooks/{agent}", json=sent)
    other = large(agent, payload(agent, name), path, LARGE + "other") | {"tool_use_id": "another-call"}
    await client.post(f"/hooks/{agent}", json=other)
    again = await client.post(f"/hooks/{agent}", json=sent)
    assert first.status_code == 200
    assert TOO_LARGE in first.text
    assert again.content == first.content
