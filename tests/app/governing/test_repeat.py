"""repeat = "name": a result that the session has had before is told in one line, if the model knows of it."""

from typing import Any

import httpx
import pytest

from tests.conftest import Serve

pytestmark = pytest.mark.anyio

SMALL = "".join(f"{number}: a line of a file\n" for number in range(200))
LARGE = SMALL * 5
NAME = {"repeat": "name"}


async def governed(client: httpx.AsyncClient, call: str | None, content: str = SMALL, **more: Any) -> Any:
    body = {"session_id": "s", "tool_name": "read_page", "tool_call_id": call, "content": content}
    answer = await client.post("/results", json={"policy": NAME, **body, **more})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def whole(client: httpx.AsyncClient, handle: str) -> str:
    return (await client.get(f"/results/{handle}/content")).text


def line(told: Any, size: int) -> str:
    call = f'tool_output(handle = "{told["handle"]}") reads it by query, pattern, lines or extract'
    return (
        f"The same {size} bytes as read_page (call first) returned before; they are not shown again. "
        f"If you need them: {call}."
    )


async def test_a_repeat_passes_unless_the_policy_says_otherwise(client: httpx.AsyncClient) -> None:
    for call in ("first", "second"):
        assert (await governed(client, call, policy={}))["outcome"] == "pass"


async def test_a_repeat_of_what_passed_is_stored_and_names_the_first_call(client: httpx.AsyncClient) -> None:
    assert (await governed(client, "first"))["outcome"] == "pass"
    told = await governed(client, "second")
    assert told["outcome"] == "store"
    assert told["trigger"] == "repeat"
    assert told["complete"] is False
    assert told["content"] == line(told, len(SMALL))
    assert await whole(client, told["handle"]) == SMALL
    third = await governed(client, "third")
    assert third["handle"] == told["handle"]
    assert third["content"] == told["content"]
    again = await governed(client, "second")
    assert (again["content"], again["handle"]) == (told["content"], told["handle"])
    entries = (await client.get("/accounting/entries", params={"trigger": "repeat"})).json()["entries"]
    assert [entry["tool_call_id"] for entry in entries] == ["second", "third"]
    assert all(entry["tokens_saved"] > 1000 for entry in entries)


async def test_a_repeat_of_what_was_stored_names_its_handle(client: httpx.AsyncClient) -> None:
    first = await governed(client, "first", LARGE)
    assert first["trigger"] == "size_cap"
    told = await governed(client, "second", LARGE)
    assert told["handle"] == first["handle"]
    assert told["content"] == line(first, len(LARGE))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"session_id": "t"}, {}),
        ({"content": SMALL + "."}, {}),
        ({"content": "x y " * 256}, {"content": "x y " * 256}),
        ({"policy": {}}, {}),
        ({"tool_call_id": None}, {}),
        ({}, {"tool_call_id": None}),
        ({}, {"policy": {**NAME, "bypass": True}}),
        ({}, {"policy": {**NAME, "mode": "observe"}}),
        ({}, {"policy": {**NAME, "offer": []}}),
        ({"policy": {**NAME, "offer": []}}, {}),
    ],
    ids=str,
)
async def test_what_the_model_may_not_know_or_not_ask_for_passes(
    client: httpx.AsyncClient, first: dict[str, Any], second: dict[str, Any]
) -> None:
    await governed(client, "first", **first)
    told = await governed(client, "second", **second)
    assert told["outcome"] == "pass"


async def test_a_repeat_of_a_result_whose_handle_is_gone_is_judged_as_any_other(
    client: httpx.AsyncClient,
) -> None:
    first = await governed(client, "first", LARGE)
    await client.delete(f"/results/{first['handle']}")
    told = await governed(client, "second", LARGE)
    assert told["trigger"] == "size_cap"
    assert await whole(client, told["handle"]) == LARGE
    # What passed was shown, even if its copy is gone.
    await governed(client, "first small")
    second = await governed(client, "second small")
    await client.delete(f"/results/{second['handle']}")
    third = await governed(client, "third small")
    assert third["trigger"] == "repeat"
    assert third["handle"] != second["handle"]
    assert await whole(client, third["handle"]) == SMALL


WINDOW = {"context_window": 4000, "buffer_tokens": 1000, "max_output_tokens": 1000}


async def test_a_message_that_named_no_handle_is_not_named(client: httpx.AsyncClient) -> None:
    await client.put("/sessions/s", json=WINDOW)
    first = await governed(client, "first", LARGE, context={"used_tokens": 1990, "turn": 1})
    assert "cannot be asked about here" in first["content"]
    second = await governed(client, "second", LARGE, context={"used_tokens": 10, "turn": 2})
    assert second["trigger"] == "size_cap"


async def test_a_repeat_without_room_for_its_line_is_stored_as_any_other(client: httpx.AsyncClient) -> None:
    await governed(client, "first")
    await client.put("/sessions/s", json=WINDOW)
    told = await governed(client, "second", context={"used_tokens": 1990, "turn": 2})
    assert told["trigger"] == "token_budget"
    assert "cannot be asked about here" in told["content"]


async def test_repeats_are_known_after_a_restart_and_not_after_the_session_ends(serve: Serve) -> None:
    async with serve() as client:
        await governed(client, "first")
    async with serve() as client:
        told = await governed(client, "second")
        assert told["content"] == line(told, len(SMALL))
        await client.delete("/sessions/s")
        await client.put("/sessions/s", json={})
        assert (await governed(client, "third"))["outcome"] == "pass"


async def test_a_repeat_is_known_to_another_replica(serve: Serve, redis_url: str) -> None:
    async with serve(storage_url=redis_url) as one, serve(storage_url=redis_url) as other:
        await governed(one, "first")
        told = await governed(other, "second")
        assert told["content"] == line(told, len(SMALL))
        assert await whole(one, told["handle"]) == SMALL
