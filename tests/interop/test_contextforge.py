"""The plugin of docs/gateways.md in ContextForge's plugin framework."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.doors.payloads import LARGE
from tests.faults.service_process import ROOT, Services

pytestmark = pytest.mark.anyio

PYTHON = ROOT / ".mcp" / "bin" / "python"
PROGRAM = Path(__file__).with_name("mcp") / "contextforge_use.py"
PRINTED = re.findall(r"```yaml\n(plugins:.*?)```", (ROOT / "docs" / "gateways.md").read_text(), re.DOTALL)


def run(folder: Path, url: str, *calls: tuple[str, str]) -> list[Any]:
    """What each result became, None if it passed."""
    (printed,) = map(yaml.safe_load, PRINTED)
    printed["plugins"][0]["config"]["url"] = url
    config = folder / "plugins.yaml"
    config.write_text(yaml.safe_dump(printed))
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / "clients" / "python"),
    }
    ran = subprocess.run(
        [PYTHON, PROGRAM, config],
        input=json.dumps(calls),
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(("{", "null"))]


async def test_results_of_tools_behind_contextforge_are_governed(tmp_path: Path) -> None:
    with Services(tmp_path) as services:
        service = await services.start(tmp_path / "state")
        url = "http://{}:{}".format(*service.address)
        large, few, own = run(
            tmp_path, url, ("logs-read", LARGE), ("logs-read", "few"), ("spillgate-tool-output", LARGE)
        )
        assert few is None
        assert own is None
        text, picture = large["content"]
        assert "spillgate-tool-output(handle = " in text["text"]
        assert picture["type"] == "image"
        assert large["isError"] is False
        assert "structuredContent" not in large
        handle = re.findall(r"session-contextforge/file-[0-9a-f-]{36}", text["text"])[0]
        async with service.client() as client:
            assert (await client.get(f"/results/{handle}/content")).text == LARGE
        await service.stop()
        (cut,) = run(tmp_path, url, ("logs-read", LARGE))
        assert "characters not shown" in cut["content"][0]["text"]
