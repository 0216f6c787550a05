"""The table, the page and the JSON: what they say, and what they keep to themselves."""

import io
import json
import re
from pathlib import Path

import pytest

from app.cli.main import main
from policies.documents import from_toml
from replay.progress import Progress
from tests.replay import made_runs, transcripts
from tests.replay.replaying import report


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return made_runs.write(tmp_path / "runs.jsonl")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["replay", *map(str, arguments)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_the_table_fits_100_columns_and_says_what_it_is_not(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, runs, "--model", "claude-opus-4-20250514")
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


def test_nothing_is_lost_under_any_policy_of_the_product(runs: Path, tmp_path: Path) -> None:
    policies = report(tmp_path, runs, "--max-bytes", "2048,4096,8192,12288,30000")["total"]["policies"]
    ours = [one for label, one in policies.items() if label.startswith(("cap ", "policy in force"))]
    assert len(ours) == 6
    assert sum(one["replaced"] for one in ours) > 100
    assert [one["lost"] for one in ours] == [0] * 6


def test_few_uses_give_no_percentage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = transcripts.openai_lines(tmp_path)
    assert "%" not in printed(capsys, path)
    target = tmp_path / "report.html"
    printed(capsys, path, "--report", target)
    assert not re.search(r"\d%", target.read_text().partition("</style>")[2])


def test_runs_that_failed_stand_beside_those_that_passed(runs: Path, tmp_path: Path) -> None:
    by_end = report(tmp_path, runs)["by_end"]
    assert {end: one["runs"] for end, one in by_end.items()} == {"passed": 16, "failed": 8}


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


def test_the_page_needs_no_network_and_no_script(runs: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert main(["replay", str(runs), "--report", str(target)]) == 0
    page = target.read_text()
    assert not re.search(r"https?://|<script|<link|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == 2


def test_names_from_a_transcript_are_escaped_in_the_page_and_the_policy_file(tmp_path: Path) -> None:
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


def test_the_policy_file_saves_what_it_says(runs: Path, tmp_path: Path) -> None:
    """Replayed with the advice as the policy in force, the runs cost less than with any one cap."""
    first = report(tmp_path, runs)
    policy = tmp_path / "policy.toml"
    policy.write_text(first["policy_file"])
    assert "max_bytes" in first["policy_file"]
    second = report(tmp_path, runs, "--policy", policy)["total"]
    advised = second["policies"]["policy in force"]["bills"]["hook"]["tokens"]
    one_cap = min(one["bills"]["hook"]["tokens"] for one in first["bill_by_cap"])
    assert advised <= one_cap
    saved = sum(one["saved"]["tokens"] for one in first["advice"])
    assert second["bill_as_recorded"]["tokens"] - advised == pytest.approx(saved, rel=0.05)


def test_where_nothing_pays_the_advice_is_to_leave_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = transcripts.lines(
        tmp_path / "a.jsonl", [{"messages": [{"role": "assistant", "content": "Hello."}]}]
    )
    assert "Leave it alone" in printed(capsys, path)


def test_the_settings_of_a_service_are_left_alone(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stored where the service stores, and no model is asked."""
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", f"disk://{tmp_path / 'store'}")
    monkeypatch.setenv("SPILLGATE_LLM_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SPILLGATE_LLM_MODELS", "none")
    report(tmp_path, runs)
    assert not (tmp_path / "store").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_goes_to_a_terminal_alone() -> None:
    now = iter([0.0, 10.0, 10.1, 20.0])
    terminal = Terminal()
    progress = Progress(1000, terminal, lambda: next(now))
    progress(50, 250)
    progress(51, 255)
    progress(200, 1000)
    progress.close()
    first, second = (line.strip("\r") for line in terminal.getvalue().split("\x1b[K")[:2])
    assert first == "[######..................]  25%  50 runs, 5 runs/s, 30 s left"
    assert second == "[########################] 100%  200 runs, 10 runs/s, 0 s left"
    plain = io.StringIO()
    quiet = Progress(1000, plain)
    quiet(1, 1000)
    quiet.close()
    assert plain.getvalue() == ""
