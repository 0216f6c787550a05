"""The programs of docs/languages.md, as they are printed there, print what the model reads of a result."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.faults.forking import ROOT
from tests.faults.service_process import Service

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "languages.md").read_text()
COMMANDS = {
    "go": ("main.go", ["go", "run", "main.go"]),
    "rust": ("main.rs", ["sh", "-c", "rustc main.rs 2>&1 && ./main"]),
    "java": ("Govern.java", ["java", "Govern.java"]),
}


@pytest.mark.parametrize("language", COMMANDS)
async def test_a_program_of_the_page_prints_what_the_model_reads(
    language: str, service: Service, tmp_path: Path
) -> None:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    host, port = service.address
    file, command = COMMANDS[language]
    (tmp_path / file).write_text(found[1].replace("localhost:8377", f"{host}:{port}"))
    sent = "".join(f"{number}\n" for number in range(20_000))
    environment = {**os.environ, "GOCACHE": str(ROOT / ".generated" / "go")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, input=sent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Tool output is too large (108890 bytes, 20000 lines" in done.stdout


def test_the_page_marks_what_is_not_run() -> None:
    sections = re.findall(r"^## (\S+)\n\n(\w+ ?\w*)", PAGE, re.MULTILINE)
    assert [name for name, mark in sections if mark != "Run by"] == ["C#"]
