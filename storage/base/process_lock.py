"""A lock that gives one process a directory or a database. The kernel frees it when the process ends."""

import fcntl
import os
from pathlib import Path

from domain.errors import ConfigError


def take_lock(path: Path, owned: Path) -> int:
    """Returns the open lock file; close it to free the lock. Raises ConfigError if another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise ConfigError(
            f"{owned} is in use by another Spillgate process. Stop that one, run a single worker, or give "
            "this one a place of its own."
        ) from None
    return fd


def make_directories(path: Path) -> None:
    """Creates the missing directories durably, with mode 0700 under any umask."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(0o700)
        one.chmod(0o700)
        fd = os.open(one.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
