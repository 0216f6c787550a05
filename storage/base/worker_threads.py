"""Worker threads for blocking calls. A job always runs to its end."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, TypeVarTuple

log = logging.getLogger("spillgate.threads")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Threads:
    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._is_closed = False

    async def run(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        """Returns the result of `job(*args)`. If the caller is cancelled, the job still runs to its end, also
        one that has not started."""
        return await asyncio.shield(self.begin(job, *args))

    def begin(self, job: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do not cancel what it returns: shield it."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, job, *args)
        # Retrieves the error of a job whose caller was cancelled, so that asyncio does not log it.
        running.add_done_callback(_seen)
        return running

    def detach(self, job: Callable[[], object]) -> None:
        """Runs `job` in the background. Its error is logged."""
        if self._is_closed:
            job()
        else:
            self._executor.submit(job).add_done_callback(log_error)

    async def close(self) -> None:
        """Returns when every job has ended."""
        self._is_closed = True
        await asyncio.to_thread(self._executor.shutdown)


def log_error(done: Future[Any] | asyncio.Future[Any]) -> None:
    if (error := done.exception()) is not None:
        log.error("a detached job failed", exc_info=error)


def _seen(done: asyncio.Future[T]) -> None:
    if not done.cancelled():
        done.exception()
