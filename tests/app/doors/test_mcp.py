"""POST /mcp as clients call it in both eras: versions, tools, faults of tools, tenants and resources."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.errors import StoreUnavailable
from storage.memory import MemoryStore
from tests.app.doors.mcp_client import ERAS, LOG, META, NEW, OLD, SECRET, STATELESS, UNKNOWN, Era, keep
from tests.conftest import Serve
from tests.keys import key_file

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]


async def test_initialize_agrees_on_the_version_asked_for_if_it_is_served(client: httpx.AsyncClient) -> None:
    for asked, agreed in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        (STATELESS, "2025-11-25"),
    ]:
        info = {
            "protocolVersion": asked,
            "capabilities": {},
            "clientInfo": {"name": "mcp", "version": "0.1.0"},
        }
        told = await Era(None).call(client, "initialize", **info)
        assert told["protocolVersion"] == agreed
        assert told["capabilities"] == {"tools": {}, "resources": {}}
        assert told["serverInfo"]["name"] == "spillgate"
        assert "instructions" not in told
        sent = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = await client.post("/mcp", json=sent, headers={"mcp-protocol-version": agreed})
        assert (answer.status_code, answer.content) == (202, b"")
        assert await Era(agreed).call(client, "ping") == {}


async def test_discover_names_the_stateless_version(client: httpx.AsyncClient) -> None:
    told = await NEW.call(client, "server/discover")
    assert told == {"supportedVersions": [STATELESS], "capabilities": {"tools": {}, "resources": {}}}


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts_of(part)


@ERAS
async def test_the_tools_are_listed_always_and_in_words_that_every_client_takes(
    client: httpx.AsyncClient, era: Era
) -> None:
    told = await era.call(client, "tools/list")
    assert [tool["name"] for tool in told["tools"]] == ["tool_output"]
    for tool in told["tools"]:
        assert tool["annotations"] == {"readOnlyHint": True}
        assert 0 < len(tool["description"]) < 2048
        assert tool["inputSchema"]["type"] == "object"
        for part in parts_of(tool["inputSchema"]):
            assert not part.keys() & {"$schema", "$ref", "anyOf", "oneOf", "allOf"}
            assert not isinstance(part.get("type"), list)
            assert len(str(part.get("description", ""))) < 2048
    await keep(client)
    assert await era.call(client, "tools/list") == told


async def test_the_list_follows_the_policy(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[defaults]\noffer = ["ask"]\n')
    async with serve(policy_file=tmp_path / "policy.toml") as client:
        told = await OLD.call(client, "tools/list")
        assert [tool["name"] for tool in told["tools"]] == ["tool_output"]
        handle = await keep(client)
        text, is_error = await OLD.tool(client, "tool_output_zip", handle=handle, offset=1)
        assert (text, is_error) == ("There is no such tool here. There is tool_output.", True)
        said = (await NEW.call(client, "server/discover"))["instructions"]
        assert said.startswith("Some tool outputs are too large")
        assert (await OLD.call(client, "initialize", protocolVersion="2025-11-25"))["instructions"] == said


async def test_no_instructions_are_given_where_the_policy_offers_no_tool(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text("[defaults]\noffer = []\n")
    async with serve(policy_file=tmp_path / "policy.toml") as client:
        assert (await OLD.call(client, "tools/list"))["tools"] == []
        assert "instructions" not in await OLD.call(client, "initialize", protocolVersion="2025-11-25")
        assert "instructions" not in await NEW.call(client, "server/discover")


@pytest.mark.parametrize("era", [NEW, OLD], ids=["new", "old"])
async def test_each_tool_answers_about_the_session_that_the_handle_names(
    client: httpx.AsyncClient, era: Era
) -> None:
    handle = await keep(client)
    asked = {"handle": handle, "extract": "ERROR line 907"}
    text, is_error = await era.tool(client, "tool_output", **asked)
    assert text.startswith(f"ABSTRACT FROM TOOL OUTPUT read_log WITH HANDLE {handle}, STRATEGY:retrieve:")
    assert "line 907 of the log, ERROR" in text
    assert not is_error
    text, is_error = await era.tool(
        client, "tool_output_grep", handle=f"`{handle.upper()[:8]}{handle[8:]}`", pattern="ERROR"
    )
    assert "8: line 7 of the log, ERROR\n" in text
    orders = await keep(client, json.dumps([{"id": n, "city": f"city {n}"} for n in range(900)]), "run-2")
    answers = [
        await era.tool(client, "tool_output_lines", handle=handle, offset=1999, limit=1),
        await era.tool(client, "tool_output_query", handle=orders, expression="length(@)"),
    ]
    assert answers == [
        (
            "1999: line 1998 of the log, fine\n"
            '[Lines 1,999 to 1,999 of 2,000. Go on with lines = "2000-2000".]',
            False,
        ),
        ("900", False),
    ]
    entries = (await client.get("/accounting/entries?session_id=run-1&type=read")).json()["entries"]
    assert len(entries) == 2


def new_meta(name: str, version: str, **capabilities: Any) -> dict[str, Any]:
    return {
        f"{META}protocolVersion": STATELESS,
        f"{META}clientInfo": {"name": name, "version": version},
        f"{META}clientCapabilities": {"elicitation": {"form": {}, "url": {}}, **capabilities},
    }


def old_info(version: str, name: str, client: str, **capabilities: Any) -> dict[str, Any]:
    info = {"name": name, "version": client}
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}


CLAUDE = new_meta("claude-code", "2.1.330", roots={"listChanged": True})
COPILOT = new_meta("copilot-cli", "1.0.102", sampling={})
ASKED = {"name": "tool_output", "arguments": {"handle": "{handle}", "extract": "ERROR"}}
READ = {"uri": "spillgate://{handle}"}
INITIALIZED = "notifications/initialized"

RECORDED: dict[str, list[tuple[str, str | None, str | int | None, str, Any]]] = {
    "Claude Code 2.1.330": [
        ("POST", STATELESS, "server-discover-probe-1", "server/discover", {"_meta": CLAUDE}),
        ("POST", STATELESS, 0, "resources/list", {"_meta": CLAUDE}),
        ("POST", STATELESS, 1, "tools/list", {"_meta": CLAUDE}),
        (
            "POST",
            STATELESS,
            2,
            "tools/call",
            {**ASKED, "_meta": {**CLAUDE, "claudecode/toolUseId": "toolu_1", "progressToken": 2}},
        ),
        ("POST", STATELESS, 3, "resources/read", {**READ, "_meta": {**CLAUDE, "progressToken": 3}}),
    ],
    "Copilot CLI 1.0.102": [
        ("POST", STATELESS, 0, "server/discover", {"_meta": COPILOT}),
        ("POST", STATELESS, 1, "tools/list", {"_meta": {**COPILOT, "progressToken": 0}}),
        ("POST", STATELESS, 2, "tools/call", {"_meta": {**COPILOT, "progressToken": 1}, **ASKED}),
    ],
    "Codex 0.169.0": [
        (
            "POST",
            None,
            0,
            "initialize",
            old_info("2025-06-18", "codex-mcp-client", "0.169.0", elicitation={}),
        ),
        ("POST", "2025-06-18", None, INITIALIZED, None),
        ("POST", "2025-06-18", 1, "tools/list", {"_meta": {"progressToken": 0}}),
        (
            "POST",
            "2025-06-18",
            2,
            "tools/call",
            {"_meta": {"callId": "call_1", "sessionId": "s", "progressToken": 1}, **ASKED},
        ),
        ("POST", "2025-06-18", 3, "resources/read", {"_meta": {"progressToken": 2}, **READ}),
    ],
    "OpenCode 1.18.33": [
        ("POST", None, 0, "initialize", old_info("2025-11-25", "opencode", "1.18.33", roots={})),
        ("POST", "2025-11-25", None, INITIALIZED, None),
        ("GET", "2025-11-25", None, "", None),
        ("POST", "2025-11-25", 1, "tools/list", None),
        ("POST", "2025-11-25", 2, "tools/call", {**ASKED, "_meta": {"progressToken": 2}}),
        ("POST", "2025-11-25", None, "notifications/cancelled", {"requestId": 2, "reason": "AbortError"}),
    ],
    "Gemini CLI 0.61.0": [
        ("POST", None, 0, "initialize", old_info("2025-06-18", "gemini-cli-mcp-client", "0.61.0", roots={})),
        ("POST", None, None, INITIALIZED, None),
        ("GET", None, None, "", None),
        ("POST", None, 1, "tools/list", {}),
        ("POST", None, 2, "resources/list", {}),
        ("POST", None, 3, "tools/call", {**ASKED, "_meta": {"progressToken": "0672a5ff"}}),
    ],
}
"""What coding agents were recorded to send: HTTP method, header MCP-Protocol-Version, id, method and
parameters."""


async def test_what_coding_agents_send_is_answered(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    for name, (http, version, call_id, method, params) in (
        (name, one) for name, recorded in RECORDED.items() for one in recorded
    ):
        given = json.loads(json.dumps(params).replace("{handle}", handle))
        message = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": given}
        sent = {key: value for key, value in message.items() if value is not None}
        headers = Era(version).headers(method, **(given or {}))
        content = json.dumps(sent) if http == "POST" else None
        answer = await client.request(http, "/mcp", content=content, headers=headers)
        if http == "GET":
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        elif call_id is None:
            assert (answer.status_code, answer.content) == (202, b""), (name, method)
        else:
            told = answer.json()
            assert (answer.status_code, told["id"]) == (200, call_id), (name, method, told)
            assert not told["result"].get("isError"), (name, method)
            if "tools" in method or "resources" in method:
                assert set(told["result"]) & {"tools", "content", "resources", "contents"}


async def test_a_handle_without_a_session_is_of_the_default_session(client: httpx.AsyncClient) -> None:
    _, _, file = (await keep(client, session="default")).partition("/")
    text, is_error = await NEW.tool(client, "tool_output_lines", handle=file, offset=1, limit=1)
    assert (text.splitlines()[0], is_error) == ("1: line 0 of the log, fine", False)


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("tool_output_zip", {"handle": "x"}, "There is no such tool here. There is tool_output."),
    ("tool_output_grep", {}, "tool_output_grep takes a JSON object with handle, pattern, "),
    ("tool_output_grep", {"handle": 7, "pattern": "x"}, "tool_output_grep takes a JSON object with "),
    ("tool_output_grep", {"handle": "{handle}", "pattern": "(" + SECRET}, "pattern"),
    ("tool_output_lines", {"handle": "{handle}", "offset": SECRET}, "tool_output_lines takes a JSON object "),
    ("tool_output_lines", {"handle": SECRET, "offset": 1}, "No stored result has this handle."),
    ("tool_output_lines", {"handle": f"session-../file-{'0' * 36}", "offset": 1}, "No stored result of this"),
    ("tool_output", {"handle": "{handle}", "extract": " "}, "`extract` is empty: say what you"),
    ("tool_output", {"handle": "{handle}", "extract": "", "pattern": ""}, "None of them is given."),
    ("tool_output", {"handle": f"session-run-1/file-{UNKNOWN}", "extract": "x"}, "TOOL_OUTPUT FAILED FOR"),
]


@pytest.mark.parametrize("era", [NEW, OLD], ids=["new", "old"])
async def test_the_letter_case_of_a_handle_is_forgiven_though_no_session_is_on_the_wire(
    client: httpx.AsyncClient, era: Era
) -> None:
    for number in range(3):
        await client.put(f"/sessions/other-{number}", json={})
    lower = await keep(client, session="run-7")
    assert not (await era.tool(client, "tool_output_lines", handle=lower.upper(), offset=1))[1]
    handle = await keep(client, session="Run-42")
    for written in (handle.upper(), handle.lower(), f'"{handle.upper()}" '):
        text, is_error = await era.tool(client, "tool_output_lines", handle=written, offset=1, limit=1)
        assert (text.splitlines()[0], is_error) == ("1: line 0 of the log, fine", False)
    entries = (await client.get("/accounting/entries?type=read")).json()["entries"]
    assert [one["session_id"] for one in entries] == ["run-7"] + ["Run-42"] * 3
    text, is_error = await era.tool(
        client, "tool_output_lines", handle=f"session-run-43/file-{UNKNOWN}", offset=1
    )
    assert is_error


async def test_a_fault_of_a_tool_is_a_result_that_says_what_to_do(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    for era, (tool, arguments, said) in product((NEW, OLD), FAULTS):
        given = {name: handle if value == "{handle}" else value for name, value in arguments.items()}
        text, is_error = await era.tool(client, tool, **given)
        assert is_error, arguments
        assert said in text
        assert SECRET not in text


@pytest.mark.parametrize("era", [NEW, OLD], ids=["new", "old"])
async def test_a_store_that_is_away_is_a_fault_of_the_tool_and_counted(
    client: httpx.AsyncClient, era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: MemoryStore, *args: Any) -> None:
        raise StoreUnavailable

    handle = await keep(client)
    monkeypatch.setattr(MemoryStore, "read", fails)
    text, is_error = await era.tool(client, "tool_output_lines", handle=handle, offset=1)
    assert is_error
    assert text == StoreUnavailable.advice
    answer = await era.post(client, "resources/read", uri=f"spillgate://{handle}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32603)
    assert 'spillgate_errors_total{code="store_unavailable"} 2.0' in (await client.get("/metrics")).text


async def test_one_tenant_never_reads_what_another_has(serve: Serve, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", "ours:ours", "theirs:theirs")
    async with serve(api_keys_file=keys) as client:
        client.headers["Authorization"] = "Bearer ours"
        handle = await keep(client)
        uri = f"spillgate://{handle}"
        text, is_error = await NEW.tool(client, "tool_output_lines", handle=handle, offset=1, limit=1)
        assert not is_error
        client.headers["Authorization"] = "Bearer theirs"
        text, is_error = await NEW.tool(client, "tool_output_lines", handle=handle, offset=1, limit=1)
        assert (text.startswith("No stored result has this handle."), is_error) == (True, True)
        assert (await OLD.post(client, "resources/read", uri=uri)).json()["error"]["code"] == -32002
        del client.headers["Authorization"]
        for answer in (await NEW.post(client, "tools/list"), await client.get("/mcp")):
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("era", [NEW, OLD], ids=["new", "old"])
async def test_a_result_is_read_as_a_resource_page_by_page(client: httpx.AsyncClient, era: Era) -> None:
    assert await era.call(client, "resources/list") == {"resources": []}
    (template,) = (await era.call(client, "resources/templates/list"))["resourceTemplates"]
    assert (template["uriTemplate"], template["mimeType"]) == ("spillgate://{session}/{file}", "text/plain")
    await client.put("/sessions/run=1", json={"policy": {"max_bytes": 4000}})
    handle = await keep(client, session="run=1")
    uri, lines, pages = "spillgate://" + handle.replace("=", "%3D"), list[str](), 0
    while uri:
        (content,) = (await era.call(client, "resources/read", uri=uri))["contents"]
        assert (content["uri"], content["mimeType"]) == (uri, "text/plain")
        assert len(content["text"].encode()) <= 4000
        *shown, footer = content["text"].splitlines()
        lines += [line.partition(": ")[2] for line in shown]
        pages += 1
        assert pages < 50
        offset = footer.partition("Go on with offset = ")[2].removesuffix(".]")
        uri = f"spillgate://{handle}?offset={offset}" if offset else ""
    assert lines == LOG.splitlines()
    assert pages > 10
    entries = (await client.get("/accounting/entries?session_id=run=1&type=read")).json()["entries"]
    assert len(entries) == pages


UNKNOWN_URIS = [
    f"spillgate://session-run-1/file-{UNKNOWN}",
    "spillgate://{handle}?offset=0",
    "spillgate://{handle}?offset=1&limit=2",
    "spillgate://{handle}/more",
    f"spillgate://../{SECRET}",
    "spillgate://session-..%2F..%2F/file-etc",
    "file:///etc/passwd",
    "",
]


async def test_an_unknown_resource_is_an_error_of_its_era(client: httpx.AsyncClient) -> None:
    handle = await keep(client)
    for uri, (era, status, code) in product(UNKNOWN_URIS, ((NEW, 400, -32602), (OLD, 200, -32002))):
        answer = await era.post(client, "resources/read", uri=uri.replace("{handle}", handle))
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), uri
        assert SECRET not in answer.text
