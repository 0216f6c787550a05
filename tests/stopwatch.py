"""Time bounds that hold on a busy machine: the time in which a process waits for a core does not count."""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Stopwatch:
    """Counts from its creation, without the time in which the main thread of this process, or of one of
    `pids`, was ready to run and had no core."""

    def __init__(self, *pids: int) -> None:
        self._pids = (os.getpid(), *pids)
        self._began = time.monotonic() - self._waited()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._waited() - self._began

    def _waited(self) -> float:
        return sum(map(_seconds_on_run_queue, self._pids))


class Turns:
    """`longest`: the seconds of CPU time that one turn of the event loop took at most. The time in which
    others have the core does not count, nor what other threads do."""

    longest = 0.0

    async def watch(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - before)
            before = now


@asynccontextmanager
async def watched_turns() -> AsyncIterator[Turns]:
    turns = Turns()
    gc.collect()
    gc.disable()
    watch = asyncio.create_task(turns.watch())
    try:
        await asyncio.sleep(0)
        yield turns
        # The watch sees the last turn, too.
        await asyncio.sleep(0)
    finally:
        watch.cancel()
        gc.enable()


def _seconds_on_run_queue(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except FileNotFoundError:
        # Another system than Linux, or the process has ended.
        return 0.0
