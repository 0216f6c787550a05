"""Files that are not as they should be: counted, named, never a traceback."""

import codecs
import gzip
import json
import logging
import os
import re
import socket
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import chdir, closing
from pathlib import Path
from typing import Any

import pytest

from beside.main import main
from replay import sources, workers
from replay.readers import FORMATS, TranscriptFormat, recognised
from replay.runs import MOST_DEPTH, Notes, Run
from replay.uses import uses_of
from tests.counts import FULL, count
from tests.faults.forking import forking
from tests.replay import transcripts
from tests.replay.replaying import report

FEW = 1
"""Runs: enough to see that they are read."""
SMALL = {
    "messages": [
        {"role": "user", "content": "How many orders are open?"},
        {"role": "assistant", "content": "Seven."},
    ]
}


def write_runs(path: Path, count: int) -> Path:
    return transcripts.lines(path, [SMALL] * count)


@pytest.fixture(autouse=True)
def _short_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "LISTING", "item-1 and item-2")


def faults(folder: Path, *paths: Path) -> dict[str, int]:
    found: dict[str, int] = report(folder, *paths)["read"]["faults"]
    return found


def test_a_transcript_that_is_being_written_ends_with_a_part_of_a_line(tmp_path: Path) -> None:
    path = transcripts.claude_code(tmp_path)
    whole = path.read_text()
    path.write_text(whole + '{"type": "assistant", "sess')
    assert faults(tmp_path, path) == {sources.CUT_LINE: 1}


