"""`door` of POST /results: the texts name the tools as that client shows them, within what it shows whole."""

import httpx
import pytest

from domain.hooks import DOORS

pytestmark = pytest.mark.anyio

PLAIN = {"Content-Type": "text/plain"}
RESULT = "".join(f"line {number} of the result\n" for number in range(1000))


async def test_the_message_names_the_tools_as_the_client_shows_them(client: httpx.AsyncClient) -> None:
    for name, door in DOORS.items():
        answer = await client.post("/results", json={"tool_name": "t", "content": RESULT, "door": name})
        handle, message = answer.json()["handle"], answer.json()["content"].partition("\n\n")[0]
        shell = f'spillgate ask {handle} "what to extract"'
        call = f'{door.tool_prefix}tool_output(handle = "{handle}", extract = "what to extract")'
        assert f"\nCall {call if door.has_tools else shell}.\n" in message, name
        assert message.endswith(f"\nIn a shell: {shell}") == (door.has_shell and door.has_tools), name
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
        named = f"{door.tool_prefix}tool_output(" if door.has_tools else f"spillgate ask {told['handle']}"
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
    assert "\nCall ask(handle = " in (await client.post("/results", json=sent)).json()["content"]


async def test_an_unknown_door_is_refused_with_the_known_ones(client: httpx.AsyncClient) -> None:
    sent = {"tool_name": "t", "door": "hidden"}
    for answer in (
        await client.post("/results", json={**sent, "content": "x"}),
        await client.post("/results", params=sent, content="x", headers=PLAIN),
    ):
        assert answer.status_code == 422
        assert "hidden" not in answer.text
        assert "claude-code" in answer.json()["detail"]
