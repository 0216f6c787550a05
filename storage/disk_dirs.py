"""The session directories of one root: they come with the first result, and go when they are empty."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from domain.handles import SessionKey, is_name
from storage.disk_files import Files, open_dir
from storage.disk_layout import directory_name, is_key, key_of

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class SessionDirs:
    """`top` is the open `tool_output` directory. Safe from any thread."""

    def __init__(self, files: Files, top: int) -> None:
        self._files = files
        self._top = top
        self._lock = threading.Lock()
        self._durable: set[SessionKey] = set()

    def open(self, key: SessionKey) -> int:
        """Raises FileNotFoundError where no directory is; a link in its place is none."""
        if not is_key(key):
            raise FileNotFoundError(errno.ENOENT, "not a name of ours")
        tenant = _open_or_gone(key.tenant, self._top)
        try:
            return _open_or_gone(directory_name(key), tenant)
        finally:
            os.close(tenant)

    @contextmanager
    def opened(self, key: SessionKey) -> Iterator[int]:
        directory = self.open(key)
        try:
            yield directory
        finally:
            os.close(directory)

    def make(self, key: SessionKey) -> None:
        """Returns when the directory would survive a power cut."""
        if key in self._durable:
            return
        with self._lock:
            self._make(key.tenant, self._top)
            tenant = open_dir(key.tenant, self._top)
            try:
                self._make(directory_name(key), tenant)
            finally:
                os.close(tenant)
            self._durable.add(key)

    def _make(self, name: str, parent: int) -> None:
        with suppress(FileExistsError):
            self._files.make_dir(name, parent)
        # Also when it was there: a process killed at this point left it unsynced.
        self._files.sync(parent)

    def forget(self, key: SessionKey) -> None:
        """Someone took the directory away: the next `make` makes it anew."""
        with self._lock:
            self._durable.discard(key)

    def remove_if_empty(self, key: SessionKey) -> None:
        with self._lock:
            try:
                tenant = open_dir(key.tenant, self._top)
            except OSError:
                return
            try:
                os.rmdir(directory_name(key), dir_fd=tenant)
                self._durable.discard(key)
                os.rmdir(key.tenant, dir_fd=self._top)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, *_GONE):
                    raise
            finally:
                os.close(tenant)

    def all(self) -> list[SessionKey]:
        return [key for name in os.listdir(self._top) if is_name(name) for key in self._of(name)]

    def _of(self, tenant: str) -> list[SessionKey]:
        try:
            directory = _open_or_gone(tenant, self._top)
        except FileNotFoundError:
            return []
        try:
            found = [key_of(tenant, name) for name in os.listdir(directory)]
        finally:
            os.close(directory)
        return [key for key in found if key is not None]


def _open_or_gone(name: str, parent: int) -> int:
    try:
        return open_dir(name, parent)
    except OSError as error:
        if error.errno in _GONE:
            raise FileNotFoundError(errno.ENOENT, "no such directory") from None
        raise