def test_lines_that_are_not_json_are_counted(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.jsonl", 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"not json\n", b'{"a": \xff}\n', *lines[1:3]]))
    found = report(tmp_path, path)
    assert found["read"]["faults"] == {sources.NOT_JSON: 2}
    assert found["total"]["runs"] == 3


def test_what_is_no_transcript_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    write_runs(folder / "runs.jsonl", FEW)
    (folder / "settings.json").write_text('{"theme": "dark"}')
    (folder / "picture.json").write_bytes(bytes(range(256)) * 50)
    (folder / "empty.jsonl").touch()
    (folder / "damaged.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00 not gzip")
    (folder / "notes.txt").write_text("not looked at")
    (folder / "gone.json").symlink_to(folder / "nowhere.json")
    found = report(tmp_path, folder)
    assert found["total"]["runs"] == FEW
    assert found["read"]["faults"] == {
        sources.NOT_A_TRANSCRIPT: 2,
        sources.EMPTY: 1,
        sources.UNREADABLE: 2,
    }


def test_a_mark_before_json_is_no_part_of_it_and_too_deep_is_not_incomplete(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "marked.json").write_bytes(codecs.BOM_UTF8 + json.dumps(SMALL, indent=1).encode())
    write_runs(folder / "runs.jsonl", FEW)
    (folder / "marked.jsonl").write_bytes(codecs.BOM_UTF8 + (folder / "runs.jsonl").read_bytes())
    deep = '{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (folder / "deep.json").write_text(deep)
    with (folder / "runs.jsonl").open("a") as file:
        file.write(f"{deep}\n")
    found = report(tmp_path, folder)
    assert found["total"]["runs"] == 2 * FEW + 1
    assert found["read"]["faults"] == {sources.TOO_DEEP: 2}


def test_names_do_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a\x1b[31mb\n.json").touch()
    (tmp_path / "gone\x1b[0m").mkdir()
    assert main(["replay", str(tmp_path)]) == 2
    assert main(["replay", str(tmp_path / "gone\x1b[0m")]) == 2
    assert main(["replay", str(tmp_path / "no\x1b[0m")]) == 2
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "a?[31mb?.json" in said


def test_links_are_followed_and_a_cycle_ends(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "inner"
    folder.mkdir(parents=True)
    (folder / "back").symlink_to(tmp_path / "runs")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_runs(elsewhere / "runs.jsonl", FEW)
    (folder / "there").symlink_to(elsewhere)
    found = report(tmp_path, tmp_path / "runs")
    assert found["total"]["runs"] == FEW
    assert found["read"]["faults"] == {sources.LINK_CYCLE: 1}


def test_a_line_that_is_too_large_is_left_out_and_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_DOCUMENT_BYTES", 4 << 20)
    path = write_runs(tmp_path / "runs.jsonl", FEW)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate(file.tell() + (64 << 20))
    notes = Notes()
    tracemalloc.start()
    runs = sum(1 for _ in sources.runs_of(path, notes))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert runs == FEW
    assert notes.faults == {sources.TOO_LARGE: 1}
    assert peak < 3 * sources.MOST_DOCUMENT_BYTES


def test_a_run_with_more_text_than_is_searched_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_RUN_CHARS", 100_000)
    path = write_runs(tmp_path / "runs.jsonl", FEW)
    large = {"messages": [{"role": "assistant", "content": "x" * 100_001}]}
    with path.open("a") as file:
        file.write(f"{json.dumps(large)}\n")
    found = report(tmp_path, path)
    assert found["read"]["faults"] == {sources.TOO_LARGE: 1}
    assert found["total"]["runs"] == FEW


@pytest.mark.repeated
def test_a_folder_of_very_many_files_is_read_file_by_file(tmp_path: Path) -> None:
    """Links to a few files: each is opened and read."""
    files = count(2_000, 100_000)
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(4):
        (tmp_path / f"{number}.json").write_text('{"theme": "dark"}')
    for number in range(files):
        os.link(tmp_path / f"{number % 4}.json", folder / f"{number}.json")
    write_runs(folder / "runs.jsonl", FEW)
    found = report(tmp_path, folder)
    assert found["read"]["faults"] == {sources.NOT_A_TRANSCRIPT: files}
    assert found["total"]["runs"] == FEW


def test_what_the_user_may_not_read_is_named_and_the_rest_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As another user, where the tests run as root."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        transcripts.openai_lines(folder)
        # All that is imported lazily is so before the user changes.
        assert main(["replay", name]) == 0
        (folder / "closed").mkdir()
        (folder / "secret.jsonl").touch()
        for path, mode in ((folder, 0o755), (folder / "closed", 0), (folder / "secret.jsonl", 0)):
            path.chmod(mode)
        capsys.readouterr()
        os.seteuid(65534 if user == 0 else user)
        try:
            assert main(["replay", name]) == 0
        finally:
            os.seteuid(user)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "\n2 files that cannot be read: " in shown.out
    assert shown.out.startswith("1 run in 1 file (messages): ")


def test_nothing_of_a_transcript_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    path = transcripts.openai_lines(tmp_path)
    path.write_text(path.read_text() + '{"messages": item-4711, cut')
    report(tmp_path, path)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "item-" not in caplog.text + shown.out


INFO, PART = '{"role": "assistant"}', '{"type": "text", "text": "Seven."}'
TABLES = "CREATE TABLE message(id, session_id, data); CREATE TABLE part(id, message_id, data);"
ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT i AS id, 's' AS session_id, 'm' AS message_id, '{}' AS data FROM n"
)
MANY = ", ".join([f"(VALUES {', '.join(['(1)'] * 100)})"] * 8)


def database(folder: Path, script: str) -> Path:
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as written:
        written.executescript(script)
    return path


def row(message: str = "'m'", session: str = "'s'", info: str = f"'{INFO}'", part: str = f"'{PART}'") -> str:
    """A session with one message and its part, each value as an expression of SQL."""
    return (
        f"INSERT INTO message VALUES ({message}, {session}, {info}); "
        f"INSERT INTO part VALUES (1, {message}, {part});"
    )


@pytest.mark.parametrize(
    "odd", ["NULL", "7", "1.5", "x'ff'", "CAST(x'ff7b' AS TEXT)", "'{'", "'7'", "zeroblob(9)"]
)
@pytest.mark.parametrize("place", ["info", "part"])
def test_an_odd_value_in_a_database_is_left_out_alone(tmp_path: Path, place: str, odd: str) -> None:
    path = database(tmp_path, TABLES + row() + row("'n'", "'t'", **{place: odd}))
    found = report(tmp_path, path)
    assert found["read"]["faults"] == {sources.NOT_JSON: 1}
    assert found["total"]["runs"] == 1


@pytest.mark.parametrize("odd", ["NULL", "7", "1.5", "x'ff'", "CAST(x'ff' AS TEXT)", "''"])
def test_an_id_of_any_type_in_a_database_is_one(tmp_path: Path, odd: str) -> None:
    path = database(tmp_path, TABLES + row() + row(odd, odd))
    found = report(tmp_path, path)
    assert (found["read"]["faults"], found["total"]["runs"]) == ({}, 2)


@pytest.mark.parametrize(
    "script",
    [
        f"CREATE VIEW message AS {ENDLESS}; CREATE TABLE part(id, message_id, data)",
        f"CREATE TABLE message(id, session_id, data); CREATE VIEW part AS {ENDLESS}",
        f"CREATE VIEW message AS SELECT 1 AS id, 's' AS session_id, '' AS data FROM {MANY}; "
        "CREATE TABLE part(id, message_id, data)",
        f"CREATE VIEW n AS {ENDLESS}; CREATE TABLE part(id, message_id, data); "
        "CREATE VIRTUAL TABLE message USING fts5(id, session_id, data, content='n', content_rowid='id')",
        # A schema that calls a view a table.
        f"{TABLES} PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 0, sql = "
        f"'CREATE VIEW message AS {ENDLESS.replace(chr(39), chr(39) * 2)}' WHERE name = 'message'",
    ],
)
def test_a_view_that_never_ends_is_not_read(tmp_path: Path, script: str) -> None:
    database(tmp_path, script)
    write_runs(tmp_path / "runs.jsonl", FEW)
    assert faults(tmp_path, tmp_path) == {sources.UNREADABLE: 1}


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE message(id, session_id, x, data AS (x || x)); CREATE TABLE part(id, message_id, data)",
        "CREATE TABLE message(rowid, id, session_id, data); CREATE TABLE part(id, message_id, data)",
        "CREATE TABLE message(a); CREATE TABLE part(b)",
        "CREATE TABLE message(id, session_id, data)",
    ],
)
def test_a_database_with_other_tables_is_no_transcript(tmp_path: Path, script: str) -> None:
    database(tmp_path, script)
    write_runs(tmp_path / "runs.jsonl", FEW)
    assert faults(tmp_path, tmp_path) == {sources.NOT_A_TRANSCRIPT: 1}


