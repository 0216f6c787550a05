"""The ladder: which strategy answers, and what is said and done when it cannot."""

import asyncio
import time

import anyio
import pytest

from domain.errors import ModelRefused
from domain.extraction import Answer, ByteRange, ExtractStatus, LlmUsage, Mode
from domain.llm import Prompt, Reply
from extraction import ladder
from extraction.asked_bytes import AskedBytes
from extraction.task import ExtractionLimits
from tests.extraction.acting import Actor, reporting, stored_text, task_of
from tests.virtual_time import virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = virtual_time

LOG = "".join(f"line {n} of a log that is longer than one window\n" for n in range(2000))
SHORT_LOG = LOG[:5000]
ONE_LINE = "record, " * 12_000


def found(prompt: Prompt) -> Reply:
    return reporting(prompt, "found it")


async def asked(text: str, mode: Mode = Mode.AUTO, limits: ExtractionLimits = ExtractionLimits()) -> Answer:  # noqa: B008
    return await ladder.answer(await task_of(text, Actor(found), limits=limits), mode)


@pytest.mark.parametrize(
    ("text", "limits", "mode"),
    [
        (SHORT_LOG, ExtractionLimits(), Mode.FULL_CHUNKED),
        (LOG, ExtractionLimits(), Mode.READ_GREP),
        (LOG, ExtractionLimits(max_chunks=20), Mode.FULL_CHUNKED),
        (ONE_LINE, ExtractionLimits(), Mode.FULL_CHUNKED),
        (LOG, ExtractionLimits(avg_line_bytes=40), Mode.FULL_CHUNKED),
        (ONE_LINE, ExtractionLimits(avg_line_bytes=10**6), Mode.READ_GREP),
    ],
    ids=["one-chunk", "short-lines", "many-chunks", "long-lines", "lower-average", "higher-average"],
)
async def test_auto_maps_few_chunks_and_long_lines_and_searches_the_rest(
    text: str, limits: ExtractionLimits, mode: Mode
) -> None:
    assert (await asked(text, limits=limits)).strategy is mode


@pytest.mark.parametrize(
    ("wanted", "mode"), [(ONE_LINE, Mode.FULL_CHUNKED), (LOG, Mode.READ_GREP)], ids=["long", "short"]
)
async def test_of_ranges_their_own_lines_count_whatever_the_rest_is_like(wanted: str, mode: Mode) -> None:
    rest = LOG * 3 if wanted is ONE_LINE else ONE_LINE * 30
    span = ByteRange(len(rest), len(rest) + len(wanted))
    task = await task_of(rest + wanted, Actor(found), ranges=[span])
    assert (await ladder.answer(task, Mode.AUTO)).strategy is mode


FAULTY = LOG.replace("line 1234 of", "line 1234 (disk full) of")


async def test_retrieve_and_truncate_ask_no_model_even_if_there_is_one() -> None:
    actor = Actor(found)
    answer = await ladder.answer(await task_of(FAULTY, actor, extract="disk full"), Mode.RETRIEVE)
    assert (answer.strategy, answer.usage, actor.prompts) == (Mode.RETRIEVE, LlmUsage(), [])
    answer = await ladder.answer(await task_of(SHORT_LOG, actor), Mode.TRUNCATE)
    assert (answer.body, answer.usage, actor.prompts) == (SHORT_LOG, LlmUsage(), [])


