"""A trial: a player answers questions about results by our tool or by a shell; its folder, and its score."""

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench import corpus
from bench.recall import plain, questions

CALL_UNITS, BYTE_UNITS = 3300, 0.56
"""What a call costs, which sends the context again, and what a byte that the model reads costs."""

MOST_CALLS = 5
PREVIEW_BYTES = 2048
SESSION = "trial"
TOOL = Path(__file__).with_name("trial_tool.py")

_RULES = """Answer each question of questions.json about the result that its message stands for: read
messages/ID.txt, then call the tool as often as you need, at most {most} times a question, and answer with
the fewest calls that make you sure. Read nothing else in this folder{but}.

{how}

Write your answers to answers.jsonl, one line a question: {{"id": "…", "answer": "…"}}. An answer is as short
as the question allows. If the data does not hold it, the answer is: not in the data.
"""
_OURS = """The tool is that of definition.json. Call it so:
    python3 tool.py ID '{"handle": "…", "query": "SELECT …"}'"""
_SHELL = """The tool is a shell beside the files. Call it so:
    python3 tool.py ID 'grep -c ERROR FILE'"""

_ABSENT = re.compile(
    r"not in the (?:data|result)|no such|there (?:is|are) no\b|does not|is not (?:listed|given|in)"
)
_NOT_IN_DATA = "not in the data"
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[,\u202f ](?=\d{3}\b)")
_SIGNS = re.compile(r"[\"'`“”‘’*]|[.,;:]+(?=\s|$)")


class Sent(NamedTuple):
    """The message of one result, and its handle; None if the result passed."""

    message: str
    handle: str | None


