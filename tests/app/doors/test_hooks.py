"""POST /hooks/{client}: every payload as its agent sends it, and the answer as the agent reads it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beside.hooks.agents import CLIENTS, DOORS
from policies.outcomes.store import TOO_LARGE
from tests.app.doors.payloads import LARGE, Path_, changed, names, payload
from tests.conftest import Serve
from tests.counts import count

pytestmark = pytest.mark.anyio

Expected = Callable[[Any, str], Any]


def updated(output: Callable[[Any, str], Any]) -> Expected:
    """Claude Code's answer with this output."""
    return lambda sent, text: {
        "hookSpecificOutput": {
            "hookEventName": "PostToolUse",
            "updatedToolOutput": output(sent["tool_response"], text),
        }
    }


def lines(text: str) -> int:
    return text.count("\n") + 1


REASON: Expected = lambda sent, text: {"decision": "block", "reason": text}  # noqa: E731
DENIED: Expected = lambda sent, text: {"decision": "deny", "reason": text}  # noqa: E731
BLOCK = updated(lambda was, text: [{"type": "text", "text": text}])
TYPES = "claude-code, from its types"

CASES: list[tuple[str, str, Path_, Expected]] = [
    ("claude-code", "Bash", ("tool_response", "stdout"), updated(lambda was, text: {**was, "stdout": text})),
    (
        "claude-code",
        "Grep",
        ("tool_response", "content"),
        updated(lambda was, text: {**was, "content": text, "numLines": lines(text)}),
    ),
    (
        "claude-code",
        "Glob",
        ("tool_response", "filenames", 0),
        updated(lambda was, text: {**was, "filenames": [text], "numFiles": 1}),
    ),
    ("claude-code", "mcp", ("tool_response", 0, "text"), BLOCK),
    ("claude-code", "mcp structured", ("tool_response",), updated(lambda was, text: text)),
    ("claude-code", "mcp two blocks", ("tool_response", 1, "text"), BLOCK),
    (
        "claude-code",
        "resource",
        ("tool_response", "contents", 0, "text"),
        updated(
            lambda was, text: {
                "contents": [{"uri": was["contents"][0]["uri"], "mimeType": "text/plain", "text": text}]
            }
        ),
    ),
    (
        TYPES,
        "Grep files",
        ("tool_response", "filenames", 0),
        updated(
            lambda was, text: {
                "mode": "files_with_matches",
                "numFiles": 1,
                "filenames": [text],
            }
        ),
    ),
    (
        TYPES,
        "Grep count",
        ("tool_response", "content"),
        updated(lambda was, text: {**was, "content": text, "numLines": lines(text)}),
    ),
    (TYPES, "WebFetch", ("tool_response", "result"), updated(lambda was, text: {**was, "result": text})),
    (
        TYPES,
        "WebSearch",
        ("tool_response", "results", 1),
        updated(lambda was, text: {**was, "results": [text]}),
    ),
    (
        TYPES,
        "mcp picture",
        ("tool_response", 0, "text"),
        updated(lambda was, text: [{"type": "text", "text": text}, was[1]]),
    ),
    (TYPES, "subagent", ("tool_response", "stdout"), updated(lambda was, text: {**was, "stdout": text})),
    ("codex", "mcp", ("tool_response", "content", 0, "text"), REASON),
    ("codex", "mcp structured", ("tool_response", "content", 0, "text"), REASON),
    (
        "copilot",
        "bash",
        ("toolResult", "textResultForLlm"),
        lambda sent, text: {"modifiedResult": {"resultType": "success", "textResultForLlm": text}},
    ),
    ("gemini", "shell", ("tool_response", "llmContent"), DENIED),
    ("gemini", "mcp", ("tool_response", "llmContent", 1, "text"), DENIED),
    (
        "cursor",
        "mcp",
        ("tool_output",),
        lambda sent, text: {"updated_mcp_tool_output": {"content": [{"type": "text", "text": text}]}},
    ),
    (
        "opencode",
        "mcp",
        ("output", "content", 0, "text"),
        lambda sent, text: {"content": [{"type": "text", "text": text}]},
    ),
    (
        "opencode",
        "mcp link",
        ("output", "content", 0, "text"),
        lambda sent, text: {"content": [{"type": "text", "text": text}, sent["output"]["content"][1]]},
    ),
    ("pi", "bash", ("content", 0, "text"), lambda sent, text: {"content": [{"type": "text", "text": text}]}),
]
READS: list[tuple[str, str, Path_, Expected]] = [
    (
        "claude-code",
        "Read",
        ("tool_response", "file", "content"),
        updated(
            lambda was, text: {
                "type": "text",
                "file": {**was["file"], "content": text, "numLines": lines(text), "startLine": 1},
            }
        ),
    ),
    (
        TYPES,
        "Agent",
        ("tool_response", "content", 0, "text"),
        updated(lambda was, text: {**was, "content": [{"type": "text", "text": text}]}),
    ),
    ("gemini", "part", ("tool_response", "llmContent", "text"), DENIED),
    ("opencode", "read", ("output", "output"), lambda sent, text: {"output": text}),
]
"""Files that are read to be edited, and the report of a sub-agent. They pass unless the operator has them
governed."""

