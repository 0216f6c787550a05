"""Messages to /mcp that are wrong or need no response, and other methods of HTTP."""

import base64
import json
from typing import Any

import httpx
import pytest

from tests.app.doors.mcp_client import META, NEW, OLD, SECRET, STATELESS, keep

pytestmark = pytest.mark.anyio

PLAIN = {"content-type": "application/json"}
CALL = b'{"jsonrpc": "2.0", "id": 7, "method": '
BAD: list[tuple[str, dict[str, str], bytes, int, int]] = [
    ("no JSON", PLAIN, b'{"jsonrpc": "2.0", ' + SECRET.encode(), 400, -32700),
    ("empty", PLAIN, b"", 400, -32700),
    ("not UTF-8", PLAIN, b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', 400, -32700),
    ("nested deeply", PLAIN, b"[" * 19_000, 400, -32700),
    ("no object", PLAIN, b'"ping"', 400, -32600),
    ("another version of JSON-RPC", PLAIN, CALL.replace(b"2.0", b"1.0") + b'"ping"}', 400, -32600),
    ("no method", PLAIN, b'{"jsonrpc": "2.0", "id": 7}', 400, -32600),
    ("a method that is a number", PLAIN, CALL + b"1}", 400, -32600),
    *(
        (f"the id {bad}", PLAIN, CALL.replace(b"7", bad.encode()) + b'"ping"}', 400, -32600)
        for bad in ("null", "true", "1.5", "{}", "9007199254740993", "1" + "0" * 400)
    ),
    ("params that are a list", PLAIN, CALL + b'"ping", "params": []}', 200, -32602),
    ("an unknown method", PLAIN, CALL + b'"%s"}' % SECRET.encode(), 200, -32601),
    ("no version", PLAIN, CALL + b'"initialize"}', 200, -32602),
    ("no tool's name", PLAIN, CALL + b'"tools/call"}', 200, -32602),
    (
        "a version that was never agreed on",
        PLAIN | {"mcp-protocol-version": "2024-11-05"},
        CALL + b'"tools/list"}',
        400,
        -32022,
    ),
    (
        "the stateless version in the header alone",
        PLAIN | {"mcp-protocol-version": STATELESS},
        CALL + b'"tools/list"}',
        400,
        -32020,
    ),
]


async def test_a_bad_message_is_refused_in_words_of_json_rpc(client: httpx.AsyncClient) -> None:
    for case, headers, body, status, code in BAD:
        answer = await client.post("/mcp", content=body, headers=headers)
        told = answer.json()
        assert (answer.status_code, told["error"]["code"]) == (status, code), case
        assert told["id"] == (7 if b'"id": 7' in body else None), case
        assert told["error"]["message"]
        assert SECRET not in answer.text


async def test_arguments_that_are_no_object_are_for_the_model_to_correct(client: httpx.AsyncClient) -> None:
    for arguments in [[], 5, "x", None]:
        params = {"name": "tool_output", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        told = (await client.post("/mcp", json=message)).json()["result"]
        assert told["isError"]
        assert told["content"][0]["text"].startswith(
            "tool_output takes a JSON object with handle and one of query, pattern, lines, extract."
        )


async def test_params_may_be_null(client: httpx.AsyncClient) -> None:
    answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": "ping", "params": None})
    assert answer.json() == {"jsonrpc": "2.0", "id": 7, "result": {}}


Change = dict[str, str | None]
SPELT = f"=?base64?{base64.b64encode(b'tool_output_lines').decode()}?="


HEADERS: list[tuple[Change, Any, int, int]] = [
    ({}, STATELESS, 200, 0),
    ({"mcp-name": SPELT}, STATELESS, 200, 0),
    ({"mcp-name": "tool_output"}, STATELESS, 400, -32020),
    ({"mcp-name": "=?base64?%%?="}, STATELESS, 400, -32020),
    ({"mcp-name": None}, STATELESS, 400, -32020),
    ({"mcp-method": "tools/list"}, STATELESS, 400, -32020),
    ({"mcp-method": None}, STATELESS, 400, -32020),
    ({"mcp-protocol-version": "2025-11-25"}, STATELESS, 400, -32020),
    ({"mcp-protocol-version": None}, STATELESS, 400, -32020),
    ({"mcp-protocol-version": "2027-01-01"}, "2027-01-01", 400, -32022),
    ({"mcp-protocol-version": SECRET}, SECRET, 400, -32022),
    ({}, 7, 400, -32020),
]


async def test_headers_of_the_stateless_era_agree_with_the_body(client: httpx.AsyncClient) -> None:
    params = {"name": "tool_output_lines", "arguments": {"handle": await keep(client), "offset": 1}}
    for changes, version, status, code in HEADERS:
        message = NEW.request("tools/call", **params)
        message["params"]["_meta"][f"{META}protocolVersion"] = version
        headers = {**NEW.headers("tools/call", **params), **changes}
        given = [(name, value) for name, value in headers.items() if value is not None]
        answer = await client.post("/mcp", json=message, headers=given)
        told = answer.json()
        assert (answer.status_code, told.get("error", {}).get("code", 0)) == (status, code), changes
        if code == -32022:
            supported = [STATELESS, "2025-11-25", "2025-06-18", "2025-03-26"]
            requested = "" if version == SECRET else version
            assert told["error"]["data"] == {"supported": supported, "requested": requested}
        assert SECRET not in answer.text


async def test_an_unknown_method_is_404_in_the_stateless_era(client: httpx.AsyncClient) -> None:
    for method in ("initialize", "ping", "prompts/list", "subscriptions/listen", SECRET):
        answer = await NEW.post(client, method)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601), method
        assert SECRET not in answer.text


NO_REQUESTS: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "method": SECRET, "params": {"_meta": {f"{META}protocolVersion": "2031-01-01"}}},
    {"jsonrpc": "2.0", "method": "tools/call", "params": []},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"}},
]


