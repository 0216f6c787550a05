"""The system calls on which durability depends; power-cut tests replace them. A full disk is StoreFull
(507)."""

import contextlib
import errno
import os
import stat
from pathlib import Path

from domain.errors import StorageError, StoreFull, StoreUnavailable

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO that has the name of a file would block the thread forever.
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_sync_data = getattr(os, "fdatasync", os.fsync)


class Files:
    """Every name is relative to an open directory, and no call follows a symbolic link."""

    def __init__(self) -> None:
        # The umask can only be read by setting it.
        umask = os.umask(0o077)
        os.umask(umask)
        self._owner_is_masked = bool(umask & 0o600)

    def make_dir(self, name: str, parent: int) -> None:
        os.mkdir(name, 0o700, dir_fd=parent)
        # Set again, because the umask may have removed bits of the owner.
        os.chmod(name, 0o700, dir_fd=parent)

    def create(self, name: str, parent: int) -> int:
        fd = os.open(name, _NEW, 0o600, dir_fd=parent)
        if self._owner_is_masked:
            os.fchmod(fd, 0o600)
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def start_write_back(self, fd: int) -> None:
        """Starts to write the contents to the medium, and does not wait. Does nothing on systems without such
        a call."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_data(self, fd: int) -> None:
        """Syncs contents and size, not times."""
        _sync_data(fd)

    def sync(self, fd: int) -> None:
        """Syncs a file with its times, or the names in a directory."""
        os.fsync(fd)

    def rename(self, name: str, parent: int, new_name: str, new_parent: int) -> None:
        os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)


def open_dir(name: str, parent: int | None) -> int:
    return os.open(name, _DIRECTORY, dir_fd=parent)


def open_file(name: str, parent: int) -> int:
    """Raises FileNotFoundError for anything but a regular file."""
    try:
        fd = os.open(name, _OLD, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(errno.ENOENT, "a symbolic link") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a regular file")
    return fd


def size_of(name: str, parent: int) -> int | None:
    """None for anything but a regular file."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def unlink(name: str, parent: int) -> None:
    """Does nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def remove(name: str, parent: int) -> bool:
    """Deletes a file, or an empty directory of that name. Returns False for a directory that is not empty,
    True otherwise, also if nothing has that name."""
    try:
        unlink(name, parent)
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
    return True


def write_all(files: Files, fd: int, data: bytes) -> None:
    # On a full disk, a write first writes only a part; the next one raises.
    view = memoryview(data)
    while view:
        view = view[files.write(fd, view) :]


def translated(error: OSError, path: Path) -> StorageError:
    cause = f"{errno.errorcode.get(error.errno or 0, type(error).__name__)}, {path}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            "The store's disk is full. Free space on it, or delete results, and try again.", cause=cause
        )
    return StoreUnavailable(
        "The store's disk refused. Try again; if it lasts, look at the disk and its mount.", cause=cause
    )
