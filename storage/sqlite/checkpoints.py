"""Copies the -wal file into the database, beside the writer, whose commits do not wait for the disk.

If all of the -wal file was copied, the next commit starts it afresh. So each pass copies what was written
during the pass before, until a pass ends between two commits. On a slow disk no pass does: the file grows
until the writer itself copies the rest.
"""

import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

log = logging.getLogger("spillgate.storage")

ROWS = 2_000
"""The rows that the writer changes between two checkpoints; a commit counts as ROWS_OF_COMMIT more. They take
5 to 8 MB of the -wal file, and a checkpoint of them 4 ms of a core that the event loop may need: the p99.9 of
small results must stay under 6 ms (bench/README.md)."""

ROWS_OF_COMMIT = 3
"""A commit of one row writes about as many pages as a commit of several: 2,000 such commits would take 20
MB."""

MOST_FRAMES = 4_000
"""With this many frames in the -wal file, the writer copies the rest. A frame holds a page of 4 KB."""

WAL_BYTES = 16 << 20
"""The size to which the -wal file is cut when it starts afresh. The spare space includes the same size once
more."""

MOST_ROWS = 10_000
"""With this many rows changed during a checkpoint, the writer waits for its end, so that the file's size has
a bound."""

MOST_PASSES = 10
_MOST_SECONDS = 1.0
"""The longest time that the writer waits for the end of a checkpoint, which on a slow disk might never
come."""
_PAUSE_SECONDS = 0.02
sync_data = getattr(os, "fdatasync", os.fsync)
_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoints:
    """Uses `connection` on a thread of its own, and closes it. `path` names the database."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        # Closed after all connections, because closing it releases SQLite's locks on the file.
        self._database = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._starts, self._commits, self._ended = Event(), Event(), Event()
        self._ended.set()
        self._is_near = self._is_closed = False
        self._rows = self._started_at = self._committed = 0
        self._thread = Thread(target=self._run, name="ledger-checkpoint", daemon=True)
        self._thread.start()

    def committed(self, writer: sqlite3.Connection) -> None:
        """Called after each commit. Starts a checkpoint if it is due, or copies what the last one left."""
        self._committed += 1
        self._rows = writer.total_changes + ROWS_OF_COMMIT * self._committed
        if not self._ended.is_set():
            self._commits.set()
        rows = self._rows - self._started_at
        if rows >= MOST_ROWS:
            self._started_at = self._rows
            self._ended.wait(_MOST_SECONDS)
        if self._is_near:
            self._is_near = False
            # The commit has succeeded. If the disk is faulty, the next commit reports it.
            with suppress(sqlite3.Error):
                writer.execute(_CHECKPOINT).fetchall()
        elif rows >= ROWS and self._ended.is_set():
            self._started_at = self._rows
            self._ended.clear()
            self._starts.set()

    def close(self) -> None:
        """Returns when the running checkpoint has ended."""
        self._is_closed = True
        self._starts.set()
        self._thread.join()
        self._connection.close()
        os.close(self._database)

    def _run(self) -> None:
        while self._starts.wait() and not self._is_closed:
            self._starts.clear()
            try:
                self._copy()
            except (sqlite3.Error, OSError) as error:
                # The writer gets the same error and reports it to its callers. The next checkpoint copies
                # everything.
                log.warning("the -wal file of the ledger is not copied yet; nothing is lost: %s", error)
            self._ended.set()

    def _copy(self) -> None:
        frames = 0
        for _ in range(MOST_PASSES):
            # Right after a commit, a pass has the most time until the next one.
            self._commits.clear()
            self._commits.wait(_PAUSE_SECONDS)
            rows, before = self._rows, frames
            _, frames, _ = self._connection.execute(_CHECKPOINT).fetchone()
            if rows == self._rows or frames < before:
                break
            # SQLite syncs only in the pass that reaches the end; that sync would take as long as all passes.
            sync_data(self._database)
        self._is_near = frames >= MOST_FRAMES
