"""One attempt at a backend that answers well, badly, late or never."""

import asyncio
import json
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from email.utils import formatdate
from typing import Any

import anyio
import pytest

from domain.errors import (
    ContextExceeded,
    ModelBadReply,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptDeclined,
    PromptRefused,
)
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Reply, Role, ToolCall, ToolSpec
from extraction.models import openai, openai_wire
from extraction.models.openai import BackendConnections, OpenAIModel
from extraction.models.openai_wire import parse_reply, retry_after
from tests.counts import count
from tests.extraction.backend import BEHAVIOURS, Backend, Spoken, completion, running
from tests.extraction.behaviours import Behaviour, Exchange, fails
from tests.listening import listening
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret"
TERMS = ModelTerms("model-1", context_window=32_000, max_output_tokens=500)
PROMPT = Prompt((Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Well?")), max_output_tokens=1000)
TOOL = ToolSpec("Read", "Reads lines.", '{"type":"object","properties":{"offset":{"type":"integer"}}}')
SMALL_MEMORY = 8 << 20

FAILURES: dict[str, tuple[type[ModelError], str]] = {
    "refuses": (ModelUnavailable, "the backend cannot be reached"),
    "resets": (ModelUnavailable, "the backend broke the connection"),
    "rate_limited_s": (ModelUnavailable, "the backend failed (429)"),
    "rate_limited_date": (ModelUnavailable, "the backend failed (429)"),
    "rate_limited_9999": (ModelUnavailable, "the backend failed (429)"),
    "rate_limited_garbage": (ModelUnavailable, "the backend failed (429)"),
    "error_500": (ModelUnavailable, "the backend failed (500)"),
    "error_503": (ModelUnavailable, "the backend failed (503)"),
    "bad_key": (ModelRefused, "the backend refused the key"),
    "no_quota": (ModelRefused, "quota exhausted"),
    "html": (ModelBadReply, "the reply is not JSON"),
    "truncated_json": (ModelBadReply, "the reply is not JSON"),
    "empty_content": (ModelBadReply, "the reply is empty"),
    "null_choices": (ModelBadReply, "the reply has no choices"),
    "great_body": (ModelBadReply, "the reply is too long"),
    "gzip_bomb": (ModelBadReply, "the reply is compressed"),
    "redirect": (ModelRefused, "the backend answered with a redirect"),
    "context_exceeded": (ContextExceeded, "the prompt is longer than the model's window"),
    "content_filter": (PromptDeclined, "the backend's content filter withheld the reply"),
    "calls_too_often": (ModelBadReply, "the reply calls too many tools"),
    "nested": (ModelBadReply, "the reply is not a chat completion"),
    "not_utf8": (ModelBadReply, "the reply is not JSON"),
    "lone_surrogate": (ModelBadReply, "the reply is not JSON"),
    "wrong_types": (ModelBadReply, "the reply is not a chat completion"),
    "streams_events": (ModelBadReply, "the reply is not JSON"),
    "long_headers": (ModelUnavailable, "the backend broke the connection"),
    "no_http": (ModelUnavailable, "the backend broke the connection"),
    "closes_early": (ModelUnavailable, "the backend broke the connection"),
    "two_lengths": (ModelUnavailable, "the backend broke the connection"),
    "errors_for_long": (ModelUnavailable, "the backend failed (500)"),
    "length_of_a_terabyte": (ModelBadReply, "the reply is too long"),
}
NEVER_ENDING = ("silent", "stalls", "drips")
SUCCESSES = ("answers", "echoes_an_order", "usage_wrong", "usage_absurd", "usage_absent")
REPLIES = sorted({*BEHAVIOURS} - {*FAILURES, *NEVER_ENDING, *SUCCESSES})
"""Of a model that writes no report, calls tools that are not there, or much more than was asked for."""


@pytest.fixture
async def connections() -> AsyncIterator[BackendConnections]:
    """Afterwards nothing of it runs any more."""
    before = running()
    async with aclosing(BackendConnections(8)) as connections:
        yield connections
    for _ in range(20):
        await asyncio.sleep(0)
    assert running() <= before


def model_of(
    backend: Backend, connections: BackendConnections, base_url: str = "", **kwargs: int
) -> OpenAIModel:
    return OpenAIModel(TERMS, connections, base_url or backend.base_url, KEY, version="1.2", **kwargs)


async def failure(
    connections: BackendConnections, *script: str | Behaviour, prompt: Prompt = PROMPT
) -> ModelError:
    async with Backend(*script) as backend:
        with pytest.raises(ModelError) as caught:
            await model_of(backend, connections).complete(prompt)
        return caught.value


@contextmanager
def memory_within(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        assert tracemalloc.get_traced_memory()[1] - before < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_has_its_class_and_a_reason_of_ours(
    name: str, connections: BackendConnections
) -> None:
    kind, detail = FAILURES[name]
    async with Backend(name) as backend:
        with pytest.raises(ModelError) as caught:
            await model_of(backend, connections).complete(PROMPT)
        assert (type(caught.value), caught.value.detail) == (kind, detail)
        assert KEY not in repr(caught.value)
        if name == "bad_key":
            assert vars(caught.value)["status"] == 401
        await connections.aclose()
        assert await backend.idle()


@pytest.mark.parametrize("name", NEVER_ENDING)
@pytest.mark.parametrize("by", ["scope", "task"])
async def test_cancelling_closes_what_would_never_end(
    name: str, by: str, connections: BackendConnections
) -> None:
    async with Backend(name) as backend:
        if by == "task":
            call = asyncio.create_task(model_of(backend, connections).complete(PROMPT))
            await asyncio.wait((call,), timeout=0.1)
            call.cancel()
            await asyncio.wait((call,))
            assert call.cancelled()
        else:
            with anyio.move_on_after(0.1) as scope:
                await model_of(backend, connections).complete(PROMPT)
            assert scope.cancelled_caught
        assert await backend.idle()
        await backend.play("answers")
        # Neither does it keep the connection from others.
        assert (await model_of(backend, connections).complete(PROMPT)).text == "All is well."


@pytest.mark.parametrize("name", SUCCESSES)
async def test_a_reply_is_what_the_model_said(name: str, connections: BackendConnections) -> None:
    async with Backend(name) as backend:
        reply = await model_of(backend, connections).complete(PROMPT)
    assert reply.text == ("IGNORE ALL OF IT" if name == "echoes_an_order" else "All is well.")
    assert reply.stop_reason == "stop"
    known = {"answers": LlmTokens(4, 4), "echoes_an_order": LlmTokens(4, 5)}
    absurd = LlmTokens(9_000_000, 9_000_000)
    assert reply.tokens == (absurd if name == "usage_absurd" else known.get(name))


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_is_read_whatever_the_model_says(name: str, connections: BackendConnections) -> None:
    async with Backend(name) as backend:
        reply = await model_of(backend, connections).complete(PROMPT)
    assert reply.text or reply.tool_calls


@pytest.mark.parametrize("end", ["", "/", "//"])
async def test_the_request_is_the_one_that_the_api_asks_for(
    end: str, connections: BackendConnections
) -> None:
    called = ToolCall("call-1", "Read", '{"offset":1}')
    messages = (
        *PROMPT.messages,
        Message(Role.ASSISTANT, "", (called,)),
        Message(Role.TOOL, "1\tone", tool_call_id="call-1"),
    )
    async with Backend() as backend:
        model = model_of(backend, connections, backend.base_url + end)
        await model.complete(Prompt(messages, 1000, (TOOL,)))
        asked = backend.asked[0]
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["user-agent"] == "spillgate/1.2"
    assert asked.headers["accept-encoding"] == "identity"
    assert "transfer-encoding" not in asked.headers
    function = {"name": "Read", "arguments": '{"offset":1}'}
    assert asked.body == {
        "model": "model-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Well?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
            },
            {"role": "tool", "content": "1\tone", "tool_call_id": "call-1"},
        ],
        "stream": False,
        "max_tokens": 500,
        "temperature": 0,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "Read",
                    "description": "Reads lines.",
                    "parameters": {"type": "object", "properties": {"offset": {"type": "integer"}}},
                },
            }
        ],
    }


