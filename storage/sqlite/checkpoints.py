"""Copies the -wal file into the database beside the writer, whose commits do not wait for the disk.

A checkpoint syncs both files: in the writer's thread that is 20 ms in which no request is answered. On a
thread of its own a checkpoint never reaches the end of the file while commits go on, and the file grows. So
it comes near the end here, and the writer does the rest.
"""

import logging
import sqlite3
from contextlib import suppress
from threading import Event, Thread

log = logging.getLogger("spillgate.storage")

ROWS = 5_000
"""The rows that the writer changes between two checkpoints: they take about 16 MB of the -wal file."""

MOST_ROWS = 8 * ROWS
"""With so many the writer waits for the checkpoint, so that the file does not grow without a bound."""

NEAR_FRAMES = 128
"""What the writer may have to copy. A frame holds a page of 4 KB."""

_MOST_PASSES = 4
_MOST_SECONDS = 1.0
"""A slow disk may keep a checkpoint from its end."""
_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoints:
    """Uses `connection` on a thread of its own, and closes it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._starts = Event()
        self._is_near = Event()
        self._is_closed = False
        self._started_at = self._ended_at = 0
        self._thread = Thread(target=self._run, name="ledger-checkpoint", daemon=True)
        self._thread.start()

    def finish(self, writer: sqlite3.Connection) -> None:
        """Starts a checkpoint if it is time, or copies what one has left."""
        rows = writer.total_changes
        if rows - self._ended_at >= MOST_ROWS:
            self._ended_at = rows
            self._is_near.wait(_MOST_SECONDS)
        if self._is_near.is_set():
            self._is_near.clear()
            self._ended_at = rows
            # The commit before has succeeded. The next one meets the fault of a disk.
            with suppress(sqlite3.Error):
                writer.execute(_CHECKPOINT).fetchall()
        elif rows - self._started_at >= ROWS:
            self._started_at = rows
            self._starts.set()

    def close(self) -> None:
        """Returns when the running checkpoint has ended."""
        self._is_closed = True
        self._starts.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._starts.wait() and not self._is_closed:
            self._starts.clear()
            try:
                self._copy()
            except sqlite3.Error as error:
                # The writer meets the same fault, and its callers get it. The next checkpoint copies all.
                log.warning("the -wal file of the ledger cannot be copied: %s", error)
            self._is_near.set()

    def _copy(self) -> None:
        done = 0
        for _ in range(_MOST_PASSES):
            _, _, copied = self._connection.execute(_CHECKPOINT).fetchone()
            if copied - done <= NEAR_FRAMES:
                break
            done = copied
