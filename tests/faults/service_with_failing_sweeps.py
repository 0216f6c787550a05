"""The service with short pauses between its sweeps, and with a fault in them.

`errors`: the first three raise RuntimeError; `panic`: the second raises what is no Exception; `unsupervised`:
`errors`, and the supervisor neither logs nor starts anything again; `replay`: the spool's journal cannot be
replayed twice; `none`: no fault."""

import itertools
import sys
from collections.abc import Awaitable, Callable

from app.cli.main import main
from app.operations import background, supervisor
from storage.disk.store import DiskStore
from storage.spool.journal import Journal, Line

PAUSE_SECONDS = 0.02


class Panic(BaseException):
    """As a native library raises it."""


def fail_sweeps(name: str) -> None:
    numbers, sweep = itertools.count(1), DiskStore.sweep

    async def faulty(self: DiskStore) -> int:
        number = next(numbers)
        if name == "panic" and number == 2:
            raise Panic
        if name in ("errors", "unsupervised") and number <= 3:
            raise RuntimeError("kept out of the log")
        return await sweep(self)

    setattr(DiskStore, "sweep", faulty)  # noqa: B010


def fail_replays() -> None:
    numbers, replay = itertools.count(1), Journal.replay

    async def faulty(self: Journal, act: Callable[[Line], Awaitable[None]]) -> None:
        if next(numbers) <= 2:
            raise RuntimeError("kept out of the log")
        await replay(self, act)

    setattr(Journal, "replay", faulty)  # noqa: B010


async def run_once(self: supervisor.Supervisor, name: str, task: Callable[[], Awaitable[None]]) -> None:
    await task()


if __name__ == "__main__":
    fault = sys.argv[1]
    background.SHORTEST_SECONDS = background.LONGEST_SECONDS = PAUSE_SECONDS
    supervisor.FIRST_SECONDS = PAUSE_SECONDS
    fail_sweeps(fault)
    if fault == "replay":
        fail_replays()
    if fault == "unsupervised":
        setattr(supervisor.Supervisor, "run", run_once)  # noqa: B010
    sys.exit(main(["serve", "--port", "0"]))
