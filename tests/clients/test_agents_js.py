"""The JavaScript loop of docs/agents.md, as it is printed there, against a scripted model on loopback."""

import json
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

LOG = "".join(f"line {n} ERROR disk {n} is full\n" if n == 4507 else f"line {n} ok\n" for n in range(6000))
DRIVER = """
import { readFileSync } from "node:fs";
import { run } from "./loop.mjs";
const read_log = async () => {
  if (process.argv[2]) process.kill(Number(process.argv[2]), "SIGKILL");
  return readFileSync("log", "utf8");
};
const messages = [{ role: "user", content: "Which disk is full?" }];
const tools = [{ name: "read_log", input_schema: { type: "object" } }];
console.log(await run("run-js", messages, tools, { read_log }));
"""


class Model(ThreadingHTTPServer):
    """Speaks Anthropic's messages: reads the log, asks for the handle that it sees, then says `done`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []

    @property
    def results(self) -> list[str]:
        """The texts of tools in the last request, oldest first."""
        blocks = [
            block
            for one in self.asked[-1]["messages"]
            if isinstance(one["content"], list)
            for block in one["content"]
        ]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]

    def offered(self, index: int) -> list[str]:
        return [tool["name"] for tool in self.asked[index]["tools"]]

    def reply(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        self.asked.append(body)
        if len(self.asked) == 1:
            return [{"type": "tool_use", "id": "call_1", "name": "read_log", "input": {}}]
        found = re.search(r"session-\S+?/file-[0-9a-f-]{36}", self.results[-1])
        if found is None or len(self.asked) > 2:
            return [{"type": "text", "text": "done"}]
        grep = {"handle": found[0], "pattern": "ERROR"}
        return [{"type": "tool_use", "id": "call_2", "name": "tool_output", "input": grep}]


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = {"input_tokens": 30_000, "output_tokens": 2}
        usage |= {"cache_read_input_tokens": 9000, "cache_creation_input_tokens": 1000}
        answer = json.dumps({"content": self.server.reply(body), "usage": usage}).encode()
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


def run_loop(node: str, folder: Path, service: Service, model: Model, *arguments: str) -> str:
    page = (ROOT / "docs" / "agents.md").read_text()
    (block,) = re.findall(r"```js\n(const base = .*?)```", page, re.DOTALL)
    # Time is not waited for.
    (folder / "loop.mjs").write_text(block.replace("[500, 1000, 2000]", "[0, 0, 0]"))
    (folder / "driver.mjs").write_text(DRIVER)
    (folder / "log").write_text(LOG)
    host, port = service.address
    places = {
        "SPILLGATE_URL": f"http://{host}:{port}",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_port}",
    }
    run = subprocess.run(
        [node, "driver.mjs", *arguments], cwd=folder, env=places, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


async def test_a_large_result_is_replaced_and_asked_about(
    node: str, tmp_path: Path, service: Service, model: Model
) -> None:
    assert run_loop(node, tmp_path, service, model) == "done"
    assert model.offered(0) == ["read_log"]
    assert "system" not in model.asked[0]
    assert model.offered(1) == ["read_log", "tool_output"]
    assert "system" not in model.asked[1]
    message, grep = model.results
    assert message.startswith(f"{TOO_LARGE} (")
    assert "\n4508: line 4507 ERROR disk 4507 is full\n" in grep
    assert grep.endswith("[The only matching line.]")
    async with service.client() as client:
        budget = (await client.get("/sessions/run-js")).json()["budget"]
    assert budget["used_tokens"] == 40_002


async def test_with_the_service_stopped_in_mid_run_the_model_gets_a_marked_cut(
    node: str, tmp_path: Path, service: Service, model: Model
) -> None:
    assert run_loop(node, tmp_path, service, model, str(service.pid)) == "done"
    (text,) = model.results
    assert text == f"{LOG[:4000]}\n[{len(LOG) - 4000} characters not shown]"
    assert model.offered(1) == ["read_log"]