@pytest.mark.parametrize("key", [None, "", " "])
async def test_without_a_key_none_is_sent(key: str | None, connections: BackendConnections) -> None:
    async with Backend() as backend:
        await OpenAIModel(TERMS, connections, backend.base_url, key, version="1").complete(PROMPT)
    assert "authorization" not in backend.asked[0].headers


async def test_a_cookie_is_not_sent_back(connections: BackendConnections) -> None:
    async def answers_with_a_cookie(it: Exchange) -> None:
        await it.send_json(200, completion("Yes."), Set_Cookie="a=Ø")

    async with Backend(answers_with_a_cookie) as backend:
        for _ in range(2):
            await model_of(backend, connections).complete(PROMPT)
        assert "cookie" not in backend.asked[1].headers


async def test_a_connection_is_used_again(connections: BackendConnections) -> None:
    async with Backend("answers", "error_503", "bad_key", "answers") as backend:
        model = model_of(backend, connections)
        for _ in range(4):
            try:
                await model.complete(PROMPT)
            except ModelError:
                continue
        assert (backend.requests, backend.opened) == (4, 1)


async def test_a_connection_that_the_backend_closed_is_not_used_again(
    connections: BackendConnections,
) -> None:
    async with Backend() as backend:
        model = model_of(backend, connections)
        await model.complete(PROMPT)
        await backend.play("refuses")
        await backend.play("answers")
        await model.complete(PROMPT)
        assert backend.opened == 2


