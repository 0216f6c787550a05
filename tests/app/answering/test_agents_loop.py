"""The loop of docs/agents.md, as it is printed there, against a scripted model."""

import functools
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies.outcomes.store import TOO_LARGE
from spillgate import AsyncSpillgate

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[3] / "docs" / "agents.md"
LOG = "".join(f"line {n} ERROR disk {n} is full\n" if n == 4507 else f"line {n} ok\n" for n in range(6000))
TOOLS = [{"type": "function", "function": {"name": "read_log", "parameters": {"type": "object"}}}]

Reply = Callable[[dict[str, Any]], dict[str, Any]]


def said(text: str) -> Reply:
    return lambda body: {"role": "assistant", "content": text}


def called(*calls: tuple[str, dict[str, Any]]) -> Reply:
    """Calls of tools. A `handle` of None stands for the one in the last message that names one."""

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        found = re.findall(r"session-\S+/file-[0-9a-f-]{36}", json.dumps(body["messages"]))
        made = []
        for number, (name, arguments) in enumerate(calls):
            given = {key: found[-1] if value is None else value for key, value in arguments.items()}
            function = {"name": name, "arguments": json.dumps(given)}
            call_id = f"call_{len(body['messages'])}_{number}"
            made.append({"id": call_id, "type": "function", "function": function})
        return {"role": "assistant", "content": None, "tool_calls": made}

    return reply


class Model:
    """Speaks chat completions: answers as scripted, and keeps what it was asked."""

    def __init__(self, *script: Reply) -> None:
        self.asked: list[dict[str, Any]] = []
        self.script = list(script)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        message = self.script.pop(0)(body)
        usage = {"total_tokens": len(request.content) // 4}
        return httpx.Response(200, json={"choices": [{"message": message}], "usage": usage})

    def offered(self, index: int) -> list[str]:
        return [tool["function"]["name"] for tool in self.asked[index].get("tools", [])]

    def results(self) -> list[str]:
        """The texts of tools in the last request, oldest first."""
        return [one["content"] for one in self.asked[-1]["messages"] if one["role"] == "tool"]


def loop(client: httpx.AsyncClient, model: Model) -> Callable[..., Awaitable[str]]:
    """`run` of the page in session `run-1`, with its two clients replaced."""
    (block,) = re.findall(r"```python\n(import asyncio\n.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    names["openai"] = httpx.AsyncClient(base_url="http://model/v1", transport=httpx.MockTransport(model))
    spillgate = AsyncSpillgate(
        base_url=str(client.base_url), session_id="run-1", patience=0.0, transport=client._transport
    )
    return functools.partial(names["run"], spillgate)


async def read_log() -> str:
    return LOG


async def test_a_large_result_is_replaced_and_asked_about(client: httpx.AsyncClient) -> None:
    model = Model(
        called(("read_log", {})),
        called(
            ("tool_output", {"handle": None, "pattern": "ERROR"}),
            ("tool_output", {"handle": None, "extract": "ERROR disk full"}),
        ),
        said("disk 4507"),
    )
    messages = [{"role": "user", "content": "which disk is full?"}]
    assert await loop(client, model)(messages, TOOLS, {"read_log": read_log}) == "disk 4507"
    assert model.offered(0) == ["read_log"]
    assert model.offered(1) == ["read_log", "tool_output"]
    assert model.asked[1]["messages"][0]["role"] == "user"
    message, grep, answer = model.results()
    assert message.startswith(f"{TOO_LARGE} (")
    shown = (
        *("4506- line 4505 ok", "4507- line 4506 ok", "4508: line 4507 ERROR disk 4507 is full"),
        *("4509- line 4508 ok", "4510- line 4509 ok"),
    )
    assert grep == "\n".join((*shown, "[The only matching line.]"))
    assert answer.startswith("ABSTRACT FROM TOOL OUTPUT read_log WITH HANDLE session-run-1/file-")
    assert "ERROR disk 4507" in answer
    budget = (await client.get("/sessions/run-1")).json()["budget"]
    assert budget["used_tokens"] > 0


async def test_it_runs_twice_and_takes_a_second_message_in_the_same_session(
    client: httpx.AsyncClient,
) -> None:
    messages = [{"role": "user", "content": "read the log"}]
    for number in range(2):
        model = Model(called(("read_log", {})), said(f"done {number}"))
        run = loop(client, model)
        assert await run(messages, TOOLS, {"read_log": read_log}) == f"done {number}"
        messages.append({"role": "user", "content": "once more"})
    assert (await client.get("/sessions/run-1")).json()["stored_results"] == 2


async def test_wrong_arguments_and_tools_that_fail_are_texts_for_the_model(client: httpx.AsyncClient) -> None:
    async def broken() -> str:
        raise ValueError("no such file")

    model = Model(
        called(("read_log", {}), ("broken", {})),
        called(
            ("tool_output_grep", {"handle": None, "colour": "red"}), ("tool_output_lines", {"handle": "x"})
        ),
        said("sorry"),
    )
    messages = [{"role": "user", "content": "go"}]
    functions = {"read_log": read_log, "broken": broken}
    assert await loop(client, model)(messages, TOOLS, functions) == "sorry"
    message, failed, grep, lines = model.results()
    assert message.startswith(f"{TOO_LARGE} (")
    assert failed == "Error: no such file"
    assert "tool_output_grep takes a JSON object with handle, pattern" in grep
    assert "`lines` is missing" in lines


async def test_with_the_service_stopped_the_model_gets_a_marked_cut() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    stopped = httpx.AsyncClient(base_url="http://spillgate", transport=httpx.MockTransport(refuse))
    model = Model(called(("read_log", {})), said("partly read"))
    messages = [{"role": "user", "content": "read the log"}]
    assert await loop(stopped, model)(messages, TOOLS, {"read_log": read_log}) == "partly read"
    (text,) = model.results()
    assert text.startswith(LOG[:12_288])
    assert text.endswith(
        f"[{len(LOG) - 12_288} characters not shown: the result was too large, and is not stored]"
    )
    assert model.offered(1) == ["read_log"]