async def test_what_needs_no_response_is_taken(client: httpx.AsyncClient) -> None:
    for message in NO_REQUESTS:
        answer = await client.post("/mcp", json=message, headers={"mcp-protocol-version": "2031-01-01"})
        assert (answer.status_code, answer.content) == (202, b""), message


async def test_a_batch_is_no_request_in_any_version(client: httpx.AsyncClient) -> None:
    ping = {"jsonrpc": "2.0", "method": "ping", "id": "a"}
    for body in ([], [ping], [ping, ping]):
        for version in ("2025-03-26", "2025-06-18"):
            answer = await client.post("/mcp", json=body, headers={"mcp-protocol-version": version})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
            assert answer.json()["id"] is None
            assert "one message" in answer.json()["error"]["message"]


async def test_only_post_to_the_exact_path_is_served(client: httpx.AsyncClient) -> None:
    for method in ("GET", "DELETE", "PUT", "HEAD"):
        answer = await client.request(method, "/mcp", headers={"accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST"), method
    for path in ("/mcp/", "/mcp/sse", "/sse"):
        answer = await client.post(path, json=OLD.request("ping"))
        assert answer.status_code == 404


EVERYWHERE: list[tuple[dict[str, str], bytes, int]] = [
    ({"host": "evil.example"}, b"{}", 400),
    ({"origin": "https://evil.example"}, b"{}", 403),
    ({"content-type": "text/plain"}, b"{}", 415),
    (PLAIN, b'{"jsonrpc": "2.0", "id": "' + b"x" * (1 << 20) + b'"}', 413),
    (PLAIN, b"[" + b"[]," * 30_000 + b"[]]", 422),
]


async def test_what_holds_for_every_route_holds_here(client: httpx.AsyncClient) -> None:
    for headers, content, status in EVERYWHERE:
        answer = await client.post("/mcp", content=content, headers=headers)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


async def test_half_a_character_is_replaced_and_not_refused(client: httpx.AsyncClient) -> None:
    message = OLD.request(
        "tools/call", name="tool_output_grep", arguments={"handle": await keep(client), "pattern": "\ud83d"}
    )
    answer = await client.post("/mcp", content=json.dumps(message), headers=PLAIN)
    assert answer.json()["result"]["content"][0]["text"].startswith("No line matches.")
