"""The TypeScript client, without any framework: node's own tests against a service."""

import os
import subprocess

import pytest

from tests.faults.forking import ROOT
from tests.faults.service_process import Service


@pytest.mark.anyio
async def test_the_client_against_a_service_and_away_from_it(node: str, service: Service) -> None:
    host, port = service.address
    run = subprocess.run(
        [node, "tests/client.test.js"],
        cwd=ROOT / "clients" / "typescript",
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, "STARTED_SERVICE": f"http://{host}:{port}"},
    )
    assert run.returncode == 0, run.stdout
