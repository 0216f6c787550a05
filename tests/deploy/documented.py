"""Runs the commands of a page as they stand there, on the port of a server of the test."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT


def blocks(page: str, heading: str) -> list[str]:
    """The shell commands below a heading of any level, up to the next one of its level."""
    level, text = heading.partition(" ")[0], (ROOT / "docs" / page).read_text()
    section = text.partition(f"\n{heading}\n")[2]
    return re.findall(r"```sh\n(.*?)```", re.split(rf"\n{level} ", section)[0], re.DOTALL)


def run(commands: str, folder: Path, port: int = 6379, **environment: str) -> None:
    """Skips the test where a program that the page uses is not installed."""
    for program in ("redis-cli", "sqlite3"):
        if program in commands and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    given = {"PATH": os.environ["PATH"], "REDISCLI_HISTFILE": "/dev/null", **environment}
    asked = commands.replace("6379", str(port))
    done = subprocess.run(["sh", "-eux", "-c", asked], cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
