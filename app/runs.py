"""Extractions under way: the same question asked again meanwhile shares the run of the first."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field

from domain.extraction import Answer
from extraction.task import Progress

Watch = Callable[[Progress], None]

_NEARLY_SECONDS = 1.0


@dataclass(slots=True)
class _Run:
    task: asyncio.Task[Answer]
    ends: float
    steps: list[Progress] = field(default_factory=list)
    watchers: list[Watch] = field(default_factory=list)
    waiting: int = 0


class Runs:
    """A run ends when nobody waits for it any more: what it held is given back, what it spent is booked."""

    def __init__(self) -> None:
        self._runs: dict[Hashable, _Run] = {}

    async def join(
        self, key: Hashable, ends: float, start: Callable[[Watch], Awaitable[Answer]], watch: Watch
    ) -> Answer:
        """The answer of the run under this key, begun if need be. Whoever joins late is told all steps. A run
        whose deadline is not nearly the caller's, `ends`, would be too late for it, or give up too soon."""
        run = self._runs.get(key)
        if run is None or abs(run.ends - ends) > _NEARLY_SECONDS:
            run = self._begin(key, ends, start)
        for step in run.steps:
            watch(step)
        run.watchers.append(watch)
        run.waiting += 1
        try:
            return await asyncio.shield(run.task)
        finally:
            run.waiting -= 1
            run.watchers.remove(watch)
            if not run.waiting and not run.task.done():
                self._forget(key, run)
                run.task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(run.task)

    def _begin(self, key: Hashable, ends: float, start: Callable[[Watch], Awaitable[Answer]]) -> _Run:
        def tell(step: Progress) -> None:
            run.steps.append(step)
            for watch in run.watchers:
                watch(step)

        async def work() -> Answer:
            return await start(tell)

        run = _Run(asyncio.create_task(work()), ends)
        self._runs[key] = run
        run.task.add_done_callback(lambda task: self._end(key, run))
        return run

    def _forget(self, key: Hashable, run: _Run) -> None:
        if self._runs.get(key) is run:
            del self._runs[key]

    def _end(self, key: Hashable, run: _Run) -> None:
        self._forget(key, run)
        # Its error is told to those who wait; where nobody does it is nobody's.
        if not run.task.cancelled():
            run.task.exception()
