"""File descriptors: a write of all bytes, and a lock that is not waited for."""

import fcntl
import os
import select

Buffer = bytes | bytearray | memoryview


def write_all(descriptor: int, data: Buffer) -> None:
    """Waits while the reader of a pipe does not read. Raises OSError."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            # Another process has set the terminal or the pipe that it shares with this one to non-blocking.
            select.select([], [descriptor], [])


def try_lock(descriptor: int) -> bool:
    """Locks the file for this process and its children. False if another process has the lock. Raises
    OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
