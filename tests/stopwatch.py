"""Time bounds that hold on a busy machine: the time in which a process waits for a core does not count."""

import os
import time


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


def _seconds_on_run_queue(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except FileNotFoundError:
        # Another system than Linux, or the process has ended.
        return 0.0