def test_a_database_without_indexes_is_read_row_by_row(tmp_path: Path) -> None:
    """A query for each of its messages would read all parts each time, which takes hours."""
    path = database(tmp_path, TABLES)
    rows = count(2_000, 200_000)
    with closing(sqlite3.connect(path)) as written:
        written.executemany(
            "INSERT INTO message VALUES (?, ?, '{}')", ((f"m{n}", f"s{n}") for n in range(rows))
        )
        written.executemany("INSERT INTO part VALUES (?, ?, '{}')", ((n, f"m{n}") for n in range(rows)))
        written.commit()
    steps = 0

    def count_steps() -> int:
        nonlocal steps
        steps += 1
        return 0

    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_progress_handler(count_steps, 1000)
        return connection

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources.sqlite3, "connect", connected)
        assert list(sources.runs_of(path, Notes())) == []
    assert steps < rows


def test_values_and_sessions_of_a_database_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_DOCUMENT_BYTES", 100_000)
    parts = "".join(f"INSERT INTO part VALUES ({n}, 'l', printf('%10000s', ''));" for n in range(11))
    path = database(tmp_path, TABLES + row() + row("'l'", "'t'") + parts)
    found = report(tmp_path, path)
    assert (found["read"]["faults"][sources.TOO_LARGE], found["total"]["runs"]) == (1, 1)
    path.unlink()
    database(tmp_path, TABLES + row() + row("'l'", "'t'", part="printf('%100001s', '')"))
    found = report(tmp_path, path)
    assert (found["read"]["faults"], found["total"]["runs"]) == ({sources.TOO_LARGE: 1}, 1)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": lambda path: closed_socket(path),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "random": lambda path: path.symlink_to("/dev/urandom"),
    "full": lambda path: path.symlink_to("/dev/full"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "loop": lambda path: path.symlink_to(path),
    "gone": lambda path: path.symlink_to(path.with_name("nowhere")),
}


def closed_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound, chdir(path.parent):
        bound.bind(path.name)


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["special.jsonl", "opencode.db"])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path, kind: str, name: str) -> None:
    SPECIAL[kind](tmp_path / name)
    write_runs(tmp_path / "runs.jsonl", FEW)
    found = report(tmp_path, tmp_path)
    assert (found["read"]["faults"], found["total"]["runs"]) == ({sources.UNREADABLE: 1}, FEW)


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("place", ["message", "part"])
def test_what_is_no_file_in_a_stored_session_is_named_and_the_rest_is_read(
    tmp_path: Path, kind: str, place: str
) -> None:
    transcripts.opencode_storage(tmp_path / "sessions")
    folder = next((tmp_path / "sessions").rglob(f"storage/{place}")).rglob("*.json")
    SPECIAL[kind](next(folder).with_name("special.json"))
    found = report(tmp_path, tmp_path / "sessions")
    assert (found["read"]["faults"], found["total"]["runs"]) == ({sources.UNREADABLE: 1}, 1)


