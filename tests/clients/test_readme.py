"""The ways in that the README shows, run as they are printed: each has at most six lines."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.forking import ROOT
from tests.faults.service import SERVE, Service

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path / "state", tmp_path / "service.log", SERVE, {"storage_url": "memory:"})
    yield await service.listening()
    service.kill()


def block(title: str) -> str:
    section = (ROOT / "README.md").read_text().partition("## In an agent")[2].partition("\n## ")[0]
    found = re.search(rf"^\*\*{title}\*\*.*?\n\n```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found, title
    assert found[1].count("\n") <= 6
    return found[1]


def run(command: list[str], folder: Path, service: Service) -> str:
    host, port = service.address
    places = {"SPILLGATE_URL": f"http://{host}:{port}", "PYTHONPATH": str(ROOT / "clients" / "python")}
    environment = {**os.environ, **places}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_every_way_in_governs_a_result(service: Service, tmp_path: Path) -> None:
    host, port = service.address
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    packages = tmp_path / "node_modules"
    packages.mkdir()
    (packages / "spillgate-client").symlink_to(ROOT / "clients" / "typescript")
    (tmp_path / "way.mjs").write_text(block("TypeScript"))
    curl = block("curl").replace("localhost:8377", f"{host}:{port}")
    assert re.fullmatch(
        r'git version .*\n\{"tools":\[\],"instructions":""\}', run(["sh", "-c", curl], tmp_path, service)
    )
    assert run([sys.executable, "-c", block("Python")], tmp_path, service) == "On branch main\n []\n"
    assert run(["node", "way.mjs"], tmp_path, service) == "On branch main\n []\n"
    async with service.client() as client:
        entries = (await client.get("/accounting/entries", params={"session_id": "run-1"})).json()["entries"]
    assert [one["tool_call_id"] for one in entries] == ["call_1", "call_2", "call_3"]
