"""The tool of a player, copied into its folder as `tool.py`: makes a call, logs it, prints the answer."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
LOG = FOLDER / "calls.jsonl"
SECONDS = 120
SHELL_BYTES = 30_000


def main(question: str, given: str) -> str:
    trial: dict[str, Any] = json.loads((FOLDER / "trial.json").read_text(encoding="utf-8"))
    calls = LOG.read_text(encoding="utf-8").splitlines() if LOG.is_file() else []
    if question not in trial["questions"]:
        return f"No question {question}: questions.json has them."
    if sum(json.loads(call)["id"] == question for call in calls) >= trial["most_calls"]:
        return f"Question {question} had its {trial['most_calls']} calls. Answer it now."
    text = _called(trial, given) if trial["side"] == "ours" else _run(given)
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps({"id": question, "call": given, "bytes": len(text.encode())}) + "\n")
    return text


def _called(trial: dict[str, Any], given: str) -> str:
    """What the model would read of POST /tools/call."""
    try:
        arguments = json.loads(given)
    except ValueError:
        return "The arguments are no JSON object."
    sent = {"session_id": trial["session"], "name": trial["tool"], "arguments": arguments}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("SPILLGATE_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{trial['url']}/tools/call", json.dumps(sent).encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return str(json.load(answer)["text"])


def _run(command: str) -> str:
    """Output and errors of a shell beside the files, as a coding agent shows them: at most 30,000 bytes."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=FOLDER / "files",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Ended after {SECONDS} seconds."
    text = done.stdout[:SHELL_BYTES].decode("utf-8", "replace")
    return f"{text}\n[Exit status {done.returncode}.]" if done.returncode else text


if __name__ == "__main__":
    print(main(*sys.argv[1:3]) if len(sys.argv) == 3 else "Usage: tool.py QUESTION CALL")
