"""Worker threads: blocking calls, and batches of jobs. A job always runs to its end."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
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


class Batches(Generic[J]):
    """`work` gets the jobs of a batch, at most `most`, on a thread of its own. It returns the outcome of each
    job: a value, or an exception for its caller. An exception that it raises goes to every caller of the
    batch."""

    def __init__(self, work: Callable[[list[J]], list[object]], name: str, most: int) -> None:
        self._work = work
        self._most = most
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        # Starts the thread now: if that fails, the service does not start.
        self._executor.submit(lambda: None)
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
            # After all tasks that are ready now: their jobs share the batch.
            self._idle.clear()
            loop.call_soon(self._start)
        return answer

    async def close(self) -> None:
        """Returns when all jobs have ended. May be called again."""
        await self._idle.wait()
        await asyncio.to_thread(self._executor.shutdown)

    def _start(self) -> None:
        answers: list[asyncio.Future[object]] = []
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._work_on_waiting, answers)
        running.add_done_callback(partial(self._finish, answers))

    def _work_on_waiting(self, answers: list[asyncio.Future[object]]) -> list[object]:
        """Adds the futures of the batch to `answers`."""
        # Taken on the thread, because more jobs may have arrived before it runs.
        batch = self._waiting[: self._most]
        del self._waiting[: len(batch)]
        answers.extend(answer for _, answer in batch)
        return self._work([job for job, _ in batch])

    def _finish(self, answers: list[asyncio.Future[object]], done: asyncio.Future[list[object]]) -> None:
        self.pending -= len(answers)
        if self._waiting:
            self._start()
        else:
            self._idle.set()
        fault = done.exception()
        # An unexpected error: every caller of the batch gets it, so that none waits forever.
        outcomes = done.result() if fault is None else [fault] * len(answers)
        for answer, outcome in zip(answers, outcomes, strict=True):
            if answer.done():
                continue
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