TEXT = {"Content-Type": "text/plain"}
PASSING = [
    ("claude-code", "failure"),
    ("claude-code", "batch"),
    ("claude-code", "Bash spilled"),
    ("claude-code", "mcp spilled"),
    ("codex", "Bash"),
    ("codex", "Bash cut"),
    ("codex", "Bash failed"),
    (TYPES, "picture"),
    ("copilot", "bash spilled"),
    ("cursor", "shell"),
    ("gemini", "picture"),
    ("opencode", "bash spilled"),
    ("opencode", "bash failed and spilled"),
    ("pi", "bash spilled"),
]


def route(agent: str) -> str:
    return f"/hooks/{agent.partition(',')[0]}"


async def asked(client: httpx.AsyncClient, agent: str, sent: Any) -> Any:
    answer = await client.post(route(agent), json=sent)
    assert answer.status_code == 200
    return answer.json()


def large(agent: str, sent: Any, path: Path_, text: str = LARGE) -> Any:
    if agent == "cursor":
        text = json.dumps({"content": [{"type": "text", "text": text}], "isError": False})
    return changed(sent, path, text)


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def message_in(answer: Any) -> str:
    return next(text for text in strings(answer) if text.startswith(f"{TOO_LARGE} ("))


def handle_in(message: str) -> str:
    return message.partition('(handle = "')[2].partition('"')[0]


def test_every_payload_is_a_case() -> None:
    assert {case[:2] for case in [*CASES, *READS]} | set(PASSING) == set(names())


@pytest.mark.parametrize("times", [1, 2], ids=["small body", "large body"])
async def test_a_large_result_is_replaced_in_the_shape_that_it_came_in(
    client: httpx.AsyncClient, times: int
) -> None:
    text = LARGE[:20_000] if times == 1 else LARGE * times
    for agent, name, path, expected in CASES:
        sent = large(agent, payload(agent, name), path, text)
        answer = await asked(client, agent, sent)
        message = message_in(answer)
        assert answer == expected(sent, message)
        door = DOORS[route(agent).rpartition("/")[2]]
        assert f'{door.tool_prefix}tool_output(handle = "' in message
        assert len(message.encode()) <= (door.most_bytes or 12_288)
        assert text in (await client.get(f"/results/{handle_in(message)}/content")).text
        # With other content it is another call, for models that count their calls from 0 again.
        other = await asked(client, agent, large(agent, payload(agent, name), path, text[::-1]))
        assert handle_in(message_in(other)) != handle_in(message)
        # Sent again, the call is answered with the same handle: its id, or a digest of it, names it.
        assert await asked(client, agent, sent) == answer


