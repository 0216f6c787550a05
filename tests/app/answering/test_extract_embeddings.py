"""POST /extract and /tools/call with an embedding model: passages by meaning, faults, what it costs."""

import asyncio
import functools
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import httpx
import pytest

from app.cli.main import main
from domain.llm import Message, ModelTerms, Prompt, Reply, Role
from extraction.models.openai import BackendConnections, OpenAIEmbedder
from extraction.models.openai_wire import parse_embeddings
from extraction.passage_index import Likeness, Vectors
from extraction.retrieve.meaning import MOST_PASSAGES, MOST_TEXTS
from tests import conftest
from tests.app.answering.test_extract_models import anyio_backend, entries, keep, saying  # noqa: F401
from tests.app.answering.test_extract_retrieve import ask
from tests.conftest import Serve, StillClock
from tests.extraction.backend import Backend
from tests.extraction.behaviours import Behaviour, Exchange, answers, completion, fails, says

pytestmark = pytest.mark.anyio


PRICES = "[models.e]\ninput_price = 2\n"
MEANINGS = {"feline": "cat", "nap": "sleep", "slumber": "sleep", "sleeps": "sleep"}
FILLERS = {"row", "item", "thing", "interest", "the", "where", "does", "which", "has"}
DIMENSIONS = 256

NEEDLE = "the cat sleeps on the red sofa"
ROWS = "".join(
    f"row {n:05}: {'item' if n % 2 else 'thing'} {n * 7919 % 1000} of no interest\n" for n in range(3000)
)
DATA = ROWS[:60_000] + NEEDLE + "\n" + ROWS[60_000:]
QUESTION = "Where does the feline nap?"
COMMON = "Which feline has an interest in a nap?"


@functools.cache
def embedding(text: str) -> list[float]:
    """Texts that share a word, or a word of one meaning, are near; the words of every row matter less."""
    vector = [0.01] * DIMENSIONS
    for word in sorted({MEANINGS.get(word, word) for word in re.findall(r"[a-z]{3,}", text.lower())}):
        digest = sha256(word.encode()).digest()
        vector[digest[0]] += (0.2 if word in FILLERS else 1) * (1 if digest[1] % 2 else -1)
    return vector


def reply(vectors: list[list[float]], tokens: int) -> dict[str, Any]:
    data = [{"object": "embedding", "index": n, "embedding": one} for n, one in enumerate(vectors)]
    # In any order: the index says which is which.
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data[::-1], "model": "e", "usage": usage}


async def embeds(it: Exchange) -> None:
    await asyncio.sleep(it.latency)
    if it.asked.path != "/v1/embeddings":
        await answers(it)
        return
    texts = it.asked.body["input"]
    tokens = sum(map(len, texts)) // 4 + 1
    await it.send_json(200, reply([embedding(text) for text in texts], tokens))


def embeds_but(change: Callable[[list[list[float]]], Any]) -> Behaviour:
    async def behaviour(it: Exchange) -> None:
        await it.send_json(200, reply(change([embedding(text) for text in it.asked.body["input"]]), 9))

    return behaviour


def few_at_a_time(status: int) -> Behaviour:
    async def behaviour(it: Exchange) -> None:
        await (fails(status) if len(it.asked.body["input"]) > 10 else embeds)(it)

    return behaviour