def prepare_ours(
    folder: Path, asked: Sequence[Mapping[str, Any]], records: Mapping[str, Any], url: str
) -> None:
    """Sends each result to the service and writes what the model would read. Raises httpx.HTTPError."""
    key = os.environ.get("SPILLGATE_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=url, timeout=120, trust_env=False, headers=headers) as client:
        sent = {one: _send(client, records[one]) for one in dict.fromkeys(one["record"] for one in asked)}
        told = client.get("/tools", params={"session_id": SESSION, "format": "anthropic"})
        told.raise_for_status()
    definition = told.json()
    _write(folder, asked, {one["id"]: sent[one["record"]].message for one in asked})
    (folder / "definition.json").write_text(json.dumps(definition, ensure_ascii=False, indent=1))
    names = [tool["name"] for tool in definition["tools"]]
    trial = {"side": "ours", "url": url, "session": SESSION, "tool": names[0] if names else "tool_output"}
    _finish(folder, asked, trial, _OURS)


def prepare_shell(folder: Path, asked: Sequence[Mapping[str, Any]], records: Mapping[str, Any]) -> None:
    """Writes each result as a file, and as its message the first 2 KB with the name of the file."""
    files = folder / "files"
    files.mkdir(parents=True)
    messages = {}
    for one in asked:
        text = records[one["record"]]["text"]
        name = f"{one['record']}.txt"
        (files / name).write_text(text, encoding="utf-8", newline="")
        data = text.encode()
        head = data[:PREVIEW_BYTES].decode("utf-8", "ignore")
        more = f"\n[{len(data)} bytes in all: file {name}]" if len(data) > PREVIEW_BYTES else ""
        messages[one["id"]] = head + more
    _write(folder, asked, messages)
    _finish(folder, asked, {"side": "shell"}, _SHELL)


def _send(client: httpx.Client, record: Mapping[str, Any]) -> Sent:
    sent = {"tool_name": record.get("tool", "tool"), "tool_call_id": record["id"], "session_id": SESSION}
    kept = client.post(
        "/results", params=sent, content=record["text"].encode(), headers={"Content-Type": "text/plain"}
    )
    kept.raise_for_status()
    told = kept.json()
    return Sent(told["content"], told["handle"])


def _write(folder: Path, asked: Sequence[Mapping[str, Any]], messages: Mapping[str, str]) -> None:
    (folder / "messages").mkdir(parents=True)
    for name, message in messages.items():
        (folder / "messages" / f"{name}.txt").write_text(message, encoding="utf-8", newline="")
    shown = [{"id": one["id"], "question": one["question"]} for one in asked]
    (folder / "questions.json").write_text(json.dumps(shown, ensure_ascii=False, indent=1), encoding="utf-8")


def _finish(folder: Path, asked: Sequence[Mapping[str, Any]], trial: dict[str, Any], how: str) -> None:
    but = " but the files" if trial["side"] == "shell" else ""
    (folder / "README.md").write_text(_RULES.format(most=MOST_CALLS, how=how, but=but), encoding="utf-8")
    trial |= {"questions": [one["id"] for one in asked], "most_calls": MOST_CALLS}
    (folder / "trial.json").write_text(json.dumps(trial), encoding="utf-8")
    shutil.copyfile(TOOL, folder / "tool.py")


class Score(NamedTuple):
    """`size` is of all that the player read: messages and answers of calls."""

    side: str
    questions: int
    right: int
    calls: int
    size: int
    wrong: Sequence[tuple[str, str]]
    """Ids and the answers that were given."""

    @property
    def bill(self) -> float:
        """Units a question."""
        return (CALL_UNITS * self.calls + BYTE_UNITS * self.size) / self.questions

    def row(self) -> str:
        size, calls = self.size / self.questions, self.calls / self.questions
        return (
            f"| {self.side} | {self.right} of {self.questions} | {self.calls} ({calls:.2f}) | {size:,.0f} "
            f"| {self.bill:,.0f} |"
        )


HEADER = "| side | right | calls (a question) | bytes a question | bill |\n|---|---|---|---|---|"


def score(folder: Path, asked: Iterable[Mapping[str, Any]], judged: Iterable[str] = ()) -> Score:
    """Compares with `answer` and `accept` of the questions that the folder has. `judged` are the ids of
    answers that a person found right though they are spelt otherwise."""
    trial = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
    of_folder = [one for one in asked if one["id"] in trial["questions"]]
    given = {one["id"]: str(one["answer"]) for one in _lines(folder / "answers.jsonl")}
    calls = _lines(folder / "calls.jsonl")
    size = sum(call["bytes"] for call in calls)
    size += sum((folder / "messages" / f"{one['id']}.txt").stat().st_size for one in of_folder)
    excused = set(judged)
    wrong = [
        (one["id"], given.get(one["id"], ""))
        for one in of_folder
        if one["id"] not in excused and not is_right(given.get(one["id"], ""), one)
    ]
    right = len(of_folder) - len(wrong)
    return Score(trial["side"], len(of_folder), right, len(calls), size, wrong)


def is_right(given: str, asked: Mapping[str, Any]) -> bool:
    """True if the answer has one of the accepted ones, not within a longer word or number."""
    if asked["answer"] == _NOT_IN_DATA:
        return _ABSENT.search(given.lower()) is not None
    text = _bare(given)
    return any(
        re.search(rf"(?<![\w]){re.escape(_bare(one))}(?![\w])", text) is not None
        for one in (asked["answer"], *asked.get("accept", ()))
    )


def _bare(text: str) -> str:
    """In lower case, without quotes, separators of thousands, and signs at the end of words."""
    return " ".join(_SIGNS.sub("", _BETWEEN_DIGITS.sub("", plain(text).lower())).split())


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _chosen(path: Path, ids: str) -> list[dict[str, Any]]:
    """The questions of a file whose number is odd or even, or all."""
    every = questions(path)
    if ids == "all":
        return every
    odd = ids == "odd"
    return [one for one in every if (int(re.sub(r"\D", "", one["id"])) % 2 == 1) is odd]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("ours", "shell", "score"))
    parser.add_argument("questions", type=Path, help="lines with id, record, question, answer, accept")
    parser.add_argument("folders", nargs="+", type=Path, help="of one player each")
    parser.add_argument(
        "--records", type=Path, help="lines with id, tool, text; default: the recorded results"
    )
    parser.add_argument("--ids", choices=("all", "odd", "even"), default="all")
    parser.add_argument("--url", default="http://127.0.0.1:8377", help="of a running service")
    parser.add_argument("--right", default="", help="ids, with commas, that a person found right")
    given = parser.parse_args(arguments)
    asked = _chosen(given.questions, given.ids)
    if given.do == "score":
        print(HEADER)
        for folder in given.folders:
            scored = score(folder, asked, given.right.split(","))
            print(scored.row(), *(f"  wrong: {name}: {answer}" for name, answer in scored.wrong), sep="\n")
        return
    every = questions(given.records) if given.records else corpus.records()
    records = {record["id"]: record for record in every}
    for folder in given.folders:
        if given.do == "ours":
            prepare_ours(folder, asked, records, given.url)
        else:
            prepare_shell(folder, asked, records)


if __name__ == "__main__":
    main(sys.argv[1:])
