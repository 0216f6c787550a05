"""The service with faults that tests must see, or with time bounds for which tests can wait, or need not:
each argument is a name of FAULTS, or `NAME=seconds`."""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from app import sweeper
from app.cli.main import main
from app.http.edge import server as serving
from app.http.edge.deadlines import Protocol
from app.operations import clock, line_writer, logs, readiness, supervisor
from domain.ports import Charge, Receipt
from domain.results import Durability, StoredResult
from extraction import queries
from storage.base import bounded
from storage.disk import store as disk_store
from storage.disk.draft import DiskDraft
from storage.disk.layout import FileInfo, body_name, info_name
from storage.disk.store import DiskStore
from storage.postgres.ledger import PostgresLedger
from storage.redis import connection, sentinel
from storage.redis import draft as redis_draft
from storage.redis import store as redis_store
from storage.redis.connection import named, script_source
from storage.redis.draft import RedisDraft
from storage.redis.ledger import RedisLedger

# Longer than a kill takes to come, or than all replicas take to look, on a busy machine too.
EARLY_SECONDS = 5.0
IN_PLACE_SECONDS = 1.0
LOOK_SECONDS = 2.0
PAUSE_SECONDS = 0.1
SMALL_SEGMENT = 1 << 16


def early(draft: Any) -> type:
    """Says that it is published before it is."""

    class EarlyDraft(draft):  # type: ignore[misc]
        _later: asyncio.Task[None] | None = None

        async def publish(self, stored: StoredResult) -> Durability:
            self._later = asyncio.create_task(self._publish_later(stored))
            return Durability.DISK

        async def _publish_later(self, stored: StoredResult) -> None:
            await asyncio.sleep(EARLY_SECONDS)
            await super().publish(stored)

        async def __aexit__(self, *error: Any) -> None:
            if self._later is None:
                await super().__aexit__(*error)

    return EarlyDraft


class InPlaceDraft(DiskDraft):
    """Writes the body where readers look after its info says that it is whole."""

    async def publish(self, stored: StoredResult) -> Durability:
        await self._run(self._publish, stored)
        return Durability.DISK

    def _publish(self, stored: StoredResult) -> None:
        draft = self._open()
        self._spill()
        body = os.pread(draft, self._spilled, 0)
        self._write_info(FileInfo(len(body), stored))
        published, handle = self._published, stored.handle
        published.dirs.make(stored.key)
        with published.dirs.opened(stored.key) as directory:
            os.rename(
                f"{self._name}.json", info_name(handle), src_dir_fd=published.drafts, dst_dir_fd=directory
            )
            fd = os.open(body_name(handle), os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
            try:
                os.write(fd, body[: len(body) // 2])
                time.sleep(IN_PLACE_SECONDS)
                os.write(fd, body[len(body) // 2 :])
            finally:
                os.close(fd)
        self._spilled = 0
        self._drop()


async def look_first(ledger: RedisLedger | PostgresLedger, charge: Charge) -> Receipt | None:
    """Get, then increment: two steps, between which others may take the rest."""
    session = await ledger.session(charge.key)
    if session is not None and not session.budget(charge.default_window, charge.enforce).fits(charge.tokens):
        return None
    await asyncio.sleep(LOOK_SECONDS)
    return await ledger.settle(charge)


class Panic(BaseException):
    """Raises what a native library raises."""


def failing(act: Callable[..., Awaitable[Any]], error: type[BaseException], *numbers: int) -> object:
    """Raises at the calls of these numbers, counted from 1."""
    count = itertools.count(1)

    async def faulty(*args: Any) -> Any:
        if next(count) in numbers:
            raise error("kept out of the log")
        return await act(*args)

    return faulty


def held_write(file: Any, lines: bytes) -> None:
    """Writes once there is no file with this name and `.held`."""
    while Path(f"{file._path}.held").exists():
        time.sleep(0.01)
    write_file(file, lines)


write_file = line_writer._File.write


async def run_once(self: supervisor.Supervisor, name: str, task: Callable[[], Awaitable[None]]) -> None:
    await task()


def unguarded(name: str) -> tuple[str, str]:
    """A script that sweeps whatever the clock of its server shows."""
    source = script_source(name)[0].replace(
        "return math.abs(now() - expected)", "return 0 * (now() - expected)"
    )
    return named(source)


SWEEPS_FAIL = (DiskStore, "sweep", failing(DiskStore.sweep, RuntimeError, 1, 2, 3))
OFTEN = [(sweeper, "SHORTEST_SECONDS", PAUSE_SECONDS), (sweeper, "LONGEST_SECONDS", PAUSE_SECONDS)]
OFTEN += [(supervisor, "FIRST_SECONDS", PAUSE_SECONDS)]
FAULTS: dict[str, list[tuple[object, str, object]]] = {
    "early": [(disk_store, "DiskDraft", early(DiskDraft)), (redis_store, "RedisDraft", early(RedisDraft))],
    "in-place": [(disk_store, "DiskDraft", InPlaceDraft)],
    "an export that can be held": [(line_writer._File, "write", held_write)],
    "look-first": [(ledger, "reserve", look_first) for ledger in (RedisLedger, PostgresLedger)],
    "small segments": [(place, "SEGMENT", SMALL_SEGMENT) for place in (redis_draft, redis_store)],
    "a short log queue": [(logs, "MOST_WAITING", 8)],
    "deaf to sentinels": [(sentinel.Sentinels, "_hear", lambda *args: None)],
    "a blind watch": [(clock.ClockWatch, "_jump_of", lambda *args: 0)],
    "unguarded scripts": [(connection, "script_source", unguarded)],
    "sweeping often": OFTEN,
    "sweeps that raise": [*OFTEN, SWEEPS_FAIL],
    "a sweep that panics": [*OFTEN, (DiskStore, "sweep", failing(DiskStore.sweep, Panic, 2))],
    "sweeps that raise, unsupervised": [*OFTEN, SWEEPS_FAIL, (supervisor.Supervisor, "run", run_once)],
}

if __name__ == "__main__":
    for argument in sys.argv[1:]:
        name, _, seconds = argument.partition("=")
        for owner, attribute, value in FAULTS.get(name, ()):
            setattr(owner, attribute, value)
        if seconds:
            owners = (
                Protocol,
                serving,
                sweeper,
                clock,
                line_writer,
                logs,
                readiness,
                connection,
                sentinel,
                bounded,
                queries,
            )
            (bound,) = [one for one in owners if hasattr(one, name)]
            setattr(bound, name, float(seconds))
        else:
            assert name in FAULTS
    sys.exit(main(["serve", "--port", "0"]))
