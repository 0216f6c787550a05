"""A ledger whose process is killed at any moment has lost nothing that it answered."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samples import KEY, TENANT, WINDOW, FakeClock

from domain.accounting import EntryFilter
from domain.ports import Call
from storage import open_ledger

pytestmark = pytest.mark.anyio
WRITER = Path(__file__).with_name("ledger_writer.py")


async def killed_while_writing(path: Path, life: int, seconds: float) -> list[str]:
    """The call ids that it had been answered."""
    command = [sys.executable, str(WRITER), str(path), str(life)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    whole = (first + rest).decode().rpartition("\n")[0]
    return whole.split("\n")


async def test_killed_again_and_again_it_keeps_what_it_answered(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger.db"
    answered: list[str] = []
    for life, seconds in enumerate((0.02, 0.15, 0.3)):
        answered += await killed_while_writing(path, life, seconds)
        ledger = await open_ledger(
            f"sqlite://{path}", clock=clock, session_retention_seconds=60, entry_retention_seconds=60
        )
        for call_id in answered:
            assert (await ledger.enter(Call(KEY, WINDOW, False, call_id))).receipt is not None
        session = await ledger.session(KEY)
        assert session is not None
        entries = (await ledger.entries(EntryFilter(TENANT), 1_000_000, None)).entries
        # One transaction: the charge and its entry are both there, or neither is.
        assert session.reserved_tokens == len(entries) >= len(answered)
        await ledger.close()
    assert len(answered) > 100
