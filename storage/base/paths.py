"""Directories and files of one process: created durably, locked and watched."""

import errno
import fcntl
import os
from pathlib import Path

from domain.errors import ConfigError, StoreUnavailable


def take_lock(path: Path, owned: Path) -> int:
    """Returns the open lock file; close it to free the lock. Raises ConfigError if another process has it, or
    if the file is a link; OSError if it cannot be opened."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP or not path.is_symlink():
            raise
        raise ConfigError(f"{path} is a link. Remove it: Spillgate makes its lock file itself.") from None
    os.fchmod(fd, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise ConfigError(
            f"{owned} is in use by another Spillgate process. Stop that one, run a single worker, or give "
            "this one a path of its own."
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


def used_share(path: Path) -> float:
    """Returns the used share (0 to 1) of the file system that holds `path`, as `df` shows it; 0 if it is
    unknown."""
    try:
        status = os.statvfs(path)
    except OSError:
        return 0.0
    used = status.f_blocks - status.f_bfree
    return used / (used + status.f_bavail) if used + status.f_bavail else 0.0


class WatchedPath:
    """Remembers which file is at `path` now. Error messages call it `name`."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = str(path)
        self._name = name
        self._opened = _identity(self._path)

    def check(self) -> None:
        """Raises StoreUnavailable if another file is at the path now, or none. Costs one `stat`."""
        if _identity(self._path) != self._opened:
            raise StoreUnavailable(
                f"{self._name} was deleted or replaced while the service was using it. Nothing is written "
                "until it is back in its place, or the service has restarted.",
                cause=self._path,
            )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
