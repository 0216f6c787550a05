"""All that a door passes on of a result has masks: its texts, and the names, links and data beside them."""

import copy
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from beside.hooks.agents import CLIENTS
from tests.app.doors.payloads import at, changed, names, payload
from tests.beside.relay_client import SCRIPTED, RelayClient
from tests.conftest import Serve, StillClock, served
from tests.faults.forking import run
from tests.faults.service_process import Services
from tests.made_secrets import made

pytestmark = pytest.mark.anyio

TOKEN = next(made()).secret
MASK = r"\[redacted: github_token #\d{6}\]"
POLICY = '[defaults]\nredact = ["secrets"]\n'
PICTURE = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoAAAANSUhEUgAA" * 100}
JSON = {"Content-Type": "application/json"}
Step = str | int
PathTo = tuple[Step, ...]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a policy file."""
    place = tmp_path_factory.mktemp("masked")
    (place / "policy.toml").write_text(POLICY)
    return place


@pytest.fixture(scope="module")
async def client(place: Path) -> AsyncIterator[httpx.AsyncClient]:
    """For all tests of this module, which look at what they are answered."""
    async with served(StillClock(), storage_url="memory:", policy_file=place / "policy.toml") as (_, client):
        yield client


@pytest.fixture(scope="module")
async def url(place: Path) -> AsyncIterator[str]:
    with Services(place) as services:
        service = await services.start(place / "service", policy_file=str(place / "policy.toml"))
        async with service.client() as client:
            yield str(client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def relay(url: str, place: Path) -> Iterator[RelayClient]:
    command = (sys.executable, SCRIPTED, str(place / "received"))
    with RelayClient("--", *command, state=place / "state", url=url) as relay:
        yield relay


def leaves(value: Any, path: PathTo = ()) -> Iterator[PathTo]:
    """The paths to the strings of a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, str):
        yield path
    for step, inner in items:
        yield from leaves(inner, (*path, step))


def with_secret(value: Any, path: PathTo) -> Any:
    return changed(value, path, f"{str(at(value, path))[:60]} {TOKEN}") if path else f"{value} {TOKEN}"


def assert_same_shape(shown: Any, sent: Any) -> None:
    assert re.sub(MASK, TOKEN, json.dumps(shown)) == json.dumps(sent)


