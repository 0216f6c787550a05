"""LiteLLM's generic guardrail and Headroom's protocol: recorded requests, whole histories, and faults."""

import asyncio
import copy
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.threads import LONG_BYTES
from policies.outcomes.store import TOO_LARGE
from tests.app.doors.payloads import LARGE, changed
from tests.app.doors.test_hooks import ANY, places
from tests.conftest import Serve, StillClock
from tests.counts import count
from tests.keys import key_file

pytestmark = pytest.mark.anyio

PATH = "/beta/litellm_basic_guardrail_api"
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("litellm_payloads.json").read_text())
SURFACES = ("chat completions", "messages", "responses")
NONE = {"action": "NONE"}
HANDLE = re.compile(r'tool_output\(handle = "(session-(\S+)/file-[0-9a-f-]{36})"')


def recorded(surface: str, text: str = LARGE) -> Any:
    """The request, with the text as the result of its tool."""
    sent = copy.deepcopy(RECORDED[surface])
    sent["structured_messages"][-1]["content"] = text
    return sent


def call(id: str, name: str = "bash", arguments: str = '{"command": "ls"}') -> dict[str, Any]:
    made = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(id: str, content: Any = LARGE) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def asked_with(*rows: Any, **fields: Any) -> dict[str, Any]:
    question = {"role": "user", "content": "Is anything wrong?"}
    return {**recorded("chat completions"), "structured_messages": [question, *rows], **fields}


async def ask(client: httpx.AsyncClient, sent: Any, **headers: str) -> Any:
    # LiteLLM escapes what is not ASCII.
    typed = {"Content-Type": "application/json", **headers}
    answer = await client.post(PATH, content=json.dumps(sent), headers=typed)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def entries(client: httpx.AsyncClient, type: str = "tool") -> list[dict[str, Any]]:
    found = (await client.get(f"/accounting/entries?type={type}&limit=1000")).json()["entries"]
    return [dict(entry) for entry in found]


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_fresh_result_is_replaced_and_the_tools_are_offered(
    client: httpx.AsyncClient, surface: str
) -> None:
    sent = recorded(surface)
    told = await ask(client, sent)
    *before, row = told["structured_messages"]
    assert told["action"] == "GUARDRAIL_INTERVENED"
    assert before == sent["structured_messages"][:-1]
    assert {**row, "content": LARGE} == sent["structured_messages"][-1]
    assert row["content"].startswith(f"{TOO_LARGE} ({len(LARGE.encode())} bytes, 900 lines, ")
    handle, session = HANDLE.findall(row["content"])[0]
    assert (await client.get(f"/results/{handle}/content")).text == LARGE
    assert session == "sess-1" if surface == "chat completions" else session.startswith("chat-")
    offered = (await client.get(f"/tools?session_id={session}")).json()["tools"]
    assert told["tools"] == [*sent["tools"], *offered]
    assert next(tool["function"]["name"] for tool in offered) == "tool_output"
    (entry,) = await entries(client)
    assert (entry["command"], entry["tool_call_id"]) == (
        "bash",
        sent["structured_messages"][-1]["tool_call_id"],
    )
    question = {"handle": handle, "extract": "the tulip with number 437"}
    named = {"session_id": session, "name": "tool_output", "arguments": question}
    assert "437: the tulip" in (await client.post("/tools/call", json=named)).json()["text"]


@pytest.mark.parametrize("surface", SURFACES)
async def test_what_fits_passes(client: httpx.AsyncClient, surface: str) -> None:
    assert await ask(client, recorded(surface, "few")) == NONE
    (entry,) = await entries(client)
    assert (entry["outcome"], entry["tokens_out"]) == ("pass", entry["tokens_in"] or entry["tokens_out"])
    assert await ask(client, {**recorded(surface), "input_type": "response"}) == NONE