async def test_an_idle_connection_is_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, connections: BackendConnections
) -> None:
    monkeypatch.setattr(openai, "_IDLE_SECONDS", 0.1)
    async with Backend() as backend:
        await model_of(backend, connections).complete(PROMPT)
        assert backend.connections == 1
        assert await backend.idle()


async def test_no_connection_is_lost_whenever_a_call_is_cancelled(connections: BackendConnections) -> None:
    source = random.Random(1)
    slots = asyncio.Semaphore(8)

    async def cancelled(model: OpenAIModel) -> None:
        async with slots:
            call = asyncio.create_task(model.complete(PROMPT))
            await asyncio.wait((call,), timeout=source.random() * 0.02)
            for _ in range(source.randint(1, 3)):
                call.cancel()
                await asyncio.sleep(0)
            await asyncio.wait((call,))

    async with Backend(latency=0.005) as backend:
        model = model_of(backend, connections)
        await asyncio.gather(*(cancelled(model) for _ in range(count(50, 400))))
        await asyncio.sleep(0.3)
        kept, opened = backend.connections, backend.opened
        assert kept <= 8
        # Every one that is open can be used.
        backend.latency = 0.1
        await asyncio.gather(*(model.complete(PROMPT) for _ in range(kept)))
        assert backend.opened == opened


def parsed(message: Spoken, finish_reason: str | None = "stop", **fields: Any) -> Reply:
    return parse_reply(json.dumps(completion(message, finish_reason, **fields)).encode())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": [{"type": "text", "text": "One, "}, {"type": "x"}, {"text": "two."}]}, "One, two."),
        ({"content": "said", "refusal": None, "tool_calls": None, "reasoning": {"deep": [1]}}, "said"),
        ({"content": "\U0001f4be\x00"}, "\U0001f4be\x00"),
    ],
)
def test_content_is_read_in_each_of_its_forms(message: dict[str, Any], text: str) -> None:
    assert parsed(message).text == text


def test_tool_calls_are_read_in_each_of_their_forms() -> None:
    functions = [
        {"id": "a", "type": "function", "function": {"name": "Grep", "arguments": '{"pattern": "x"}'}},
        {"id": "", "function": {"name": "Read"}},
    ]
    reply = parsed({"content": None, "tool_calls": functions}, "tool_calls")
    assert (reply.text, reply.stop_reason) == ("", "tool_calls")
    assert reply.tool_calls == (
        ToolCall("a", "Grep", '{"pattern": "x"}'),
        ToolCall("call_1", "Read", ""),
    )


def test_a_model_that_declines_is_an_error_of_the_prompt() -> None:
    with pytest.raises(PromptDeclined) as declined:
        parsed({"role": "assistant", "content": None, "refusal": "I will not."})
    assert declined.value.detail == "the model declined to answer"


