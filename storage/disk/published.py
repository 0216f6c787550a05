"""The tree of published results. Every method blocks: call it from a worker thread."""

import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from domain.errors import InvalidField
from domain.handles import Handle, SessionKey, is_safe
from domain.results import StoredResult
from storage.base.damage import DamagedInfo, Notices, TornInfo, encode_info
from storage.base.paths import WatchedPath
from storage.base.quota import Quota
from storage.disk.layout import (
    FileInfo,
    SessionDirs,
    body_name,
    handle_of,
    info_name,
    path_of,
    read_info,
)
from storage.disk.syscalls import Files, open_file, remove, size_of, write_all

T = TypeVar("T")
_ATTEMPTS = 5
_BATCH = 100

BodyName = tuple[str, Handle]
"""A result, by its tenant and handle."""


class PublishedBodies:
    """`top` is the open `tool_output` directory, `path` watches it; `drafts` is the open `drafts`
    directory, `root` the path of both. A result whose last use is at or before `expired_ns` (Unix ns) has
    expired."""

    def __init__(
        self, files: Files, top: int, path: WatchedPath, drafts: int, quota: Quota, root: Path
    ) -> None:
        self.files = files
        self.drafts = drafts
        self.quota = quota
        self.notices = Notices()
        self.dirs = SessionDirs(files, top, self.notices)
        self._path = path
        self.root = root
        # Held while the two names of a result change, so that no reader finds one without the other.
        self._names = threading.Condition()
        self._in_flight: set[BodyName] = set()
        self._deleting: dict[str, Iterator[tuple[int, int]]] = {}
        """The rest of the running deletion, by tenant."""

    def create(self, stored: StoredResult, directory: int) -> int:
        """Creates the file of a body that is written in place. Until `finish`, the result is not found,
        deleted or replaced."""
        with self._names:
            fd = self.files.create(body_name(stored.handle), directory)
            self._in_flight.add((stored.tenant, stored.handle))
            return fd

    def finish(self) -> None:
        """Called once all bodies that are written in place are complete, or deleted again."""
        with self._names:
            self._in_flight.clear()
            self._names.notify_all()

    def rename(self, body: str, info: str, stored: StoredResult) -> int:
        """Renames the draft of the body and of the info to their final names. Returns the open directory;
        sync it to make them durable. Raises StoreUnavailable if `tool_output` was deleted or replaced."""
        directories: dict[SessionKey, int] = {}
        try:
            self.in_directory(stored, directories, partial(self._move, body, info, stored))
        except OSError:
            for directory in directories.values():
                os.close(directory)
            raise
        return directories[stored.key]

    def in_directory(
        self, stored: StoredResult, directories: dict[SessionKey, int], act: Callable[[int], None]
    ) -> None:
        """Calls `act` with the directory of the result's session, which is created if it is missing, and
        opened if `directories` do not hold it. Raises StoreUnavailable if `tool_output` was deleted or
        replaced."""
        if not is_safe(stored.tenant, stored.handle):
            raise InvalidField(
                "The tenant or handle is not safe as a path. Use names that Spillgate gave out."
            )
        key = stored.key
        is_shared = key in directories
        if not is_shared:
            self._path.check()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if key not in directories:
                    self.dirs.make(key)
                    directories[key] = self.dirs.open(key)
                return act(directories[key])
            except FileNotFoundError:
                # A sweep may delete the directory after it was opened and before `act`.
                if attempt == _ATTEMPTS or is_shared:
                    raise
                self.dirs.forget(key)
                if key in directories:
                    os.close(directories.pop(key))
        raise AssertionError

    def write_info(self, fd: int, info: FileInfo) -> None:
        """Writes the info, without a sync."""
        write_all(self.files, fd, encode_info(info))
        used_ns = info.stored.stored_at * 1_000_000
        os.utime(fd, ns=(used_ns, used_ns))

    def _move(self, body: str, info: str, stored: StoredResult, directory: int) -> None:
        handle = stored.handle
        with self._names:
            self._names.wait_for(lambda: (stored.tenant, handle) not in self._in_flight)
            replaced = size_of(body_name(handle), directory) or 0
            if (used_at := _last_use(handle, directory)) > os.stat(info, dir_fd=self.drafts).st_mtime_ns:
                os.utime(info, ns=(used_at, used_at), dir_fd=self.drafts)
            # The info first: alone, it counts no bytes and is not found.
            self.files.rename(info, self.drafts, info_name(handle), directory)
            self.files.rename(body, self.drafts, body_name(handle), directory)
        self.quota.give(stored.tenant, replaced)

    def find(self, tenant: str, handle: Handle) -> tuple[StoredResult, int] | None:
        """Returns the result and its last use (Unix ns). None if info or body is missing or incomplete."""
        key = SessionKey(tenant, handle.session_id)

        def look(directory: int) -> tuple[StoredResult, int] | None:
            if (tenant, handle) in self._in_flight:
                return None
            try:
                info, used_at = read_info(tenant, handle, directory)
            except DamagedInfo as damage:
                self._warn(
                    key, info_name(handle), f"is damaged ({damage}): its result is not found. Delete it."
                )
                return None
            size = size_of(body_name(handle), directory)
            if size == info.body_bytes:
                return info.stored, used_at
            if size is not None:
                self._warn(
                    key, body_name(handle), "is not as long as it was stored: it is not found. Delete it."
                )
            return None

        return self._in_session(tenant, handle, look)

    def open_body(self, tenant: str, handle: Handle) -> int | None:
        return self._in_session(tenant, handle, lambda directory: open_file(body_name(handle), directory))

    def touch(self, tenant: str, handle: Handle, now_ns: int) -> int | None:
        """Returns the new last use in Unix ns, at least `now_ns`. None if the result does not exist."""

        def renew(directory: int) -> int:
            with self._names:
                status = os.stat(info_name(handle), dir_fd=directory, follow_symlinks=False)
                used_at = max(now_ns, status.st_mtime_ns)
                os.utime(info_name(handle), ns=(used_at, used_at), dir_fd=directory, follow_symlinks=False)
            return used_at

        return self._in_session(tenant, handle, renew)

    def delete(self, tenant: str, handle: Handle, expired_ns: int) -> bool:
        """Returns whether a result was deleted that had not expired."""

        def delete(directory: int) -> bool:
            with self._names:
                return self._remove(tenant, handle, directory, expired_ns)

        return self._in_session(tenant, handle, delete) or False

    def _remove(self, tenant: str, handle: Handle, directory: int, expired_ns: int) -> bool:
        """Deletes the files of a result. A directory that has the name of one is deleted if it is empty; else
        a warning is logged."""
        if (tenant, handle) in self._in_flight:
            return False
        alive = _is_alive(handle, directory, expired_ns)
        size = size_of(body_name(handle), directory)
        # Info first: without it the result is not found, even if deleting the body fails.
        for name in (info_name(handle), body_name(handle)):
            if not remove(name, directory):
                key = SessionKey(tenant, handle.session_id)
                self._warn(key, name, "is a directory that is not empty: it stays. Delete it by hand.")
        self.quota.give(tenant, size or 0)
        return alive

    def delete_session(self, key: SessionKey, epoch: int, expired_ns: int) -> int:
        """Deletes the results of epochs before `epoch`. Returns how many of them had not expired. Raises the
        OSError of a file that cannot be deleted after it has tried all others."""
        self.dirs.remove_file_in_place_of(key)

        def delete_earlier(handle: Handle, directory: int) -> bool:
            is_later = _is_since(epoch, key.tenant, handle, directory)
            return not is_later and self._remove(key.tenant, handle, directory, expired_ns)

        deleted, failed = self._each(key, delete_earlier)
        self.dirs.remove_if_empty(key)
        if failed is not None:
            raise failed
        return deleted

    def delete_tenant(self, tenant: str) -> int:
        """Deletes some results of the tenant. Returns how many; 0 if none is left. Raises the OSError of a
        file that cannot be deleted after it has tried all others."""
        # Continues the listing of an earlier step, because a listing takes long. Only a complete new listing
        # proves that nothing is left.
        for steps in (self._deleting.pop(tenant, iter(())), self._delete_in_steps(tenant)):
            deleted = tried = 0
            for results, done in steps:
                deleted, tried = deleted + done, tried + results
                if deleted and tried >= _BATCH:
                    self._deleting[tenant] = steps
                    return deleted
            if deleted:
                return deleted
        return 0

    def _delete_in_steps(self, tenant: str) -> Iterator[tuple[int, int]]:
        """Deletes in steps of at most _BATCH results. Yields for each step how many it tried and how many it
        deleted."""
        failed: OSError | None = None

        def delete(handle: Handle, directory: int) -> bool:
            return self._remove(tenant, handle, directory, expired_ns=-1)

        for key in self.dirs.of(tenant):
            try:
                self.dirs.remove_file_in_place_of(key)
                handles = self._listed(key)
                for start in range(0, len(handles), _BATCH):
                    batch = handles[start : start + _BATCH]
                    deleted, error = self._each(key, delete, batch)
                    failed = error or failed
                    yield len(batch), deleted
                self.dirs.remove_if_empty(key)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _listed(self, key: SessionKey) -> list[Handle]:
        try:
            with self.dirs.opened(key) as directory:
                return list(_handles(key, directory))
        except FileNotFoundError:
            return []

    def _each(
        self, key: SessionKey, act: Callable[[Handle, int], bool], handles: Sequence[Handle] | None = None
    ) -> tuple[int, OSError | None]:
        """Runs `act` for these results of the session, by default for all, while it holds the lock on names.
        Returns how often `act` returned True, and the last OSError. Logs a warning for each file that
        failed."""
        done, failed = 0, None
        try:
            with self.dirs.opened(key) as directory:
                for handle in _handles(key, directory) if handles is None else handles:
                    try:
                        with self._names:
                            done += act(handle, directory)
                    except OSError as error:
                        failed = error
                        self._warn(key, body_name(handle), f"cannot be deleted: {error.strerror}.")
        except FileNotFoundError:
            pass
        return done, failed

    def count(self, key: SessionKey, expired_ns: int) -> int:
        """Returns how many results of the session have not expired."""
        try:
            with self.dirs.opened(key) as directory:
                return sum(_is_alive(one, directory, expired_ns) for one in _handles(key, directory))
        except FileNotFoundError:
            return 0

    def tidy(self, key: SessionKey, expired_ns: int, *, starts: bool = False) -> tuple[int, int]:
        """Deletes expired results, infos without a body and bodies without an info. Returns how many it
        deleted and how many bytes are left. Logs a warning for each path that cannot be opened or deleted.
        `starts`: reads every info, and deletes what a power cut left incomplete."""
        size = 0

        def delete_expired(handle: Handle, directory: int) -> bool:
            nonlocal size
            if starts and _is_torn(key.tenant, handle, directory):
                self._warn(key, info_name(handle), "or its body is incomplete: they are deleted.")
            elif _is_alive(handle, directory, expired_ns):
                size += size_of(body_name(handle), directory) or 0
                return False
            # `expired_ns=-1`: counts every result with info and body, whatever its last use.
            return self._remove(key.tenant, handle, directory, expired_ns=-1)

        try:
            deleted, _ = self._each(key, delete_expired)
            self.dirs.remove_if_empty(key)
        except OSError as error:
            self.notices.warn(path_of(key), f"cannot be opened: {error.strerror}.")
            return 0, size
        return deleted, size

    def _warn(self, key: SessionKey, name: str, what: str) -> None:
        self.notices.warn(path_of(key, name), what)

    def _in_session(self, tenant: str, handle: Handle, act: Callable[[int], T]) -> T | None:
        """Runs `act` with the directory of the session. None if the names are not safe as a path, or if a
        part of the path is missing."""
        try:
            if is_safe(tenant, handle):
                with self.dirs.opened(SessionKey(tenant, handle.session_id)) as directory:
                    return act(directory)
        except FileNotFoundError:
            pass
        return None