def test_a_file_whose_size_is_not_known_is_empty(tmp_path: Path) -> None:
    """Those of /proc may be endless, or wait."""
    (tmp_path / "log.jsonl").symlink_to("/proc/self/status")
    write_runs(tmp_path / "runs.jsonl", FEW)
    assert faults(tmp_path, tmp_path) == {sources.EMPTY: 1}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_grows_is_read_up_to_its_size(tmp_path: Path, compressed: bool) -> None:
    """Each run that is read adds a longer one to the file."""
    opened = gzip.open if compressed else open
    line = f"{json.dumps(SMALL)}\n".encode() * 2
    path = tmp_path / ("runs.jsonl.gz" if compressed else "runs.jsonl")
    path.write_bytes(gzip.compress(line * 100) if compressed else line * 100)
    runs = 0
    for _ in sources.runs_of(path, Notes()):
        with opened(path, "ab") as file:
            file.write(line * 10)
        runs += 1
        assert runs <= 200
    assert runs == 200


def test_a_small_compressed_file_of_very_many_lines_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_LINES_WITHOUT_RECORD", 1000)
    good = f"{json.dumps(SMALL)}\n".encode()
    (tmp_path / "blank.jsonl.gz").write_bytes(gzip.compress(b"\n" * 1001 + good))
    (tmp_path / "text.jsonl.gz").write_bytes(gzip.compress(good + b"x\n" * 1001 + good))
    (tmp_path / "gaps.jsonl.gz").write_bytes(gzip.compress((good + b"\n" * 999) * 3))
    found = report(tmp_path, tmp_path)
    assert found["read"]["faults"] == {sources.EMPTY: 1, sources.NO_RECORD: 1, sources.NOT_JSON: 1000}
    assert found["total"]["runs"] == 1 + 3


def _nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


DEPTHS = [((levels,), False) for levels in (150, 300, 600, 985, 995, 2000)]
# What is read is sent to a process and back; of the rest, that which Python itself refuses to send.
DEPTHS += [((levels,), True) for levels in (150, 300, 600, 985, 995, 2000)] if FULL else [((150, 995), True)]