async def test_retrieve_can_be_the_fallback() -> None:
    task = await task_of(FAULTY, Actor(lambda _: ModelRefused("quota exhausted")), extract="disk full")
    answer = await ladder.answer(task, Mode.READ_GREP, Mode.RETRIEVE)
    warning = "WARNING: tool_output fallback to retrieve (quota exhausted)."
    assert answer.body.startswith(f"{warning}\n[")
    assert "line 1234 (disk full) of a log" in answer.body
    assert (answer.status, answer.warnings) == (ExtractStatus.FALLBACK, (warning,))
    short = await ladder.shorter(answer, task, 400)
    assert short.body.startswith(warning)
    assert "line 1234 (disk full) of a log" in short.body
    assert len(short.body.encode()) <= 400


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.FULL_CHUNKED, Mode.READ_GREP])
@pytest.mark.parametrize("seconds", [2, 10, 60])
@pytest.mark.parametrize("text", [SHORT_LOG, LOG], ids=["short", "long"])
async def test_a_model_that_never_answers_is_left_at_the_deadline(
    mode: Mode, seconds: float, text: str
) -> None:
    before = asyncio.all_tasks()
    started = anyio.current_time()
    actor = Actor(found, latency=10_000, seconds=seconds)
    answer = await ladder.answer(await task_of(text, actor), mode)
    assert anyio.current_time() - started <= seconds - 0.2
    assert "the deadline passed).\n" in answer.body
    assert answer.status is ExtractStatus.FALLBACK
    assert asyncio.all_tasks() == before
    assert actor.waiting == 0


@pytest.mark.parametrize("max_bytes", [0, 40, 67, 68, 69, 100, 130, 200, 1000])
async def test_a_fallback_is_within_its_cap_but_its_warning_is_said_whole(max_bytes: int) -> None:
    warning = "WARNING: tool_output fallback to truncate (quota exhausted)."
    actor = Actor(lambda _: ModelRefused("quota exhausted"))
    answer = await ladder.answer(await task_of(LOG, actor, max_bytes=max_bytes), Mode.READ_GREP)
    assert answer.body.startswith(warning)
    assert len(answer.body.encode()) <= max(max_bytes, len(warning))


@pytest.mark.parametrize("mode", [Mode.FULL_CHUNKED, Mode.TRUNCATE, Mode.READ_GREP])
async def test_an_answer_can_be_made_shorter_without_asking_again(mode: Mode) -> None:
    actor = Actor(lambda prompt: reporting(prompt, "word " * 1000))
    task = await task_of(LOG, actor)
    answer = await ladder.answer(task, mode)
    calls = len(actor.prompts)
    short = await ladder.shorter(answer, task, 300)
    assert 200 < len(short.body.encode()) <= 300
    assert (short.strategy, short.status, short.usage) == (mode, ExtractStatus.PARTIAL, answer.usage)
    if mode is not Mode.TRUNCATE:
        assert answer.status is ExtractStatus.COMPLETE
        assert short.warnings == ("the answer was cut: it was longer than its cap",)
        assert (await ladder.shorter(short, task, 200)).warnings == short.warnings
        assert await ladder.shorter(answer, task, len(answer.body)) == answer
    assert len(actor.prompts) == calls


async def test_a_shorter_fallback_still_says_its_warning() -> None:
    task = await task_of(LOG, Actor(lambda _: ModelRefused("quota exhausted")))
    answer = await ladder.answer(task, Mode.READ_GREP)
    short = await ladder.shorter(answer, task, 300)
    assert short.body.startswith(f"{answer.warnings[0]}\nline 0")
    assert len(short.body.encode()) <= 300
    assert (short.status, short.warnings) == (ExtractStatus.FALLBACK, answer.warnings)
    assert short.coverage.ratio < answer.coverage.ratio


async def test_a_source_of_many_ranges_knows_where_its_bytes_lie() -> None:
    store, stored = await stored_text("0123456789" * 1000)
    asked = AskedBytes(store, stored, [ByteRange(7 * n, 7 * n + 3) for n in range(1000)])
    assert asked.located(2, 7) == [ByteRange(2, 3), ByteRange(7, 10), ByteRange(14, 15)]
    assert asked.located(-5, 3) == [ByteRange(0, 3)]
    assert asked.located(2999, 9999) == [ByteRange(6995, 6996)]
    assert asked.located(5, 5) == asked.located(3000, 3001) == []
    assert asked.located(0, asked.size) == list(asked.spans)
    started = time.process_time()
    for start in range(3000):
        asked.located(start, start + 1)
    assert time.process_time() - started < 0.1
