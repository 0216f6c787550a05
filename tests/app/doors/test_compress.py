"""POST /v1/compress: what real SDKs send in five shapes, what must stay, and which tool the texts name."""

import asyncio
import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from policies.outcomes.store import TOO_LARGE
from tests.app.doors.generated_conversations import Row, conversation
from tests.app.doors.payloads import LARGE, at, changed
from tests.app.doors.test_hooks import places
from tests.app.doors.test_litellm import call, result
from tests.conftest import Serve, served
from tests.counts import count
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

SDKS: dict[str, Any] = json.loads(Path(__file__).with_name("sdk_requests.json").read_text())
"""Written by tests/interop/sdks/requests_of_sdks.py. `RESULT n` are the results."""

HANDLE = re.compile(r"session-headroom/file-[0-9a-f-]{36}")
Items = msgspec.json.Decoder(list[msgspec.Raw])
Members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def messages_of(sdk: str) -> list[Any]:
    sent = SDKS[sdk]
    found = next(sent[name] for name in ("messages", "input", "contents") if name in sent)
    return list(copy.deepcopy(found))


def results_in(messages: Any) -> Iterator[tuple[str | int, ...]]:
    for path in places(messages):
        text = at(messages, path)
        if isinstance(text, str) and text.startswith("RESULT"):
            yield path


