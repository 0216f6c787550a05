"""The ways in that the README shows, and the first examples of docs/clients.md, run as they are printed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from policies.outcomes.store import TOO_LARGE
from tests.faults import forking
from tests.faults.forking import ROOT
from tests.faults.service_process import Service

pytestmark = pytest.mark.anyio


def block(title: str) -> str:
    section = (ROOT / "README.md").read_text().partition("## In an agent")[2].partition("\n## ")[0]
    found = re.search(rf"^\*\*{title}\*\*.*?\n\n```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found, title
    assert found[1].count("\n") <= 6, "a way in has at most six lines"
    return found[1]


def environment(service: Service) -> dict[str, str]:
    host, port = service.address
    places = {"SPILLGATE_URL": f"http://{host}:{port}", "PYTHONPATH": str(ROOT / "clients" / "python")}
    return {**os.environ, **places}


def run(command: list[str], folder: Path, service: Service) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(service), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_python(code: str, folder: Path, service: Service) -> str:
    """In a process that has imported what most programs do."""
    done = forking.run(("-c", code), environment(service), b"", folder)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def run_node(node: str, code: str, folder: Path, service: Service) -> str:
    packages = folder / "node_modules"
    packages.mkdir()
    (packages / "spillgate-client").symlink_to(ROOT / "clients" / "typescript")
    (folder / "way.mjs").write_text(code)
    return run([node, "way.mjs"], folder, service)


async def test_every_way_in_governs_a_result(service: Service, node: str, tmp_path: Path) -> None:
    host, port = service.address
    curl = block("curl").replace("localhost:8377", f"{host}:{port}")
    message, _, tools = run(["sh", "-c", curl], tmp_path, service).rpartition("\n")
    assert message.startswith(f"{TOO_LARGE} (43893 bytes")
    assert [tool["function"]["name"] for tool in json.loads(tools)["tools"]] == ["tool_output"]
    shown = run([sys.executable, "-c", block("Python")], tmp_path, service)
    assert shown.startswith(f"{TOO_LARGE} (45000 bytes")
    assert shown.endswith(" ['tool_output']\n")
    assert "name: 'tool_output'" in run_node(node, block("TypeScript"), tmp_path, service)
    async with service.client() as client:
        entries = (await client.get("/accounting/entries", params={"session_id": "run-1"})).json()["entries"]
    assert [one["tool_call_id"] for one in entries] == ["call_1", "call_2", "call_3"]


async def test_what_the_readme_lets_a_newcomer_try_runs_as_printed(service: Service, tmp_path: Path) -> None:
    """Before any table. The numbers and files are those of the machine."""
    whole = (ROOT / "README.md").read_text()
    assert len(whole.split()) < 1200
    page, _, _ = whole.partition("\n| ")
    section = page.partition("From another terminal")[2]
    commands, message, found, *_ = re.findall(r"^```(?:sh)?\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    commands = commands.replace(". .venv/bin/activate", "set -e")
    (tmp_path / "spillgate").write_text(f'#!/bin/sh\nexec {sys.executable} -m beside.main "$@"\n')
    (tmp_path / "spillgate").chmod(0o755)
    path = f'PATH="{tmp_path}:$PATH" PYTHONPATH={ROOT}\nexport PATH PYTHONPATH\n'
    said = run(["sh", "-c", path + commands], tmp_path, service)
    for printed in (message, found):
        first, *_, last = printed.splitlines()
        for line in (first, last):
            assert re.search(re.sub(r"\d[\d,]*|(?<=file-)\S+", r"\\S+", re.escape(line)), said), line
    for part in ("STRATEGY:retrieve", "[From ", "\nOn branch main\n", "NET TOKENS KEPT OUT"):
        assert part in said


async def test_the_sessions_and_functions_of_the_clients_page(
    service: Service, node: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    session, check, handing_on, function, *_ = re.findall(
        r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    said = "pass On branch main\n\n"
    assert run_python(session, tmp_path, service) == f"{said}[]\n"
    assert run_python(check, tmp_path, service).startswith("False Error: ")
    assert run_python(handing_on, tmp_path, service) == "45000\n"
    (tmp_path / "log").write_text("a line\n" * 9000)
    called = f"{function}\nprint(read_log('log'))"
    assert run_python(called, tmp_path, service).startswith(f"{TOO_LARGE} (63000")
    (session, *_) = re.findall(r"^```js\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert run_node(node, session, tmp_path, service) == said
    async with service.client() as client:
        assert (await client.get("/sessions/run-42")).json()["code"] == "session_ended"