async def test_a_history_is_replaced_in_the_same_way_each_time(serve: Serve) -> None:
    """Also after a restart, and in another order of requests; each result is accounted once."""
    rows = [
        row for n in range(20) for row in (call(f"c{n}"), result(f"c{n}", LARGE + str(n) if n % 2 else "few"))
    ]
    told: list[Any] = []
    async with serve() as client:
        for size in (10, 20, 40):
            told.append(await ask(client, asked_with(*rows[:size])))
        assert len(await entries(client)) == 20
        told.append(await ask(client, asked_with(*rows)))
        assert len(await entries(client)) == 20
    async with serve() as client:
        told.append(await ask(client, asked_with(*rows)))
        assert len(await entries(client)) == 20
    *_, last = told
    assert sum(TOO_LARGE in str(row) for row in last["structured_messages"]) == 10
    for one in told:
        shown = one["structured_messages"]
        assert shown == last["structured_messages"][: len(shown)]


async def test_a_conversation_that_becomes_large_stays_the_same(client: httpx.AsyncClient) -> None:
    """A large body is read in another way. Session and calls are named by their contents here."""
    row = {"role": "tool", "name": "bash", "content": "é\n" + LARGE}
    later = {"role": "user", "content": "x" * LONG_BYTES}
    told = []
    for rows in ([row], [row, later]):
        sent = asked_with(*rows, litellm_trace_id=None, request_headers=None)
        sent["structured_messages"][0]["content"] = "Où est la faute ?"
        told.append(await ask(client, sent))
    assert told[1]["session_id"] == told[0]["session_id"]
    assert told[1]["structured_messages"] == [*told[0]["structured_messages"], later]
    assert TOO_LARGE in told[0]["structured_messages"][1]["content"]
    told = []
    for rows in ([row], [row, later]):
        answer = await client.post("/v1/compress", content=json.dumps({"messages": rows}))
        told.append(answer.json())
    assert told[1]["ccr_hashes"] == told[0]["ccr_hashes"] != []
    assert len(await entries(client)) == 2


async def test_a_text_that_is_the_json_of_another_is_told_apart(client: httpx.AsyncClient) -> None:
    """Long texts of a large body are JSON until they are read."""
    later = {"role": "user", "content": "x" * LONG_BYTES}
    for _ in range(2):
        await ask(client, asked_with(call("c1"), result("c1", json.dumps(LARGE))))
    told = await ask(client, asked_with(call("c1"), result("c1", LARGE), later))
    handle = HANDLE.findall(told["structured_messages"][2]["content"])[0][0]
    assert (await client.get(f"/results/{handle}/content")).text == LARGE


async def test_calls_that_are_counted_from_0_again_are_told_apart(client: httpx.AsyncClient) -> None:
    rows = [call("call_0"), result("call_0"), call("call_0", "read_file"), result("call_0", LARGE + "other")]
    told = await ask(client, asked_with(*rows))
    shown = [row["content"] for row in told["structured_messages"] if row["role"] == "tool"]
    handles = [HANDLE.findall(text)[0][0] for text in shown]
    contents = [(await client.get(f"/results/{handle}/content")).text for handle in handles]
    assert contents == [LARGE, LARGE + "other"]
    assert sorted(entry["command"] for entry in await entries(client)) == ["bash", "read_file"]
    assert await ask(client, asked_with(*rows)) == told


async def test_a_result_belongs_to_the_nearest_call_before_it(client: httpx.AsyncClient) -> None:
    """By its id. A result without such a call has the name that its row says, if any."""
    both = call("c1", "one")
    both["tool_calls"] += [*call("c2", "two")["tool_calls"], *call("c2", "last")["tool_calls"]]
    rows = [
        result("c0", "1"),
        {**result("c9", "22"), "name": "said"},
        call("c0", "zero"),
        both,
        result("c2", "333"),
        {"role": "user", "content": "Go on."},
        result("c1", "4444"),
        {"role": "tool", "content": "55555", "name": None},
        call("c1", "unrun"),
    ]
    assert await ask(client, asked_with(*rows)) == NONE
    named = {entry["charactersOut"]: entry["tool_name"] for entry in await entries(client)}
    assert named == {1: "tool", 2: "said", 3: "last", 4: "one", 5: "tool"}


