"""The supervisor: what a background task's fault leads to, on a clock of the test's own."""

import asyncio
import logging

import pytest

from app.operations.supervisor import LONGEST_SECONDS, Supervisor

pytestmark = pytest.mark.anyio


class Time:
    """Sleeping moves it on, and lets other tasks run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def clock(self) -> float:
        return self.now


async def test_a_task_starts_again_after_growing_pauses_until_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time, faults = Time(), list[str]()
    runs = iter([0.0] * 9 + [LONGEST_SECONDS])

    async def task() -> None:
        for seconds in runs:
            time.now += seconds
            raise ValueError("not for the log")

    await Supervisor(faults.append, time.sleep, time.clock).run("sweep", task)
    assert time.pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 1]
    assert faults == ["sweep"] * 10
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 10
    for record in logged:
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], ValueError)
        assert record.fields["task"] == "sweep"  # type: ignore[attr-defined]


async def test_a_task_that_is_cancelled_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[str] = []
    running = asyncio.create_task(Supervisor(faults.append).run("sweep", asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (faults, caplog.records) == ([], [])
