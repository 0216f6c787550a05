"""Replays the runs of all files, on several processes where there is enough to do."""

import asyncio
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from app.settings import Settings
from replay.figures import Figures
from replay.in_process import InProcessService, open_service
from replay.replaying import Replaying, replay
from replay.runs import Notes, Run
from replay.sources import runs_of, size_of

_MOST_PROCESSES = 8
_ALONE_BYTES = 1 << 20
"""With less data, this process replays it alone: another process takes a second to start."""

_BATCH_CHARS = 1 << 19
_WAITING_CHARS = 32 << 20
"""The most batches that are read ahead of the processes that replay them."""

_RUNS_A_RUNTIME = 100
"""The number of runs after which the runtime is opened again. Its ledger keeps an entry for each result."""

Watch = Callable[[int, int], None]
"""Called with the number of finished runs, and the bytes of the files that were read."""


class Replayer:
    """Replays runs on an event loop of its own."""

    def __init__(self, settings: Settings, replaying: Replaying) -> None:
        self._settings = settings
        self._replaying = replaying
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._service: InProcessService | None = None
        self._runs = 0

    def replay(self, runs: list[Run]) -> Figures:
        figures = Figures()
        for run in runs:
            figures += self._runner.run(self._replayed(run))
        return figures

    async def _replayed(self, run: Run) -> Figures:
        if self._service is None or self._runs >= _RUNS_A_RUNTIME:
            await self._opened.aclose()
            self._service = await self._opened.enter_async_context(open_service(self._settings))
            self._runs = 0
        self._runs += 1
        return await replay(run, self._service, self._replaying)

    def close(self) -> None:
        self._runner.run(self._opened.aclose())
        self._runner.close()


_replayer: Replayer | None = None


def _start(settings: Settings, replaying: Replaying) -> None:
    global _replayer
    _replayer = Replayer(settings, replaying)


def _work(runs: list[Run]) -> Figures:
    assert _replayer is not None
    return _replayer.replay(runs)


def replay_all(
    files: list[Path],
    settings: Settings,
    replaying: Replaying,
    notes: Notes,
    format_name: str | None = None,
    watch: Watch = lambda runs, size: None,
) -> tuple[Figures, int]:
    """The figures of all runs of the files, and how many runs there are. A few batches of runs are in memory
    at a time. Raises ConfigError."""
    watch(0, 0)
    batches = _batches(files, notes, format_name, watch)
    if sum(map(size_of, files)) <= _ALONE_BYTES or (os.cpu_count() or 1) == 1:
        return _alone(batches, settings, replaying)
    return _pooled(batches, settings, replaying)


def _batches(files: list[Path], notes: Notes, format_name: str | None, watch: Watch) -> Iterator[list[Run]]:
    """Runs with about 512 Ki characters together, or one run."""
    batch, chars, done, size = list[Run](), 0, 0, 0
    for path in files:
        notes.position = 0
        for run in runs_of(path, notes, format_name):
            batch.append(run)
            chars += run.chars
            del run
            if chars >= _BATCH_CHARS:
                done += len(batch)
                yield batch
                batch, chars = [], 0
                watch(done, size + notes.position)
        size += size_of(path)
        watch(done, size)
    if batch:
        yield batch
        watch(done + len(batch), size)


def _alone(batches: Iterator[list[Run]], settings: Settings, replaying: Replaying) -> tuple[Figures, int]:
    replayer, figures, runs = Replayer(settings, replaying), Figures(), 0
    try:
        for batch in batches:
            figures += replayer.replay(batch)
            runs += len(batch)
    finally:
        replayer.close()
    return figures, runs


def _pooled(batches: Iterator[list[Run]], settings: Settings, replaying: Replaying) -> tuple[Figures, int]:
    """The batches are added in their order, so that figures are the same each time."""
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES)
    figures, runs = Figures(), 0
    with ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _start, (settings, replaying)
    ) as pool:
        waiting: deque[tuple[Future[Figures], int]] = deque()
        try:
            for batch in batches:
                waiting.append((pool.submit(_work, batch), sum(run.chars for run in batch)))
                runs += len(batch)
                del batch
                while len(waiting) > 2 * processes or sum(chars for _, chars in waiting) > _WAITING_CHARS:
                    figures += waiting.popleft()[0].result()
            while waiting:
                figures += waiting.popleft()[0].result()
        except BaseException:
            with suppress(RuntimeError):
                pool.shutdown(wait=False, cancel_futures=True)
            raise
    return figures, runs