SHAPES: list[tuple[str, Any, Any]] = [
    ("parts", [{"type": "text", "text": LARGE}], lambda text: [{"type": "text", "text": text}]),
    (
        "with a picture",
        [{"type": "text", "text": LARGE}, {"type": "image_url", "image_url": {"url": "data:,"}}],
        lambda text: [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    ),
    ("picture alone", [{"type": "image_url", "image_url": {"url": LARGE}}], None),
    ("nothing", "", None),
    ("no content", None, None),
]


@pytest.mark.parametrize(
    ("content", "expected"), [case[1:] for case in SHAPES], ids=[one[0] for one in SHAPES]
)
async def test_a_result_keeps_its_shape(client: httpx.AsyncClient, content: Any, expected: Any) -> None:
    told = await ask(client, asked_with(call("c1"), result("c1", content)))
    if expected is None:
        assert told == NONE
        return
    shown = told["structured_messages"][-1]["content"]
    assert shown == expected(shown[0]["text"])
    assert HANDLE.search(shown[0]["text"])


@pytest.mark.parametrize(
    "name", ["tool_output", "tool_output_lines", "mcp__spillgate__tool_output_grep", "spillgate_tool_output"]
)
async def test_the_answers_of_our_own_tools_are_left_alone(client: httpx.AsyncClient, name: str) -> None:
    assert await ask(client, asked_with(call("c1", name), result("c1"))) == NONE
    assert await entries(client) == []


OWN = {"type": "function", "function": {"name": "mcp__spillgate__tool_output", "parameters": {}}}


@pytest.mark.parametrize(
    ("fields", "named", "added"),
    [
        ({"tools": None}, "Its handle is session-", 0),
        ({"tools": []}, "Its handle is session-", 0),
        ({"tools": [OWN]}, "mcp__spillgate__tool_output(handle = ", 0),
        (
            {"additional_provider_specific_params": {"offer_tools": False}},
            "Its handle is session-",
            0,
        ),
        ({}, "tool_output(handle = ", 1),
    ],
)
async def test_tools_are_offered_where_the_request_brings_tools_and_lacks_ours(
    client: httpx.AsyncClient, fields: dict[str, Any], named: str, added: int
) -> None:
    sent = asked_with(call("c1"), result("c1"), **fields)
    told = await ask(client, sent)
    assert f"\n{named}" in told["structured_messages"][-1]["content"]
    assert len(told.get("tools", sent["tools"] or [])) == len(sent["tools"] or []) + added


MADE_UP = "37fc227d-e472-4aa2-bada-08053cf2974e"


@pytest.mark.parametrize(
    ("headers", "trace", "parameters", "session"),
    [
        ({"X-Session-Id": "mine"}, "t", {}, "mine"),
        ({"x-session-id": "[present]"}, "t", {}, "t"),
        ({"x-session-id": "mine", "X-Run": "run-7"}, "t", {"session_header": "x-run"}, "run-7"),
        ({"x-litellm-session-id": MADE_UP}, MADE_UP, {}, MADE_UP),
        ({}, MADE_UP, {}, None),
        (None, None, {}, None),
        ({"x-session-id": "a b/c"}, "t", {}, sha256(b"a b/c").hexdigest()[:32]),
    ],
)
async def test_the_session_is_the_one_that_the_caller_names(
    client: httpx.AsyncClient, headers: Any, trace: Any, parameters: Any, session: str | None
) -> None:
    sent = asked_with(
        call("c1"),
        result("c1"),
        request_headers=headers,
        litellm_trace_id=trace,
        additional_provider_specific_params=parameters,
    )
    shown = (await ask(client, sent))["structured_messages"][-1]["content"]
    found = HANDLE.findall(shown)[0][1]
    if session is not None:
        assert found == session
        return
    # None is named: the same one while the conversation begins in the same way, for the same user.
    assert re.fullmatch("chat-[0-9a-f]{32}", found)
    again = {**sent, "litellm_trace_id": MADE_UP.replace("3", "4")}
    assert (await ask(client, again))["structured_messages"][-1]["content"] == shown
    other = {**sent, "request_data": {"user_api_key_hash": "other"}}
    assert found not in (await ask(client, other))["structured_messages"][-1]["content"]


FAULTS = [
    (b"", "application/json"),
    (b"{", "application/json"),
    (b"[]", "application/json"),
    (b"\xff", "application/json"),
    (b'{"input_type": "request", "structured_messages": null, "texts": ["a"]}', "application/json"),
    (b'{"input_type": "request", "structured_messages": [1, null, {"role": "tool"}]}', "application/json"),
    (b'{"input_type": "request", "structured_messages": ' + b"[" * 100_000, "application/json"),
    (b"[" + b"0," * 1_000_000 + b"0]", "application/json"),
    (b'{"a": "\\ud800"}', "application/json"),
]


async def test_whatever_is_sent_the_request_goes_on(client: httpx.AsyncClient) -> None:
    for body, media in FAULTS:
        answer = await client.post(PATH, content=body, headers={"Content-Type": media})
        assert (answer.status_code, answer.json()) == (200, NONE), body[:60]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Any, bool]:
    is_large = draw(st.booleans())
    sent = recorded(draw(st.sampled_from(SURFACES)), LARGE if is_large else "few")
    return changed(sent, draw(st.sampled_from(places(sent))), draw(ANY)), is_large