@pytest.mark.parametrize(
    ("named", "reason"),
    [("length", "length"), (None, "stop"), ("a word of its own", "other")],
)
def test_the_stop_reason_is_one_of_four(named: str | None, reason: str) -> None:
    assert parsed("Cut", named).stop_reason == reason


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, LlmTokens(9, 2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}},
            LlmTokens(9, 2, 5),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 50}},
            LlmTokens(9, 0, 9),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None}, LlmTokens(9, 1)),
        ({"prompt_tokens": 9, "completion_tokens": -1}, None),
        ({"prompt_tokens": 10**30, "completion_tokens": 1}, None),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": 9}, None),
        ({"prompt_tokens": 0, "completion_tokens": 3}, None),
        ("a lot", None),
        (None, None),
    ],
)
def test_usage_that_makes_no_sense_is_none(usage: object, tokens: LlmTokens | None) -> None:
    assert parsed("Yes.", usage=usage).tokens == tokens


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"text"',
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": {"message": {}}}',
        b'{"error": {"message": "with status 200"}}',
        b'{"choices": [{"message": {"content": " \\n"}}]}',
        b'{"choices": [{"message": {"content": null, "refusal": "I will not."}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "x", "arguments": "\\ud800"}}]}}]}',
    ],
)
def test_a_reply_without_text_and_calls_is_a_bad_reply(body: bytes) -> None:
    with pytest.raises(ModelBadReply):
        parse_reply(body)


@pytest.mark.parametrize("name", ["great_body", "gzip_bomb"])
async def test_a_reply_past_the_cap_costs_little_memory(name: str, connections: BackendConnections) -> None:
    async with Backend(name) as backend:
        model = model_of(backend, connections, max_reply_bytes=1 << 20)
        with memory_within(SMALL_MEMORY), pytest.raises(ModelBadReply):
            await model.complete(PROMPT)
        assert await backend.idle()


@pytest.mark.parametrize("length", [500, 501])
async def test_the_cap_is_exact(length: int, connections: BackendConnections) -> None:
    empty = len(b'{"choices": [{"message": {"content": ""}}]}')
    body = b'{"choices": [{"message": {"content": "%s"}}]}' % (b"x" * (length - empty))

    async def chunked(it: Exchange) -> None:
        await it.send_head(200, Transfer_Encoding="chunked")
        for byte in body:
            it.writer.write(b"1\r\n%c\r\n" % byte)
        it.writer.write(b"0\r\n\r\n")

    async def measured(it: Exchange) -> None:
        await it.send(200, body)

    for behaviour in (chunked, measured):
        async with Backend(behaviour) as backend:
            model = model_of(backend, connections, max_reply_bytes=500)
            if length <= 500:
                await model.complete(PROMPT)
            else:
                with pytest.raises(ModelBadReply, match="too long"):
                    await model.complete(PROMPT)


async def test_what_was_sent_is_not_held_while_the_backend_thinks(connections: BackendConnections) -> None:
    size = 16 << 20
    prompt = Prompt((Message(Role.USER, "x" * size),), 1)
    read = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal read
        while piece := await reader.read(1 << 16):
            read += len(piece)

    tracemalloc.start()
    try:
        async with listening(swallow) as port:
            before, _ = tracemalloc.get_traced_memory()
            model = OpenAIModel(TERMS, connections, f"http://127.0.0.1:{port}", None, version="1")
            call = asyncio.create_task(model.complete(prompt))
            while read < size:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            held, most = (traced - before for traced in tracemalloc.get_traced_memory())
            assert held < size / 8
            assert most < 2 * size
            call.cancel()
            await asyncio.wait((call,))
            await asyncio.sleep(0.05)
    finally:
        tracemalloc.stop()


def classified(status: int, body: bytes, **headers: str) -> ModelError:
    return openai_wire.failure(status, headers, openai_wire.parse_complaint(body))


def error_json(code: str | None = None, message: str = "No.") -> bytes:
    return json.dumps({"error": {"message": message, "type": code or "error", "code": code}}).encode()


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "context_length_exceeded", "No."),
        (400, None, "This model's maximum context length is 8192 tokens. However, you requested 9000."),
        (400, None, "the request exceeds the available context size, try increasing it"),
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        (400, None, "The prompt does not fit the CONTEXT WINDOW"),
        (422, None, "too many tokens: 5000 > 4096"),
        (500, None, "The decoder prompt is longer than the maximum model length of 4096"),
        (429, "rate_limit_exceeded", "Request too large for model-1 on tokens per min (TPM): Limit 30000"),
        (413, None, "No."),
    ],
)
def test_a_prompt_past_the_window_is_known_by_many_phrases(
    status: int, code: str | None, message: str
) -> None:
    assert isinstance(classified(status, error_json(code, message)), ContextExceeded)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"object": "error", "message": "maximum model length", "code": 400}', ContextExceeded),
        (b"too many tokens", ContextExceeded),
        (b'{"error": {"message": "No.", "input": "of the context window"}}', PromptRefused),
        (b'{"error": {"code": "content_filter", "message": "No."}}', PromptDeclined),
        (b'{"error": {"code": "model_not_found", "message": "No."}}', ModelRefused),
        (b'{"error": {"code": "400", "message": "Invalid model name passed in model=m"}}', ModelRefused),
        (b'{"error": {"code": "400", "type": "no_db_connection", "message": "No."}}', ModelRefused),
        (b"[]", PromptRefused),
        (b'{"error": {"message": "\xff too many tokens"}}', ContextExceeded),
        (b"[" * 100_000, PromptRefused),
    ],
)
def test_an_error_is_read_in_each_of_its_forms(body: bytes, kind: type[ModelError]) -> None:
    assert type(classified(400, body)) is kind


