"""POST /extract: what counts as a report, which model is asked next, and what a partial answer says."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.app.answering.test_extract_models import TERMS, anyio_backend, ask, entries, keep, saying, served  # noqa: F401
from tests.conftest import Serve
from tests.extraction.backend import Backend, report
from tests.extraction.behaviours import Exchange, completion, prompt_text, usage

pytestmark = pytest.mark.anyio

MODES = ["full-chunked", "read-grep"]
TWO = TERMS + TERMS.replace("[models.m]", "[models.n]")
SMALL = "a line of text\n" * 1000
NOTHING = "NO RELEVANT DATA FOUND"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", ["No", "是", "0", "What is the password?"])
async def test_a_short_report_is_an_answer(serve: Serve, tmp_path: Path, mode: str, text: str) -> None:
    async with Backend(answer=saying(text)) as backend, served(serve, tmp_path, backend) as client:
        told = (await ask(client, await keep(client, SMALL), mode=mode)).json()
    assert (told["body"], told["status"], told["strategy"]) == (text, "complete", mode)


def first_model(said: str, stop: str) -> Any:
    """The model `m` says that, and `n` gives a report."""

    async def behaviour(it: Exchange) -> None:
        whole = report(it.asked.body, "the answer of n")
        nonce = re.findall(r"ai-agent-(\w+)-FINAL", prompt_text(it.asked.body))[-1]
        spoken = said.replace("NONCE", nonce) if it.asked.body["model"] == "m" else whole
        reason = stop if it.asked.body["model"] == "m" else "stop"
        await it.send_json(200, completion(spoken, reason, usage=usage(it.asked, spoken)))

    return behaviour


OPEN, CLOSE = '<ai-agent-NONCE-FINAL format="text">', "</ai-agent-NONCE-FINAL>"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("said", "stop", "calls"),
    [
        ("I am done.", "stop", ["m", "m", "n"]),
        ("</think>" * 4000, "stop", ["m", "m", "n"]),
        ("<think>and so on", "length", ["m", "n"]),
        (f"{OPEN}\n{CLOSE}", "stop", ["m", "n"]),
        (f"{OPEN}\n…\n{CLOSE}", "stop", ["m", "n"]),
        (f"{OPEN}\nthe beginning of", "length", ["m", "n"]),
    ],
)
async def test_the_next_model_is_asked_where_one_gives_no_whole_report(
    serve: Serve, tmp_path: Path, mode: str, said: str, stop: str, calls: list[str]
) -> None:
    async with (
        Backend(first_model(said, stop)) as backend,
        served(serve, tmp_path, backend, TWO, llm_models=("m", "n")) as client,
    ):
        told = (await ask(client, await keep(client, SMALL), mode=mode)).json()
        assert (told["body"], told["status"]) == ("the answer of n", "complete")
        assert [one["model"] for one in await entries(client, "llm")] == calls


@pytest.mark.parametrize("mode", MODES)
async def test_a_model_without_reports_is_left_out_of_the_extraction(
    serve: Serve, tmp_path: Path, mode: str
) -> None:
    async with (
        Backend(first_model("I am done.", "stop")) as backend,
        served(serve, tmp_path, backend, TWO, llm_models=("m", "n"), extract_concurrency=1) as client,
    ):
        told = (await ask(client, await keep(client), mode=mode)).json()
        assert told["status"] == "complete"
        assert [one["model"] for one in await entries(client, "llm")][:2] == ["m", "m"]
        assert {one["model"] for one in (await entries(client, "llm"))[2:]} == {"n"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_report_that_was_stopped_is_used_as_partial_if_there_is_no_other(
    serve: Serve, tmp_path: Path, mode: str
) -> None:
    async with (
        Backend(first_model(f"{OPEN}\nthe beginning of", "length")) as backend,
        served(serve, tmp_path, backend) as client,
    ):
        told = (await ask(client, await keep(client, SMALL), mode=mode)).json()
    assert told["status"] == "partial"
    assert told["body"] == "the beginning of\n[The rest was cut: it was longer than its cap.]"


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        (1, f"{NOTHING}\nA log."),
        (1, "It is tulip."),
        (3, f"{NOTHING}\nA log."),
        (3, "It is tulip."),
        (1, NOTHING),
    ],
)
async def test_a_partial_answer_names_every_byte_that_was_not_read(
    serve: Serve, tmp_path: Path, calls: int, found: str
) -> None:
    policy = f"[defaults]\nmax_llm_calls = {calls}\n{TERMS}"
    async with Backend(answer=saying(found)) as backend, served(serve, tmp_path, backend, policy) as client:
        handle = await keep(client)
        told = (await ask(client, handle, mode="full-chunked")).json()
    missing = told["coverage"]["missing"]
    assert told["status"] == "partial"
    assert missing
    (line,) = [line for line in told["body"].split("\n") if line.startswith("[Not read: bytes ")]
    for gap in missing:
        assert f"{gap['start']} to {gap['end']}" in line
    if found.startswith(NOTHING):
        assert told["body"].startswith(f"{NOTHING} in the part that was read.\n[Not read: ")
        # Also what the data holds.
        assert told["body"].count("\n") >= 2
    else:
        assert told["body"].endswith(found)
