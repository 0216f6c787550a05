"""Supervises background work: a task that fails starts again, or the process ends; and short tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
CLOSING_SECONDS = 5.0

T = TypeVar("T")

log = logging.getLogger("spillgate.supervisor")


class Supervisor:
    """`on_fault` is given the name of a task that failed. `sleep` and `clock` count seconds."""

    def __init__(
        self,
        on_fault: Callable[[str], None] = lambda name: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._on_fault = on_fault
        self._sleep = sleep
        self._clock = clock

    async def run(self, name: str, task: Callable[[], Awaitable[None]]) -> None:
        """Runs `task` until it returns. A task that fails starts again after a pause, which doubles up to
        LONGEST_SECONDS and is short again once the task has run for that long.

        An error that is no Exception (a panic of a native library, for one) is raised: what it left behind
        is unknown, and the caller must end the process.
        """
        pause = FIRST_SECONDS
        while True:
            began = self._clock()
            try:
                await task()
            except asyncio.CancelledError:
                raise
            except Exception:
                if self._clock() - began >= LONGEST_SECONDS:
                    pause = FIRST_SECONDS
                fields = {"task": name, "pause_seconds": pause}
                log.exception("a background task failed and starts again", extra={"fields": fields})
                self._on_fault(name)
            except BaseException:
                log.critical(
                    "a background task failed and cannot start again: the process ends",
                    exc_info=True,
                    extra={"fields": {"task": name}},
                )
                raise
            else:
                return
            await self._sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)


class Background:
    """Writes of accounting entries that run to their end, also after their request ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Starts a write that no caller waits for. An error means that the entry is lost, and is logged."""
        self._begin(work).add_done_callback(_log_lost_entry)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for a write, and raises its error: the caller's client gets it, and repeats its request.
        Cancelling the wait does not cancel the write, whose error is then logged."""
        task = self._begin(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_lost_entry)
            raise

    async def close(self) -> None:
        """Waits for all tasks, at most 5 s."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_SECONDS)

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _log_lost_entry(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("An accounting entry is lost.", exc_info=error)
