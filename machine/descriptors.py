"""File descriptors: write all bytes, and try to lock a file."""

import fcntl
import os
import select

Buffer = bytes | bytearray | memoryview


def write_all(descriptor: int, data: Buffer) -> None:
    """Writes all of `data`. Blocks while a pipe is full. Raises OSError."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            # Another process has set the terminal or the pipe that it shares with this one to non-blocking.
            select.select([], [descriptor], [])


def try_lock(descriptor: int) -> bool:
    """Locks the file for this process and its children, without waiting. False if another process has the
    lock. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