def _handles(key: SessionKey, directory: int) -> set[Handle]:
    """Returns the handle of every body and every info in the directory of this session."""
    return {handle for name in os.listdir(directory) if (handle := handle_of(key, name)) is not None}


def _is_since(epoch: int, tenant: str, handle: Handle, directory: int) -> bool:
    """True for a result of this epoch or a later one. False if its info is missing or damaged."""
    try:
        info, _ = read_info(tenant, handle, directory)
    except (FileNotFoundError, DamagedInfo):
        return False
    return info.stored.epoch >= epoch


def _is_torn(tenant: str, handle: Handle, directory: int) -> bool:
    """True if the info is not as it was written, or the body is not as long as the info says."""
    try:
        info, _ = read_info(tenant, handle, directory)
    except TornInfo:
        return True
    except (FileNotFoundError, DamagedInfo):
        return False
    return size_of(body_name(handle), directory) not in (info.body_bytes, None)


def _last_use(handle: Handle, directory: int) -> int:
    """Returns Unix ns; 0 if there is no such result."""
    try:
        return os.stat(info_name(handle), dir_fd=directory, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_alive(handle: Handle, directory: int, expired_ns: int) -> bool:
    try:
        info = os.stat(info_name(handle), dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    has_body = size_of(body_name(handle), directory) is not None
    return stat.S_ISREG(info.st_mode) and info.st_mtime_ns > expired_ns and has_body