async def test_a_file_that_is_read_to_be_edited_passes_unless_the_operator_has_it_governed(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve(storage_url="memory:") as http:
        for agent, name, path, _ in READS:
            assert await asked(http, agent, large(agent, payload(agent, name), path, LARGE)) == {}
        entries = (await http.get("/accounting/entries")).json()["entries"]
        assert [one["outcome"] for one in entries] == ["pass"] * len(READS)
        # As `spillgate hook` sends it. Without a door, a tool of this name is governed.
        for door, outcome in (("&door=claude-code", "pass"), ("", "store")):
            answer = await http.post(f"/results?tool_name=Read{door}", content=LARGE, headers=TEXT)
            assert answer.json()["outcome"] == outcome
        closed = {"policy": json.dumps({"bypass": False}), "tool_name": "Read", "door": "claude-code"}
        assert (await http.post("/results", params=closed, content=LARGE, headers=TEXT)).status_code == 201
    policy = tmp_path / "policy.toml"
    policy.write_text('[tools."[Rr]ead*"]\nbypass = false\n[tools.Agent]\nbypass = false\n')
    async with serve(policy_file=policy, storage_url="memory:") as http:
        for agent, name, path, expected in READS:
            sent = large(agent, payload(agent, name), path, LARGE)
            answer = await asked(http, agent, sent)
            assert answer == expected(sent, message_in(answer))


async def test_a_command_that_only_reads_a_file_passes_where_files_are_read_so(serve: Serve) -> None:
    """Codex has no tool for it, and Claude Code not in every set-up."""
    cases = [
        ("claude-code", "sed -n '1,400p' src/main.py", True),
        ("claude-code", "cd src && nl -ba main.py | head -n 400", True),
        ("claude-code", "cat main.py other.py", False),
        ("claude-code", "cat main.py; make", False),
        ("codex", "cat main.py", True),
        ("codex", "cat main.py | grep tulip", False),
        ("opencode", "cat main.py", False),
    ]
    async with serve(storage_url="memory:") as http:
        for door, command, passes in cases:
            fields = {"tool_name": "Bash", "door": door, "tool_arguments": {"command": command}}
            answer = await http.post("/results", json=fields | {"content": LARGE, "session_id": door})
            assert (answer.json()["outcome"] == "pass") is passes, command
        path: Path_ = ("tool_response", "stdout")
        bash = large("claude-code", payload("claude-code", "Bash"), path)
        assert await asked(http, "claude-code", changed(bash, ("tool_input", "command"), "cat main.py")) == {}
        all_of_them = changed(bash, ("tool_input", "command"), "cat *.py") | {"tool_use_id": "toolu_2"}
        assert await asked(http, "claude-code", all_of_them) != {}


@pytest.mark.parametrize("words", [1, 200], ids=["small body", "large body"])
async def test_what_codex_shows_its_model_beside_few_words_of_text_is_governed(
    client: httpx.AsyncClient, words: int
) -> None:
    rows = {"rows": [{"id": number, "note": f"tulip ‘{number}’ " * words} for number in range(1000)]}
    for blocks in ([], [{"type": "text", "text": "1000 rows"}]):
        output = {"content": blocks, "structuredContent": rows, "isError": False}
        sent = changed(payload("codex", "mcp structured"), ("tool_response",), output)
        answer = await asked(client, "codex", sent)
        message = message_in(answer)
        assert answer == REASON(sent, message)
        kept = (await client.get(f"/results/{handle_in(message)}/content")).text
        assert kept == json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


async def test_a_small_result_passes(client: httpx.AsyncClient) -> None:
    small = {case[:2]: large(case[0], payload(*case[:2]), case[2], "few") for case in [*CASES, *READS]}
    for agent, name in names():
        assert await asked(client, agent, small.get((agent, name), payload(agent, name))) == {}, name


async def test_what_is_not_ours_to_replace_passes(client: httpx.AsyncClient) -> None:
    bash = large("claude-code", payload("claude-code", "Bash"), ("tool_response", "stdout"))
    codex = large("codex", payload("codex", "Bash"), ("tool_response",))
    for agent, sent in [
        ("claude-code", {**bash, "cursor_version": "2026.09.12"}),
        ("claude-code", {**bash, "hook_event_name": "PreToolUse"}),
        ("claude-code", changed(bash, ("tool_response", "isImage"), True)),
        ("claude-code", changed(bash, ("tool_name",), "TodoWrite")),
        ("claude-code", large("copilot", payload("copilot", "bash"), ("toolResult", "textResultForLlm"))),
        ("codex", bash),
        ("claude-code", codex),
        ("claude-code", [bash]),
        *(("codex", {**codex, "tool_name": name}) for name in OWN_TOOLS),
        ("claude-code", changed(bash, ("tool_input", "command"), "spillgate ask session-a/file-b 'all'")),
        ("codex", changed(codex, ("tool_name",), "t" * 300)),
    ]:
        assert await asked(client, agent, sent) == {}, sent
    entries = (await client.get("/accounting/entries")).json()["entries"]
    assert entries == []
    command = "spillgate ask session-a/file-b all; seq 1 9999"
    assert await asked(client, "claude-code", changed(bash, ("tool_input", "command"), command)) != {}


OWN_TOOLS = [
    "tool_output",
    "tool_output_grep",
    "mcp__spillgate__tool_output",
    "mcp__plugin_spillgate_spillgate__tool_output_lines",
    "mcp__demo__tool_output",
    "mcp_spillgate_tool_output_query",
    "spillgate_tool_output",
    "spillgate-tool_output",
]


async def test_session_and_arguments_are_those_of_the_agent(client: httpx.AsyncClient) -> None:
    for name, agent in (("subagent", ".a7f3"), ("mcp picture", "")):
        sent = payload(TYPES, name)
        path: Path_ = ("tool_response", "stdout") if agent else ("tool_response", 0, "text")
        odd = {**sent, "session_id": "a session/with spaces"}
        for one, prefix in ((sent, f"session-{sent['session_id']}{agent}/"), (odd, "session-")):
            handle = handle_in(message_in(await asked(client, TYPES, large(TYPES, one, path))))
            assert handle.startswith(prefix)
            info = (await client.get(f"/results/{handle}")).json()
            assert info["tool_name"] == sent["tool_name"]
            assert json.loads(info["tool_arguments"]) == sent["tool_input"]


async def test_a_service_that_fails_lets_the_result_pass(serve: Serve, tmp_path: Path) -> None:
    path: Path_ = ("tool_response", "stdout")
    sent = large("claude-code", payload("claude-code", "Bash"), path)
    async with serve(storage_max_bytes=1 << 12) as http:
        assert await asked(http, "claude-code", sent) == {}
        assert 'spillgate_errors_total{code="store_full"} 1.0' in (await http.get("/metrics")).text
        transport = http._transport
        assert isinstance(transport, httpx.ASGITransport)
        transport.app.state.draining = True  # type: ignore[attr-defined]
        assert await asked(http, "codex", payload("codex", "Bash cut")) == {}
    keys = tmp_path / "keys"
    keys.write_text("tenant:" + "0" * 64 + "\n")
    async with serve(storage_url="memory:", api_keys_file=keys) as http:
        assert (await http.post("/hooks/codex", json=sent)).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'"text"',
        b"[" * 100_000,
        b'{"tool_name": "\xff"}',
        b'{"a":' + b"[1," * 70_000,
        b'{"a":"' + b"x" * 100_000,
        b"\0" * 70_000,
        b'{"a":[' + b"1," * 60_000 + b"1]}",
    ],
    ids=lambda body: str(body[:12]),
)
async def test_a_body_that_is_no_hook_passes(client: httpx.AsyncClient, body: bytes) -> None:
    for agent in CLIENTS:
        answer = await client.post(f"/hooks/{agent}", content=body)
        assert (answer.status_code, answer.json()) == (200, {})
    assert (await client.post("/hooks/unknown", content=body)).status_code == 404


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: Path_ = ()) -> list[Path_]:
    """The paths of everything in the value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for step, inner in items for place in places(inner, (*path, step))]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, str, Any, bool]:
    """A payload with something in it replaced by any value, and whether a large text is in it."""
    client, name, path, _ = draw(st.sampled_from(CASES))
    is_large = draw(st.booleans())
    sent = large(client, payload(client, name), path, LARGE if is_large else "few")
    place = draw(st.sampled_from(places(sent)))
    return client, draw(st.sampled_from(list(CLIENTS))), changed(sent, place, draw(ANY)), is_large


async def test_no_shape_makes_a_hook_fail_or_change_what_it_should_pass(serve: Serve) -> None:
    async with serve(storage_url="memory:") as http:
        sent_to: list[tuple[str, Any, bool]] = []

        @given(mutated())
        def collect(one: tuple[str, str, Any, bool]) -> None:
            sent_to.extend([(one[0], one[2], one[3]), (one[1], one[2], one[3])])

        collect()
        for client, sent, is_large in sent_to[: count(60, 2000)]:
            answer = await asked(http, client, sent)
            assert answer == {} or (is_large and message_in(answer))


@pytest.mark.parametrize("client_name", ["claude-code", "gemini"])
async def test_at_the_end_of_an_agents_session_its_results_stay(serve: Serve, client_name: str) -> None:
    sent = {"tool_name": "t", "content": LARGE, "session_id": "run-1", "context": {"used_tokens": 7}}
    ends = {"hook_event_name": "SessionEnd", "session_id": "run-1", "cwd": "/", "reason": "exit"}
    async with serve(storage_url="memory:") as client:
        handle = (await client.post("/results", json=sent)).json()["handle"]
        for _ in range(2):
            answer = await client.post(f"/hooks/{client_name}", json=ends)
            assert (answer.status_code, answer.json()) == (200, {})
        assert (await client.get("/sessions/run-1")).status_code == 404
        assert (await client.get(f"/results/{handle}/content")).text == LARGE
        # An agent that resumes the session opens it again.
        again = await client.post("/results", json={**sent, "context": None})
        assert (again.status_code, again.json()["budget"]["used_tokens"]) == (201, 0)


async def test_a_message_calls_the_command_as_the_shell_of_the_agent_does(client: httpx.AsyncClient) -> None:
    sent = changed(payload("claude-code", "Grep"), ("tool_response", "content"), LARGE)
    program = "env SPILLGATE_URL=http://127.0.0.1:9000 /opt/x/bin/spillgate"
    answer = await client.post("/hooks/claude-code", params={"shell": program}, json=sent)
    text = answer.json()["hookSpecificOutput"]["updatedToolOutput"]["content"]
    assert f'cat): {program} query HANDLE "SELECT' in text
    refused = await client.post("/hooks/claude-code", params={"shell": "a\nb"}, json=sent)
    assert refused.status_code == 422
