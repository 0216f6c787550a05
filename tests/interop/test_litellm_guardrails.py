"""LiteLLM's proxy with the guardrails of docs/litellm.md before a scripted model."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.app.doors.payloads import LARGE
from tests.extraction.backend import Backend
from tests.extraction.behaviours import Exchange, completion
from tests.faults.service_process import Service, Services
from tests.interop import proxy

pytestmark = pytest.mark.anyio

DOCS = proxy.ROOT / "docs" / "litellm.md"
NAMES = ("generic", "class", "headroom")
PYTHON = proxy.PROGRAM.with_name("python")
MCP_SERVER = Path(__file__).with_name("mcp") / "sdk_server.py"
HANDLE = re.compile(r'tool_output\(handle = \\?"(session-\S+/file-[0-9a-f-]{36})')
QUESTION = "the tulip with number 437"


def configured(address: str) -> dict[str, Any]:
    """The guardrails as printed, at another address, and each only where a request names it."""
    blocks = re.findall(r"```yaml\n(guardrails:.*?)```", DOCS.read_text(), re.DOTALL)
    printed = [yaml.safe_load(block)["guardrails"][0] for block in blocks]
    options = yaml.safe_load(re.findall(r"```yaml\n( +extra_headers.*?)```", DOCS.read_text(), re.DOTALL)[0])
    by_kind = {one["litellm_params"]["guardrail"]: one for one in printed}
    kinds = ("generic_guardrail_api", "spillgate.litellm.Guardrail", "headroom")
    chosen = {name: by_kind[kind] for name, kind in zip(NAMES, kinds, strict=True)}
    found = []
    for name, one in chosen.items():
        params = one["litellm_params"] | {"api_base": address, "default_on": False}
        found.append({"guardrail_name": name, "litellm_params": params})
        if name != "headroom":
            closed = {
                **params,
                "unreachable_fallback": "fail_closed",
                "fail_on_error": True,
                "fail_closed": True,
            }
            closed |= {"session_header": "x-run"} if name == "class" else options
            found.append({"guardrail_name": f"{name} closed", "litellm_params": closed})
    gateway = {**chosen["class"]["litellm_params"], "api_base": address, "mode": ["post_mcp_call"]}
    found.append({"guardrail_name": "gateway", "litellm_params": gateway})
    server = {"transport": "stdio", "command": str(PYTHON), "args": [str(MCP_SERVER)]}
    models = yaml.safe_load(proxy.CONFIG.read_text())
    return {**models, "guardrails": found, "mcp_servers": {"everything": server}}


async def asks(it: Exchange) -> None:
    """A model that asks about what was too large, if it can, and repeats the answer."""
    body, path = it.asked.body, it.asked.path
    said = json.dumps(body, ensure_ascii=False)
    found = (
        re.search(r"437(?:: the tulip| INFO)[^\\]*", said.split("ABSTRACT FROM")[-1])
        if "ABSTRACT FROM" in said
        else None
    )
    names = [(one.get("function") or one).get("name") for one in body.get("tools") or []]
    handle = HANDLE.search(said)
    call: tuple[str, dict[str, str]] | None = None
    if found is None and "headroom_retrieve" in names and (hash := re.search("hash=([a-f0-9]{24})", said)):
        call = "headroom_retrieve", {"hash": hash[1], "query": QUESTION}
    elif found is None and "tool_output" in names and handle is not None:
        call = "tool_output", {"handle": handle[1], "extract": QUESTION}
    text = f"It is {found[0]}" if found else "Nothing to ask."
    if body.get("stream"):
        await streamed(it, text)
    elif path.endswith("/responses"):
        await it.send_json(200, response(call, text))
    elif call is None:
        await it.send_json(200, completion(text))
    else:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        made = {"id": "ask-1", "type": "function", "function": function}
        spoken = {"role": "assistant", "content": None, "tool_calls": [made]}
        await it.send_json(200, completion(spoken, "tool_calls"))


def response(call: tuple[str, dict[str, str]] | None, text: str) -> dict[str, Any]:
    if call is None:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": content}
    else:
        item = {"type": "function_call", "id": "f", "call_id": "ask-1", "name": call[0]}
        item["arguments"] = json.dumps(call[1])
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    return {
        "id": "resp-1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "scripted",
        "output": [{**item, "status": "completed"}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


async def streamed(it: Exchange, text: str) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events = [json.dumps({**chunk, "choices": [choice]}) for choice in (first, last)]
    data = "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")).encode()
    await it.send(200, data, Content_Type="text/event-stream")


@dataclass
class Setup:
    backend: Backend
    service: Service
    services: Services
    state: Path
    client: httpx.AsyncClient


@pytest.fixture(scope="module")
async def setup(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setup]:
    if not proxy.PROGRAM.is_file():
        pytest.skip("LiteLLM is not installed: run `make interop`")
    folder = tmp_path_factory.mktemp("guardrails")
    with Services(folder) as services:
        service = await services.start(folder / "state")
        address = "http://{}:{}".format(*service.address)
        config = folder / "litellm.yaml"
        config.write_text(yaml.safe_dump(configured(address)))
        environment = {
            "PYTHONPATH": str(proxy.ROOT / "clients" / "python"),
            "LITELLM_ENABLE_MCP_STDIO": "true",
        }
        async with (
            Backend(asks) as backend,
            proxy.running(backend.base_url, folder, config, **environment) as base_url,
            httpx.AsyncClient(
                base_url=base_url,
                headers={"Authorization": f"Bearer {proxy.KEY}"},
                timeout=60,
                trust_env=False,
            ) as client,
        ):
            yield Setup(backend, service, services, folder / "state", client)


TOOL = {"type": "object", "properties": {}}


def chat(text: str, guardrail: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    function = {"name": "bash", "arguments": "{}"}
    rows = [
        {"role": "user", "content": "Which tulip?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": TOOL}}]
    sent = {"model": proxy.MODEL, "messages": rows, "tools": tools, "guardrails": [guardrail], **fields}
    return "/chat/completions", sent


def messages(text: str, guardrail: str) -> tuple[str, dict[str, Any]]:
    rows = [
        {"role": "user", "content": "Which tulip?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": text}]},
    ]
    tools = [{"name": "bash", "description": "runs", "input_schema": TOOL}]
    sent = {"model": proxy.MODEL, "max_tokens": 99, "messages": rows, "tools": tools}
    return "/messages", {**sent, "guardrails": [guardrail]}


def responses(text: str, guardrail: str) -> tuple[str, dict[str, Any]]:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which tulip?"}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": text},
    ]
    tools = [{"type": "function", "name": "bash", "parameters": TOOL}]
    return "/responses", {"model": proxy.MODEL, "input": items, "tools": tools, "guardrails": [guardrail]}


APIS = {"chat": chat, "messages": messages, "responses": responses}


async def ask(setup: Setup, path: str, sent: dict[str, Any], session: str) -> httpx.Response:
    return await setup.client.post(path, json=sent, headers={"x-litellm-session-id": session})


@pytest.mark.parametrize("api", APIS)
async def test_the_generic_guardrail_replaces_the_result_and_offers_the_tools(setup: Setup, api: str) -> None:
    """LiteLLM runs no tool: the model's call goes to the client."""
    path, sent = APIS[api](LARGE, "generic")
    before = setup.backend.requests
    answer = await ask(setup, path, sent, f"generic-{api}")
    assert answer.status_code == 200, answer.text
    assert '"tool_output"' in answer.text
    (asked,) = setup.backend.asked[before:]
    said = json.dumps(asked.body)
    assert f"session-generic-{api}/file-" in said
    assert "the tulip with number 450 " not in said
    assert said.count('"pattern"') == 1
    again = await ask(setup, path, sent, f"generic-{api}")
    assert again.status_code == 200
    assert setup.backend.asked[-1].body == asked.body


@pytest.mark.parametrize("api", APIS)
async def test_the_guardrail_class_answers_inside_litellm(setup: Setup, api: str) -> None:
    path, sent = APIS[api](LARGE, "class")
    before = setup.backend.requests
    answer = await ask(setup, path, sent, f"class-{api}")
    assert answer.status_code == 200, answer.text
    assert "It is 437: the tulip with number 437" in answer.text
    assert '"tool_output"' not in json.dumps(answer.json().get("choices") or answer.json().get("content"))
    first, second = setup.backend.asked[before:]
    assert f"session-class-{api}/file-" in json.dumps(first.body)
    assert "ABSTRACT FROM TOOL OUTPUT bash" in json.dumps(second.body)


@pytest.mark.parametrize("guardrail", ["generic", "class"])
@pytest.mark.parametrize("api", APIS)
async def test_a_result_that_fits_is_left_as_it_is(setup: Setup, api: str, guardrail: str) -> None:
    path, sent = APIS[api]("few\n", guardrail)
    before = setup.backend.requests
    assert "Nothing to ask." in (await ask(setup, path, sent, f"few-{guardrail}-{api}")).text
    (asked,) = setup.backend.asked[before:]
    assert '"few\\n"' in json.dumps(asked.body)
    assert "tool_output" not in json.dumps(asked.body)


