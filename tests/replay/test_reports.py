"""The table, the page and the JSON: what they say, and what they keep to themselves."""

import contextlib
import gzip
import html
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.settings import load_settings
from beside.main import main
from policies.documents import from_toml
from replay import command
from replay.advice import advice
from replay.bill import Money
from replay.figures import Outcomes, PolicyFigures, ToolFigures
from replay.plans import IN_FORCE, OURS, capped
from replay.progress import ProgressLine
from replay.replaying import Replaying
from replay.reports import html as html_page
from replay.reports import json_report
from replay.reports.summary import ReplaySummary, dollars, tokens
from replay.reports.tables import NOTES, USE_COLUMNS
from replay.runs import Notes
from replay.workers import replay_all
from tests.replay import made_runs, transcripts
from tests.replay.replaying import report


@dataclass(frozen=True)
class Reports:
    runs: Path
    text: str
    page: str
    found: dict[str, Any]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The table, the page and the JSON of one set of runs."""
    folder = tmp_path_factory.mktemp("reports")
    runs, text = made_runs.write(folder / "runs.jsonl", 6), io.StringIO()
    pages: list[str] = []

    def both(summary: ReplaySummary) -> str:
        pages.append(html_page.text(summary))
        return json_report.text(summary)

    with contextlib.redirect_stdout(text), pytest.MonkeyPatch.context() as patch:
        patch.setitem(command._WRITERS, ".json", both)
        found = report(folder, runs, "--max-bytes", "2048,4096,12288")
    return Reports(runs, text.getvalue(), pages[0], found)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    return made_runs.write_small(tmp_path / "runs.jsonl")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["replay", *map(str, arguments)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_the_table_fits_100_columns_and_says_what_it_is_not(
    few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, few, "--model", "claude-opus-4-20250514")
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("What it would have shown, not what the model would have done.") == 4
    for label in (
        "Claude Code's own",
        "Codex's own",
        "last 3 results",
        "truncate to 12 KB",
        "policy in force",
    ):
        assert text.count(f"\n{label} ") == 3


def test_nothing_is_lost_under_any_policy_of_the_product(reports: Reports) -> None:
    policies = reports.found["total"]["policies"]
    ours = [one for label, one in policies.items() if label.startswith(OURS)]
    assert len(ours) == 6
    assert sum(one["replaced"] for one in ours) > 40
    assert [one["lost"] for one in ours] == [0] * 6


def test_runs_that_failed_stand_beside_those_that_passed(reports: Reports) -> None:
    by_end = reports.found["by_end"]
    assert {end: one["runs"] for end, one in by_end.items()} == {"passed": 4, "failed": 2}


def test_the_page_needs_no_network_and_no_script(reports: Reports) -> None:
    assert not re.search(r"https?://|<script|<link|url\(|@import", reports.page)
    assert "prefers-color-scheme: dark" in reports.page
    assert reports.page.count("<svg") == 2


def test_the_policy_file_saves_what_it_says(reports: Reports, tmp_path: Path) -> None:
    """Replayed with the advice as the policy in force, the runs cost less than with any one cap."""
    first = reports.found
    policy = tmp_path / "policy.toml"
    policy.write_text(first["policy_file"])
    assert "max_bytes" in first["policy_file"]
    second = report(tmp_path, reports.runs, "--policy", policy, "--max-bytes", "4096")["total"]
    advised = second["policies"]["policy in force"]["bills"]["hook"]["tokens"]
    one_cap = min(one["bills"]["hook"]["tokens"] for one in first["bill_by_cap"])
    assert advised <= one_cap
    saved = sum(one["saved"]["tokens"] for one in first["advice"])
    assert second["bill_as_recorded"]["tokens"] - advised == pytest.approx(saved, rel=0.05)


def test_the_terms_are_those_of_the_page(reports: Reports) -> None:
    text, page = reports.text, reports.page
    flat = text.replace("\n", " ")
    for note in NOTES:
        assert note in flat.replace("follow- ups", "follow-ups")
        assert html.escape(note) in page
    for name in USE_COLUMNS:
        assert f"<th>{name}</th>" in page
    assert "SPILLGATE_POLICY_FILE=policy.toml" in text
    assert "SPILLGATE_POLICY_FILE=policy.toml" in page


def test_few_uses_give_no_percentage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = transcripts.openai_lines(tmp_path)
    assert "%" not in printed(capsys, path)
    target = tmp_path / "report.html"
    printed(capsys, path, "--report", target)
    assert not re.search(r"\d%", target.read_text().partition("</style>")[2])


@pytest.mark.parametrize("name", ["report.html", "report.json", None])
def test_no_content_is_shown_unless_it_is_asked_for(
    name: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = transcripts.openai_lines(tmp_path)
    target = tmp_path / (name or "none.json")

    def output(*more: str) -> str:
        text = printed(capsys, path, *(("--report", target) if name else ()), *more)
        return target.read_text() if name else text

    secret = re.compile("item-|follows row|list items|I opened")
    assert not secret.search(output())
    assert transcripts.USED in output("--show")


def test_names_from_a_transcript_are_escaped_in_the_page_and_the_policy_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "LISTING", transcripts.LISTING[:14_000])
    run = json.loads(transcripts.openai_lines(tmp_path).read_text())
    text = json.dumps(run).replace('"name": "shell"', json.dumps({"name": '<b>a"]\n\u001b[31m'})[1:-1])
    path = tmp_path / "odd.jsonl"
    path.write_text(f"{text}\n" * 6)
    target = tmp_path / "report.html"
    assert main(["replay", str(path), "--report", str(target)]) == 0
    assert "<b>a" not in target.read_text()
    found = report(tmp_path, path)
    from_toml(found["policy_file"], "advice")
    assert found["advice"][0]["tool"] == '<b>a"]\n\u001b[31m'


def test_of_few_large_results_there_is_no_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, transcripts.openai_lines(tmp_path))
    assert "What to do: nothing yet. There are too few large results (under 5) of every tool." in text
    assert "leave it alone" not in text
    assert re.search(r"\nshell .* -\n", text)


def test_the_advice_saves_in_the_unit_that_is_printed() -> None:
    """A cap that is cheaper in tokens and dearer in dollars, since the dear model has to ask."""
    plans = [capped(2048), capped(4096)]
    costs = {"cap 2,048": Money(-5000.0, 0.03), "cap 4,096": Money(-1000.0, -0.02)}
    total = Outcomes(runs=6, priced_runs=6, recorded=Money(100_000.0, 1.0))
    for label, cost in costs.items():
        total.policies[label] = PolicyFigures(tools={"list": ToolFigures(replaced=6, cost=cost)})
    (one,) = advice(total, plans)
    assert (one.plan, one.saved.dollars) == (capped(4096), 0.02)
    assert [found.plan for found in advice(total, plans[:1])] == [None]
    total.priced_runs = 5
    assert advice(total, plans)[0].plan == capped(2048)
    total.policies["cap 2,048"].tools["list"].quotes_broken = 1
    assert advice(total, plans)[0].plan == capped(4096)


def test_what_the_client_reads_to_edit_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = transcripts.claude_code(tmp_path)
    path.write_text(path.read_text().replace('"Bash"', '"Read"'))
    assert re.search(r"\nRead .* passes\n", printed(capsys, path))


def test_cells_stand_apart_and_no_zero_is_negative(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model in ("claude-opus-4-8", "claude-3-haiku-20240307"):
        text = printed(capsys, few, "--model", model)
        assert "$" in text
        assert not re.search(r"\d-?\$", text)
    assert dollars(-0.00001) == "$0.0000"
    assert tokens(-0.2) == "0"


def test_a_model_without_a_price_is_named(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No price is known for nosuch." in printed(capsys, few, "--model", "nosuch")
    assert "No price" not in printed(capsys, few)


def test_one_is_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transcripts.openai_lines(tmp_path)
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    text = printed(capsys, tmp_path)
    assert text.startswith("1 run in 1 file (messages): ")
    assert "\n1 file of no known format: " in text


def test_the_settings_of_a_service_are_left_alone(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stored where the service stores, and no model is asked."""
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", f"disk://{tmp_path / 'store'}")
    monkeypatch.setenv("SPILLGATE_LLM_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SPILLGATE_LLM_MODELS", "none")
    report(tmp_path, few)
    assert not (tmp_path / "store").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_goes_to_a_terminal_alone() -> None:
    now = iter([0.0, 10.0, 10.1, 20.0])
    terminal = Terminal()
    progress = ProgressLine(1000, terminal, lambda: next(now))
    progress(50, 250)
    progress(51, 255)
    progress(200, 1000)
    progress.close()
    first, second = (line.strip("\r") for line in terminal.getvalue().split("\x1b[K")[:2])
    assert first == "[######..................]  25%  50 runs, 5 runs/s, 30 s left"
    assert second == "[########################] 100%  200 runs, 10 runs/s, 0 s left"
    plain = io.StringIO()
    quiet = ProgressLine(1000, plain)
    quiet(1, 1000)
    quiet.close()
    assert plain.getvalue() == ""


@pytest.mark.parametrize(("suffix", "steps"), [("jsonl", 3), ("jsonl.gz", 2)])
def test_progress_goes_on_within_one_file(
    suffix: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.workers._BATCH_CHARS", 1)
    written = made_runs.write(tmp_path / "runs.jsonl", 6).read_bytes() * 2
    path = tmp_path / f"one.{suffix}"
    path.write_bytes(gzip.compress(written) if suffix.endswith("gz") else written)
    seen = []
    replaying = Replaying(IN_FORCE)
    replay_all([path], load_settings(), replaying, Notes(), watch=lambda *done: seen.append(done))
    assert seen == sorted(seen)
    assert seen[0] == (0, 0)
    assert seen[-1] == (12, path.stat().st_size)
    assert len({size for _, size in seen}) >= steps
