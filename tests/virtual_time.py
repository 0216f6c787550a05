"""An event loop whose clock jumps to the next timer: a test of deadlines and pauses takes no time.

Sockets between tasks of the loop work, and jobs in worker threads are waited for. Another process, or a
thread that only calls back, is not: the clock would jump before it answers. Use `memory:` stores and ledgers.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable
from typing import Any

import pytest

from storage.base.threads import Batches


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        self._jobs: set[asyncio.Future[Any]] = set()
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        job = super().run_in_executor(executor, func, *args)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Without a deadline, to which the clock would jump: Python 3.12 and later set one."""
        await super().shutdown_default_executor()

    @property
    def has_jobs(self) -> bool:
        """Whether a thread works for this loop."""
        return bool(self._jobs) or any(map(self._is_busy, threading.enumerate()))

    def _is_busy(self, worker: Any) -> bool:
        if worker.name == "AnyIO worker thread" and getattr(worker, "loop", None) is self:
            return worker not in worker.idle_workers and not worker.stopping
        batches = getattr(getattr(worker, "_target", None), "__self__", None)
        return isinstance(batches, Batches) and batches.pending > 0


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        if (events := super().select(0)) or timeout <= 0:
            return events
        if self._loop.has_jobs:
            return super().select(None)
        self._loop.jump(timeout)
        return events


VIRTUAL_TIME = ("asyncio", {"loop_factory": VirtualLoop})


@pytest.fixture(name="anyio_backend")
def virtual_time() -> object:
    """The tests of a module that has this fixture run in virtual time."""
    return VIRTUAL_TIME
