"""The bill, by pencil and paper."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from content.source_text import SourceText
from extraction.index_cache import IndexCache
from replay.bill import Money, OfferTime, Shown, bill, counted
from replay.figures import Figures, Outcomes, PolicyFigures
from replay.prices import prices_of
from replay.reports.summary import ReplaySummary
from replay.runs import BilledTokens, Input, Notes, Result, Run, Turn
from tests.faults.forking import forking
from tests.replay import made_runs
from tests.replay.replaying import report
from tests.replay.transcripts import claude_code, openai_lines


class Words:
    """A token is a word."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


def words(count: int) -> str:
    return " ".join(["word"] * count)


def run(*steps: Any) -> Run:
    return Run("messages", steps=list(steps))


TWO_TURNS = run(Input(words(100)), Turn(words(10)), Result("c", "read", words(1000)), Turn(words(20)))
"""Requests: 100 tokens written; then 10 + 1,000 written and 100 read."""


def relative(one: Run, tokens: Sequence[int], **more: Any) -> float:
    offer, definitions = more.pop("offer", OfferTime.HOOK), more.pop("definitions", 0)
    money, _ = bill(counted(one, Words(), None), Shown(tokens, **more), definitions, offer)
    return round(money.relative, 6)


def test_what_enters_is_written_once_and_read_by_each_later_request() -> None:
    assert relative(TWO_TURNS, [1000]) == 125 + 50 + 1010 * 1.25 + 100 * 0.1 + 100


def test_a_smaller_text_enters_instead_of_the_result() -> None:
    assert relative(TWO_TURNS, [1000]) - relative(TWO_TURNS, [100]) == 900 * 1.25


def test_definitions_in_every_request_are_written_once_and_read() -> None:
    always = relative(TWO_TURNS, [1000], definitions=200, offer=OfferTime.ALWAYS)
    assert always - relative(TWO_TURNS, [1000]) == 200 * 1.25 + 200 * 0.1


def test_definitions_that_come_late_make_the_prefix_written_again() -> None:
    late = relative(TWO_TURNS, [100], definitions=200, offer=OfferTime.LATE, first_stored=0)
    assert round(late - relative(TWO_TURNS, [100]), 6) == 200 * 1.25 + 100 * (1.25 - 0.1)
    assert relative(TWO_TURNS, [1000], definitions=200, offer=OfferTime.LATE) == relative(TWO_TURNS, [1000])


def test_a_question_is_one_more_turn_with_its_answer() -> None:
    """The second request asks, of 210 tokens; the third reads them, and writes call and answer."""
    asked = relative(TWO_TURNS, [100], asked={3: [[500]]})
    assert round(asked - relative(TWO_TURNS, [100]), 6) == 60 * 5 + (60 + 500) * 1.25 + 210 * 0.1


def test_results_that_are_cleared_make_what_follows_written_again() -> None:
    steps = [Input(words(100))]
    for _ in range(3):
        steps += [Turn(""), Result("c", "read", words(50))]  # type: ignore[list-item]
    one = run(*steps, Turn(""))
    kept, cleared = relative(one, [50] * 3), relative(one, [50] * 3, most_results=2, cleared_tokens=5)
    # The last request: 105 + 50 + 50 instead of 250 tokens; 50 cached ones are written again.
    assert round(kept - cleared, 6) == round(50 * 0.1 - (5 * 1.25 + 50 * 1.15), 6)


def test_billed_input_tells_the_prefix_and_billed_output_stands() -> None:
    first = Turn(words(10), usage=BilledTokens(0, 1100, 0, 300), model="claude-sonnet-4-6")
    one = run(
        Input(words(100)),
        first,
        Result("c", "read", words(10)),
        Turn("", usage=BilledTokens(0, 20, 1100, 50)),
    )
    found = counted(one, Words(), None)
    assert found.prefix == 1000
    assert found.output == [0, 300, 0, 50]
    assert found.counted_output == 10


def test_a_provider_that_reads_nothing_from_a_cache_is_billed_so() -> None:
    turns = [Turn("", usage=BilledTokens(100, 0, 0, 0)), Turn("", usage=BilledTokens(150, 0, 0, 0))]
    one = run(Input(words(100)), turns[0], Input(words(50)), turns[1])
    assert relative(one, []) == 100 + 150


def test_prices_are_those_of_the_model_with_its_cache() -> None:
    opus, gpt = prices_of("claude-opus-4-8"), prices_of("openai/gpt-4.1")
    assert (opus.write, opus.read, opus.output) == pytest.approx((1.25, 0.1, 5))
    assert (gpt.write, gpt.read, gpt.output) == pytest.approx((1.0, 0.25, 4))
    assert opus.dollars == pytest.approx(5e-6)
    assert prices_of("no-such-model").dollars is None


def test_a_named_model_gives_dollars(tmp_path: Path) -> None:
    path = made_runs.write_small(tmp_path / "runs.jsonl")
    assert report(tmp_path, path)["unit"] == "tokens of fresh input"
    found = report(tmp_path, path, "--model", "claude-opus-4-8")
    recorded = found["total"]["bill_as_recorded"]
    assert found["unit"] == "dollars"
    assert recorded["dollars"] == pytest.approx(recorded["tokens"] * 5e-6, rel=1e-3)


def test_billed_usage_stands_beside_what_the_bill_counts(tmp_path: Path) -> None:
    billed = report(tmp_path, claude_code(tmp_path))["billed"]
    assert billed["runs"] == 1
    assert billed["billed"] == {"written": 3 * 903, "read": 300, "output": 120}


def test_runs_on_several_processes_give_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made_runs.write(tmp_path / "runs.jsonl", 2, first=3)
    alone = report(tmp_path, path)
    monkeypatch.setattr("replay.workers._ALONE_BYTES", 0)
    monkeypatch.setattr("replay.workers._BATCH_CHARS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    context = forking()
    monkeypatch.setattr("multiprocessing.get_context", lambda method: context)
    assert json.dumps(report(tmp_path, path)) == json.dumps(alone)


def test_policies_share_the_index_of_a_result_that_they_all_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To index a result of 46 MB takes four seconds: of fourteen policies, a minute."""
    built = []
    build = IndexCache._built

    async def counted_build(self: IndexCache, text: SourceText) -> Any:
        built.append(text)
        return await build(self, text)

    monkeypatch.setattr(IndexCache, "_built", counted_build)
    found = report(tmp_path, openai_lines(tmp_path))["total"]["policies"]
    assert sum(one["follow_ups"] for one in found.values()) > 3
    assert len(built) == 1


def test_a_run_that_costs_more_is_one_in_the_unit_that_is_printed() -> None:
    figures = PolicyFigures(dearer={OfferTime.HOOK: Money(1, 0)})
    for priced, count in ((1, "0"), (0, "1")):
        total = Outcomes(runs=1, priced_runs=priced, policies={"cap": figures})
        assert ReplaySummary(Figures(), total, Notes(), [], [], []).dearer("cap", OfferTime.HOOK) == count