async def test_no_shape_makes_it_fail_or_change_what_it_should_pass(serve: Serve) -> None:
    async with serve(storage_url="memory:") as client:
        sent_to: list[tuple[Any, bool]] = []
        given(mutated())(lambda one: sent_to.append(one))()
        for sent, is_large in sent_to[: count(60, 2000)]:
            told = await ask(client, sent)
            if told != NONE and not (is_large and TOO_LARGE in json.dumps(told)):
                # The session has something stored from before: only tools were added.
                assert told["structured_messages"] == sent["structured_messages"]
                assert len(told["tools"]) > len(sent["tools"])


async def test_a_full_store_and_an_ended_session_let_the_request_go_on(serve: Serve) -> None:
    """What was replaced before still is; the results that cannot be stored stay as they are."""
    async with serve(storage_max_bytes=2 * len(LARGE.encode())) as client:
        first = await ask(client, asked_with(call("c1"), result("c1")))
        rows = [
            call("c1"),
            result("c1"),
            call("c2"),
            result("c2", LARGE * 2),
            call("c3"),
            result("c3", "few"),
        ]
        told = await ask(client, asked_with(*rows))
        assert told["structured_messages"][2] == first["structured_messages"][2]
        assert told["structured_messages"][4]["content"] == LARGE * 2
    async with serve(storage_url="memory:") as client:
        sent = asked_with(call("c1"), result("c1", LARGE + "!"))
        await ask(client, sent)
        await client.delete("/sessions/sess-1")
        assert await ask(client, asked_with(call("c9"), result("c9"))) == NONE
        await client.put("/sessions/sess-1", json={})
        (*_, row) = (await ask(client, sent))["structured_messages"]
        assert (await client.get(f"/results/{HANDLE.findall(row['content'])[0][0]}")).status_code == 200


@pytest.mark.parametrize("deleted", ["/tenants/one", "/sessions/sess-1"])
async def test_no_handle_of_a_deleted_life_of_the_session_is_given(
    serve: Serve, tmp_path: Path, clock: StillClock, deleted: str
) -> None:
    keys = key_file(tmp_path / "keys", "one:agent:agent", "one:admin:admin")
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        sent = asked_with(call("c1"), result("c1"))
        agent = {"x-api-key": "agent"}
        told = [await ask(client, sent, **agent) for _ in range(3)]
        assert told[0] == told[1] == told[2]
        clock.pass_seconds(1)
        gone = await client.delete(deleted, headers={"Authorization": "Bearer admin"})
        assert gone.status_code in (200, 204)
        for _ in range(3):
            answer = await ask(client, sent, **agent)
            rows = [] if answer == NONE else answer["structured_messages"]
            handles = [one[0] for row in rows for one in HANDLE.findall(str(row["content"]))]
            assert len(handles) == (0 if deleted.startswith("/sessions") else 1)
            for handle in handles:
                read = await client.get(f"/results/{handle}", headers={"Authorization": "Bearer agent"})
                assert read.status_code == 200


