"""Requests of the providers' own SDKs: what they send is what tests/app/doors/sdk_requests.json holds."""

import json
import os
import subprocess
from pathlib import Path

from tests.faults.service_process import ROOT

PYTHON = ROOT / ".sdks" / "bin" / "python"
PROGRAM = Path(__file__).with_name("sdks") / "requests_of_sdks.py"
RECORDED = ROOT / "tests" / "app" / "doors" / "sdk_requests.json"


def test_the_sdks_send_what_was_recorded(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "*"}
    run = subprocess.run([PYTHON, PROGRAM], env=environ, capture_output=True, check=True, timeout=60)
    assert json.loads(run.stdout) == json.loads(RECORDED.read_text())
