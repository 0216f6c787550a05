"""Time bounds that hold on a busy machine: the time in which a process waits for a core does not count."""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


class Stopwatch:
    """Counts from its creation, without the time in which a thread of this process, or of one of `pids`, was
    ready to run and had no core."""

    def __init__(self, *pids: int) -> None:
        self._pids = (os.getpid(), *pids)
        self._before = self._waited()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        waited = sum(seconds - self._before.get(thread, 0) for thread, seconds in self._waited().items())
        return time.monotonic() - self._began - waited

    def _waited(self) -> dict[Path, float]:
        """By thread. Systems other than Linux do not tell."""
        threads = [thread for pid in self._pids for thread in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return {thread: _seconds_on_run_queue(thread) for thread in threads}


class Turns:
    """`longest`: the seconds of CPU time that one turn of the event loop took at most. The time in which
    others have the core does not count, nor what other threads do."""

    longest = 0.0


@asynccontextmanager
async def watched_turns() -> AsyncIterator[Turns]:
    """A turn ends where the loop looks for events, however long it waits for them."""
    turns = Turns()
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    select = selector.select
    gc.collect()
    gc.disable()
    began = time.thread_time()

    def watched(timeout: float | None = None) -> Any:
        nonlocal began
        turns.longest = max(turns.longest, time.thread_time() - began)
        events = select(timeout)
        began = time.thread_time()
        return events

    selector.select = watched
    try:
        await asyncio.sleep(0)
        yield turns
        # The watch sees the last turn, too.
        await asyncio.sleep(0)
    finally:
        selector.select = select
        gc.enable()


def _seconds_on_run_queue(thread: Path) -> float:
    try:
        return int(thread.read_text().split()[1]) / 1e9
    except OSError:
        # It has ended.
        return 0.0