BLOCKS: dict[str, Any] = {
    "text": {"type": "text", "text": "a text", "annotations": {"audience": ["a"]}, "_meta": {"a": ["b"]}},
    "link": {
        "type": "resource_link",
        "uri": "https://host/a?b=c",
        "name": "a name",
        "title": "a title",
        "description": "a text",
        "mimeType": "text/plain",
        "annotations": {"lastModified": "never", "audience": ["user"]},
        "_meta": {"deep": [{"er": "value"}]},
        "icons": [{"src": "https://host/icon.png"}],
    },
    "resource": {
        "type": "resource",
        "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "a text", "_meta": {"k": "v"}},
        "annotations": {"k": "v"},
    },
    "blob": {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA", "name": "n"}},
    "picture": {**PICTURE, "_meta": {"caption": "a caption"}},
    "sound": {"type": "audio", "mimeType": "audio/wav", "data": "UklGR" * 300, "title": "a title"},
    "unknown": {"type": "x-rows", "rows": [["a", "b"], {"c": "d"}], "note": "e"},
}
KINDS = {"type", "mimeType", "data", "blob"}
"""Members that say what a block is, and bytes."""


def cases() -> Iterator[tuple[str, PathTo]]:
    for name, block in BLOCKS.items():
        for path in leaves(block):
            if path[-1] not in KINDS:
                yield name, path


@pytest.mark.parametrize(
    "beside", [[], [{"type": "text", "text": "another text"}]], ids=["alone", "beside a text"]
)
async def test_a_list_of_blocks_has_masks_in_each_of_its_strings(
    client: httpx.AsyncClient, beside: list[Any]
) -> None:
    for name, path in cases():
        blocks = [*beside, with_secret(BLOCKS[name], path), PICTURE]
        body = {"session_id": "blocks", "tool_name": "run", "content": blocks}
        told = (await client.post("/results", json=body)).json()
        assert TOKEN not in json.dumps(told), (name, path)
        assert_same_shape(told["content"], blocks)
        assert told["redacted"] == {"github_token": 1}
        assert (told["outcome"], told["complete"], told["redacts"]) == ("pass", False, True)
    entries = (await client.get("/accounting/entries", params={"session_id": "blocks"})).json()["entries"]
    assert {tuple(one["details"]["redacted"]) for one in entries} == {("github_token",)}


async def test_a_secret_that_its_name_tells_is_masked_in_a_block_and_the_block_stays_json(
    client: httpx.AsyncClient,
) -> None:
    block = {"type": "x", "settings": {"password": 'hunter2/"Xyz!9', "port": 5432, TOKEN: "a name"}}
    told = (await client.post("/results", json={"tool_name": "run", "content": [block]})).json()
    shown = told["content"][0]["settings"]
    assert re.fullmatch(r"\[redacted: password #\d{6}\]", shown.pop("password"))
    assert re.fullmatch(MASK, next(name for name, value in shown.items() if value == "a name"))
    assert shown["port"] == 5432


async def test_a_retry_of_blocks_and_a_text_answer_have_the_same_masks(client: httpx.AsyncClient) -> None:
    block = with_secret(BLOCKS["link"], ("uri",))
    body = {"tool_name": "run", "tool_call_id": "c1", "content": [{"type": "text", "text": "t"}, block]}
    first, again = [(await client.post("/results", json=body)).json() for _ in range(2)]
    assert first["content"] == again["content"] != body["content"]
    text = (await client.post("/results", json=body, headers={"Accept": "text/plain"})).text
    assert re.search(MASK, text)
    assert TOKEN not in text


async def masked_tokens(client: httpx.AsyncClient) -> float:
    name = 'spillgate_redacted_total{kind="github_token"} '
    return sum(map(float, re.findall(f"(?<={re.escape(name)}).*", (await client.get("/metrics")).text)))


async def test_the_route_masks_any_value_and_says_when_there_is_nothing_to_mask(
    client: httpx.AsyncClient,
) -> None:
    before = await masked_tokens(client)
    for value in (f"a {TOKEN}", [TOKEN], {"a": {TOKEN: [1, None, True, "b"]}}):
        answer = await client.post("/mask", params={"tool_name": "run"}, json=value)
        assert answer.status_code == 200
        assert_same_shape(answer.json(), value)
    for value in ("a", 7, None, {"a": ["b"]}, PICTURE):
        answer = await client.post(
            "/mask", params={"tool_name": "run"}, content=json.dumps(value), headers=JSON
        )
        assert (answer.status_code, answer.content) == (204, b"")
    left = await client.post("/mask", params={"tool_name": "Read", "door": "claude-code"}, json=TOKEN)
    assert left.status_code == 204
    for params, body, status in (
        ({"tool_name": "run"}, b"{", 400),
        ({"tool_name": "run", "door": "x"}, b"1", 422),
        ({}, b"1", 422),
        ({"tool_name": "run", "session_id": "a b"}, b"1", 422),
    ):
        answer = await client.post(
            "/mask", params=params, content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == status
    assert await masked_tokens(client) == before + 3


async def test_a_number_that_a_pattern_matches_is_masked_unless_an_agent_would_refuse_it(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[defaults]\nredact = ["pin"]\n[redact.pin]\npattern = "[0-9]{6}"\n')
    value = {"pin": 123456, "text": "123456"}
    async with serve(storage_url="memory:", policy_file=path) as client:
        for params, keeps in (({}, False), ({"door": "codex"}, True)):
            shown = (await client.post("/mask", params={"tool_name": "run", **params}, json=value)).json()
            assert (shown["pin"] == 123456) == keeps
            assert re.fullmatch(r"\[redacted: pin #\d{6}\]", shown["text"])


SHOWN: dict[str, PathTo] = {
    "claude-code": ("tool_response",),
    "codex": ("tool_response",),
    "copilot": ("toolResult",),
    "cursor": ("tool_output",),
    "gemini": ("tool_response", "llmContent"),
    "opencode": ("output",),
    "pi": ("content",),
}
"""Where the hook of each agent has what its model is shown."""


@pytest.mark.parametrize(("recorded", "name"), names())
async def test_a_hook_leaves_no_secret_in_what_its_agent_shows(
    client: httpx.AsyncClient, recorded: str, name: str
) -> None:
    agent = recorded.partition(",")[0]
    reader, sent = CLIENTS[agent], payload(recorded, name)
    root = SHOWN[agent]
    response = at(sent, root) if root[0] in sent else {}
    if reader.inner_json and isinstance(response, str):
        response = json.loads(response)
    for path in leaves(response):
        shown = with_secret(response, path)
        read = changed(sent, root, shown)
        call = reader.read(read)
        if call is None or not call.is_governable:
            continue
        body = changed(sent, root, json.dumps(shown)) if reader.inner_json else read
        answer = (await client.post(f"/hooks/{agent}", json=body)).json()
        assert TOKEN not in json.dumps(answer), path
        # An agent that gets nothing shows the result as it is.
        assert bool(answer) == (call.tool not in reader.door.reads), path


async def test_a_hook_masks_a_link_beside_the_text_and_leaves_numbers(client: httpx.AsyncClient) -> None:
    sent = payload("claude-code", "mcp two blocks")
    sent["tool_response"].append({**with_secret(BLOCKS["link"], ("uri",)), "size": 123456})
    answer = (await client.post("/hooks/claude-code", json=sent)).json()
    shown = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert_same_shape(shown[1:], sent["tool_response"][2:])
    sent["tool_response"].pop()
    assert (await client.post("/hooks/claude-code", json=sent)).json() == {}


async def test_a_part_of_more_than_2_mb_that_an_agent_shows_has_masks(client: httpx.AsyncClient) -> None:
    """The long strings of so large a body are not decoded with it."""
    sent = payload("claude-code", "Bash spilled")
    sent["tool_response"]["stdout"] = f"{TOKEN}\n" + "a line of words\n" * (9 << 14)
    answer = await client.post("/hooks/claude-code", json=sent)
    shown = answer.json()["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
    assert re.sub(MASK, TOKEN, shown) == sent["tool_response"]["stdout"]
    assert TOKEN not in shown


async def test_the_command_of_a_hook_masks_what_stands_beside_the_text(url: str, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPILLGATE_URL": url}
    sent = payload("claude-code", "mcp two blocks")
    plain = run(("-m", "beside.main", "hook", "claude-code"), environ, json.dumps(sent).encode()).stdout
    assert json.loads(plain) == {}
    for path in (("uri",), ("_meta", "deep", 0, "er")):
        with_link = copy.deepcopy(sent)
        with_link["tool_response"].append(with_secret(BLOCKS["link"], path))
        answer = run(("-m", "beside.main", "hook", "claude-code"), environ, json.dumps(with_link).encode())
        shown = json.loads(answer.stdout)["hookSpecificOutput"]["updatedToolOutput"]
        assert_same_shape(shown[1:], with_link["tool_response"][2:])


def chat(content: Any) -> list[Any]:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"my token is {TOKEN}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "run", "content": content},
    ]


def anthropic(content: Any, **more: Any) -> list[Any]:
    use = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": content, **more}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


CONVERSATIONS: dict[str, tuple[list[Any], PathTo]] = {
    "chat, a text": (chat("a text"), (2, "content")),
    "chat, a text beside a picture": (
        chat([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://host/a"}}]),
        (2, "content", 1, "image_url", "url"),
    ),
    "responses": (
        [
            {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_file", "file_url": "https://a"},
                ],
            },
        ],
        (1, "output", 1, "file_url"),
    ),
    "anthropic, a document": (
        anthropic(
            [
                {"type": "text", "text": "a", "citations": [{"cited_text": "b"}]},
                {"type": "document", "title": "t", "source": {"type": "text", "data": "c"}},
            ]
        ),
        (1, "content", 0, "content", 1, "title"),
    ),
    "anthropic, citations": (
        anthropic([{"type": "text", "text": "a", "citations": [{"cited_text": "b"}]}]),
        (1, "content", 0, "content", 0, "citations", 0, "cited_text"),
    ),
    "anthropic, no text": (
        anthropic([{"type": "search_result", "source": "https://a", "title": "t", "content": []}]),
        (1, "content", 0, "content", 0, "source"),
    ),
    "gemini": (
        [
            {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "run", "args": {}}}]},
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "c",
                            "name": "run",
                            "response": {"a": "b", "c": 1},
                            "parts": [{"fileData": {"fileUri": "https://a"}}],
                        }
                    }
                ],
            },
        ],
        (1, "parts", 0, "functionResponse", "parts", 0, "fileData", "fileUri"),
    ),
    "bedrock": (
        [
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "run", "input": {}}}]},
            {
                "role": "user",
                "content": [
                    {
                        "toolResult": {
                            "toolUseId": "c",
                            "content": [{"text": "a"}, {"json": {"b": "c"}}, {"document": {"name": "d"}}],
                        }
                    }
                ],
            },
        ],
        (1, "content", 0, "toolResult", "content", 2, "document", "name"),
    ),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("size", [0, 100_000], ids=["passes", "stored"])
