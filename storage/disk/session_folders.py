"""The session directories of a root: created with the first result, deleted when they are empty."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from domain.handles import SessionKey, is_name
from storage.base.damage import Notices
from storage.disk.layout import directory_name, is_key, key_of, path_of
from storage.disk.syscalls import Files, open_dir, size_of, unlink

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class SessionDirs:
    """`top` is the open `tool_output` directory. Safe from any thread."""

    def __init__(self, files: Files, top: int, notices: Notices) -> None:
        self._files = files
        self._top = top
        self._notices = notices
        self._lock = threading.Lock()
        self._durable: set[SessionKey] = set()

    def open(self, key: SessionKey) -> int:
        """Raises FileNotFoundError if there is no such directory. A warning names a file or symbolic link
        that has its name."""
        if not is_key(key):
            raise FileNotFoundError(errno.ENOENT, "not the name of a session")
        tenant = self._open(key.tenant, self._top, f"tool_output/{key.tenant}")
        try:
            return self._open(directory_name(key), tenant, path_of(key))
        finally:
            os.close(tenant)

    def _open(self, name: str, parent: int, path: str) -> int:
        try:
            return open_dir(name, parent)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                self._notices.warn(path, "is not a directory: nothing can be stored there. Move it away.")
            if error.errno in _GONE:
                raise FileNotFoundError(errno.ENOENT, "no such directory") from None
            raise

    @contextmanager
    def opened(self, key: SessionKey) -> Iterator[int]:
        directory = self.open(key)
        try:
            yield directory
        finally:
            os.close(directory)

    def make(self, key: SessionKey) -> None:
        """Creates the directory durably: it survives a power cut."""
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
        # Also if it exists: a process that was killed at this point left it unsynced.
        self._files.sync(parent)

    def forget(self, key: SessionKey) -> None:
        """The directory was deleted: the next `make` creates it again."""
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

    def remove_file_in_place_of(self, key: SessionKey) -> None:
        """Deletes a regular file that has the name of the session's directory."""
        with suppress(FileNotFoundError):
            tenant = self._open(key.tenant, self._top, f"tool_output/{key.tenant}")
            try:
                if size_of(directory_name(key), tenant) is not None:
                    unlink(directory_name(key), tenant)
            finally:
                os.close(tenant)

    def all(self) -> list[SessionKey]:
        """Returns the session of every directory. A warning names each tenant that cannot be listed."""
        return [key for name in os.listdir(self._top) if is_name(name) for key in self.of(name)]

    def of(self, tenant: str) -> list[SessionKey]:
        """The session of every directory of a tenant."""
        path = f"tool_output/{tenant}"
        try:
            directory = self._open(tenant, self._top, path)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._notices.warn(path, f"cannot be opened: {error.strerror}.")
            return []
        try:
            found = [key_of(tenant, name) for name in os.listdir(directory)]
        finally:
            os.close(directory)
        return [key for key in found if key is not None]
