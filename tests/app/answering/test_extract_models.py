"""POST /extract with a model: progress, caps, disconnects, and what is accounted."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from app import policy_reload
from domain.errors import ConfigError
from tests.asgi import post_scope
from tests.conftest import Serve
from tests.extraction.backend import Backend, Spoken, report
from tests.virtual_time import VIRTUAL_TIME

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(monkeypatch: pytest.MonkeyPatch) -> object:
    """Hours pass in a moment, unless something looks at a file twice a second."""
    monkeypatch.setattr(policy_reload, "POLL_SECONDS", 3600)
    return VIRTUAL_TIME


TERMS = "[models.m]\ncontext_window = 8000\nmax_output_tokens = 1000\ninput_price = 2\noutput_price = 10\n"


def rows(count: int) -> str:
    return "\n".join(f"row {n:05}: nothing of interest, value {n * 7}" for n in range(count))


ROWS = rows(1500)


@asynccontextmanager
async def served(
    serve: Serve, tmp_path: Path, backend: Backend, policy: str = TERMS, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    given = {
        "storage_url": "memory:",
        "llm_base_url": backend.base_url,
        "llm_models": ("m",),
        "llm_api_key": "k",
        "policy_file": file,
    }
    async with serve(**given | settings) as client:
        yield client


async def keep(client: httpx.AsyncClient, text: str = ROWS, session: str = "s", **fields: Any) -> str:
    sent = {"session_id": session, "tool_name": "journal", "content": text, **fields}
    return str((await client.post("/results", json=sent)).json()["handle"])


async def ask(client: httpx.AsyncClient, handle: str, **fields: Any) -> httpx.Response:
    return await client.post(
        "/extract", json={"handle": handle, "extract": "What is the password?", **fields}
    )


async def entries(client: httpx.AsyncClient, kind: str) -> list[dict[str, Any]]:
    found = (await client.get(f"/accounting/entries?type={kind}&limit=1000")).json()["entries"]
    return [dict(entry) for entry in found]


def reading(body: dict[str, Any]) -> Spoken:
    """Reads as long as there are tools."""
    if "tools" not in body:
        return report(body)
    call = {"name": "Read", "arguments": '{"offset": 1, "limit": 500}'}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": call}],
    }


def saying(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda body: report(body, text)


async def test_the_model_calls_of_a_persons_question_are_the_pages(serve: Serve, tmp_path: Path) -> None:
    async with Backend(answer=saying("It is tulip.")) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        told = (await ask(client, handle, mode="full-chunked", asked_by="person")).json()
        booked = await entries(client, "llm")
        assert len(booked) == told["usage"]["llm_calls"] > 0
        for one in (*booked, *await entries(client, "extract")):
            assert (one["session_id"], one["client"], one["tokens_saved"]) == ("dashboard", "dashboard", 0)
        assert sum(one["cost_usd"] for one in booked) == pytest.approx(told["usage"]["cost_usd"]) != 0


@pytest.mark.parametrize("mode", ["full-chunked", "read-grep"])
async def test_where_a_model_finds_nothing_the_answer_says_what_the_data_holds(
    serve: Serve, tmp_path: Path, mode: str
) -> None:
    async with (
        Backend(answer=saying("NO RELEVANT DATA FOUND.")) as backend,
        served(serve, tmp_path, backend) as client,
    ):
        handle = await keep(client, "name,city\n" + "Ann,Oslo\n" * 1500)
        told = (await ask(client, handle, mode=mode)).json()
    assert (told["status"], told["strategy"]) == ("complete", mode)
    assert told["body"].startswith("NO RELEVANT DATA FOUND\n")
    assert "city" in told["body"]


async def test_all_of_it_is_read_and_every_call_is_booked(serve: Serve, tmp_path: Path) -> None:
    async with Backend(answer=saying("It is tulip.")) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        told = (await ask(client, handle, mode="full-chunked")).json()
        assert told["body"] == "It is tulip."
        assert told["text"].startswith(
            f"ABSTRACT FROM TOOL OUTPUT journal WITH HANDLE {handle}, STRATEGY:full-chunked:\n\n"
        )
        assert (told["status"], told["strategy"], told["warnings"]) == ("complete", "full-chunked", [])
        assert told["coverage"]["ratio"] == 1
        chunks = told["coverage"]["chunks_total"]
        assert chunks > 2
        booked = await entries(client, "llm")
        assert len(booked) == backend.requests == told["usage"]["llm_calls"] == chunks + 1
        for one in booked:
            tokens = one["tokens"]
            assert (one["model"], one["stop_reason"], one["error"]) == ("m", "stop", None)
            assert one["cost_usd"] == pytest.approx((2 * tokens["input"] + 10 * tokens["output"]) / 1e6)
            assert one["tokens_saved"] == -(tokens["input"] + tokens["output"]) < 0
        assert told["usage"]["cost_usd"] == pytest.approx(sum(one["cost_usd"] for one in booked))
        rows = (await client.get("/accounting/summary?group_by=type")).json()
        by_type = {row["group"]: row for row in rows["rows"]}
        assert by_type["llm"]["tokens_in"] == told["usage"]["input_tokens"]
        # The calls for this one answer have read all of the result.
        assert (rows["total"]["asked_back"], rows["total"]["costs_more"]) == (1, 1)
        assert rows["total"]["cost_usd"] == pytest.approx(told["usage"]["cost_usd"])


async def test_progress_is_told_while_it_happens(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        question = {"handle": handle, "extract": "Anything?", "mode": "full-chunked"}
        events = {"Accept": "text/event-stream"}
        answer = await client.post("/extract", json=question, headers=events)
        assert answer.headers["content-type"].startswith("text/event-stream")
        parts = [part.split("\ndata: ") for part in answer.text.removesuffix("\n\n").split("\n\n")]
        names = [name.removeprefix("event: ") for name, _ in parts]
        chunks = json.loads(parts[0][1])["chunks"]
        assert names == ["plan", *["chunk"] * chunks, "reduce", "result"]
        assert json.loads(parts[-1][1])["status"] == "complete"
        unknown = "session-s/file-00000000-0000-4000-8000-000000000000"
        missing = await client.post("/extract", json={**question, "handle": unknown}, headers=events)
        assert (missing.status_code, missing.json()["code"]) == (404, "result_not_found")


async def test_an_error_after_the_stream_began_is_its_last_event(serve: Serve, tmp_path: Path) -> None:
    async with Backend("error_503") as backend, served(serve, tmp_path, backend) as client:
        question = {
            "handle": await keep(client),
            "extract": "x",
            "require_complete": True,
            "deadline_ms": 1000,
        }
        answer = await client.post("/extract", json=question, headers={"Accept": "text/event-stream"})
        last = answer.text.strip().rpartition("\n\n")[2]
        assert last.startswith("event: error\n")
        assert json.loads(last.partition("data: ")[2])["code"] == "incomplete"
        assert 'spillgate_errors_total{code="incomplete"} 1.0' in (await client.get("/metrics")).text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asked_again_it_costs_nothing_until_the_session_ends(serve: Serve, tmp_path: Path) -> None:
    state = {"storage_url": f"disk://{tmp_path}/state"}
    async with Backend() as backend:
        async with served(serve, tmp_path, backend, **state) as client:
            handle = await keep(client)
            first = (await ask(client, handle, mode="full-chunked")).json()
            paid = backend.requests
        async with served(serve, tmp_path, backend, **state) as client:
            again = (await ask(client, handle, mode="full-chunked")).json()
            assert (again["body"], again["usage"]["llm_calls"]) == (first["body"], 0)
            assert backend.requests == paid
            await ask(client, handle, extract="Something else?", mode="full-chunked")
            assert backend.requests == 2 * paid


async def test_who_hangs_up_ends_the_run_and_pays_for_what_was_begun(serve: Serve, tmp_path: Path) -> None:
    async with Backend(latency=30) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        asking = asyncio.create_task(departing(client, handle, asyncio.sleep(0.5)))
        sent = await asyncio.wait_for(asking, 5)
        assert 200 not in [message.get("status") for message in sent]
        assert await backend.idle()
        booked = await entries(client, "llm")
        assert {one["error"] for one in booked} == {"cancelled"}
        assert all(one["tokens"]["input"] > 1000 for one in booked)
        (extraction,) = await entries(client, "extract")
        assert (extraction["status"], extraction["error"]) == ("failed", "cancelled")
        assert {one["extract_id"] for one in booked} == {extraction["id"]}


async def departing(client: httpx.AsyncClient, handle: str, until: Awaitable[object]) -> list[Any]:
    """What a caller is sent who asks, and hangs up when `until` is done."""
    transport = client._transport
    assert isinstance(transport, httpx.ASGITransport)
    body = json.dumps({"handle": handle, "extract": "x", "mode": "full-chunked"}).encode()
    sent: list[Any] = []
    read = False

    async def receive() -> dict[str, Any]:
        nonlocal read
        if not read:
            read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await until
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await transport.app(post_scope("/extract", body), receive, send)
    return sent


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_calls_count_before_they_are_accounted(serve: Serve, tmp_path: Path) -> None:
    policy = f"[defaults]\nmax_llm_calls = 70\n{TERMS}"
    slots = {"extract_concurrency": 64}
    async with Backend(latency=30) as backend, served(serve, tmp_path, backend, policy, **slots) as client:
        for session in "ab":
            handle = await keep(client, Random(0).randbytes(350_000).hex(" ", 32), session=session)
            before = backend.requests
            for most in (64, 69):
                await departing(client, handle, backend.reached(before + most))
            # One call is left for the merge.
            assert backend.requests == before + 69


async def test_a_session_spends_no_more_calls_than_its_cap(serve: Serve, tmp_path: Path) -> None:
    policy = f"[defaults]\nmax_llm_calls = 2\n{TERMS}"
    async with Backend() as backend, served(serve, tmp_path, backend, policy) as client:
        handle = await keep(client, policy={"max_llm_calls": 1000})
        told = (await ask(client, handle, mode="full-chunked")).json()
        reason = "the session's cap of model calls is reached"
        assert (told["status"], told["coverage"]["chunks_ok"]) == ("partial", 2)
        assert told["warnings"][-1] == f"the findings were not merged ({reason})"
        assert backend.requests == 2
        again = (await ask(client, handle, extract="Else?", mode="full-chunked")).json()
        assert reason in again["warnings"][0]
        assert backend.requests == 2
        other = await keep(client, session="other")
        await ask(client, other, mode="full-chunked")
        assert backend.requests == 4


@pytest.mark.parametrize("mode", ["full-chunked", "read-grep"])
async def test_the_plan_keeps_to_the_cap_of_calls(serve: Serve, tmp_path: Path, mode: str) -> None:
    policy = f"[defaults]\nmax_llm_calls = 3\n{TERMS}"
    async with (
        Backend(answer=reading) as backend,
        served(serve, tmp_path, backend, policy) as client,
    ):
        handle = await keep(client, rows(1_850))
        if mode == "read-grep":
            told = (await ask(client, handle, mode=mode)).json()
            assert told["status"] == "complete"
        else:
            required = await ask(client, handle, mode=mode, require_complete=True)
            assert (required.status_code, backend.requests) == (502, 0)
            told = (await ask(client, handle, mode=mode)).json()
            coverage = told["coverage"]
            assert (told["status"], coverage["chunks_total"], coverage["chunks_ok"]) == ("partial", 6, 2)
            # The first chunk and the last one.
            (gap,) = coverage["missing"]
            assert 0 < gap["start"] < gap["end"] < len(rows(1_850))
            assert gap["reason"] == "the session's cap of model calls"
            cap = "the session's cap of model calls allows no more"
            assert told["warnings"] == [f"2 of 6 chunks were read: {cap}"]
            assert len(backend.asked[-1].body["messages"]) == 2
        assert told["usage"]["llm_calls"] == 3
        assert told["body"].endswith("All is well.")
        # What is kept costs no call.
        assert (await ask(client, handle, mode=mode)).json()["body"].endswith("All is well.")
        assert backend.requests == 3


async def test_a_cap_on_cost_holds_over_extractions(serve: Serve, tmp_path: Path) -> None:
    """Also while the tokens of a backend that reports no usage are counted, in a thread."""
    policy = f"[defaults]\nmax_llm_cost_usd = 0.00001\n{TERMS.replace('8000', '60000')}"
    async with (
        Backend("usage_absent") as backend,
        served(serve, tmp_path, backend, policy, extract_concurrency=1) as client,
    ):
        handles = [await keep(client, rows(1100)) for _ in range(5)]
        await asyncio.gather(*(ask(client, handle, mode="full-chunked") for handle in handles))
        assert backend.requests == 1


async def test_the_policy_chooses_among_the_models(serve: Serve, tmp_path: Path) -> None:
    models = {"llm_models": ("m", "n")}
    async with Backend() as backend, served(serve, tmp_path, backend, **models) as client:
        handle = await keep(client)
        await ask(client, handle, mode="full-chunked")
        assert {one.body["model"] for one in backend.asked} == {"m"}
        backend.asked.clear()
        await client.put("/sessions/s", json={"policy": {"extract_models": ["n"]}})
        await ask(client, handle, mode="full-chunked")
        assert {one.body["model"] for one in backend.asked} == {"n"}


async def test_nothing_of_key_or_document_is_logged_or_answered(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Backend("bad_key") as backend,
        served(serve, tmp_path, backend, llm_api_key="s3cr3t") as client,
    ):
        told = await ask(client, await keep(client, ROWS + "tulipan"))
        assert backend.asked[0].headers["authorization"] == "Bearer s3cr3t"
        assert (told.status_code, told.json()["status"]) == (200, "fallback")
        assert "s3cr3t" not in told.text + caplog.text
        assert "tulipan" not in caplog.text
    refuses = [one.fields for one in caplog.records if "refuses every call" in one.getMessage()]  # type: ignore[attr-defined]
    assert refuses == [{"model": "m", "reason": "the backend refused the key", "status": 401}]


async def test_an_extraction_that_is_refused_is_booked_as_failed(serve: Serve, tmp_path: Path) -> None:
    async with Backend("bad_key") as backend, served(serve, tmp_path, backend) as client:
        refused = await ask(client, await keep(client), require_complete=True)
        assert refused.status_code == 502
        (entry,) = await entries(client, "extract")
        assert (entry["status"], entry["error"], entry["tokens_out"]) == ("failed", "incomplete", 0)


async def test_a_session_that_ends_meanwhile_keeps_its_accounting(serve: Serve, tmp_path: Path) -> None:
    async with Backend(latency=0.4) as backend, served(serve, tmp_path, backend) as client:
        asking = asyncio.create_task(ask(client, await keep(client), mode="full-chunked"))
        await asyncio.sleep(0.2)
        await client.delete("/sessions/s")
        assert (await asking).status_code == 410
        (entry,) = await entries(client, "extract")
        assert (entry["status"], entry["error"]) == ("failed", "session_ended")


async def test_a_cap_joined_late_holds_all_the_same(serve: Serve, tmp_path: Path) -> None:
    policy = f"[tools.capped]\nmax_llm_calls = 1\n{TERMS}"
    async with (
        Backend() as backend,
        served(serve, tmp_path, backend, policy, extract_concurrency=1) as client,
    ):
        capped, free = await keep(client, tool_name="capped"), await keep(client)
        await ask(client, capped, mode="full-chunked")
        backend.latency = 0.2
        asking = asyncio.create_task(ask(client, free, mode="full-chunked"))
        await asyncio.sleep(0.1)
        late = (await ask(client, capped, extract="Else?", mode="full-chunked")).json()
        assert (late["status"], late["usage"]["llm_calls"]) == ("fallback", 0)
        assert (await asking).json()["status"] == "complete"


async def test_a_model_that_is_not_configured_cannot_be_chosen(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as backend, served(serve, tmp_path, backend) as client:
        changed = await client.put("/sessions/s", json={"policy": {"extract_models": ["typo"]}})
        assert (changed.status_code, changed.json()["code"]) == (422, "invalid_policy")
    with pytest.raises(ConfigError, match="LLM_MODELS"):
        async with served(serve, tmp_path, backend, '[defaults]\nextract_models = ["typo"]\n'):
            pass


async def test_a_caller_may_allow_up_to_two_minutes(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as backend, served(serve, tmp_path, backend, extract_deadline_ms=1000) as client:
        handle = await keep(client)
        backend.latency = 0.8
        assert (await ask(client, handle, deadline_ms=120_000)).json()["status"] == "complete"
        assert (await ask(client, handle, deadline_ms=120_001)).status_code == 422