@pytest.mark.parametrize(
    ("status", "code", "headers", "detail"),
    [
        (403, None, {}, "the backend refused the key"),
        (402, None, {}, "quota exhausted"),
        (429, "billing_hard_limit_reached", {}, "quota exhausted"),
        (404, "model_not_found", {}, "unknown model"),
        (400, "model_not_found", {}, "unknown model"),
        (404, None, {}, "the backend has no such model or URL"),
        (400, "max_tokens", {}, "the backend refused the number of output tokens: set max_output_tokens"),
        (302, None, {"location": "/elsewhere"}, "the backend answered with a redirect"),
    ],
)
def test_what_would_fail_again_is_refused(
    status: int, code: str | None, headers: dict[str, str], detail: str
) -> None:
    error = classified(status, error_json(code, f"{code} is wrong"), **headers)
    assert (type(error), error.detail) == (ModelRefused, detail)


@pytest.mark.parametrize("status", [400, 422])
def test_a_plain_refusal_counts_against_the_prompt_alone(status: int) -> None:
    error = classified(status, error_json(message=f"You sent {KEY}"))
    assert (type(error), error.detail) == (PromptRefused, f"the backend refused the request ({status})")


def test_what_may_go_well_later_is_unavailable() -> None:
    for status in (408, 409, 425, 502, 504, 529):
        assert isinstance(classified(status, error_json()), ModelUnavailable)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "9999"}, 9999.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 1 Jan 999999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 1 Jan 0001 00:00:00 +2359"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_pause_asked_for_is_read_in_each_of_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_the_pause_asked_for_may_be_a_date() -> None:
    pause = retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert pause is not None
    assert 58 < pause <= 60


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("max_tokens", "Unsupported parameter: use 'max_completion_tokens' instead."),
        ("temperature", "'temperature' does not support 0 with this model."),
    ],
)
async def test_a_reasoning_model_is_asked_without_the_fields_that_it_refuses(
    field: str, message: str, connections: BackendConnections
) -> None:
    async def reasoning(it: Exchange) -> None:
        await (fails(400, None, message) if field in it.asked.body else BEHAVIOURS["answers"])(it)

    async with Backend(reasoning) as backend:
        model = model_of(backend, connections)
        await model.complete(PROMPT)
        assert backend.requests == 2
        await asyncio.gather(*(model.complete(PROMPT) for _ in range(3)))
        assert backend.requests == 5
        assert backend.asked[-1].body["max_completion_tokens"] == 500
        assert not {"max_tokens", "temperature"} & set(backend.asked[-1].body)


async def test_a_backend_that_refuses_both_dialects_is_asked_twice(connections: BackendConnections) -> None:
    async with Backend(fails(400, None, "temperature is wrong")) as backend:
        with pytest.raises(PromptRefused):
            await model_of(backend, connections).complete(PROMPT)
        assert backend.requests == 2


async def test_an_error_whose_body_never_ends_is_known_by_its_status(connections: BackendConnections) -> None:
    async def behaviour(it: Exchange) -> None:
        await it.send_head(401, Content_Length="1000")
        await it.wait_for_the_end()

    watch = Stopwatch()
    assert (await failure(connections, behaviour)).detail == "the backend refused the key"
    assert watch.seconds < 1.5


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with Backend() as backend, aclosing(BackendConnections(1)) as connections:
        await model_of(backend, connections).complete(PROMPT)
        assert backend.requests == 1
