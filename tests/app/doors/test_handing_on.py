"""Hooks before a call: stored results stand in its arguments, or the tool does not run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from beside.client import ServiceAnswer, ServiceRequest, resolved
from beside.hooks.agents import CLIENTS
from beside.hooks.files import Setup
from domain.references import TOO_DEEP, UNRESOLVED, references_in
from policies.outcomes.store import TOO_LARGE
from tests.app.doors.payloads import LARGE
from tests.faults.forking import ROOT, run
from tests.faults.service_process import Service
from tests.misbehaving_server import OF_THE_SERVICE, answering

pytestmark = pytest.mark.anyio

BEFORE = {
    "claude-code": {"hook_event_name": "PreToolUse", "tool_name": "Write"},
    "claude-code-plugin": {"hook_event_name": "PreToolUse", "tool_name": "mcp__files__write"},
    "codex": {"hook_event_name": "PreToolUse", "tool_name": "mcp__files__write"},
    "gemini": {"hook_event_name": "BeforeTool", "tool_name": "write_file"},
}


def before(client: str, content: str, **more: Any) -> dict[str, Any]:
    given = {"session_id": "s", "tool_input": {"path": "a", "content": content}, "tool_use_id": "c"}
    return {**BEFORE[client], **given, **more}


def arguments_in(answer: dict[str, Any]) -> Any:
    output = answer["hookSpecificOutput"]
    return output["updatedInput"] if "updatedInput" in output else output["tool_input"]


def refusal_in(answer: dict[str, Any]) -> str:
    if "decision" in answer:
        assert answer["decision"] == "deny"
        reason: str = answer["reason"]
        return reason
    output = answer["hookSpecificOutput"]
    assert output["permissionDecision"] == "deny"
    assert "updatedInput" not in output
    reason = output["permissionDecisionReason"]
    return reason


async def keep(client: httpx.AsyncClient, session: str = "s") -> str:
    sent = {"session_id": session, "tool_name": "t", "content": LARGE}
    handle: str = (await client.post("/results", json=sent)).json()["handle"]
    return handle


def hook(client: str, sent: Any, url: str, home: Path) -> Any:
    """The line that `spillgate hook install` writes, in a shell as agents run it."""
    setup = Setup(home, None, {}, f"{sys.executable} -m beside.main", url, False)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "SPILLGATE_URL": url, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["/bin/sh", "-c", setup.run_before(client)],
        input=json.dumps(sent).encode(),
        env=environ,
        capture_output=True,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    return json.loads(ran.stdout) if ran.stdout else {}


@pytest.mark.parametrize("client", BEFORE)
async def test_the_route_puts_the_text_into_the_arguments_or_refuses(
    client: str, shared_service: Service
) -> None:
    async with shared_service.client() as http:
        own, other = await keep(http), await keep(http, "other")

        async def ask(sent: Any) -> Any:
            return (await http.post(f"/hooks/{client}", json=sent)).json()

        assert arguments_in(await ask(before(client, f"spillgate://{own}"))) == {
            "path": "a",
            "content": LARGE,
        }
        assert "permissionDecision" not in json.dumps(await ask(before(client, f"spillgate://{own}"))) or (
            client == "codex"
        )
        assert await ask(before(client, f"see spillgate://{own}")) == {}
        for reference in (f"spillgate://{other}", f"spillgate://{own}#rows=1"):
            assert refusal_in(await ask(before(client, reference))).endswith(" The tool did not run.")
        own_tool = before(client, f"spillgate://{own}", tool_name="mcp__spillgate__tool_output")
        assert await ask(own_tool) == {}
        large = before(client, f"spillgate://{own}", other="x" * 200_000)
        large["tool_input"]["more"] = 'quote " é' * 20_000
        assert arguments_in(await ask(large)) == {**large["tool_input"], "content": LARGE}


@pytest.mark.parametrize("client", BEFORE)
async def test_the_command_answers_as_the_route(client: str, shared_service: Service, tmp_path: Path) -> None:
    async with shared_service.client() as http:
        handle = await keep(http)
        url = str(http.base_url).rstrip("/")
        for content in (
            f"spillgate://{handle}",
            f"spillgate://{handle}#rows=1",
            f"see spillgate://{handle}",
            "text",
        ):
            sent = before(client, content)
            answer = (await http.post(f"/hooks/{client}", json=sent)).json()
            assert hook(client, sent, url, tmp_path) == answer, content


@pytest.mark.parametrize("answer", OF_THE_SERVICE.values(), ids=OF_THE_SERVICE)
def test_without_an_answer_of_the_service_a_call_with_a_reference_does_not_run(
    answer: bytes, tmp_path: Path
) -> None:
    reference = "spillgate://session-s/file-00000000-0000-4000-8000-000000000000"
    command = ("-m", "beside.main", "hook", "claude-code")
    with answering(answer) as url:
        environ = {"HOME": str(tmp_path), "SPILLGATE_URL": url}
        for content, wanted in ((reference, UNRESOLVED), (f"see {reference}", None)):
            done = run(command, environ, json.dumps(before("claude-code", content)).encode())
            assert (done.returncode, done.stderr) == (0, b"")
            told = json.loads(done.stdout)
            assert told == {} if wanted is None else refusal_in(told) == wanted


def test_a_reference_that_is_nested_too_deeply_is_refused() -> None:
    nested: Any = "spillgate://session-s/file-00000000-0000-4000-8000-000000000000"
    for _ in range(3000):
        nested = [nested]
    call = CLIENTS["claude-code"].before(before("claude-code", nested))
    assert call is not None
    assert call.refers

    def ask(request: ServiceRequest) -> ServiceAnswer:
        raise AssertionError(request)

    assert resolved(ask, "s", "write", call.arguments) == (None, TOO_DEEP)
    within: list[Any] = []
    within.append(within)
    assert references_in(within) == []


async def test_what_a_relay_has_stored_is_left_to_the_relay(client: httpx.AsyncClient) -> None:
    handle = await keep(client, "mcp-1-a")
    mcp = before("claude-code", f"spillgate://{handle}", tool_name="mcp__files__write")
    assert (await client.post("/hooks/claude-code", json=mcp)).json() == {}
    write = before("claude-code", f"spillgate://{handle}")
    assert "of this session" in refusal_in((await client.post("/hooks/claude-code", json=write)).json())


async def test_litellm_and_others_that_see_no_call_say_nothing_of_it(client: httpx.AsyncClient) -> None:
    for door in ("copilot", "cursor", "pipe"):
        sent = {"tool_name": "t", "content": LARGE, "door": door}
        assert "spillgate://" not in (await client.post("/results", json=sent)).json()["content"]
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    rows = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": LARGE},
    ]
    sent = {"input_type": "request", "structured_messages": rows, "texts": [], "request_data": {}}
    answer = await client.post("/beta/litellm_basic_guardrail_api", json=sent)
    assert TOO_LARGE in answer.text
    assert "spillgate://" not in answer.text
