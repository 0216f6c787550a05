"""try: what each outcome would hand to the model, without a server and with nothing kept."""

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from beside.main import main
from policies.outcomes.store import TOO_LARGE

LOG = "".join(f"2026-01-01 00:00:{n % 60:02} request {n} took {n * 7 % 100} ms\n" for n in range(2000))
OUTCOMES = ("store", "truncate", "cap", "reject")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "service.log"
    path.write_text(LOG)
    return path


def rows(printed: str) -> dict[str, list[str]]:
    """Cells of the table, without the mark of what is in force, by the outcome tried."""
    lines = (line.replace(" *", "").split() for line in printed.splitlines() if line.startswith("  "))
    return {line[0]: line[1:] for line in lines if line and line[0] in OUTCOMES}


def test_each_outcome_has_its_row_and_the_one_in_force_its_mark(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", str(log)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"read_file: {len(LOG):,} bytes, 2,000 lines, {len(LOG):,} characters, ")
    assert tuple(rows(printed)) == OUTCOMES
    assert "store *" in printed
    assert [row[:2] for row in rows(printed).values()] == [[name, "size_cap"] for name in OUTCOMES]
    sizes = {name: int(row[2].replace(",", "")) for name, row in rows(printed).items()}
    assert sizes["store"] < 650 > sizes["reject"]
    assert sizes["truncate"] < sizes["cap"] <= 12_288


def test_the_texts_are_those_of_the_service(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", str(log), "--show", "store"]) == 0
    printed = capsys.readouterr().out
    assert f"{TOO_LARGE} ({len(LOG)} bytes, 2000 lines, " in printed
    assert 'tool_output(handle = "session-' in printed
    assert "──── truncate ────" not in printed
    assert main(["try", str(log), "--show", "truncate", "--arguments", '{"path": "made.py"}']) == 0
    printed = capsys.readouterr().out
    assert f"{LOG[:2000]}\n\n[... {len(LOG) - 2000} characters truncated ...]" in printed
    assert "File: made.py | 2000 lines" in printed
    assert main(["try", str(log), "--show", "all"]) == 0
    printed = capsys.readouterr().out
    assert [f"──── {name} ────" in printed for name in OUTCOMES] == [True] * 4


def test_what_fits_passes_whatever_is_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("On branch main é\n".encode())))
    assert main(["try", "-", "--show", "reject"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("execute_shell: 18 bytes")
    assert all(row[:2] == ["pass", "none"] and row[-1] == "0.0%" for row in rows(printed).values())
    assert printed.endswith("──── reject ────\nOn branch main é\n\n")


def test_a_pipe_can_be_tried_though_it_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(LOG,))
    writer.start()
    assert main(["try", str(pipe)]) == 0
    writer.join()
    assert all(row[1] == "size_cap" for row in rows(capsys.readouterr().out).values())


def test_an_outcome_that_gives_way_says_what_it_became(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nmax_bytes = 100\n")
    assert main(["try", str(log), "--policy", str(policy)]) == 0
    assert rows(capsys.readouterr().out)["cap"][0] == "store"


def test_view_caps_are_no_trigger(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", str(log), "--tool", "glob_files", "--profile", "oxide-code", "--show", "cap"]) == 0
    printed = capsys.readouterr().out
    assert "(Showing 100 of 2000 matches.)" in printed
    assert rows(printed)["cap"][:3] == ["cap", "view", "caps"]


def test_it_is_tried_under_the_policy_in_force(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "observe"\n[tools.cat]\nmax_bytes = 0\n[tools.tail]\non_oversize = "cap"\n')
    assert main(["try", str(log), "--tool", "cat", "--policy", str(policy)]) == 0
    assert {row[0] for row in rows(capsys.readouterr().out).values()} == {"pass"}
    assert main(["try", str(log), "--tool", "tail", "--policy", str(policy)]) == 0
    printed = capsys.readouterr().out
    assert "cap *" in printed
    assert {row[1] for row in rows(printed).values()} == {"size_cap"}


def test_an_operator_who_forbids_requests_their_policy_may_try_all_the_same(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPILLGATE_ALLOW_REQUEST_OVERRIDES", "false")
    assert main(["try", str(log), "--profile", "ouro"]) == 0
    assert "truncate *" in capsys.readouterr().out


def test_nothing_of_the_service_is_touched(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", f"disk://{tmp_path}/state")
    assert main(["try", str(log)]) == 0
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("content", "options", "status", "said"),
    [
        (b"\xff\xfe", [], 1, "not valid UTF-8"),
        (
            b"x",
            ["--profile", "uoro"],
            2,
            "--profile: one of default, ai-agent, ouro, claude-code, oxide-code",
        ),
        (b"x", ["--show", "drop"], 2, "--show: one of all, store, truncate, cap, reject"),
        (b"x", ["--policy", "none.toml"], 2, "--policy: there is no file none.toml"),
        (None, [], 2, "FILE: there is no file "),
    ],
)
def test_what_cannot_be_tried_is_refused_with_a_reason(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    options: list[str],
    status: int,
    said: str,
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main(["try", str(path), *options]) == status
    assert said in capsys.readouterr().err


def test_what_a_terminal_cannot_show_is_shown_as_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wide.txt"
    path.write_text("\U0001f600\n" * 5000)
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert main(["try", str(path), "--show", "cap"]) == 0
    assert b"\\U0001f600\n\\U0001f600\n" in printed.getvalue()
