"""Supervises the background tasks: one that fails is logged and started again, or the process ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0

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
