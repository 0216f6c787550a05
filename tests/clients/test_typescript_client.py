"""The TypeScript client, without any framework: node's own test runner against a service."""

import shutil
import subprocess

import pytest

from tests.faults.forking import ROOT


@pytest.fixture(scope="module")
def node() -> str:
    """Where CI is set, a missing node is a failure."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    return found


def test_the_client_against_a_service_and_away_from_it(node: str) -> None:
    run = subprocess.run(
        [node, "--test", "tests/client.test.js"],
        cwd=ROOT / "clients" / "typescript",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout
