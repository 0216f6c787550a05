"""Worker threads for blocking calls, and for batches of jobs. A job always runs to its end."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar, TypeVarTuple

log = logging.getLogger("spillgate.threads")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

J = TypeVar("J")


class Threads:
    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._is_closed = False

    async def run(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        """Returns the result of `job(*args)`. If the caller is cancelled, the job still runs to its end, even
        if it has not started yet."""
        return await asyncio.shield(self.begin(job, *args))

    def begin(self, job: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Starts the job. Shield the future that it returns: it must not be cancelled."""
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


class Batches(Generic[J]):
    """Collects jobs into batches for a thread of its own. `work` gets a batch of at most `most` jobs, and
    returns the outcome of each: a value, or an exception for its caller. If `work` raises, every caller of
    the batch gets the exception."""

    def __init__(self, work: Callable[[list[J]], list[object]], name: str, most: int) -> None:
        self._work = work
        self._most = most
        # Not an executor: its futures and locks would cost as much as a small batch.
        self._starts: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._thread = Thread(target=self._work_on_batches, name=name, daemon=True)
        self._thread.start()
        self._waiting: list[tuple[J, asyncio.Future[object]]] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self.pending = 0
        """The number of jobs that have not ended."""

    def run(self, job: J) -> "asyncio.Future[object]":
        """The outcome of the job, to be awaited at once. If the caller is cancelled, the job still runs."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        self._waiting.append((job, answer))
        self.pending += 1
        if self._idle.is_set():
            # call_soon: all tasks that are ready now add their jobs first.
            self._idle.clear()
            loop.call_soon(self._starts.put, loop)
        return answer

    async def close(self) -> None:
        """Returns when all jobs have ended. May be called again."""
        await self._idle.wait()
        self._starts.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work_on_batches(self) -> None:
        while (loop := self._starts.get()) is not None:
            self._work_on_waiting(loop)

    def _work_on_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        # Taken here, on the thread: more jobs may have arrived before it ran.
        batch = self._waiting[: self._most]
        del self._waiting[: len(batch)]
        try:
            outcomes = self._work([job for job, _ in batch])
        except BaseException as error:  # noqa: BLE001
            # An unexpected error: every caller of the batch gets it, so that none waits forever.
            outcomes = [error] * len(batch)
        # A loop that was closed has no callers left.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._finish, batch, outcomes, loop)

    def _finish(
        self,
        batch: list[tuple[J, asyncio.Future[object]]],
        outcomes: list[object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.pending -= len(batch)
        if self._waiting:
            self._starts.put(loop)
        else:
            self._idle.set()
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if answer.done():
                continue
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