@asynccontextmanager
async def served(
    serve: Serve, tmp_path: Path, backend: Backend, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    file = tmp_path / "policy.toml"
    file.write_text(PRICES)
    given = {"storage_url": "memory:", "llm_base_url": backend.base_url, "embed_model": "e"}
    async with serve(**{**given, "policy_file": file, "llm_api_key": "k", **settings}) as client:
        yield client


async def without_embeddings(serve: Serve, text: str, extract: str) -> dict[str, Any]:
    async with serve(storage_url="memory:") as client:
        return await ask(client, await keep(client, text), extract)


def first_passage(body: str) -> str:
    passage = re.search(r"^\[lines? [^\n]*\n[^\[]*", body, re.MULTILINE)
    assert passage, body[:300]
    return passage[0]


@pytest.mark.parametrize("extract", [QUESTION, COMMON])
async def test_a_passage_without_a_common_word_is_found_by_its_meaning(
    serve: Serve, tmp_path: Path, extract: str
) -> None:
    by_words = (await without_embeddings(serve, DATA, extract))["body"]
    assert by_words.startswith(("NO RELEVANT DATA FOUND", "Nowhere in the data: "))
    async with Backend(embeds) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        told = await ask(client, handle, extract)
        assert (told["status"], told["strategy"], told["warnings"]) == ("complete", "retrieve", [])
        first = re.search(r"^\[lines \d+-\d+ · by meaning\]\n[^[]*", told["body"], re.MULTILINE)
        assert first
        assert NEEDLE in first[0]
        call = {"name": "tool_output", "arguments": {"handle": handle, "extract": extract}}
        text = (await client.post("/tools/call", json={"session_id": "s", **call})).json()["text"]
        assert text == told["text"]


async def test_words_still_count(serve: Serve, tmp_path: Path) -> None:
    """What is named exactly comes before all that is near it; what is nowhere is named."""
    async with Backend(embeds) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        assert "row 02345: " in first_passage((await ask(client, handle, '"row 02345"'))["body"])
        assert NEEDLE not in (await ask(client, handle, 'the feline nap of "row 02345"'))["body"]
        weak = await ask(client, handle, "interest rates of the central bank in Norway")
        assert weak["body"].startswith("Nowhere in the data: rates, central, bank, Norway.\n")
        nothing = await ask(client, handle, "Norwegian fjords")
        assert nothing["body"].startswith("NO RELEVANT DATA FOUND\nNowhere in the data: Norwegian, fjords.")


async def test_each_request_is_bounded_and_accounted_and_its_vectors_are_kept(
    serve: Serve, tmp_path: Path
) -> None:
    async with Backend(embeds, latency=0.1) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        first = await ask(client, handle, QUESTION)
        sizes = [len(one.body["input"]) for one in backend.asked]
        assert sizes[0] == 1
        assert max(sizes) == MOST_TEXTS
        assert 1 < backend.most_at_a_time <= 4
        assert {one.headers["authorization"] for one in backend.asked} == {"Bearer k"}
        booked = await entries(client, "llm")
        (question,) = await entries(client, "extract")
        assert len(booked) == len(sizes) == first["usage"]["llm_calls"]
        for one in booked:
            assert (one["model"], one["extract_id"], one["error"]) == ("e", question["id"], None)
            assert one["tokens"]["output"] == 0
            assert one["cost_usd"] == pytest.approx(2 * one["tokens"]["input"] / 1e6)
            assert one["tokens_saved"] == -one["tokens"]["input"] < 0
        assert first["usage"]["cost_usd"] == pytest.approx(sum(one["cost_usd"] for one in booked))
        again = await ask(client, handle, "Does the cat slumber?")
        assert NEEDLE in again["body"]
        assert [one.body["input"] for one in backend.asked[len(sizes) :]] == [["Does the cat slumber?"]]
        await asyncio.gather(*[ask(client, handle, "Does the cat slumber?") for _ in range(3)])
        assert backend.requests == len(sizes) + 1


async def test_questions_at_the_same_time_share_the_embedding(serve: Serve, tmp_path: Path) -> None:
    async with Backend(embeds, latency=0.1) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        told = await asyncio.gather(*[ask(client, handle, f"{QUESTION} {n}") for n in range(3)])
        assert all(NEEDLE in one["body"] for one in told)
        sent = [text for one in backend.asked for text in one.body["input"]]
        assert len(sent) == len(set(sent))


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_backend_that_accepts_few_texts_at_a_time_is_sent_fewer(
    serve: Serve, tmp_path: Path, status: int
) -> None:
    async with Backend(few_at_a_time(status)) as backend, served(serve, tmp_path, backend) as client:
        told = await ask(client, await keep(client, DATA[50_000:70_000]), QUESTION)
    assert NEEDLE in first_passage(told["body"])
    assert told["warnings"] == []


FAULTS: dict[str, tuple[tuple[str | Behaviour, ...], str]] = {
    "away": (("refuses",), "the backend cannot be reached"),
    "silent": (("silent",), "the deadline passed"),
    "401": (("bad_key",), "the backend refused the key"),
    "400": ((fails(400),), "the backend refused the request (400)"),
    "a completion": ((says(completion("No.")),), "the reply is no list of embeddings"),
    "one too few": ((embeds, embeds_but(lambda all_of: all_of[1:])), "the reply has another number"),
    "one too many": ((embeds_but(lambda all_of: [*all_of, all_of[0]]),), "the reply has another number"),
    "shorter": (
        (embeds, embeds_but(lambda all_of: [one[1:] for one in all_of])),
        "the embeddings have a wrong",
    ),
    "ragged": (
        (embeds, embeds_but(lambda all_of: [all_of[0][1:], *all_of[1:]])),
        "the embeddings have a wrong",
    ),
    "long": ((embeds_but(lambda all_of: [one * 17 for one in all_of]),), "the embeddings have a wrong"),
    "empty": ((embeds_but(lambda all_of: [[] for _ in all_of]),), "the embeddings have a wrong"),
    "NaN": (
        (embeds, embeds_but(lambda all_of: [[float("nan"), *one[1:]] for one in all_of])),
        "the reply is not",
    ),
    "infinite": (
        (embeds_but(lambda all_of: [[float("inf"), *one[1:]] for one in all_of]),),
        "the reply is not",
    ),
    "null": (
        (embeds, embeds_but(lambda all_of: [[None, *one[1:]] for one in all_of])),
        "the reply is no list",
    ),
    "zeros": (
        (embeds, embeds_but(lambda all_of: [[0.0] * len(one) for one in all_of])),
        "an embedding has no",
    ),
}


async def test_whatever_an_embedder_does_the_words_answer_in_time(serve: Serve, tmp_path: Path) -> None:
    extract, data = "Which item has no interest?", DATA[50_000:70_000]
    expected = await without_embeddings(serve, data, extract)

    async def one(name: str) -> None:
        script, reason = FAULTS[name]
        folder = tmp_path / name
        folder.mkdir()
        async with Backend(*script) as backend:
            async with served(serve, folder, backend) as client:
                handle = await keep(client, data)
                started = anyio.current_time()
                told = await ask(client, handle, extract, deadline_ms=20_000)
                assert anyio.current_time() - started <= 20.5, name
                failed = [entry for entry in await entries(client, "llm") if entry["error"]]
                (question,) = await entries(client, "extract")
            assert await backend.idle(), name
        (warning,) = told["warnings"]
        assert warning.startswith(f"passages were ranked by words alone ({reason}"), (name, warning)
        assert told["body"].split("\n", 1)[1] == expected["body"].split("\n", 1)[1], name
        assert (told["status"], told["strategy"]) == ("complete", "retrieve"), name
        # Vectors that are shorter than others fail after their call; no other call need be under way then.
        assert failed or name == "shorter", name
        assert {entry["extract_id"] for entry in failed} <= {question["id"]}, name

    # Few at a time: all of them would fill this machine's memory.
    for start in range(0, len(FAULTS), 7):
        await asyncio.gather(*[one(name) for name in list(FAULTS)[start : start + 7]])


async def test_an_embedder_that_failed_is_left_alone_and_asked_again_later(
    serve: Serve, tmp_path: Path
) -> None:
    async with Backend("rate_limited_9999", embeds) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        (first,) = (await ask(client, handle, QUESTION))["warnings"]
        (second,) = (await ask(client, handle, QUESTION))["warnings"]
        assert first.endswith("(the backend failed (429))")
        assert second.endswith("(the model is left alone for a moment: the backend failed (429))")
        assert backend.requests == 1
        await asyncio.sleep(61)
        assert NEEDLE in (await ask(client, handle, QUESTION))["body"]


async def test_a_slow_embedder_is_waited_for_no_longer_than_half_of_the_time(
    serve: Serve, tmp_path: Path
) -> None:
    """What was embedded by then is kept: the next question goes on from there."""
    async with Backend(embeds, latency=0.4) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        started = anyio.current_time()
        told = await ask(client, handle, QUESTION, deadline_ms=2000)
        assert 0.9 <= anyio.current_time() - started <= 1.5
        assert told["warnings"] == ["passages were ranked by words alone (the deadline passed)"]
        for _ in range(20):
            if not (told := await ask(client, handle, QUESTION, deadline_ms=2000))["warnings"]:
                break
        assert NEEDLE in first_passage(told["body"])


async def test_a_model_that_is_replaced_while_passages_are_compared_fails_no_answer(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors of the next model have another length."""
    comparing, compare = anyio.Event(), Vectors.likeness

    async def embeds_then_shorter(it: Exchange) -> None:
        await (embeds_but(lambda all_of: [one[:128] for one in all_of]) if comparing.is_set() else embeds)(it)

    def slow(vectors: Vectors, *asked: Any) -> Likeness | None:
        is_first = not comparing.is_set()
        anyio.from_thread.run_sync(comparing.set)
        while is_first and not vectors.lock.statistics().tasks_waiting:
            if any(len(one) == 128 for one in list(vectors.of_passages.values())):
                break
            time.sleep(0.001)
        return compare(vectors, *asked)

    monkeypatch.setattr(Vectors, "likeness", slow)
    async with Backend(embeds_then_shorter) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        first = asyncio.create_task(ask(client, handle, QUESTION))
        await comparing.wait()
        for question in (COMMON, "Does the cat slumber?"):
            await ask(client, handle, question)
        assert NEEDLE in (await first)["body"]


async def test_a_cap_on_calls_holds_for_embeddings(serve: Serve, tmp_path: Path) -> None:
    async with Backend(embeds) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        await client.put("/sessions/s", json={"policy": {"max_llm_calls": 3}})
        told = await ask(client, handle, QUESTION)
    assert told["warnings"] == [
        "passages were ranked by words alone (the session's cap of model calls is too small)"
    ]
    assert backend.requests == 0


async def test_a_shorter_answer_is_by_meaning_too_and_asks_nothing_more(serve: Serve, tmp_path: Path) -> None:
    async with Backend(embeds) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, DATA)
        whole = await ask(client, handle, COMMON, max_answer_bytes=12_000)
        await client.post("/sessions/s/usage", json={"used_tokens": 1, "turn": 1})
        window = {"context_window": 340, "buffer_tokens": 0, "max_output_tokens": 0}
        await client.put("/sessions/s", json=window)
        told = await ask(client, handle, COMMON, max_answer_bytes=12_000)
        assert len(told["body"]) < len(whole["body"])
        budget = (await client.get("/sessions/s")).json()["budget"]
        assert NEEDLE in first_passage(told["body"])
        assert budget["used_tokens"] + budget["reserved_tokens"] <= 340
        sent = [text for one in backend.asked for text in one.body["input"]]
        assert len(sent) == len(set(sent))


async def test_of_a_large_result_the_best_by_words_and_a_sample_are_compared() -> None:
    settings = {"storage_url": "memory:", "llm_api_key": "k", "embed_model": "e"}
    async with (
        Backend(embeds) as backend,
        conftest.served(StillClock(), **settings, llm_base_url=backend.base_url) as (rt, client),
    ):
        handle = await keep(client, DATA.replace("sofa", "sofa of Adele") + ROWS * 12)
        told = await ask(client, handle, "Where does Adele's feline nap?")
        sent = [text for one in backend.asked for text in one.body["input"]]
        assert 0.9 * MOST_PASSAGES < len(sent) <= MOST_PASSAGES + 1
        assert "the cat sleeps" in first_passage(told["body"])
        size = rt.indexes.size
        await ask(client, handle, "How many things are there?")
        assert len(backend.asked[-1].body["input"]) <= MOST_TEXTS
        assert rt.indexes.size <= size + 200 * 4 * DIMENSIONS
        assert rt.indexes.size > 4 * DIMENSIONS * MOST_PASSAGES * 0.9


async def test_a_model_answers_where_one_is_configured_and_falls_back_to_meaning(
    serve: Serve, tmp_path: Path
) -> None:
    settings = {"llm_models": ("m",), "extract_fallback": "retrieve"}
    backend = Backend(embeds, answer=saying("On the sofa."))
    async with backend, served(serve, tmp_path, backend, **settings) as client:
        told = await ask(client, await keep(client, DATA), QUESTION, mode="full-chunked")
        assert told["body"] == "On the sofa."
        assert {one.path for one in backend.asked} == {"/v1/chat/completions"}

    async def fails_to_chat(it: Exchange) -> None:
        await (embeds if it.asked.path == "/v1/embeddings" else fails(401, "invalid_api_key"))(it)

    async with Backend(fails_to_chat) as backend, served(serve, tmp_path, backend, **settings) as client:
        told = await ask(client, await keep(client, DATA), QUESTION, mode="full-chunked")
        assert (told["status"], told["strategy"]) == ("fallback", "retrieve")
        assert NEEDLE in first_passage(told["body"])
        assert told["usage"]["llm_calls"] == len(await entries(client, "llm")) == backend.requests


async def test_a_model_of_the_policy_file_embeds_at_its_own_backend(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as first, Backend(embeds) as second:
        file = tmp_path / "policy.toml"
        file.write_text(f'[models.e]\nbase_url = "{second.base_url}"\n')
        settings = {"llm_base_url": first.base_url, "llm_models": ("m",), "policy_file": file}
        async with serve(storage_url="memory:", embed_model="e", **settings) as client:
            told = await ask(client, await keep(client, DATA), QUESTION, mode="retrieve")
        async with serve(storage_url="memory:", embed_model="e", policy_file=file) as client:
            modes = (await client.get("/tools?session_id=s")).json()
            assert NEEDLE in (await ask(client, await keep(client, DATA), QUESTION))["body"]
    assert NEEDLE in first_passage(told["body"])
    assert (first.requests, modes["tools"]) == (0, [])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "EMBED_MODEL names e, which has no backend"),
        ({"SPILLGATE_LLM_BASE_URL": "http://h/v1", "SPILLGATE_LLM_MODELS": "m,e"}, "keep one"),
    ],
)
async def test_an_embedding_model_that_cannot_be_asked_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], settings: dict[str, str], said: str
) -> None:
    for name, value in (
        {"SPILLGATE_EMBED_MODEL": "e", "SPILLGATE_STORAGE_URL": "memory:"} | settings
    ).items():
        monkeypatch.setenv(name, value)
    assert main(["check-config"]) != 0
    assert said in capsys.readouterr().err
    monkeypatch.setenv("SPILLGATE_EMBED_MODEL", " ")
    monkeypatch.delenv("SPILLGATE_LLM_BASE_URL", raising=False)
    assert main(["check-config"]) == (2 if settings.get("SPILLGATE_LLM_MODELS") else 0)


async def test_the_event_loop_serves_others_while_long_vectors_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are read in a thread."""
    readers = []

    def read(body: bytes, count: int) -> Reply:
        readers.append(threading.current_thread())
        return parse_embeddings(body, count)

    monkeypatch.setattr("extraction.models.openai.parse_embeddings", read)
    body = json.dumps(reply([[n + 1 / (k + 3) for k in range(3072)] for n in range(MOST_TEXTS)], 9)).encode()
    prompt = Prompt(tuple(Message(Role.USER, str(n)) for n in range(MOST_TEXTS)), 0)

    async def long_vectors(it: Exchange) -> None:
        await it.send(200, body)

    async with Backend(long_vectors) as backend, aclosing(BackendConnections(1)) as connections:
        embedder = OpenAIEmbedder(ModelTerms("e", 8000, 0), connections, backend.base_url, None, version="1")
        vectors = (await embedder.complete(prompt)).vectors
    assert {len(one) for one in vectors} == {3072}
    assert len(readers) == 1
    assert threading.main_thread() not in readers
