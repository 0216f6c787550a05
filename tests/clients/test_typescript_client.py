"""The TypeScript client, without any framework: node's own test runner against a service."""

import subprocess

from tests.faults.forking import ROOT


def test_the_client_against_a_service_and_away_from_it(node: str) -> None:
    run = subprocess.run(
        [node, "--test", "tests/client.test.js"],
        cwd=ROOT / "clients" / "typescript",
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert run.returncode == 0, run.stdout