async def test_a_gateways_door_masks_what_a_result_holds_beside_its_texts(
    client: httpx.AsyncClient, name: str, size: int
) -> None:
    messages, path = CONVERSATIONS[name]
    sent = with_secret(messages, path)
    if size:
        sent = json.loads(json.dumps(sent).replace('"a"', json.dumps("a line\n" * (size // 7))))
    for again in range(2):
        for route, body in (
            ("/beta/litellm_basic_guardrail_api", {"input_type": "request", "structured_messages": sent}),
            ("/v1/compress", {"messages": sent}),
        ):
            answer = (await client.post(route, json=body)).json()
            shown = answer.get("structured_messages") or answer.get("messages")
            assert shown is not None, (route, again)
            assert len(re.findall(MASK, json.dumps(shown))) == 1
            assert [one for one in shown if TOKEN in json.dumps(one)] == sent[:1] * (TOKEN in str(sent[0]))
            if not size:
                assert_same_shape(shown[1:], sent[1:])


async def test_what_names_a_call_and_what_a_user_wrote_stay(client: httpx.AsyncClient) -> None:
    messages = chat("a text")
    messages[2]["tool_call_id"] = messages[1]["tool_calls"][0]["id"] = TOKEN
    messages[2]["note"] = TOKEN
    answer = await client.post("/v1/compress", json={"messages": messages})
    shown = answer.json()["messages"]
    assert shown[:2] == messages[:2]
    assert shown[2]["tool_call_id"] == TOKEN
    assert re.fullmatch(MASK, shown[2]["note"])


RESULTS: dict[str, Any] = {
    "structured beside a text": {
        "content": [{"type": "text", "text": "a text that is long enough to be what the data is"}],
        "structuredContent": {"answer": TOKEN},
    },
    "structured alone": {"content": [], "structuredContent": {"rows": [{"name": TOKEN, "n": 1}]}},
    "_meta": {"content": [{"type": "text", "text": "a"}], "_meta": {"trace": f"x {TOKEN}"}},
    "another member": {"content": [{"type": "text", "text": "a"}], "x-more": [[TOKEN]]},
    "a name": {"content": [], "structuredContent": {TOKEN: 1}},
    "not complete": {"resultType": "input_required", "content": [], "inputRequests": {"a": TOKEN}},
    "many links": {
        "content": [
            {**BLOCKS["link"], "name": f"{number} {TOKEN}", "title": "t" * 3000} for number in range(150)
        ]
    },
}


async def test_the_relay_masks_each_string_of_a_result(relay: RelayClient) -> None:
    pass_on = [{"content": [with_secret(BLOCKS[name], path), PICTURE]} for name, path in cases()]
    text = {"type": "text", "text": "another text"}
    for number, result in enumerate([*pass_on, *RESULTS.values(), *RESULTS.values()]):
        # Alone and beside a text: the blocks by turns, and each of the results once.
        for beside in [[] if number % 2 else [text]]:
            sent = {**result, "content": beside + result["content"]}
            shown = relay.call("result", result=sent)
            assert TOKEN not in json.dumps(shown), sent
            assert re.search(MASK, json.dumps(shown)), sent


async def test_the_relay_masks_what_stands_beside_a_text_that_is_stored(relay: RelayClient) -> None:
    text = {"type": "text", "text": "a line of words\n" * 2000}
    link = with_secret(BLOCKS["link"], ("uri",))
    shown = relay.call("result", result={"content": [text, link, PICTURE], "_meta": {"a": TOKEN}})
    assert "It is stored" in shown["content"][0]["text"] or "too large" in shown["content"][0]["text"]
    assert_same_shape(shown["content"][1:], [link, PICTURE])
    assert re.fullmatch(MASK, shown["_meta"]["a"])


@pytest.mark.parametrize("size", [5000, 300_000])
async def test_the_relay_masks_large_blocks(relay: RelayClient, size: int) -> None:
    for name, member in (("link", "description"), ("unknown", "note")):
        block = {**BLOCKS[name], member: f"{TOKEN} " + "word " * (size // 5)}
        assert TOKEN not in json.dumps(relay.call("result", result={"content": [block]}))


async def test_the_relay_leaves_a_result_without_secrets_byte_for_byte(relay: RelayClient) -> None:
    for result in ({"content": list(BLOCKS.values())}, {"content": [], "structuredContent": {"a": "é"}}):
        sent = {"content": [*result["content"], {"type": "text", "text": "t"}], "_meta": {"b": 1.0}}
        assert relay.call("result", result=sent) == sent


async def test_the_relay_masks_errors_resources_prompts_and_questions_to_the_model(
    relay: RelayClient, tmp_path: Path
) -> None:
    resource = {"uri": f"file:///{TOKEN}", "text": TOKEN, "mimeType": "text/plain"}
    for method, result in (
        ("resources/read", {"contents": [resource, {"uri": "a", "blob": "AAAA" * 400}]}),
        ("prompts/get", {"description": TOKEN, "messages": [{"role": "user", "content": BLOCKS["link"]}]}),
    ):
        shown = relay.ask(method, {"result": result})
        assert_same_shape(shown, result)
        assert TOKEN not in json.dumps(shown)
    request = relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
    error = {"code": -1, "message": f"no {TOKEN}", "data": {"at": TOKEN}}
    asked = {"messages": [{"role": "user", "content": {"type": "text", "text": TOKEN}}], "maxTokens": 9}
    lines = [
        {"jsonrpc": "2.0", "id": request, "error": error},
        {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": asked},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "a log line"}},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    relay.send("emit", {"path": str(tmp_path / "lines")})
    for line in lines:
        shown = relay.read()
        assert_same_shape(shown, line)
        assert TOKEN not in json.dumps(shown)