@pytest.mark.parametrize(("depths", "large"), DEPTHS)
def test_deep_values_are_left_out_before_they_overflow_a_stack(
    tmp_path: Path, depths: tuple[int, ...], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, and by another process, to which runs are sent."""
    monkeypatch.setattr(workers, "_MOST_PROCESSES", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    if not FULL:
        context = forking()
        monkeypatch.setattr("multiprocessing.get_context", lambda method: context)
    call = {"id": "a", "function": {"name": "t", "arguments": "ARGUMENTS"}}
    result = {"role": "tool", "tool_call_id": "a", "content": "y" * (700_000 if large else 7)}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    line = json.dumps({"messages": [SMALL["messages"][0], asked, result]}) + "\n"
    path = tmp_path / "runs.jsonl"
    path.write_text(
        "".join(
            line.replace('"ARGUMENTS"', arguments)
            for deep in map(_nested, depths)
            for arguments in (json.dumps(deep), deep)
        )
    )
    found = report(tmp_path, path)
    too_deep = sum(levels > MOST_DEPTH for levels in depths)
    assert found["read"]["faults"] == ({sources.TOO_DEEP: too_deep} if too_deep else {})
    assert found["total"]["runs"] == 2 * len(depths) - too_deep


TOKENS = re.compile(r'("\w*(?:[tT]okens|input|output|cached?)\w*": ?)\d+')


NUMBERS = ["9" * 400, "-7", "1e400", "NaN", "true", '"7"', "[]", "9" * 30]


def test_a_number_of_tokens_that_no_request_can_have_counts_as_none(tmp_path: Path) -> None:
    """Of every format that has them: two of the numbers by turns, and all with the full counts."""
    writers = [(name, write) for name, some in transcripts.ALL.items() for write in some]
    for place, (name, write) in enumerate(writers):
        for turn in range(len(NUMBERS) if FULL else 2):
            tokens = NUMBERS[(place + 4 * turn) % len(NUMBERS)] if not FULL else NUMBERS[turn]
            folder = tmp_path / f"{name}-{place}-{turn}"
            folder.mkdir()
            path = write(folder)
            if path.is_file() and path.suffix in (".json", ".jsonl"):
                path.write_text(TOKENS.sub(rf"\g<1>{tokens}", path.read_text()))
            found = report(tmp_path, folder)
            assert found["read"]["faults"] == {}, (name, tokens)
            assert found["total"]["bill_as_recorded"]["tokens"] >= 0, (name, tokens)


def test_a_folder_that_may_be_listed_and_not_entered_is_left_out() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        transcripts.openai_lines(folder)
        assert main(["replay", name]) == 0
        for inner in ("storage/part", "storage/message", "message/ses_1"):
            (folder / inner).mkdir(parents=True)
        folder.chmod(0o755)
        for closed in ("storage", "message"):
            (folder / closed).chmod(0o744)
        os.seteuid(65534 if user == 0 else user)
        try:
            assert main(["replay", name]) == 0
        finally:
            os.seteuid(user)
        for closed in ("storage", "message"):
            (folder / closed).chmod(0o755)


def test_runs_without_results_and_with_two_models_are_counted(tmp_path: Path) -> None:
    def said(model: str) -> dict[str, str]:
        return {"role": "assistant", "content": "Hello.", "model": model}

    path = transcripts.lines(tmp_path / "a.jsonl", [{"messages": [said("gpt-4.1"), said("gpt-5.2")]}])
    found = report(tmp_path, path)
    assert (found["runs_without_results"], found["runs_with_two_models"]) == (1, 1)
    assert found["unit"] == "dollars"


@pytest.mark.parametrize("text", ["", "hello\n", '{"theme": 1}\n', "[]", '"text"', '{"messages": []}\n'])
def test_where_nothing_could_be_read_the_status_is_2(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    assert main(["replay", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no transcript could be read" in shown.err
    assert str(path) in shown.err


def test_an_empty_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"spillgate: no transcript found in {tmp_path}.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere/at/all"], "there is no"),
        (["RUNS", "--max-bytes", "0"], "--max-bytes: "),
        (["RUNS", "--max-bytes", "4k"], "--max-bytes: "),
        (["RUNS", "--max-bytes", "4,096"], "--max-bytes: whole numbers from 256 "),
        (["RUNS", "--report", "report.pdf"], "--report: "),
        (["RUNS", "--report", "/nowhere/report.json"], "--report: "),
        (["RUNS", "--policy", "/nowhere.toml"], "--policy"),
    ],
)
def test_a_bad_argument_is_named(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_runs(tmp_path / "runs.jsonl", FEW))
    assert main(["replay", *(path if one == "RUNS" else one for one in arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.repeated
def test_odd_values_in_records_of_every_format_raise_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value of each record in turn, replaced by some of another type, by all with the full counts. The
    format is named."""
    odd: list[object] = [None, 7, "text", [], [7], {}, {"type": 7}, [None], [{}]]
    for name, writers in transcripts.ALL.items():
        for write in writers:
            folder = tmp_path / write.__name__
            folder.mkdir()
            (path,) = sources.found_files([write(folder)], Notes())
            for changed in _changed(_records(path, name, monkeypatch), odd):
                recognised(changed)
                for run in FORMATS[name].runs(iter(changed), Notes()):
                    # Every step has its text, and every argument can be searched.
                    assert all(isinstance(step.text, str) for step in run.steps)
                    uses_of(run)


def _records(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    records: list[object] = []

    def keep(found: Iterator[object], notes: Notes) -> Iterator[Run]:
        records.extend(found)
        return iter(())

    with monkeypatch.context() as patched:
        patched.setitem(FORMATS, name, TranscriptFormat(FORMATS[name].recognises, keep))
        assert list(sources.runs_of(path, Notes(), name)) == []
    assert records
    return records


def _changed(value: list[object], odd: list[object]) -> list[list[object]]:
    """Copies of the rows, each with one value changed."""
    found: list[list[object]] = []
    text = json.dumps(value)
    for number, place in enumerate(_places(value)):
        # Whole records, and what they hold first, are few.
        every = 1 if FULL or len(place) < 3 else 3
        for one in odd[number % every :: every]:
            copy = json.loads(text)
            holder = copy
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = one
            found.append(copy)
    return found


def _places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items: list[tuple[object, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = [(*path, key) for key, _ in items]
    for key, item in items:
        found += _places(item, (*path, key))
    return found
