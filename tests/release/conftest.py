"""The packages, built twice, and an empty place in which they are installed."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release import figures
from tests.started_services import end_services

ROOT = Path(__file__).parents[2]
EXTRAS: list[str] = list(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
TOOLS = ROOT / ".release" / "bin"


def pythons() -> dict[str, str]:
    """The interpreters of this machine that the package supports, by version."""
    found = {}
    for version in ("3.11", "3.12", "3.13", "3.14"):
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        path = str(kept[-1]) if kept else shutil.which(f"python{version}")
        if path is not None:
            found[version] = path
    return found


@pytest.fixture(scope="session")
def dists(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders, each of a build of its own."""
    folders = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for folder in folders:
        subprocess.run(["make", "--no-print-directory", "dist", f"DIST={folder}"], cwd=ROOT, check=True)
    return folders


@pytest.fixture(scope="session")
def dist(dists: tuple[Path, Path]) -> Path:
    return dists[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_sep("=", "figures")
    for line in figures.lines:
        terminalreporter.write_line(line)


class Place:
    """A home without anything, in which programs run that are installed there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / ".local" / "bin"
        self.project = home / "project"
        self.project.mkdir()
        variables = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL"))
        }
        cache = Path.home() / ".cache" / "uv"
        self.environment = {
            "UV_CACHE_DIR": str(cache),
            **variables,
            "HOME": str(home),
            "PATH": f"{self.bin}:{TOOLS}:/usr/local/bin:/usr/bin:/bin",
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def run(self, *command: object, stdin: str = "", **settings: str) -> str:
        """What it printed to stdout."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment | {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()},
            cwd=self.project,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    empty = Place(tmp_path_factory.mktemp("p"))
    yield empty
    end_services(empty.home)


def pytest_report_header() -> str:
    return (
        f"packages are built with {sys.version.split()[0]} and installed with Python {', '.join(pythons())}"
    )