@pytest.mark.parametrize("guardrail", ["generic closed", "class closed"])
async def test_the_session_may_be_named_by_any_header(setup: Setup, guardrail: str) -> None:
    path, sent = chat(LARGE, guardrail)
    before = setup.backend.requests
    run = f"run-{guardrail.split()[0]}"
    assert (await setup.client.post(path, json=sent, headers={"X-Run": run})).status_code == 200
    asked = setup.backend.asked[before]
    assert f"session-{run}/file-" in json.dumps(asked.body)
    assert (len(asked.body["tools"]) == 1) == (guardrail == "generic closed")


async def test_a_streamed_request_is_governed_and_offered_no_tools(setup: Setup) -> None:
    path, sent = chat(LARGE, "class", stream=True)
    before = setup.backend.requests
    answer = await ask(setup, path, sent, "streamed")
    assert "Nothing to ask." in answer.text
    (asked,) = setup.backend.asked[before:]
    assert "session-streamed/file-" in json.dumps(asked.body)
    assert len(asked.body["tools"]) == 1


async def test_headrooms_guardrail_asks_by_hash(setup: Setup) -> None:
    """LiteLLM sends it the results of earlier exchanges only."""
    path, sent = chat(LARGE, "headroom")
    sent["messages"] += [
        {"role": "assistant", "content": "Many."},
        {"role": "user", "content": "Which is it?"},
    ]
    before = setup.backend.requests
    answer = await ask(setup, path, sent, "any")
    assert "It is 437: the tulip with number 437" in answer.text
    first, second = setup.backend.asked[before:]
    assert re.search("headroom_retrieve with hash=[a-f0-9]{24}", json.dumps(first.body))
    assert "ABSTRACT FROM TOOL OUTPUT" in json.dumps(second.body)


async def test_results_of_the_mcp_gateway_are_governed_and_asked_about(setup: Setup) -> None:
    url = str(setup.client.base_url).removesuffix("/v1/") + "/mcp-rest/tools/call"
    called = {"server_id": "everything", "name": "log", "arguments": {"lines": 2000}}
    answer = await setup.client.post(url, json=called)
    assert answer.status_code == 200, answer.text
    text = answer.json()["content"][0]["text"]
    assert "session-litellm-mcp/file-" in text
    async with setup.service.client() as service:
        (entry,) = (await service.get("/accounting/entries?session_id=litellm-mcp")).json()["entries"]
    assert (entry["mcpServer"], entry["command"]) == ("everything", "log")
    path, sent = chat(text, "class")
    assert "It is 437 INFO request 437 was served" in (await ask(setup, path, sent, "of-the-client")).text
    few = {**called, "arguments": {"lines": 2}}
    assert "1 INFO request 1 was served" in (await setup.client.post(url, json=few)).text


async def test_without_the_service_requests_go_on_unless_they_are_to_fail(setup: Setup) -> None:
    """The last test: it stops the service."""
    await setup.service.stop()
    for guardrail in ("generic", "class"):
        for api, make in APIS.items():
            path, sent = make(LARGE, guardrail)
            before = setup.backend.requests
            answer = await ask(setup, path, sent, "away")
            assert answer.status_code == 200, (guardrail, api, answer.text)
            assert "899: the tulip" in json.dumps(setup.backend.asked[before].body)
        path, sent = chat(LARGE, f"{guardrail} closed")
        before = setup.backend.requests
        answer = await ask(setup, path, sent, "away")
        assert answer.status_code >= 500, (guardrail, answer.text)
        assert setup.backend.requests == before
