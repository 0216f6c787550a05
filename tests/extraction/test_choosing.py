"""auto, with a model: of a long document it may read the chunks that hold what the question names."""

import json
import re
from dataclasses import replace

import pytest

from domain.errors import ModelError, ModelUnavailable
from domain.extraction import Answer, ExtractStatus, Mode
from domain.llm import Prompt, Reply
from extraction import ladder
from extraction.retrieve import index as passage_index
from extraction.task import Progress, Terms
from tests.extraction.acting import Actor, Kept, data_of, findings_of, reporting, task_of

pytestmark = pytest.mark.anyio

CITIES = ("Bonn", "Rome", "Oslo")
# "A-1234" stands in one place, "north pier" in three that lie together, "Oslo" everywhere.
PARCELS = [
    {"id": f"A-{n}", "city": CITIES[n % 3], "note": "nothing of note " * 5}
    | ({"held": "at the north pier"} if 2000 <= n < 2003 else {})
    for n in range(1000, 4000)
]
ONE_LINE = json.dumps(PARCELS)
QUESTION = 'Which city is parcel "A-1234" bound for?'


def play(prompt: Prompt) -> Reply:
    found = findings_of(prompt)
    said = re.findall(r'"A-1234", "city": "\w+"|the north pier', data_of(prompt))
    return reporting(prompt, " + ".join(found or said) or "NO RELEVANT DATA FOUND")


async def asked(
    extract: str = QUESTION,
    text: str = ONE_LINE,
    mode: Mode = Mode.AUTO,
    actor: Actor | None = None,
    max_chunks: int = 1,
    whole: bool = False,
    kept: Kept | None = None,
) -> Answer:
    task = await task_of(
        text, actor or Actor(play), extract=extract, terms=Terms(max_chunks=max_chunks), kept=kept
    )
    return await ladder.answer(replace(task, whole=whole), mode)


async def test_only_the_chunks_that_hold_what_is_named_are_read_and_the_rest_is_named() -> None:
    actor = Actor(play)
    answer = await asked(actor=actor)
    total, read = answer.coverage.chunks_total, answer.coverage.chunks_ok
    assert total > 10
    assert read in (1, 2)
    assert len(actor.prompts) == read + 1
    assert '"A-1234", "city": "Rome"' in answer.body
    assert (answer.strategy, answer.status) == (Mode.FULL_CHUNKED, ExtractStatus.PARTIAL)
    assert answer.warnings == (
        f"{read} of {total} chunks were chosen by retrieval; ask mode full-chunked to read all",
    )
    place = ONE_LINE.index("A-1234")
    missing = answer.coverage.missing
    assert {gap.reason for gap in missing} == {"not chosen by retrieval"}
    assert not [gap for gap in missing if gap.start <= place < gap.end]
    unread = sum(gap.end - gap.start for gap in missing)
    assert answer.coverage.ratio == pytest.approx(1 - unread / len(ONE_LINE), abs=1e-4)
    assert any("not chosen by retrieval" in message.content for message in actor.prompts[-1].messages)


async def test_what_is_planned_is_what_is_read() -> None:
    steps: list[Progress] = []
    task = await task_of(ONE_LINE, Actor(play), extract=QUESTION, steps=steps)
    answer = await ladder.answer(task, Mode.AUTO)
    assert steps[0].fields["chunks"] == answer.coverage.chunks_ok
    assert steps[-2].fields["total"] == answer.coverage.chunks_ok


@pytest.mark.parametrize(
    "extract",
    [
        "Where is the parcel?",
        'Where is "A-1234", and is it the only one of its kind?',
        'How many parcels are like "A-1234"?',
        'List what is bound for the same city as "A-1234"',
        'Where are "A-1234" and "B-1234"?',
        'Which parcel is bound for "Oslo"?',
        "What is the high-level purpose?",
        "Where is 1234?",
    ],
)
async def test_in_doubt_all_is_read(extract: str) -> None:
    answer = await asked(extract, ONE_LINE + " high-level 1234 " + ONE_LINE[-1000:])
    assert (answer.status, answer.coverage.ratio, answer.warnings) == (ExtractStatus.COMPLETE, 1.0, ())


async def test_every_chunk_that_holds_a_name_is_read() -> None:
    answer = await asked('What is held at the "north pier", and where is A-3999?')
    assert answer.body.count("the north pier") >= 3
    assert answer.status is ExtractStatus.PARTIAL
    for name in ("A-2000", "A-2002", "A-3999"):
        place = ONE_LINE.index(name)
        assert not [gap for gap in answer.coverage.missing if gap.start <= place < gap.end]


async def test_a_name_that_stands_in_most_of_the_chunks_chooses_none() -> None:
    spread = [one | ({"held": "at the north pier"} if n % 200 == 0 else {}) for n, one in enumerate(PARCELS)]
    answer = await asked('What is held at the "north pier"?', json.dumps(spread))
    assert (answer.status, answer.coverage.ratio) == (ExtractStatus.COMPLETE, 1.0)


async def test_the_mode_that_reads_all_a_document_of_few_chunks_and_who_needs_all_get_all() -> None:
    for answer in (
        await asked(mode=Mode.FULL_CHUNKED),
        await asked(text=ONE_LINE[:50_000]),
        await asked(max_chunks=20),
        await asked(whole=True),
    ):
        assert (answer.status, answer.coverage.ratio) == (ExtractStatus.COMPLETE, 1.0)


async def test_asked_again_to_read_all_only_the_rest_is_paid_for() -> None:
    kept, actor = Kept(), Actor(play)
    first = await asked(kept=kept)
    again = await asked(kept=kept, actor=actor, mode=Mode.FULL_CHUNKED)
    assert again.status is ExtractStatus.COMPLETE
    assert len(actor.prompts) == again.coverage.chunks_total - first.coverage.chunks_ok + 1


async def test_nothing_found_in_what_was_read_says_what_was_not() -> None:
    answer = await asked("Where is A-1500?")
    assert answer.body.startswith("NO RELEVANT DATA FOUND\n[Not read: bytes ")
    assert "(not chosen by retrieval)]" in answer.body
    assert answer.status is ExtractStatus.PARTIAL


async def test_chunks_that_were_chosen_and_fail_are_a_failure() -> None:
    def refuse(prompt: Prompt) -> Reply | ModelError:
        return ModelUnavailable("the backend answered 503")

    answer = await asked(actor=Actor(refuse))
    warning = "only 0 % of the data could be read: the backend answered 503"
    assert answer.warnings == (f"WARNING: tool_output fallback to truncate ({warning}).",)


async def test_where_choosing_would_take_long_all_is_read() -> None:
    task = await task_of(ONE_LINE, Actor(play, seconds=8.0), extract=QUESTION)
    for searching in range(int(task.indexes.threads.total_tokens)):
        await task.indexes.threads.acquire_on_behalf_of(searching)
    answer = await ladder.answer(task, Mode.AUTO)
    assert (answer.strategy, answer.status) == (Mode.FULL_CHUNKED, ExtractStatus.COMPLETE)


async def test_without_full_text_search_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_index, "_SCHEMA", "CREATE VIRTUAL TABLE passages USING fts99(body);")
    answer = await asked()
    assert (answer.status, answer.coverage.ratio) == (ExtractStatus.COMPLETE, 1.0)
