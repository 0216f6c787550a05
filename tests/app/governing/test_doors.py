"""`door` of POST /results: the texts name the tools as that client shows them, within what it shows whole."""

import httpx
import pytest

from beside.hooks.agents import DOORS
from content.tokens import load_encoding

pytestmark = pytest.mark.anyio

PLAIN = {"Content-Type": "text/plain"}
HANDING_ON = "\nTo hand it to another tool unread, pass spillgate://<handle> as the whole argument."
SHELL = 'spillgate query {} "SELECT …"'
RESULT = "".join(f"line {number} of the result\n" for number in range(1000))


async def test_the_message_names_the_tools_as_the_client_shows_them(client: httpx.AsyncClient) -> None:
    for name, door in DOORS.items():
        answer = await client.post("/results", json={"tool_name": "t", "content": RESULT, "door": name})
        handle, message = answer.json()["handle"], answer.json()["content"].partition("\n\n")[0]
        call = f'\n{door.tool_prefix}tool_output(handle = "{handle}") reads it by query, '
        assert (call in message) == door.has_tools, name
        named = "HANDLE" if door.has_tools else handle
        assert (
            f"\nIn a shell (query, grep, lines, ask or cat): {SHELL.format(named)}" in message
        ) == door.has_shell, name
        assert (HANDING_ON in message) == (door.passes_on == "any"), name
        assert (door.needs_search in message.split()) == bool(door.needs_search), name


@pytest.mark.parametrize("outcome", ["cap", "truncate", "reject"])
async def test_other_texts_name_them_too_and_fit_what_the_client_shows(
    client: httpx.AsyncClient, outcome: str
) -> None:
    for name, door in DOORS.items():
        sent = {"tool_name": "t", "content": RESULT, "door": name, "policy": {"on_oversize": outcome}}
        told = (await client.post("/results", json=sent)).json()
        assert told["outcome"] == outcome, name
        assert len(told["content"].encode()) <= (door.most_bytes or 12_288)
        named = f"{door.tool_prefix}tool_output(" if door.has_tools else f"spillgate query {told['handle']}"
        assert f"The whole result is kept: {named}" in told["content"]


async def test_the_preview_of_a_handle_message_fits_what_the_client_shows_too(
    client: httpx.AsyncClient,
) -> None:
    policy = {"preview": "head", "preview_bytes": 65_536}
    sent = {"session_id": "s" * 128, "tool_name": "t", "content": "word\n" * 99_999, "policy": policy}
    for name, door in DOORS.items():
        message = (await client.post("/results", json={**sent, "door": name})).json()["content"]
        shown = message.partition("\n\n")[2]
        if door.most_bytes:
            assert len(message.encode()) <= door.most_bytes
            assert len(shown) > 0.8 * door.most_bytes
        else:
            assert len(shown) > 60_000


async def test_a_name_that_the_policy_gives_goes_before_the_doors(client: httpx.AsyncClient) -> None:
    policy = {"tool_names": {"tool_output": "ask"}}
    sent = {"tool_name": "t", "content": RESULT, "door": "codex", "policy": policy}
    assert "\nask(handle = " in (await client.post("/results", json=sent)).json()["content"]


async def test_an_unknown_door_is_refused_with_the_known_ones(client: httpx.AsyncClient) -> None:
    sent = {"tool_name": "t", "door": "hidden"}
    for answer in (
        await client.post("/results", json={**sent, "content": "x"}),
        await client.post("/results", params=sent, content="x", headers=PLAIN),
    ):
        assert answer.status_code == 422
        assert "hidden" not in answer.text
        assert "claude-code" in answer.json()["detail"]


async def test_a_prefix_stands_before_the_names_of_the_tools(client: httpx.AsyncClient) -> None:
    sent = {"tool_name": "t", "content": RESULT, "tool_prefix": "mcp__files__"}
    for door, ending in (
        ({}, ""),
        ({"door": "claude-code"}, "\nIn a shell (query, grep, lines, ask or cat): spillgate query "),
    ):
        message = (await client.post("/results", json={**sent, **door})).json()["content"]
        assert "\nmcp__files__tool_output(handle = " in message
        assert ending in message
    query = {"tool_name": "t", "tool_prefix": "files-"}
    told = await client.post("/results", content=RESULT, params=query, headers=PLAIN)
    assert "\nfiles-tool_output(handle = " in told.json()["content"]
    refused = await client.post("/results", json={**sent, "tool_prefix": "a b"})
    assert refused.status_code == 422


async def test_where_no_tool_is_offered_the_shell_alone_is_named(client: httpx.AsyncClient) -> None:
    for name in ("claude-code", "codex", "pipe"):
        sent = {"tool_name": "t", "content": RESULT, "door": name, "policy": {"offer": []}}
        told = (await client.post("/results", json=sent)).json()
        assert (
            f"\nIn a shell (query, grep, lines, ask or cat): {SHELL.format(told['handle'])}"
            in told["content"]
        )
        assert "(handle" not in told["content"]
        assert "tool_search" not in told["content"]


async def test_who_resolves_references_has_the_message_say_how_to_hand_a_result_on(
    client: httpx.AsyncClient,
) -> None:
    """In at most 21 tokens: they stay in the context for the rest of the run."""
    sent = {"tool_name": "t", "content": RESULT}
    plain = (await client.post("/results", json=sent)).json()
    told = (await client.post("/results", json={**sent, "passes_on": "any"})).json()
    query = {"tool_name": "t", "passes_on": "any"}
    text = (await client.post("/results", content=RESULT, params=query, headers=PLAIN)).json()
    for answer in (told, text):
        message = answer["content"].replace(answer["handle"], plain["handle"])
        assert message == plain["content"].replace("or extract.\n", f"or extract.{HANDING_ON}\n")
    assert HANDING_ON not in plain["content"]
    assert load_encoding("o200k_base").count(HANDING_ON) <= 21
    served = (await client.post("/results", json={**sent, "passes_on": "server"})).json()["content"]
    assert HANDING_ON.replace("tool unread", "tool of this server unread") in served
    assert (await client.post("/results", json={**sent, "passes_on": "all"})).status_code == 422
    cut = {**sent, "passes_on": "any", "policy": {"on_oversize": "cap"}}
    assert "spillgate://" not in (await client.post("/results", json=cut)).json()["content"]