async def compressed(client: httpx.AsyncClient, body: Any, **headers: str) -> Any:
    answer = await client.post("/v1/compress", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def items_of(client: httpx.AsyncClient, body: bytes) -> list[bytes]:
    """The messages of the answer, as they are written."""
    answer = await client.post("/v1/compress", content=body)
    assert answer.status_code == 200, answer.text
    return [bytes(item) for item in Items.decode(Members.decode(answer.content)["messages"])]


JSON_RESULTS = {
    ("gemini contents", 2): ({"rows": [{"n": 1.5, "text": LARGE + "2"}], "next": None}, -3, "output"),
    ("bedrock converse", 1): ({"rows": [{"text": LARGE + "1"}]}, -4, "text"),
}
"""Results that are JSON: the whole of it, how many steps above its text it stands, and the member of the text
in its place."""


@pytest.mark.parametrize("sdk", SDKS)
async def test_each_result_in_the_request_of_a_real_sdk_is_replaced_and_nothing_else(
    client: httpx.AsyncClient, sdk: str
) -> None:
    sent = messages_of(sdk)
    assert (await compressed(client, {"messages": sent}))["messages"] == sent
    paths = sorted(results_in(sent), key=lambda path: str(at(sent, path)))
    for number, path in enumerate(paths):
        sent = changed(sent, path, f"{LARGE}{number}")
    told = await compressed(client, {"messages": sent})
    expected, contents = sent, []
    for number, path in enumerate(paths):
        whole, up, member = JSON_RESULTS.get((sdk, number), (None, None, ""))
        above = path[:up]
        shown = at(told["messages"], (*above, member) if whole else path)
        assert shown.startswith(TOO_LARGE)
        expected = changed(expected, above, {member: shown} if whole else shown)
        handle = HANDLE.findall(shown)[0]
        content = (await client.get(f"/results/{handle}/content")).text
        contents.append(json.loads(content) if whole else content)
    assert json.dumps(told["messages"]) == json.dumps(expected)
    assert contents == [
        JSON_RESULTS[sdk, n][0] if (sdk, n) in JSON_RESULTS else f"{LARGE}{n}" for n in range(len(paths))
    ]
    assert (await compressed(client, {"messages": sent})) == told


NAMES = {
    "openai chat": ["bash", "bash"],
    "openai responses": ["bash", "bash", "patch"],
    "anthropic messages": ["bash", "bash", "bash"],
    "gemini contents": ["bash", "bash", "fetch"],
    "bedrock converse": ["bash", "bash", "bash"],
}


@pytest.mark.parametrize("sdk", SDKS)
async def test_each_result_is_governed_under_the_tool_and_the_arguments_of_its_call(
    client: httpx.AsyncClient, sdk: str
) -> None:
    await compressed(client, {"messages": messages_of(sdk)})
    entries = (await client.get("/accounting/entries?type=tool")).json()["entries"]
    assert sorted(entry["tool_name"] for entry in entries) == NAMES[sdk]
    assert all(entry["charactersIn"] for entry in entries)
    failed = {"anthropic messages": 1, "bedrock converse": 1}
    assert [entry["status"] for entry in entries].count("failed") == failed.get(sdk, 0)


async def test_what_is_not_a_result_of_a_tool_stays_byte_for_byte(client: httpx.AsyncClient) -> None:
    large = json.dumps(LARGE)
    kept = [
        f'{{"role": "system" , "content":{large}}}',
        f'{{"content":[{{"type":"text","text":{large},"cache_control":{{"x":1.0}}}}],"role":"user"}}',
        '{"role":"user","content":"\\u00e9\\/ \\ud83c\\udf37","n":[1.0,1e2,123456789012345678901234567890]}',
        '{"role":"tool","tool_call_id":"c1","content":"few","cache_control":{"type":"ephemeral"}}',
        f'{{"type":"reasoning","encrypted_content":{large},"summary":[]}}',
        '["tool"]',
        "null",
    ]
    before = (
        '{"x":1.0,"role":"tool","content":[{"type":"image_url","image_url":{"url":"data:,"}},'
        '{"cache_control":{"ttl": "5m"},"type":"text","text":'
    )
    dropped = f',{{"type":"text","text":{large}}}'
    cached, after = (
        ',{"type":"text","text":',
        ',"cache_control":{"type":"ephemeral"}}],"tool_call_id":"\\u0063"}',
    )
    # Of a message that changes, the values stay.
    sent = f'{before}{large},"y":1e2}}{dropped}{cached}{large}{after}'
    *told, last = await items_of(client, f'{{"messages":[{",".join([*kept, sent])}]}}'.encode())
    assert told == [one.encode() for one in kept]
    shown = json.loads(last)["content"][1]["text"]
    assert shown.startswith(TOO_LARGE)
    assert json.loads(last) == json.loads(f'{before}{json.dumps(shown)},"y":1e2}}{cached}"…"{after}')


def asked(**more: Any) -> dict[str, Any]:
    return {"messages": [call("c1"), result("c1")], **more}


def tools(*names: str) -> dict[str, list[Any]]:
    """Definitions in the shape of each API."""
    return {
        "chat": [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names],
        "responses": [{"type": "function", "name": name, "parameters": {}} for name in names],
        "anthropic": [{"name": name, "input_schema": {}} for name in names],
        "gemini": [{"functionDeclarations": [{"name": name} for name in names]}],
        "bedrock": [{"toolSpec": {"name": name, "inputSchema": {"json": {}}}} for name in names],
    }


async def shown(client: httpx.AsyncClient, body: Any, **headers: str) -> str:
    return str((await compressed(client, body, **headers))["messages"][1]["content"])


BY_HASH = "\nCall headroom_retrieve with hash="
MCP = "mcp__spillgate__tool_output"


@pytest.mark.parametrize(
    ("more", "agent", "named"),
    [
        ({"config": {"tool_name": "headroom_retrieve"}}, "x", BY_HASH),
        ({"config": {"tool_name": MCP}}, "litellm/1.106.2", f"\n{MCP}(handle = "),
        ({"config": {"tool_name": "ask_it"}}, "x", "\nask_it(handle = "),
        ({"config": {"tool_name": "ask_it"}, "tools": tools(MCP)["chat"]}, "x", "\nask_it(handle = "),
        ({"config": {"tool_name": "x\n\nNow"}, "tools": tools(MCP)["chat"]}, "x", f"\n{MCP}(handle = "),
        *(({"tools": one}, "x", f"\n{MCP}(handle = ") for one in tools("bash", MCP).values()),
        ({"tools": tools("bash", "headroom_retrieve")["chat"]}, "x", BY_HASH),
        ({}, "litellm/1.106.2", BY_HASH),
    ],
)
async def test_the_text_names_the_tool_that_the_caller_says(
    client: httpx.AsyncClient, more: Any, agent: str, named: str
) -> None:
    assert named in await shown(client, asked(**more), **{"User-Agent": agent})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tools": tools("bash")["chat"]},
        {"config": {"tool_name": "x\n\nNow"}},
        {"config": 1, "tools": {"a": 1}},
    ],
)
async def test_without_a_tool_the_text_is_a_sketch_with_the_handle_and_the_file(
    serve: Serve, tmp_path: Path, more: Any
) -> None:
    async with serve() as client:
        text = await shown(client, asked(**more))
        size = f"{len(LARGE.encode())} bytes, 900 lines"
        first, second, third, empty, *sketch = text.split("\n")
        assert first.startswith(f"{TOO_LARGE} ({size}, ")
        handle = HANDLE.findall(second)[0]
        assert second == f"Its handle is {handle}."
        assert third.startswith(f"The whole output is in the file {tmp_path}/")
        assert Path(third.partition(" file ")[2].removesuffix(".")).read_text() == LARGE
        assert empty == ""
        assert "the tulip with number 899" in "\n".join(sketch)
        assert "tool_output(" not in text
    async with serve(storage_url="memory:") as client:
        assert "in the file" not in await shown(client, asked(**more))


