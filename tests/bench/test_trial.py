"""bench.trial, by a made-up set: folders of both sides, a player's calls through its tool, the score."""

import json
import os
from pathlib import Path

import pytest

from bench import trial
from tests.faults.forking import run
from tests.faults.service_process import Service

ORDERS = [
    {"order": number, "city": ("Lima", "Oslo")[number % 2], "amount": number * 3} for number in range(900)
]
RECORDS = [
    {"id": "R-1", "tool": "orders", "text": json.dumps(ORDERS)},
    {"id": "R-2", "tool": "note", "text": "The valve is open.\n"},
]
QUESTIONS = [
    {"id": "q1", "record": "R-1", "question": "How many orders went to Oslo?", "answer": "450", "accept": []},
    {"id": "q2", "record": "R-2", "question": "Is the valve open?", "answer": "yes", "accept": ["open"]},
    {"id": "q3", "record": "R-1", "question": "Which went to Rome?", "answer": "not in the data"},
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "questions.jsonl", tmp_path / "records.jsonl"
    for path, lines in zip(paths, (QUESTIONS, RECORDS), strict=True):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths


def play(folder: Path, question: str, call: str) -> str:
    done = run((str(folder / "tool.py"), question, call), dict(os.environ), b"")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def answer(folder: Path, **answers: str) -> None:
    lines = (json.dumps({"id": name, "answer": text}) for name, text in answers.items())
    (folder / "answers.jsonl").write_text("\n".join(lines))


@pytest.mark.anyio
async def test_a_player_of_ours_reads_messages_and_calls_the_service(
    tmp_path: Path, files: tuple[Path, Path], service: Service
) -> None:
    folder, (asked, records) = tmp_path / "ours", files
    host, port = service.address
    trial.main(["ours", str(asked), str(folder), "--records", str(records), "--url", f"http://{host}:{port}"])
    message = (folder / "messages/q1.txt").read_text()
    handle = message.partition('handle = "')[2].partition('"')[0]
    call = json.dumps({"handle": handle, "query": "SELECT count(*) AS n FROM data WHERE city = 'Oslo'"})
    told = play(folder, "q1", call)
    assert "450" in told
    assert "no JSON object" in play(folder, "q3", "Rome")
    assert play(folder, "q9", call).startswith("No question q9")
    for _ in range(trial.MOST_CALLS):
        last = play(folder, "q1", call)
    assert last.startswith("Question q1 had its 5 calls.")
    assert (folder / "messages/q2.txt").read_text() == RECORDS[1]["text"]
    assert json.loads((folder / "definition.json").read_text())["tools"]
    written = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert "not in the data" in (folder / "README.md").read_text()
    assert '"accept"' not in written
    answer(folder, q1="450 orders.", q2="It is open.", q3="There is no order to Rome.")
    scored = trial.score(folder, QUESTIONS)
    assert (scored.right, scored.calls, scored.wrong) == (3, 6, [])
    read = sum(len((folder / f"messages/{one}.txt").read_bytes()) for one in ("q1", "q2", "q3"))
    logged = [json.loads(line)["bytes"] for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert scored.size == read + sum(logged)
    assert logged[0] == len(told.encode()) - 1
    assert scored.bill == pytest.approx((6 * 3300 + 0.56 * scored.size) / 3)


def test_a_player_with_a_shell_has_the_files(
    tmp_path: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (asked, records) = tmp_path / "shell", files
    trial.main(["shell", str(asked), str(folder), "--records", str(records), "--ids", "odd"])
    assert (folder / "messages/q1.txt").stat().st_size < trial.PREVIEW_BYTES + 100
    assert play(folder, "q1", "grep -o Oslo R-1.txt | wc -l").strip() == "450"
    assert "[Exit status 1.]" in play(folder, "q3", "grep Rome R-1.txt")
    answer(folder, q1="4500", q3="not in the data")
    trial.main(["score", str(asked), str(folder)])
    out = capsys.readouterr().out
    assert "| shell | 1 of 2 | 2 (1.00) |" in out
    assert "wrong: q1: 4500" in out
    assert trial.score(folder, QUESTIONS, ["q1"]).right == 2


@pytest.mark.parametrize(
    ("given", "accepted", "is_right"),
    [
        ("8 programs, 368,720 bytes", "8 programs, 368720 bytes", True),
        ("The line is `a  b`.", "a b", True),
        ("1540", "54", False),
        ("54.", "54", True),
        ("", "54", False),
    ],
)
def test_an_answer_is_right_however_it_is_spelt(given: str, accepted: str, is_right: bool) -> None:
    assert trial.is_right(given, {"answer": accepted}) is is_right
