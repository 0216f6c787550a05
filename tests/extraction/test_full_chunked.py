"""full-chunked: the map in parallel, partial answers, the reduce in levels, and what is kept for later."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from domain.errors import ContextExceeded, ModelError, ModelUnavailable, ResultExpired
from domain.extraction import ByteRange, ExtractStatus
from domain.llm import ModelTerms, Prompt, Reply
from extraction.full_chunked import strategy as full_chunked
from extraction.prompts import NOTHING_FOUND
from extraction.reports import inquire
from extraction.task import DEADLINE_PASSED as LATE
from extraction.task import StrategyFailed
from tests.extraction.acting import Actor, Kept, data_of, findings_of, nonce_of, reporting, said, task_of
from tests.virtual_time import virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = virtual_time

CUT = "the answer was cut: it was longer than its cap"
OTHER = ModelTerms("other", 8_000, 1_000)


def lines(count: int) -> str:
    return "".join(f"{n:06} a line of a log in which something may have gone wrong\n" for n in range(count))


async def log_of(chunks: int) -> str:
    """A log that is planned in so many chunks."""
    task = await task_of(lines(10), Actor(echo))
    tokens = full_chunked.chunk_tokens(await inquire(task))
    # A tenth for the margin, a tenth for the overlap; not quite full, so that it is just so many.
    text = lines(int((chunks - 0.5) * tokens * 0.81 * 4 / len(lines(1))))
    planned = await full_chunked._plan(await inquire(await task_of(text, Actor(echo))), tokens)
    assert len(planned) == chunks
    return text


def first_line(prompt: Prompt) -> str:
    return data_of(prompt)[:6]


def is_reduce(prompt: Prompt) -> bool:
    return bool(findings_of(prompt))


def echo(prompt: Prompt) -> Reply:
    """Reports the first line of its chunk; the reduce joins what it is given."""
    found = findings_of(prompt)
    return reporting(prompt, " + ".join(found) if found else f"from {first_line(prompt)}")


def failing(number: int, error: ModelError) -> Callable[[Prompt], Reply | ModelError]:
    """Chunk `number` fails, all else is echoed."""
    return lambda prompt: error if f"You read part {number} of" in said(prompt) else echo(prompt)


async def test_twenty_chunks_eight_at_a_time_take_three_waves_and_a_reduce() -> None:
    text = await log_of(20)
    actor = Actor(echo, latency=0.5, slots=8)
    started = anyio.current_time()
    answer = await full_chunked.answer(await task_of(text, actor))
    assert anyio.current_time() - started == pytest.approx(4 * 0.5)
    assert (len(actor.prompts), actor.most_in_flight) == (21, 8)
    # The texts of no more chunks than that are in memory.
    assert actor.most_waiting == 8
    assert len({nonce_of(prompt) for prompt in actor.prompts}) == 21
    assert (answer.status, answer.coverage.ratio) == (ExtractStatus.COMPLETE, 1.0)
    assert (answer.coverage.chunks_total, answer.coverage.chunks_ok) == (20, 20)


async def test_one_chunk_is_not_reduced() -> None:
    actor = Actor(echo)
    answer = await full_chunked.answer(await task_of(lines(10), actor))
    assert answer.body == "from 000000"
    assert len(actor.prompts) == 1
    assert (await full_chunked.answer(await task_of("", actor))).body.startswith(NOTHING_FOUND)
    empty = Actor(lambda prompt: reporting(prompt, " "))
    with pytest.raises(StrategyFailed, match="report was empty"):
        await full_chunked.answer(await task_of(lines(10), empty))
    assert len(empty.prompts) == 1


async def test_findings_are_merged_in_the_order_of_the_document_whichever_came_first() -> None:
    text = await log_of(6)
    slow_first = Actor(echo, latency=lambda prompt: 5 / (1 + int(first_line(prompt) or 0)))
    quick_first = Actor(echo, latency=lambda prompt: int(first_line(prompt) or 0) / 1000)
    bodies = {
        (await full_chunked.answer(await task_of(text, actor))).body for actor in (slow_first, quick_first)
    }
    (body,) = bodies
    found = [int(number) for number in re.findall(r"from (\d{6})", body)]
    assert len(found) == 6
    assert found == sorted(found)


async def test_every_byte_is_read_by_some_chunk() -> None:
    text = await log_of(5)
    actor = Actor(echo)
    await full_chunked.answer(await task_of(text, actor))
    assert (
        "".join(data_of(prompt) + "\n" for prompt in actor.prompts if not is_reduce(prompt)).replace(
            "\n\n", "\n"
        )
        == text
    )


async def test_a_chunk_that_fails_is_named_and_the_reduce_is_told_of_the_gap() -> None:
    text = await log_of(5)
    actor = Actor(failing(2, ModelUnavailable("the backend answered 503")))
    answer = await full_chunked.answer(await task_of(text, actor))
    (gap,) = answer.coverage.missing
    assert answer.status is ExtractStatus.PARTIAL
    assert gap.reason == "the backend answered 503"
    assert (answer.coverage.chunks_total, answer.coverage.chunks_ok) == (5, 4)
    assert answer.coverage.ratio == pytest.approx(1 - (gap.end - gap.start) / len(text), abs=1e-4)
    assert f"bytes {gap.start:,} to {gap.end:,}: the backend answered 503" in said(actor.prompts[-1])
    assert answer.warnings == ("1 of 5 parts are missing (the backend answered 503)",)


async def test_neighbours_that_failed_alike_are_one_gap() -> None:
    def play(prompt: Prompt) -> Reply | ModelError:
        lost = re.search(r"You read part [23] of", said(prompt))
        return ModelUnavailable("down") if lost else echo(prompt)

    answer = await full_chunked.answer(await task_of(await log_of(5), Actor(play)))
    assert len(answer.coverage.missing) == 1
    assert answer.coverage.chunks_ok == 3


async def test_under_half_is_a_failure_and_the_rest_is_not_paid_for() -> None:
    actor = Actor(lambda prompt: ModelUnavailable("the backend is down"), latency=0.1)
    with pytest.raises(StrategyFailed, match="only 0 % of the data could be read: the backend is down"):
        await full_chunked.answer(await task_of(await log_of(20), actor))
    assert len(actor.prompts) == 16
    assert actor.waiting == 0


@pytest.mark.parametrize(("replies", "calls"), [(["no", "yes"], 2), (["no", "no", "yes"], 2)])
async def test_a_reply_without_report_is_asked_again_just_once(replies: list[str], calls: int) -> None:
    given = iter(replies)

    def play(prompt: Prompt) -> Reply:
        word = next(given)
        return reporting(prompt, "here it is") if word == "yes" else Reply("I think that", "stop")

    actor = Actor(play)
    task = await task_of(lines(10), actor)
    if "yes" in replies[:2]:
        assert (await full_chunked.answer(task)).body == "here it is"
    else:
        with pytest.raises(StrategyFailed, match="the model gave no report"):
            await full_chunked.answer(task)
    first, again = actor.prompts
    assert len(actor.prompts) == calls
    assert again.messages[: len(first.messages)] == first.messages
    assert again.messages[-2].content == "I think that"
    assert nonce_of(first) == nonce_of(again)


def too_long_beyond(size: int) -> Callable[[Prompt], Reply | ModelError]:
    return lambda prompt: ContextExceeded("too long") if len(data_of(prompt)) > size else echo(prompt)


async def test_a_chunk_that_is_too_long_is_split_and_a_second_run_knows_it() -> None:
    text, kept = await log_of(2), Kept()
    actor = Actor(too_long_beyond(6_000))
    answer = await full_chunked.answer(await task_of(text, actor, kept=kept))
    assert answer.status is ExtractStatus.COMPLETE
    assert answer.coverage.chunks_total == answer.coverage.chunks_ok > 4
    again = Actor(too_long_beyond(6_000))
    assert (await full_chunked.answer(await task_of(text, again, kept=kept))).body == answer.body
    assert again.prompts == []


async def test_findings_of_a_stand_in_are_not_kept_but_those_of_the_first_model_are() -> None:
    def play(prompt: Prompt) -> Reply:
        return replace(echo(prompt), model="stand-in" if "You read part 2 of" in said(prompt) else "small")

    text, kept = await log_of(3), Kept()
    await full_chunked.answer(await task_of(text, Actor(play), kept=kept))
    # Two chunks and the reduce.
    assert len(kept.texts) == 3
    again = Actor(echo)
    await full_chunked.answer(await task_of(text, again, kept=kept))
    assert ["You read part 2 of" in said(prompt) for prompt in again.prompts] == [True]


async def test_that_a_chunk_is_too_long_for_a_stand_in_is_not_kept() -> None:
    def play(prompt: Prompt) -> Reply | ModelError:
        actor.terms = OTHER
        return too_long_beyond(6_000)(prompt)

    kept, actor = Kept(), Actor(play)
    await full_chunked.answer(await task_of(await log_of(2), actor, kept=kept))
    assert "" not in kept.texts.values()


async def test_a_model_that_takes_nothing_at_all_ends_it() -> None:
    actor = Actor(too_long_beyond(-1))
    with pytest.raises(StrategyFailed, match="too long"):
        await full_chunked.answer(await task_of(await log_of(2), actor))
    assert len(actor.prompts) < 200


async def test_a_reduce_that_the_model_finds_too_long_is_made_smaller() -> None:
    def play(prompt: Prompt) -> Reply | ModelError:
        if len(findings_of(prompt)) > 6:
            return ContextExceeded("too long")
        return reporting(prompt, "word " * 400)

    answer = await full_chunked.answer(await task_of(await log_of(12), Actor(play)))
    assert answer.status is ExtractStatus.COMPLETE


async def test_findings_that_cannot_be_merged_are_given_as_they_are() -> None:
    def play(prompt: Prompt) -> Reply | ModelError:
        return ModelUnavailable("overloaded") if is_reduce(prompt) else reporting(prompt, "x" * 900)

    text = await log_of(5)
    answer = await full_chunked.answer(await task_of(text, Actor(play), max_bytes=2_000))
    starts = [int(start) for start in re.findall(r"\[Bytes (\d+) to", answer.body)]
    assert answer.status is ExtractStatus.PARTIAL
    assert answer.warnings == ("the findings were not merged (overloaded)", CUT)
    assert len(starts) == 5
    assert starts == sorted(starts)
    assert answer.coverage.ratio == 1.0
    assert len(answer.body.encode()) <= 2_000


async def test_chunks_that_are_not_done_in_time_are_missing_from_a_partial_answer() -> None:
    def latency(prompt: Prompt) -> float:
        return 100.0 if "You read part 4 of" in said(prompt) else 0.1

    actor = Actor(echo, latency=latency, seconds=10)
    started = anyio.current_time()
    answer = await full_chunked.answer(await task_of(await log_of(5), actor))
    (gap,) = answer.coverage.missing
    assert gap.reason == LATE
    assert answer.status is ExtractStatus.PARTIAL
    assert answer.warnings == (f"1 of 5 parts are missing ({LATE})",)
    assert is_reduce(actor.prompts[-1])
    # A quarter of the time is the reduce's.
    assert 7 < anyio.current_time() - started < 7.5
    assert actor.in_flight == 0


async def test_a_reduce_without_time_leaves_the_findings() -> None:
    actor = Actor(echo, latency=lambda prompt: 100.0 if is_reduce(prompt) else 0.1, seconds=10)
    answer = await full_chunked.answer(await task_of(await log_of(5), actor))
    assert answer.warnings == (f"the findings were not merged ({LATE})",)
    assert "from 000000" in answer.body
    assert actor.seconds_left > 0.3


async def test_one_chunk_may_use_nearly_all_of_the_time() -> None:
    actor = Actor(echo, latency=9.5, seconds=10)
    assert (await full_chunked.answer(await task_of(lines(10), actor))).body == "from 000000"


async def test_calls_that_end_together_near_the_end_are_not_cut_off_for_a_reduce_that_cannot_be() -> None:
    actor = Actor(echo, latency=lambda prompt: 6 + int(first_line(prompt) or 0) / 10_000, seconds=10)
    answer = await full_chunked.answer(await task_of(await log_of(5), actor))
    assert answer.coverage.chunks_ok == 5


async def test_a_resumed_run_pays_only_for_what_is_missing() -> None:
    text, kept = await log_of(5), Kept()
    down = Actor(failing(2, ModelUnavailable("down")))
    await full_chunked.answer(await task_of(text, down, kept=kept))
    actor = Actor(echo)
    answer = await full_chunked.answer(await task_of(text, actor, kept=kept))
    chunk, merging = actor.prompts
    assert "You read part 2 of 5" in said(chunk)
    assert len(findings_of(merging)) == 5
    assert answer.status is ExtractStatus.COMPLETE


async def test_chunks_without_relevant_data_are_left_out_of_the_reduce() -> None:
    def play(prompt: Prompt) -> Reply:
        found = is_reduce(prompt) or "You read part 3 of" in said(prompt)
        return reporting(prompt, "It was the disk." if found else f"{NOTHING_FOUND}\nA log of lines.")

    actor = Actor(play)
    answer = await full_chunked.answer(await task_of(await log_of(5), actor))
    assert findings_of(actor.prompts[-1]) == ["It was the disk."]
    assert answer.status is ExtractStatus.COMPLETE


async def test_if_no_chunk_has_relevant_data_that_is_said_without_another_call() -> None:
    def play(prompt: Prompt) -> Reply:
        number = 1 if "You read part 1 of" in said(prompt) else 2
        return reporting(prompt, f"{NOTHING_FOUND}\nA log of kind {number}.")

    actor = Actor(play)
    answer = await full_chunked.answer(await task_of(await log_of(5), actor))
    assert answer.body == f"{NOTHING_FOUND}\nA log of kind 1\nA log of kind 2"
    assert (answer.status, len(actor.prompts)) == (ExtractStatus.COMPLETE, 5)


async def test_the_body_is_cut_to_its_cap_at_a_character_and_says_so() -> None:
    actor = Actor(lambda prompt: reporting(prompt, "é" * 3_000))
    answer = await full_chunked.answer(await task_of(lines(10), actor, max_bytes=1_001))
    assert len(answer.body.encode()) in (1_000, 1_001)
    assert answer.body.startswith("éé")
    assert answer.body.endswith("\n[The rest was cut: it was longer than its cap.]")
    assert (answer.status, answer.warnings) == (ExtractStatus.PARTIAL, (CUT,))


async def test_a_report_that_was_longer_than_any_is_known_to_be_cut_also_when_found_again() -> None:
    kept, actor = Kept(), Actor(lambda prompt: reporting(prompt, "word " * 3_000))
    for _ in range(2):
        answer = await full_chunked.answer(await task_of(lines(10), actor, kept=kept))
        assert len(answer.body.encode()) == 8_000
        assert (answer.status, answer.warnings) == (ExtractStatus.PARTIAL, (CUT,))
    assert len(actor.prompts) == 1


async def test_what_is_held_instead_is_told_as_far_as_there_is_room() -> None:
    actor = Actor(lambda prompt: reporting(prompt, f"{NOTHING_FOUND}\n{first_line(prompt) * 50}"))
    answer = await full_chunked.answer(await task_of(await log_of(5), actor, max_bytes=1_000))
    assert 600 < len(answer.body.encode()) <= 1_000
    assert (answer.status, answer.warnings) == (ExtractStatus.COMPLETE, ())


async def test_only_the_ranges_are_read_and_gaps_are_named_as_bytes_of_the_whole() -> None:
    text = await log_of(8)
    ranges = (ByteRange(len(text) // 4, len(text) // 2), ByteRange(3 * len(text) // 4, len(text)))
    actor = Actor(failing(1, ModelUnavailable("down")))
    answer = await full_chunked.answer(await task_of(text, actor, ranges=ranges))
    shown = "".join(data_of(prompt) for prompt in actor.prompts)
    assert text[: len(text) // 4 - 100].splitlines()[-1] not in shown
    assert answer.coverage.missing[0].start == ranges[0].start
    assert all(
        any(span.start <= gap.start < gap.end <= span.end for span in ranges)
        for gap in answer.coverage.missing
    )
    assert 0.5 <= answer.coverage.ratio < 1


async def test_a_result_that_expires_meanwhile_ends_it_with_that_error() -> None:
    actor = Actor(echo, latency=1.0)
    task = await task_of(await log_of(20), actor)
    before = asyncio.all_tasks()

    async def expire() -> None:
        await asyncio.sleep(1.5)
        await task.asked._store.delete("default", task.asked.stored.handle)

    forgetting = asyncio.create_task(expire())
    with pytest.raises(ResultExpired):
        await full_chunked.answer(task)
    await forgetting
    assert asyncio.all_tasks() == before
