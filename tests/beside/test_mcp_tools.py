"""`spillgate mcp --tools`: the model's tools over stdin and stdout, with a service that it starts."""

import json
from typing import Any

from tests.beside.relay_client import STATELESS
from tests.beside.test_embedded import User, handle_in, user  # noqa: F401


def answers(user: User, *messages: Any, **settings: str) -> tuple[dict[Any, Any], str]:  # noqa: F811
    """By their ids; and what was written to stderr."""
    sent = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    done = user.run("mcp", "--tools", stdin=sent, **settings)
    assert done.returncode == 0, done.stderr
    return {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}, done.stderr


START = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def test_a_client_that_starts_it_asks_about_what_a_hook_has_stored(user: User) -> None:  # noqa: F811
    handle = handle_in(user.hook())
    user.kill()
    call = {"name": "tool_output_lines", "arguments": {"handle": handle, "offset": 1, "limit": 1}}
    found, said = answers(
        user,
        {"id": 1, "method": "initialize", "params": START},
        {"method": "notifications/initialized"},
        {"id": "two", "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": call},
        {"id": 4, "method": "tools/call", "params": {**call, "_meta": STATELESS}},
        {"id": 5, "method": "none"},
    )
    assert said == ""
    assert found[1]["result"]["serverInfo"]["name"] == "spillgate"
    assert "tool_output" in [tool["name"] for tool in found["two"]["result"]["tools"]]
    for number in (3, 4):
        assert "1" in found[number]["result"]["content"][0]["text"], found[number]
    assert found[5]["error"]["code"] == -32601
    assert len(found) == 5


def test_without_a_service_each_request_has_an_error(user: User) -> None:  # noqa: F811
    found, said = answers(user, {"id": 1, "method": "initialize", "params": START}, auto_start="false")
    assert "No service answers at" in found[1]["error"]["message"]
    assert said.startswith("spillgate mcp: No service answers at")
