from collections.abc import Awaitable, Callable

import pytest
from acting import Actor, task_of

from domain.errors import ContextExceeded
from domain.extraction import Answer, Gap
from domain.llm import LlmTokens, Message, ModelTerms, Prompt
from domain.ports import Model
from extraction import prompts, read_grep
from extraction.full_chunked import strategy as full_chunked
from extraction.models.demo import DemoModel
from extraction.prompts import NOTHING_FOUND, Document, Finding, Part
from extraction.reports import parse_report
from extraction.task import Task

pytestmark = pytest.mark.anyio

NONCE = "4be1c07a99d2f365"
TERMS = ModelTerms("scripted", 32_000, 2_000)
DOCUMENT = Document("journal", None, 1000, 5, 250, "log")
PART = Part(1, 2, 0, 90, 7, 11)
LOG = "INFO start\nERROR db-1 timeout after 30 s\nINFO retry\nERROR disk full\nINFO ordering lunch\n"


async def ask(messages: tuple[Message, ...], model: DemoModel | None = None) -> str:
    reply = await (model or DemoModel(TERMS)).complete(Prompt(messages, 2000))
    assert (reply.stop_reason, reply.tool_calls) == ("stop", ())
    return parse_report(reply.text, NONCE) or ""


async def on_chunk(asked: str, data: str = LOG, max_bytes: int = 4000) -> str:
    return await ask(prompts.chunk_prompt(DOCUMENT, asked, data, PART, NONCE, max_bytes))


async def test_it_reports_the_lines_that_share_most_with_the_instruction() -> None:
    both = "line 8: ERROR db-1 timeout after 30 s\nline 10: ERROR disk full"
    assert await on_chunk("List all errors") == both
    assert await on_chunk('What is said of "disk full"?') == "line 10: ERROR disk full"
    assert await on_chunk("Was there an error on db-1?") == "line 8: ERROR db-1 timeout after 30 s"


async def test_what_is_not_there_is_said_to_be_so_and_what_is_there_too() -> None:
    report = await on_chunk("Who logged in as admin?")
    assert report.startswith(NOTHING_FOUND)
    assert "admin" in report
    assert "line 7: INFO start" in report
    assert "names nothing" in await on_chunk("What is it?")


async def test_a_report_keeps_its_size_and_says_what_is_left_out() -> None:
    report = await on_chunk("errors", "ERROR again\n" * 500, max_bytes=300)
    assert len(report.encode()) <= 300
    assert report.endswith("more lines]")
    assert len((await on_chunk("errors", "ERROR " + "é" * 5000, max_bytes=100)).encode()) <= 100


async def on_findings(*texts: str, gaps: tuple[Gap, ...] = ()) -> str:
    findings = [Finding(PART, text) for text in texts]
    return await ask(prompts.reduce_prompt(DOCUMENT, "Which errors?", findings, gaps, NONCE, 4000))


async def test_findings_are_merged_without_repeats_and_without_those_that_found_nothing() -> None:
    merged = await on_findings("line 1: a\nline 2: b", f"{NOTHING_FOUND}\nonly c", "line 2: b\nline 9: d")
    assert merged == "line 1: a\nline 2: b\nline 9: d"
    assert await on_findings(f"{NOTHING_FOUND}\nonly c", f"{NOTHING_FOUND}\nonly d") == (
        f"{NOTHING_FOUND}\nonly c\nonly d"
    )
    gapped = await on_findings("line 1: a", gaps=(Gap(70, 1090, "the model timed out"),))
    assert gapped == "Not covered: bytes 70 to 1,090: the model timed out\nline 1: a"


async def test_it_is_a_model_with_a_window_and_a_count() -> None:
    model: Model = DemoModel(TERMS)
    prompt = Prompt(prompts.chunk_prompt(DOCUMENT, "errors", LOG, PART, NONCE, 4000), 2000)
    reply = await model.complete(prompt)
    said = sum(-(-len(message.content) // 4) for message in prompt.messages)
    assert reply.tokens == LlmTokens(said, -(-len(reply.text) // 4))
    assert await model.complete(prompt) == reply
    with pytest.raises(ContextExceeded):
        await DemoModel(ModelTerms("tiny", said, 2000)).complete(prompt)


@pytest.mark.parametrize("answer", [full_chunked.answer, read_grep.answer])
async def test_a_strategy_finds_the_needle_with_it(answer: Callable[[Task], Awaitable[Answer]]) -> None:
    lines = [f"2024-05-01 10:00:00 INFO request {n} was answered" for n in range(3000)]
    lines[1234] = "2024-05-01 10:20:34 ERROR the payment gateway refused order 77-A"
    actor = Actor(DemoModel(ModelTerms("small", 8_000, 1_000)).complete)
    task = await task_of("\n".join(lines), actor, extract="Which order did the payment gateway refuse?")
    found = await answer(task)
    assert "line 1235: " + lines[1234] in found.body
