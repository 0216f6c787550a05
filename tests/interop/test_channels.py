"""The plugins and extensions of this repository: valid to the programs that install them, and installed."""

import os
import subprocess
from pathlib import Path

import pytest

from domain import __version__
from tests.interop.agents.programs import PROGRAMS, ROOT

MARKETPLACE = ("plugin", "marketplace", "add", str(ROOT))
PLUGIN = ("plugin", "install", "spillgate@spillgate")
GEMINI = str(ROOT / "integrations" / "gemini")


def ran(home: Path, program: str, *arguments: str) -> str:
    """What the program printed. It gets no variable of this process but PATH."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}
    done = subprocess.run(
        [PROGRAMS / program, *arguments],
        env=environment,
        cwd=home,
        input="y\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("folder", [ROOT, ROOT / "integrations" / "claude-code"])
def test_claude_code_validates_the_marketplace_and_the_plugin(folder: Path, tmp_path: Path) -> None:
    assert "Validation passed" in ran(tmp_path, "claude", "plugin", "validate", str(folder))


def test_claude_code_installs_the_plugin_from_the_marketplace(tmp_path: Path) -> None:
    ran(tmp_path, "claude", *MARKETPLACE)
    ran(tmp_path, "claude", *PLUGIN)
    listed = ran(tmp_path, "claude", "plugin", "list")
    assert "spillgate@spillgate" in listed
    assert "enabled" in listed


def test_copilot_installs_the_plugin_from_the_marketplace(tmp_path: Path) -> None:
    ran(tmp_path, "copilot", *MARKETPLACE)
    ran(tmp_path, "copilot", *PLUGIN)
    assert f"spillgate@spillgate (v{__version__}) (enabled)" in ran(tmp_path, "copilot", "plugin", "list")


def test_gemini_validates_and_installs_the_extension(tmp_path: Path) -> None:
    assert "has been successfully validated" in ran(tmp_path, "gemini", "extensions", "validate", GEMINI)
    ran(tmp_path, "gemini", "extensions", "install", GEMINI, "--consent")
    listed = ran(tmp_path, "gemini", "extensions", "list")
    assert f"spillgate ({__version__})" in listed
    assert "MCP servers:\n  spillgate" in listed