async def test_a_key_may_come_as_litellm_sends_it(serve: Serve, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", "one:one", "two:two")
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        sent = asked_with(call("c1"), result("c1"))
        assert (await client.post(PATH, json=sent)).status_code == 401
        assert (await client.post(PATH, json=sent, headers={"x-api-key": "three"})).status_code == 401
        told = [await ask(client, sent, **{"x-api-key": name}) for name in ("one", "two")]
        handles = [HANDLE.findall(one["structured_messages"][-1]["content"])[0][0] for one in told]
        own = await client.get(f"/results/{handles[0]}", headers={"Authorization": "Bearer one"})
        other = await client.get(f"/results/{handles[0]}", headers={"x-api-key": "two"})
        assert (own.status_code, other.status_code) == (200, 404)


async def test_a_result_that_has_expired_is_stored_again(serve: Serve, clock: StillClock) -> None:
    """What was seen is remembered for a quarter of the retention: then the governor looks after it."""
    async with serve(storage_url="memory:", retention_seconds=100) as client:
        sent = asked_with(call("c1"), result("c1"))
        told = await ask(client, sent)
        handle = HANDLE.findall(told["structured_messages"][-1]["content"])[0][0]
        clock.pass_seconds(20)
        await client.delete(f"/results/{handle}")
        seen = await ask(client, sent)
        assert seen["structured_messages"] == told["structured_messages"]
        clock.pass_seconds(10)
        assert await ask(client, sent) == told
        assert (await client.get(f"/results/{handle}/content")).text == LARGE
        assert len(await entries(client)) == 1


def compressible(*results: str) -> dict[str, Any]:
    rows = [{"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in enumerate(results)]
    question = {"role": "user", "content": "q"}
    return {"messages": [question, *rows], "model": "m", "config": {"tool_name": "headroom_retrieve"}}


async def test_headrooms_protocol_replaces_and_answers(client: httpx.AsyncClient) -> None:
    sent = compressible(LARGE, "few", LARGE + "other")
    told = (await client.post("/v1/compress", json=sent)).json()
    assert [row["role"] for row in told["messages"]] == [row["role"] for row in sent["messages"]]
    assert (told["messages"][0], told["messages"][2]) == (sent["messages"][0], sent["messages"][2])
    assert len(told["ccr_hashes"]) == 2
    for hash, row in zip(told["ccr_hashes"], told["messages"][1::2], strict=True):
        assert re.fullmatch("[a-f0-9]{24}", hash)
        assert f'\nCall headroom_retrieve with hash={hash} and query="what to extract".' in row["content"]
        assert "tool_output" not in row["content"]
    assert told["tokens_before"] - told["tokens_after"] == told["tokens_saved"] > 10_000
    assert told["compression_ratio"] == pytest.approx(told["tokens_after"] / told["tokens_before"], abs=1e-4)
    assert (await client.post("/v1/compress", json=sent)).json() == told
    assert len(await entries(client)) == 3
    hash = told["ccr_hashes"][0]
    answer = await client.get(f"/v1/retrieve/{hash}?query=the+tulip+with+number+437")
    assert "437: the tulip" in answer.json()["original_content"]
    whole = (await client.get(f"/v1/retrieve/{hash}")).json()["original_content"]
    assert "0: the tulip" in whole
    assert "899: the tulip" in whole
    assert len(whole.encode()) <= 12_288
    assert len(await entries(client, "extract")) == 2


async def test_headrooms_recorded_request(client: httpx.AsyncClient) -> None:
    told = (await client.post("/v1/compress", json=RECORDED["headroom"])).json()
    assert told["messages"] == RECORDED["headroom"]["messages"]
    assert (told["tokens_saved"], told["ccr_hashes"]) == (0, [])


@pytest.mark.parametrize("hash", ["a" * 24, "a" * 12, "A" * 24, "../x", "é"])
async def test_a_hash_that_is_not_known_is_not_found(client: httpx.AsyncClient, hash: str) -> None:
    assert (await client.get(f"/v1/retrieve/{hash}")).status_code == 404
    await client.post("/v1/compress", json=compressible(LARGE))
    assert (await client.get(f"/v1/retrieve/{hash}?query=q")).status_code == 404


async def test_requests_at_the_same_time_get_the_same_messages(client: httpx.AsyncClient) -> None:
    sent = asked_with(*[row for n in range(5) for row in (call(f"c{n}"), result(f"c{n}", LARGE + str(n)))])
    told = await asyncio.gather(*[ask(client, sent) for _ in range(4)])
    assert all(one == told[0] for one in told)
    assert len(await entries(client)) == 5
