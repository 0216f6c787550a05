"""GET /results/{handle}/given: the very texts that the model read."""

from pathlib import Path

import pytest

from tests.conftest import Serve
from tests.keys import key_file

pytestmark = pytest.mark.anyio

LOG = "\n".join(f"{n:05} {'ERROR boom' if n % 500 == 0 else 'ok'}" for n in range(3000))


@pytest.mark.parametrize("call_id", [None, "call-1"])
async def test_it_has_the_message_and_the_answers_word_for_word(serve: Serve, call_id: str | None) -> None:
    async with serve() as client:
        sent = {"tool_name": "execute_shell", "session_id": "s", "content": LOG, "tool_call_id": call_id}
        stored = (await client.post("/results", json=sent)).json()
        handle = stored["handle"]
        answer = (await client.post("/extract", json={"handle": handle, "extract": "ERROR boom"})).json()
        call = {"session_id": "s", "name": "tool_output", "arguments": {"handle": handle, "extract": "boom"}}
        asked = (await client.post("/tools/call", json=call)).json()
        await client.get(f"/results/{handle}/lines?limit=1")
        handed = {"session_id": "s", "tool_name": "write_file", "arguments": f"spillgate://{handle}"}
        assert (await client.post("/arguments", json=handed)).json()["refusal"] is None
        first = (await client.get(f"/results/{handle}/given?limit=2")).json()
        rest = await client.get(f"/results/{handle}/given", params={"cursor": first["next_cursor"]})
        given = [*first["given"], *rest.json()["given"]]
        assert [(one["type"], one["text"]) for one in given] == [
            ("tool", stored["content"]),
            ("extract", answer["text"]),
            ("extract", asked["text"]),
            ("read", None),
            ("pass_on", None),
        ]
        assert (given[4]["tool_name"], given[4]["bytes"], given[4]["tokens"]) == ("write_file", len(LOG), 0)
        assert given[0]["outcome"] == "store"
        assert [one["entry_id"] for one in given[:2]] == [stored["entry_id"], answer["entry_id"]]
        budget = (await client.get("/sessions/s")).json()["budget"]
        await client.get(f"/results/{handle}/given")
        assert (await client.get("/sessions/s")).json()["budget"] == budget


async def test_another_tenants_handle_is_unknown(serve: Serve, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", "one:one", "other:other")
    async with serve(api_keys_file=keys) as client:
        own, other = ({"Authorization": f"Bearer {tenant}"} for tenant in ("one", "other"))
        stored = await client.post("/results", json={"tool_name": "t", "content": LOG}, headers=own)
        path = f"/results/{stored.json()['handle']}/given"
        statuses = [(await client.get(path, headers=sent)).status_code for sent in (own, other, {})]
        assert statuses == [200, 404, 401]
        what_if = {"policy": {}}
        seen = [
            (await client.post("/policy/what-if", json=what_if, headers=sent)).json() for sent in (own, other)
        ]
        assert [one["results"] for one in seen] == [1, 0]
        assert (await client.get("/config", headers=other)).json()["tenant"] == "other"
