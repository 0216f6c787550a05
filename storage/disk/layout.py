"""The paths of a result under the root of the store, its info file, and the directories of sessions.

<root>/tool_output/<tenant>/session-<id>/file-<uuid>         the body, byte for byte
<root>/tool_output/<tenant>/session-<id>/.file-<uuid>.json   its info; the mtime is the last use
<root>/schema                                                the schema, and the version that wrote it
<root>/drafts/                                               unpublished bodies; emptied at every start
<root>/lock                                                  held by the one process that owns the root
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from domain.errors import ResultNotFound
from domain.handles import Handle, SessionKey, is_name, parse_handle
from domain.results import StoredResult
from domain.structs import frozen_struct
from storage.base.damage import DamagedInfo, Notices, decode_info
from storage.disk.syscalls import Files, open_dir, open_file, size_of, unlink

MAX_INFO_BYTES = 8 << 20
"""Larger than any info: 1 MiB of tool_arguments, each byte escaped as six."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@frozen_struct
class FileInfo:
    """`body_bytes` is the size of the complete body."""

    body_bytes: int
    stored: StoredResult


_decode_json = msgspec.json.Decoder(FileInfo).decode


def read_info(tenant: str, handle: Handle, directory: int) -> tuple[FileInfo, int]:
    """Returns the info and its last use in Unix ns. Raises FileNotFoundError (also if it is not a regular
    file) and DamagedInfo."""
    fd = open_file(info_name(handle), directory)
    try:
        status = os.fstat(fd)
        if status.st_size > MAX_INFO_BYTES:
            raise DamagedInfo("it is larger than any info file")
        info = decode_info(os.read(fd, status.st_size), _decode_json)
    finally:
        os.close(fd)
    if (info.stored.tenant, info.stored.handle) != (tenant, handle):
        raise DamagedInfo("it belongs to another result")
    return info, status.st_mtime_ns


def body_name(handle: Handle) -> str:
    return f"file-{handle.file_id}"


def info_name(handle: Handle) -> str:
    return f".file-{handle.file_id}.json"


def directory_name(key: SessionKey) -> str:
    return f"session-{key.session_id}"


def path_of(key: SessionKey, name: str = "") -> str:
    """Returns the path relative to the root, for messages."""
    return "/".join(part for part in ("tool_output", key.tenant, directory_name(key), name) if part)


def is_key(key: SessionKey) -> bool:
    return is_name(key.tenant) and is_name(key.session_id)


def key_of(tenant: str, name: str) -> SessionKey | None:
    """Returns the session whose directory has this name; None for any other name."""
    key = SessionKey(tenant, name.removeprefix("session-"))
    return key if name.startswith("session-") and is_key(key) else None


def handle_of(key: SessionKey, name: str) -> Handle | None:
    """Returns the handle whose body or info has this name; None for any other name."""
    bare = name[1:-5] if name.startswith(".") and name.endswith(".json") else name
    try:
        return parse_handle(f"session-{key.session_id}/{bare}")
    except ResultNotFound:
        return None


class SessionDirs:
    """`top` is the open `tool_output` directory. Safe from any thread."""

    def __init__(self, files: Files, top: int, notices: Notices) -> None:
        self._files = files
        self._top = top
        self._notices = notices
        self._lock = threading.Lock()
        self._durable: set[SessionKey] = set()

    def open(self, key: SessionKey) -> int:
        """Raises FileNotFoundError if there is no such directory. Logs a warning if a file or symbolic link
        has its name."""
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
        """Notes that the directory was deleted, so that the next `make` creates it again."""
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
        """Returns the sessions of all directories. Logs a warning for each tenant that cannot be listed."""
        keys = list[SessionKey]()
        for tenant in filter(is_name, os.listdir(self._top)):
            try:
                keys += self.of(tenant)
            except OSError as error:
                self._notices.warn(f"tool_output/{tenant}", f"cannot be listed: {error.strerror}.")
        return keys

    def of(self, tenant: str) -> list[SessionKey]:
        """The sessions of all directories of a tenant."""
        try:
            directory = self._open(tenant, self._top, f"tool_output/{tenant}")
        except FileNotFoundError:
            return []
        try:
            keys = [key_of(tenant, name) for name in os.listdir(directory)]
        finally:
            os.close(directory)
        return [key for key in keys if key is not None]
