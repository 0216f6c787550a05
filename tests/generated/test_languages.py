"""The programs of docs/languages.md, as they are printed there: each prints what the model reads of a result,
and the agents run their loop against a scripted model."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from policies.outcomes.store import TOO_LARGE
from tests.faults.forking import ROOT
from tests.faults.service_process import Service

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "languages.md").read_text()
COMMANDS = {
    "go": ("main.go", ["go", "run", "main.go"]),
    "rust": ("main.rs", ["sh", "-c", "rustc main.rs 2>&1 && ./main"]),
    "java": ("Govern.java", ["java", "Govern.java"]),
}
AGENTS = {"go": "main.go", "java": "Agent.java"}
LOG = "".join(f"line {n} ERROR disk {n} is full\n" if n == 4507 else f"line {n} ok\n" for n in range(6000))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Model(ThreadingHTTPServer):
    """Speaks chat completions: calls `execute_shell` twice, asks for the handle that it sees, says `done`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.before_first_answer = lambda: None

    @property
    def results(self) -> list[str]:
        """The texts of tools in the last request, oldest first."""
        return [one["content"] for one in self.asked[-1]["messages"] if one["role"] == "tool"]

    def offered(self, index: int) -> list[str]:
        return [tool["function"]["name"] for tool in self.asked[index]["tools"]]

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if len(self.asked) == 1:
            self.before_first_answer()
            return called(("execute_shell", {"command": "cat log"}), ("execute_shell", {"command": "exit 3"}))
        found = re.search(r"session-\S+?/file-[0-9a-f-]{36}", self.results[0])
        if found is None or len(self.asked) > 2:
            return {"role": "assistant", "content": "done"}
        return called(("tool_output", {"handle": found[0], "pattern": "ERROR"}))


def called(*calls: tuple[str, dict[str, str]]) -> dict[str, Any]:
    made = [
        {
            "id": f"call_{name}_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = {"total_tokens": 40_002}
        answer = json.dumps({"choices": [{"message": self.server.reply(body)}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(command: list[str], folder: Path, sent: str = "", **variables: str) -> str:
    environment = {**os.environ, "GOCACHE": str(ROOT / ".generated" / "go"), **variables}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=sent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("language", COMMANDS)
async def test_a_program_of_the_page_prints_what_the_model_reads(
    language: str, service: Service, tmp_path: Path
) -> None:
    host, port = service.address
    file, command = COMMANDS[language]
    program = blocks(language)[0]
    (tmp_path / file).write_text(program.replace("localhost:8377", f"{host}:{port}"))
    shown = run(command, tmp_path, "".join(f"{number}\n" for number in range(20_000)))
    assert f"{TOO_LARGE} (108890 bytes, 20000 lines" in shown


def run_agent(language: str, folder: Path, service: Service, model: Model, waits: str) -> None:
    """`waits`: how many milliseconds it waits before each time that it sends a request."""
    _, program = blocks(language)
    assert "0, 500, 1000, 2000" in program
    (folder / AGENTS[language]).write_text(program.replace("0, 500, 1000, 2000", waits))
    (folder / "log").write_text(LOG)
    (jackson,) = ROOT.glob(".generated/venv/lib/*/site-packages/openapi_generator_cli/openapi-generator.jar")
    host, port = service.address
    places = {
        "SPILLGATE_URL": f"http://{host}:{port}",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server_port}/v1",
        "OPENAI_API_KEY": "sk-made-up",
    }
    command = {"go": ["go", "run", "main.go"], "java": ["java", "-cp", str(jackson), "Agent.java"]}
    assert run([*command[language], "Which disk is full?"], folder, **places) == "done\n"


@pytest.mark.parametrize("language", AGENTS)
async def test_an_agent_of_the_page_asks_about_a_large_result(
    language: str, service: Service, tmp_path: Path, model: Model
) -> None:
    # What is answered is not sent again: it would wait for an hour.
    run_agent(language, tmp_path, service, model, "0, 3600000")
    assert model.offered(0) == ["execute_shell"]
    assert model.offered(1) == ["execute_shell", "tool_output"]
    message, failed, grep = model.results
    assert message.startswith(f"{TOO_LARGE} (")
    assert failed.endswith("3")
    assert "\n4508: line 4507 ERROR disk 4507 is full\n" in grep
    assert grep.endswith("[The only matching line.]")
    (session,) = re.findall(r"session-(\S+?)/file-", message)[:1]
    async with service.client() as client:
        summary = (await client.get(f"/accounting/summary?session_id={session}&group_by=type")).json()
        ended = (
            await client.post("/results", json={"tool_name": "t", "content": "x", "session_id": session})
        ).json()
    assert {row["group"]: row["entries"] for row in summary["rows"]} == {"tool": 2, "read": 1}
    assert ended["code"] == "session_ended"


@pytest.mark.parametrize("language", AGENTS)
async def test_an_agent_of_the_page_whose_service_died_gives_the_model_a_marked_cut(
    language: str, service: Service, tmp_path: Path, model: Model
) -> None:
    model.before_first_answer = lambda: os.kill(service.pid, 9)
    run_agent(language, tmp_path, service, model, "0, 0, 0, 0")
    assert model.results[0].startswith(LOG[:4000])
    assert re.fullmatch(rf"\n\[{len(LOG) - 4000} \w+ not shown\]", model.results[0][4000:])
    assert model.offered(1) == ["execute_shell"]


def test_the_page_marks_what_is_not_run() -> None:
    sections = re.findall(r"^## (\S+)\n\n(\w+ ?\w*)", PAGE, re.MULTILINE)
    assert [name for name, mark in sections if mark != "Run by"] == ["C#"]
