"""Our client for models against an OpenAI-compatible server of others: LiteLLM's proxy.

The proxy asks our scripted backend, so each call passes through another's reading and writing of the
protocol twice. It is installed apart from all else: `make interop`.
"""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from domain.errors import ContextExceeded, ModelRefused, ModelUnavailable
from domain.llm import LlmTokens, Message, ModelTerms, Prompt, Role, ToolSpec
from extraction.models.openai import BackendConnections, OpenAIModel
from tests.app.answering import test_extract_embeddings as embeddings
from tests.conftest import Serve
from tests.extraction.backend import Backend
from tests.extraction.behaviours import Exchange, completion
from tests.interop import proxy

pytestmark = pytest.mark.anyio

GREP = ToolSpec(
    "Grep",
    "Finds lines.",
    '{"type":"object","properties":{"pattern":{"type":"string"}},"required":["pattern"]}',
)
WISH: dict[str, object] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_7",
            "type": "function",
            "function": {"name": "Grep", "arguments": '{"pattern": "tulip"}'},
        }
    ],
}


@pytest.fixture(scope="module")
async def backend() -> AsyncIterator[Backend]:
    async with Backend() as opened:
        yield opened


@pytest.fixture(scope="module")
async def server(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Started once: it takes up to ten seconds."""
    if not proxy.PROGRAM.is_file():
        pytest.skip("LiteLLM is not installed: run `make interop`")
    async with proxy.running(backend.base_url, tmp_path_factory.mktemp("litellm")) as base_url:
        yield base_url


@asynccontextmanager
async def model(server: str, name: str = proxy.MODEL, key: str = proxy.KEY) -> AsyncIterator[OpenAIModel]:
    async with aclosing(BackendConnections(1)) as connections:
        yield OpenAIModel(ModelTerms(name, 8000, 1000), connections, server, key, version="0")


def prompt(*messages: Message, tools: tuple[ToolSpec, ...] = ()) -> Prompt:
    return Prompt((Message(Role.SYSTEM, "Answer briefly."), *messages), 500, tools)


QUESTION = Message(Role.USER, "Où est la tulipe? Use <ai-agent-42-FINAL>.")


async def reports(it: Exchange) -> None:
    counted = {"prompt_tokens": 21, "completion_tokens": 7, "total_tokens": 28}
    cached = {"prompt_tokens_details": {"cached_tokens": 4}}
    await it.send_json(200, completion(it.answer(it.asked.body), usage=counted | cached))


async def test_a_completion_comes_back_with_its_usage(server: str, backend: Backend) -> None:
    await backend.play(reports)
    async with model(server) as asked:
        reply = await asked.complete(prompt(QUESTION))
    assert reply.text == '<ai-agent-42-FINAL format="text">\nAll is well.\n</ai-agent-42-FINAL>'
    assert reply.stop_reason == "stop"
    assert reply.tokens == LlmTokens(input=21, output=7, cached=4)
    sent = backend.asked[-1]
    assert sent.body["messages"][1] == {"role": "user", "content": QUESTION.content}
    assert sent.body["max_tokens"] == 500
    assert sent.headers["authorization"] == f"Bearer {proxy.BACKEND_KEY}"


async def greps(it: Exchange) -> None:
    """Wishes for a line, and repeats what it is told."""
    last = it.asked.body["messages"][-1]
    if last["role"] == "tool":
        await it.send_json(200, completion(f"It says: {last['content']}"))
    else:
        await it.send_json(200, completion(WISH, "tool_calls"))


async def test_a_tool_is_called_and_its_answer_read(server: str, backend: Backend) -> None:
    await backend.play(greps)
    async with model(server) as asked:
        wish = await asked.complete(prompt(QUESTION, tools=(GREP,)))
        (call,) = wish.tool_calls
        said = Message(Role.ASSISTANT, wish.text, wish.tool_calls)
        found = Message(Role.TOOL, "12: the password is tulip", tool_call_id=call.id)
        reply = await asked.complete(prompt(QUESTION, said, found, tools=(GREP,)))
    assert (call.id, call.name, call.arguments) == ("call_7", "Grep", '{"pattern": "tulip"}')
    assert wish.stop_reason == "tool_calls"
    assert reply.text == "It says: 12: the password is tulip"
    assert not reply.tool_calls
    sent = backend.asked[-1].body
    assert sent["tools"][0]["function"]["parameters"] == json.loads(GREP.parameters)
    assert sent["messages"][2]["tool_calls"] == WISH["tool_calls"]


@pytest.mark.parametrize("wrong", [{"key": "sk-wrong"}, {"name": "great"}])
async def test_a_wrong_key_and_an_unknown_model_are_refused(
    server: str, backend: Backend, wrong: dict[str, str]
) -> None:
    before = backend.requests
    async with model(server, **wrong) as asked:
        with pytest.raises(ModelRefused):
            await asked.complete(prompt(QUESTION))
    assert backend.requests == before


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("context_exceeded", ContextExceeded),
        ("bad_key", ModelRefused),
        ("error_503", ModelUnavailable),
        ("rate_limited_s", ModelUnavailable),
    ],
)
async def test_what_a_model_behind_it_fails_with_is_told_apart(
    server: str, backend: Backend, behaviour: str, error: type[Exception]
) -> None:
    await backend.play(behaviour)
    async with model(server) as asked:
        with pytest.raises(error):
            await asked.complete(prompt(QUESTION))


async def test_an_extraction_is_answered_through_it(server: str, backend: Backend, serve: Serve) -> None:
    await backend.play("answers")
    settings = {"llm_base_url": server, "llm_models": (proxy.MODEL,), "llm_api_key": proxy.KEY}
    async with serve(**settings) as client:
        text = "\n".join(f"row {number}: nothing of interest" for number in range(1000))
        stored = (await client.post("/results", json={"tool_name": "t", "content": text})).json()
        asked = {"handle": stored["handle"], "extract": "How are things?", "mode": "full-chunked"}
        answer = (await client.post("/extract", json=asked)).json()
    assert (answer["status"], answer["body"]) == ("complete", "All is well.")
    assert answer["usage"]["llm_calls"] == 1


async def test_passages_are_ranked_by_embeddings_through_it(
    server: str, backend: Backend, serve: Serve
) -> None:
    await backend.play(embeddings.embeds)
    settings = {"llm_base_url": server, "embed_model": "embedding", "llm_api_key": proxy.KEY}
    async with serve(**settings) as client:
        sent = {"session_id": "s", "tool_name": "t", "content": embeddings.DATA}
        stored = (await client.post("/results", json=sent)).json()
        asked = {"handle": stored["handle"], "extract": embeddings.QUESTION}
        before = backend.requests
        answer = (await client.post("/extract", json=asked)).json()
        entries = (await client.get("/accounting/entries?type=llm")).json()["entries"]
        assert (answer["strategy"], answer["warnings"]) == ("retrieve", [])
        assert embeddings.NEEDLE in answer["body"]
        assert answer["usage"]["llm_calls"] == len(entries) == backend.requests - before
        assert {one["model"] for one in entries} == {"embedding"}
        assert {one.body["model"] for one in backend.asked[before:]} == {"scripted-embedding"}
        await backend.play("bad_key")
        answer = (await client.post("/extract", json=asked | {"extract": "of no interest"})).json()
        assert answer["warnings"][0].startswith("passages were ranked by words alone (")
        assert "of no interest" in answer["body"]
