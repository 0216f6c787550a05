"""The shelf: the tree in which published results stand. Every method blocks; call it from a worker thread."""

import os
import stat
import threading
from collections.abc import Callable
from typing import TypeVar

from domain.errors import InvalidField
from domain.handles import Handle, SessionKey
from domain.results import StoredResult
from storage.disk_dirs import SessionDirs
from storage.disk_files import Files, open_file, size_of, unlink
from storage.disk_layout import body_name, check_names, handle_of, info_name, read_info
from storage.quota import Quota

T = TypeVar("T")
_ATTEMPTS = 5


class Shelf:
    """`top` is the open `tool_output` directory, `drafts` the open `drafts` directory. `expired_ns` is the
    time (Unix ns) since when a result must have been used to be alive."""

    def __init__(self, files: Files, top: int, drafts: int, quota: Quota) -> None:
        self.files = files
        self.drafts = drafts
        self.quota = quota
        self.dirs = SessionDirs(files, top)
        # Held while the two names of a result change, so that one never stands there without the other.
        self._names = threading.Lock()

    def place(self, body: str, info: str, stored: StoredResult) -> int:
        """Moves both drafts to their place. Answers the open directory: they are durable when that is."""
        check_names(stored.tenant, stored.handle)
        for attempt in range(1, _ATTEMPTS + 1):
            self.dirs.make(stored.key)
            directory = None
            try:
                directory = self.dirs.open(stored.key)
                self._move(body, info, stored.handle, directory)
                return directory
            except OSError as error:
                if directory is not None:
                    os.close(directory)
                # A sweep may take the directory away between its opening and the rename.
                if attempt == _ATTEMPTS or not isinstance(error, FileNotFoundError):
                    raise
                self.dirs.forget(stored.key)
        raise AssertionError

    def _move(self, body: str, info: str, handle: Handle, directory: int) -> None:
        with self._names:
            replaced = size_of(body_name(handle), directory) or 0
            self.files.rename(body, self.drafts, body_name(handle), directory)
            self.files.rename(info, self.drafts, info_name(handle), directory)
        self.quota.give(replaced)

    def find(self, tenant: str, handle: Handle) -> tuple[StoredResult, int] | None:
        """With its last use in Unix ns. None unless its info is there and its body is whole."""

        def look(directory: int) -> tuple[StoredResult, int] | None:
            info, used_at = read_info(info_name(handle), directory)
            whole = info is not None and size_of(body_name(handle), directory) == info.body_bytes
            return (info.stored, used_at) if info is not None and whole else None

        return self._in_session(tenant, handle, look)

    def open_body(self, tenant: str, handle: Handle) -> int | None:
        return self._in_session(tenant, handle, lambda directory: open_file(body_name(handle), directory))

    def touch(self, tenant: str, handle: Handle, now_ns: int) -> bool:
        def renew(directory: int) -> bool:
            with self._names:
                os.utime(info_name(handle), ns=(now_ns, now_ns), dir_fd=directory, follow_symlinks=False)
            return True

        return self._in_session(tenant, handle, renew) or False

    def delete(self, tenant: str, handle: Handle, expired_ns: int) -> bool:
        """False when nothing alive was there to delete."""

        def remove(directory: int) -> bool:
            with self._names:
                return self._remove(handle, directory, expired_ns)

        return self._in_session(tenant, handle, remove) or False

    def _remove(self, handle: Handle, directory: int, expired_ns: int) -> bool:
        alive = _is_alive(handle, directory, expired_ns)
        size = size_of(body_name(handle), directory)
        # Info first: from then on it is not found, whatever becomes of the body.
        unlink(info_name(handle), directory)
        unlink(body_name(handle), directory)
        self.quota.give(size or 0)
        return alive

    def delete_session(self, key: SessionKey, epoch: int, expired_ns: int) -> int:
        """Deletes the results of epochs before `epoch`. Returns how many of them were alive."""
        deleted = 0
        try:
            with self.dirs.opened(key) as directory:
                for handle in _handles(key, directory):
                    with self._names:
                        if not _is_since(epoch, handle, directory):
                            deleted += self._remove(handle, directory, expired_ns)
        except FileNotFoundError:
            return 0
        self.dirs.remove_if_empty(key)
        return deleted

    def count(self, key: SessionKey, expired_ns: int) -> int:
        """How many results of the session are alive."""
        try:
            with self.dirs.opened(key) as directory:
                return sum(_is_alive(one, directory, expired_ns) for one in _handles(key, directory))
        except FileNotFoundError:
            return 0

    def tidy(self, key: SessionKey, expired_ns: int) -> tuple[int, int]:
        """Deletes what has expired, and any half whose other half is missing. Answers how many it deleted
        and how many bytes stay."""
        deleted = kept = 0
        try:
            with self.dirs.opened(key) as directory:
                for handle in _handles(key, directory):
                    with self._names:
                        if _is_alive(handle, directory, expired_ns):
                            kept += size_of(body_name(handle), directory) or 0
                        else:
                            # Alive by any clock means that both halves were there.
                            deleted += self._remove(handle, directory, expired_ns=-1)
        except FileNotFoundError:
            return 0, 0
        self.dirs.remove_if_empty(key)
        return deleted, kept

    def _in_session(self, tenant: str, handle: Handle, act: Callable[[int], T]) -> T | None:
        """None when the names are not safe or something on the way is not there."""
        try:
            check_names(tenant, handle)
            with self.dirs.opened(SessionKey(tenant, handle.session_id)) as directory:
                return act(directory)
        except (InvalidField, FileNotFoundError):
            return None


def _handles(key: SessionKey, directory: int) -> set[Handle]:
    """Of every body and every info that stands in this session's directory."""
    return {handle for name in os.listdir(directory) if (handle := handle_of(key, name)) is not None}


def _is_since(epoch: int, handle: Handle, directory: int) -> bool:
    """True for a result of this epoch or a later one. A half or damaged one is a result of no epoch."""
    try:
        info, _ = read_info(info_name(handle), directory)
    except FileNotFoundError:
        return False
    return info is not None and info.stored.epoch >= epoch


def _is_alive(handle: Handle, directory: int, expired_ns: int) -> bool:
    try:
        info = os.stat(info_name(handle), dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    has_body = size_of(body_name(handle), directory) is not None
    return stat.S_ISREG(info.st_mode) and info.st_mtime_ns > expired_ns and has_body
