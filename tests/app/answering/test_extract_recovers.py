"""POST /extract while and after something fails: outages, refused chunks, small windows, slow stores."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from app.operations.logs import describe
from domain.accounting import AccountingEntry
from domain.errors import StoreUnavailable
from storage.memory import MemoryStore
from storage.sqlite.ledger import MemoryLedger
from tests.app.answering.test_extract_models import (
    anyio_backend,  # noqa: F401
    ask,
    departing,
    entries,
    keep,
    reading,
    rows,
    saying,
    served,
)
from tests.conftest import Serve
from tests.extraction.backend import Backend, Spoken
from tests.extraction.behaviours import BEHAVIOURS, Behaviour, Exchange, fails

pytestmark = pytest.mark.anyio

EIGHTEEN_CHUNKS = rows(5_900)
GRACE = 0.5


def logged(caplog: pytest.LogCaptureFixture, text: str) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if text in one.getMessage()]


@pytest.mark.parametrize("models", [("m",), ("m", "n")])
async def test_after_an_outage_the_first_question_is_answered_by_a_model(
    serve: Serve, tmp_path: Path, models: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with (
        Backend("error_503", answer=saying("It is there.")) as backend,
        served(serve, tmp_path, backend, llm_models=models) as client,
    ):
        handle = await keep(client, EIGHTEEN_CHUNKS)
        for number in range(5):
            told = (await ask(client, handle, extract=f"Question {number}?", mode="full-chunked")).json()
            assert (told["status"], told["strategy"]) == ("fallback", "truncate")
            await anyio.sleep(11)
        await backend.play("answers")
        # The longest pause; before its end the question would fall back at once.
        await anyio.sleep(30)
        told = (await ask(client, handle, mode="full-chunked")).json()
        assert (told["status"], told["coverage"]["chunks_ok"]) == ("complete", 18)
        assert told["usage"]["llm_calls"] == 19
        # Each model is reported once as its pauses begin, and the one that is asked first again as they end.
        assert logged(caplog, "left alone.") == [
            ("WARNING", f"Model '{name}' failed and is left alone.") for name in models
        ]
        assert logged(caplog, "answers again") == [("WARNING", "Model 'm' answers again.")]


async def test_one_failure_amid_the_first_question_after_an_outage_does_not_spoil_it(
    serve: Serve, tmp_path: Path
) -> None:
    async with Backend("error_503", latency=0.5) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client, EIGHTEEN_CHUNKS)
        for number in range(4):
            await ask(client, handle, extract=f"Question {number}?", mode="full-chunked")
            await anyio.sleep(30)
        await backend.play("answers", "error_503", "answers")
        told = (await ask(client, handle, mode="full-chunked")).json()
        assert (told["status"], told["coverage"]["chunks_ok"]) == ("complete", 18)


CONTENT_FILTER = BEHAVIOURS["content_filter"]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (fails(400), "the backend refused the request (400)"),
        (CONTENT_FILTER, "the backend's content filter withheld the reply"),
    ],
)
@pytest.mark.parametrize("models", [("m",), ("m", "n")])
async def test_a_refusal_counts_against_its_chunk(
    serve: Serve, tmp_path: Path, models: Sequence[str], refusal: Behaviour, reason: str
) -> None:
    async def by_part(it: Exchange) -> None:
        await (refusal if "You read part 1 of 18" in it.asked.text else BEHAVIOURS["answers"])(it)

    async with (
        Backend(by_part, answer=saying("It is there.")) as backend,
        served(serve, tmp_path, backend, llm_models=models) as client,
    ):
        told = (await ask(client, await keep(client, EIGHTEEN_CHUNKS), mode="full-chunked")).json()
        assert (told["status"], told["strategy"]) == ("partial", "full-chunked")
        assert told["body"].startswith("[Not read: bytes 0 to ")
        assert told["body"].endswith("\n\nIt is there.")
        coverage = told["coverage"]
        assert (coverage["chunks_total"], coverage["chunks_ok"]) == (18, 17)
        (gap,) = coverage["missing"]
        assert (gap["start"], gap["reason"]) == (0, reason)
        assert told["warnings"] == [f"1 of 18 parts are missing ({reason})"]
        # One try of the chunk at each model, the others, and the reduce, all at the first model.
        assert [one.body["model"] for one in backend.asked].count("m") == 19
        assert len(backend.asked) == 18 + len(models)


def rambling(body: dict[str, Any]) -> Spoken:
    """Reads, several times a turn, and talks about it."""
    said = reading(body)
    if isinstance(said, dict):
        calls = [{**call, "id": f"c{n}"} for n in range(4) for call in said["tool_calls"]]
        said |= {"content": "Let me look at the next part of it. " * 10, "tool_calls": calls}
    return said


async def test_a_search_in_a_small_window_reaches_its_last_turn(serve: Serve, tmp_path: Path) -> None:
    policy = "[models.m]\ncontext_window = 4096\nmax_output_tokens = 1024\n"
    async with Backend(answer=rambling) as backend, served(serve, tmp_path, backend, policy) as client:
        told = (await ask(client, await keep(client), mode="read-grep")).json()
        assert (told["status"], told["strategy"], told["body"]) == ("complete", "read-grep", "All is well.")
        assert backend.requests == told["usage"]["llm_calls"] == 15
        assert "tools" not in backend.asked[-1].body
        # The newest answer is kept as long as there is room for it.
        assert "row 00000" in backend.asked[-1].text


async def test_a_model_call_that_cannot_be_accounted_after_a_hang_up_is_logged(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails_to_append(self: MemoryLedger, entry: AccountingEntry) -> None:
        raise StoreUnavailable("The ledger is gone.")

    monkeypatch.setattr(MemoryLedger, "append", fails_to_append)
    async with Backend(latency=30) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        await departing(client, handle, asyncio.sleep(0.5))
        assert await backend.idle()
        await anyio.sleep(1)
    lost = [one for one in caplog.records if one.getMessage() == "A model call was not accounted."]
    assert len(lost) == backend.requests > 1
    for record in lost:
        fields = record.fields
        assert (fields["handle"], fields["model"], bool(fields["extract_id"])) == (handle, "m", True)
        assert describe(record.exc_info[1])["frames"]


SLOW: list[tuple[type[Any], str, str]] = [
    (MemoryStore, "read", "deadline"),
    (MemoryStore, "find", "deadline"),
    (MemoryLedger, "session", "deadline"),
]


@pytest.mark.parametrize(("port", "method", "error"), SLOW, ids=[method for _, method, _ in SLOW])
async def test_a_passed_deadline_is_answered_and_accounted_whatever_is_slow(
    serve: Serve, tmp_path: Path, port: type[Any], method: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Backend() as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        with monkeypatch.context() as patched:
            patched.setattr(port, method, slowly(getattr(port, method), 3600))
            started = anyio.current_time()
            answer = await ask(client, handle, deadline_ms=2000)
            assert anyio.current_time() - started <= 2 + GRACE
        assert answer.status_code == 200
        told = answer.json()
        assert told["text"].startswith("TOOL_OUTPUT FAILED FOR ")
        assert f"WITH HANDLE {handle}, STRATEGY:{told['strategy']}:\n\nThe deadline passed" in told["text"]
        assert (told["status"], told["coverage"]["ratio"]) == ("failed", 0)
        await settled(client, told["entry_id"])
        (entry,) = await entries(client, "extract")
        assert (entry["id"], entry["status"], entry["error"]) == (told["entry_id"], "failed", error)
        assert (await client.get("/readyz")).status_code == 200
        assert (await ask(client, handle)).json()["status"] == "complete"


def slowly(method: Any, seconds: float) -> Any:
    if method.__name__ == "read":

        async def read(*given: Any) -> Any:
            await asyncio.sleep(seconds)
            async for piece in method(*given):
                yield piece

        return read

    async def called(*given: Any) -> Any:
        await asyncio.sleep(seconds)
        return await method(*given)

    return called


async def settled(client: httpx.AsyncClient, entry_id: str) -> None:
    """Returns when the entry is written."""
    with anyio.fail_after(60):
        while entry_id not in [entry["id"] for entry in await entries(client, "extract")]:
            await anyio.sleep(0.1)


async def test_an_answer_whose_reservation_is_late_is_given_and_charged(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Backend(answer=saying("It is there.")) as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        before = (await client.get("/sessions/s")).json()["budget"]["reserved_tokens"]
        monkeypatch.setattr(MemoryLedger, "reserve", slowly(MemoryLedger.reserve, 30))
        started = anyio.current_time()
        told = (await ask(client, handle, deadline_ms=2000)).json()
        assert anyio.current_time() - started <= 2 + GRACE
        assert (told["body"], told["status"]) == ("It is there.", "complete")
        assert "the deadline passed before the answer's tokens were reserved" in told["warnings"][-1]
        await settled(client, told["entry_id"])
        (entry,) = await entries(client, "extract")
        assert (entry["id"], entry["status"]) == (told["entry_id"], "ok")
        after = (await client.get("/sessions/s")).json()["budget"]["reserved_tokens"]
        assert after - before == entry["tokens_out"] > 0


async def test_each_extraction_is_a_log_line_and_an_entry_that_say_what_it_did(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with Backend("answers") as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        await ask(client, handle, mode="full-chunked")
        await backend.play("no_quota")
        await ask(client, handle, extract="Else?")
        answered, fell_back = await entries(client, "extract")
        assert (answered["mode"], answered["strategy"]) == ("full-chunked", "full-chunked")
        assert (answered["fallback_reason"], answered["coverage"]) == (None, 1.0)
        assert (fell_back["mode"], fell_back["strategy"]) == ("auto", "truncate")
        assert fell_back["fallback_reason"] == "quota exhausted"
        assert 0 < fell_back["coverage"] < 1
        calls = await entries(client, "llm")
        assert {one["extract_id"] for one in calls} == {answered["id"], fell_back["id"]}
        first, second = (one for one in caplog.records if one.getMessage().startswith("Extraction "))
        assert (first.levelname, first.getMessage()) == ("INFO", "Extraction answered.")
        assert first.fields == {
            "handle": handle,
            "mode": "full-chunked",
            "latency_ms": answered["latency"],
            "strategy": "full-chunked",
            "status": "complete",
            "fallback_reason": None,
            "coverage": 1.0,
            "llm_calls": len(calls) - 1,
        }
        assert second.levelname == "WARNING"
        assert second.getMessage() == "Extraction fell back to truncate (quota exhausted)."
        grouped = (await client.get("/accounting/summary?group_by=strategy")).json()["rows"]
        assert {row["group"] for row in grouped} >= {"full-chunked", "truncate"}


async def test_a_spent_budget_asks_no_model_and_names_one_strategy(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        window = {"context_window": 10, "buffer_tokens": 0, "max_output_tokens": 0}
        await client.put("/sessions/s", json=window)
        told = (await ask(client, handle)).json()
        assert told["text"].startswith("TOOL_OUTPUT FAILED FOR journal")
        assert f", STRATEGY:{told['strategy']}:\n\n" in told["text"]
        assert (told["status"], told["coverage"]["ratio"]) == ("failed", 0)
        assert backend.requests == 0
        (entry,) = await entries(client, "extract")
        assert (entry["mode"], entry["strategy"]) == ("auto", told["strategy"])


async def test_findings_that_outgrow_one_prompt_are_reduced_in_levels(serve: Serve, tmp_path: Path) -> None:
    policy = "[models.m]\ncontext_window = 30000\nmax_output_tokens = 4000\n"
    async with (
        Backend(answer=saying("tulip, " * 4_000)) as backend,
        served(serve, tmp_path, backend, policy) as client,
    ):
        handle = await keep(client, EIGHTEEN_CHUNKS)
        answer = await ask(client, handle, mode="full-chunked")
        told = answer.json()
        assert (answer.status_code, told["strategy"]) == (200, "full-chunked")
        assert told["warnings"] == ["the answer was cut: it was longer than its cap"]
        assert told["usage"]["llm_calls"] > told["coverage"]["chunks_total"] + 1
        assert len(told["text"].encode()) <= 12_288


@pytest.mark.parametrize("ledger", ["memory:", "sqlite://{}/ledger.db"])
async def test_an_extraction_that_fills_the_ledger_is_answered_all_the_same(
    serve: Serve, tmp_path: Path, ledger: str
) -> None:
    async with (
        Backend(answer=saying("It is there.")) as backend,
        served(
            serve, tmp_path, backend, ledger_url=ledger.format(tmp_path), ledger_max_bytes=10_000
        ) as client,
    ):
        handle = await keep(client, EIGHTEEN_CHUNKS)
        told = (await ask(client, handle, mode="full-chunked")).json()
        assert (told["status"], told["body"]) == ("complete", "It is there.")
        summary = (await client.get("/accounting/summary?group_by=type")).json()
        counts = {row["group"]: row["entries"] for row in summary["rows"]}
        assert counts == {"tool": 1, "llm": told["usage"]["llm_calls"], "extract": 1}
        assert counts["llm"] == 19
        # The next question is answered: the entries of this one go into sums.
        again = await ask(client, handle, extract="And now?", mode="full-chunked")
        assert again.json()["status"] == "complete"
        assert (await client.get("/accounting/summary?group_by=type")).json()["total"]["entries"] == 41


LOST = [("ERROR", "An accounting entry is lost.")]


def failing(seconds: float = 0) -> Any:
    async def called(*given: Any, **named: Any) -> None:
        await asyncio.sleep(seconds)
        raise StoreUnavailable("The ledger is gone.")

    return called


@pytest.mark.parametrize(
    ("method", "seconds", "status", "told"),
    [
        # The caller is refused, and asks again.
        ("reserve", 0, 503, []),
        # The answer is sent at the deadline, before its charge fails.
        ("reserve", 30, 200, LOST),
        # Of the words of a question nothing depends.
        ("keep_finding", 0, 200, []),
    ],
)
async def test_an_entry_is_told_as_lost_only_where_no_caller_is_refused_for_it(
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    seconds: float,
    status: int,
    told: list[tuple[str, str]],
) -> None:
    async with serve(storage_url="memory:") as client:
        handle = await keep(client)
        with monkeypatch.context() as patched:
            patched.setattr(MemoryLedger, method, failing(seconds))
            answer = await ask(client, handle, deadline_ms=2000, extract="value 77")
            assert answer.status_code == status
            await anyio.sleep(60)
        assert [one for one in logged(caplog, "") if one[0] == "ERROR"] == told
        is_written = status == 200 and not told
        assert len(await entries(client, "extract")) == is_written


async def test_a_call_of_a_model_that_cannot_be_accounted_is_told_also_where_the_question_is_refused(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Backend("answers") as backend, served(serve, tmp_path, backend) as client:
        handle = await keep(client)
        with monkeypatch.context() as patched:
            patched.setattr(MemoryLedger, "append", failing())
            assert (await ask(client, handle)).status_code == 503
        lost = logged(caplog, "A model call was not accounted.")
        assert len(lost) == backend.requests >= 1