@pytest.mark.parametrize("outcome", ["truncate", "cap"])
async def test_a_part_of_a_result_names_no_tool_either(serve: Serve, tmp_path: Path, outcome: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[defaults]\non_oversize = "{outcome}"\n')
    async with serve(storage_url="memory:", policy_file=policy) as client:
        text = await shown(client, asked())
        assert re.search(r"The whole result is kept: session-headroom/file-[0-9a-f-]{36}\.$", text)
        assert "tool_output(" not in text


async def test_a_policy_may_name_the_tool_of_an_mcp_server_that_all_agents_have(
    serve: Serve, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[defaults.tool_names]\ntool_output = "{MCP}"\n')
    async with serve(storage_url="memory:", policy_file=policy) as client:
        assert f"\n{MCP}(handle = " in await shown(client, asked())


@pytest.mark.parametrize("tool", [MCP, "headroom_retrieve", "ask_it"])
async def test_answers_of_the_tool_that_is_named_are_left_alone(client: httpx.AsyncClient, tool: str) -> None:
    body = {"messages": [call("c1", tool), result("c1")], "config": {"tool_name": tool}}
    assert (await compressed(client, body))["messages"] == body["messages"]


async def test_what_cannot_be_stored_stays_and_comes_back(serve: Serve) -> None:
    async with serve(storage_url="memory:", storage_max_bytes=100) as client:
        told = await compressed(client, asked())
        assert (told["messages"], told["tokens_saved"]) == (asked()["messages"], 0)


@pytest.mark.usefixtures("patient_redis")
async def test_without_the_ledger_the_messages_come_back_as_they_were(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server:
        async with served(storage_url=server.url) as (_, client):
            first = await compressed(client, asked())
            server.stop()
            told = await compressed(client, asked())
            assert (told["messages"], told["tokens_saved"]) == (asked()["messages"], 0)
            server.start()
            again = told
            async with asyncio.timeout(60):
                while again["messages"] == asked()["messages"]:
                    await asyncio.sleep(0.02)
                    again = await compressed(client, asked())
    assert TOO_LARGE in first["messages"][1]["content"]
    assert HANDLE.findall(str(again)) == HANDLE.findall(str(first))


CONVERSATIONS, BATCH = count(25, 10_000), 100
SETTINGS: dict[str, Any] = {"storage_url": "memory:", "require_budget": True, "context_window": 34_000}
"""A budget that three results would exhaust, had it a part in what is decided."""


@pytest.mark.repeated
async def test_a_conversation_that_goes_on_begins_with_the_same_bytes_everywhere() -> None:
    """Turn after turn, in a service that has seen all of it, and in one that has seen nothing."""
    replaced = 0
    for begin in range(0, CONVERSATIONS, BATCH):
        batch = [conversation(seed) for seed in range(begin, min(begin + BATCH, CONVERSATIONS))]
        before: list[list[bytes]] = [[] for _ in batch]
        async with served(**SETTINGS) as (_, client):
            for turn in range(1, 1 + max(map(len, batch))):
                async with served(**SETTINGS) as (_, fresh):
                    for number, turns in enumerate(batch):
                        if turn > len(turns):
                            continue
                        told = await items_of(client, body_of(turns[:turn]))
                        assert told[: len(before[number])] == before[number], f"conversation {begin + number}"
                        if turn % 2 or turn == len(turns):
                            assert await items_of(fresh, body_of(turns[:turn])) == told
                        before[number] = told
        replaced += sum(TOO_LARGE.encode() in item for items in before for item in items)
    assert replaced > CONVERSATIONS


def body_of(turns: list[list[Row]]) -> bytes:
    return json.dumps({"messages": [row for turn in turns for row in turn]}).encode()
