"""Work that outlives the request that began it: accounting entries that are still being written."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CLOSING_SECONDS = 5.0

log = logging.getLogger(__name__)


class Background:
    """The tasks of one process. An error of a task is logged, and raised to a caller that awaits the task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Waits for all tasks, at most 5 s."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_SECONDS)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("An accounting entry could not be written.", exc_info=error)
