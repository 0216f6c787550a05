"""The store on disk: opens and locks its directory, and runs what blocks in worker threads."""

import contextlib
import itertools
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from domain.errors import ConfigError, ResultExpired
from domain.handles import Handle, SessionKey
from domain.ports import Clock, Draft, Load
from domain.quotas import QuotaOf, unbounded
from domain.results import StoredResult
from storage.base.paths import WatchedPath, make_directories, take_lock, used_share
from storage.base.quota import Quota
from storage.base.schema import check_mark, mark
from storage.base.threads import Threads
from storage.disk.draft import DiskDraft
from storage.disk.group_publish import GroupPublish
from storage.disk.published import PublishedBodies
from storage.disk.syscalls import Files, open_dir, open_file, remove, translated, unlink, write_all

SCHEMA = 1
"""The schema of the tree and of the info files."""

_NAMES = ("tool_output", "drafts", "lock")
_MAX_SCHEMA_BYTES = 1 << 12

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
THREADS = 16
CHUNK = 1 << 19
_NS = 1_000_000


class Root:
    """The directory of a store, locked for this process. The constructor walks the whole tree: call it from a
    worker thread. It raises ConfigError."""

    def __init__(
        self, path: Path, max_bytes: int, files: Files | None = None, quota_of: QuotaOf = unbounded
    ) -> None:
        files = files or Files()
        self.path = path
        self._fds: list[int] = []
        try:
            make_directories(path)
            self._fds.append(take_lock(path / "lock", path))
            root = self._hold(open_dir(str(path.resolve()), None))
            has_schema = _check_schema(path, root)
            top = self._hold(_own_dir(files, "tool_output", root))
            drafts = self._hold(_own_dir(files, "drafts", root))
            if not has_schema:
                _write_schema(files, root, drafts)
            files.sync(root)
            outer = WatchedPath(path, "The storage directory")
            inner = {name: WatchedPath(path / name, f"{name} in the storage directory") for name in _NAMES}
            self._watched = [outer, *inner.values()]
            quota = Quota(max_bytes, quota_of)
            self.published = PublishedBodies(files, top, inner["tool_output"], drafts, quota, path)
            self._tidy()
        except OSError as error:
            self.close()
            at = path if error.filename is None else path / os.fsdecode(error.filename)
            raise ConfigError(
                f"{at} cannot be used to store results: {error.strerror}. "
                "Name a directory that this user may write."
            ) from error
        except ConfigError:
            self.close()
            raise

    def _hold(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _tidy(self) -> None:
        """Deletes drafts and results that a crash left incomplete. The first sweep deletes expired
        results."""
        for name in os.listdir(self.published.drafts):
            self._remove_draft(name)
        quota = self.published.quota
        for key in self.published.dirs.all():
            # Read first: the bytes that are deleted now were not counted, but are given back all the same.
            counted = quota.used_by(key.tenant)
            quota.set(key.tenant, counted + self.published.tidy(key, expired_ns=-1, starts=True)[1])

    def _remove_draft(self, name: str) -> None:
        """Logs a warning if it cannot be deleted; that is harmless, because new drafts have other names."""
        path, reason = f"drafts/{name}", "is a directory that is not empty"
        try:
            if remove(name, self.published.drafts):
                return
        except OSError as error:
            reason = f"cannot be deleted: {error.strerror}"
        self.published.notices.warn(path, f"{reason}. Delete it by hand.")

    def check_paths(self) -> None:
        """Raises StoreUnavailable if an open directory was deleted or replaced."""
        for path in self._watched:
            path.check()

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


def _check_schema(path: Path, root: int) -> bool:
    """Returns whether the root has a schema file. A root without one has the first schema."""
    try:
        fd = open_file("schema", root)
    except FileNotFoundError:
        return False
    with open(fd, "rb") as file:
        text = file.read(_MAX_SCHEMA_BYTES)
    check_mark(str(path), str(path / "schema"), text, SCHEMA)
    return True


def _write_schema(files: Files, root: int, drafts: int) -> None:
    unlink("schema", drafts)
    fd = files.create("schema", drafts)
    try:
        write_all(files, fd, mark(SCHEMA))
        files.sync(fd)
    finally:
        os.close(fd)
    files.rename("schema", drafts, "schema", root)


def _own_dir(files: Files, name: str, parent: int) -> int:
    with contextlib.suppress(FileExistsError):
        files.make_dir(name, parent)
    return open_dir(name, parent)


class DiskStore:
    """Deletes are not synced: after a power cut a deleted result may exist again until it expires."""

    warnings: tuple[str, ...] = ()

    def __init__(self, root: Root, *, clock: Clock, retention_seconds: float) -> None:
        self._root = root
        self._published = root.published
        self._clock = clock
        self._retention_ms = int(retention_seconds * 1000)
        self._threads = Threads(THREADS, "disk")
        self._group = GroupPublish(root.published)
        # A prefix that no earlier process used: drafts do not collide with files left in `drafts`.
        prefix = secrets.token_hex(8)
        self._names = (f"{prefix}-{number}" for number in itertools.count())

    @property
    def load(self) -> Load:
        return Load(medium_share=used_share(self._root.path))

    def draft(self, tenant: str) -> AbstractAsyncContextManager[Draft]:
        name = f"draft-{next(self._names)}"
        return DiskDraft(self._published, self._threads, self._group, tenant, name)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        info = await self._run(self._published.find, tenant, handle)
        if info is None:
            return None
        stored, used_ns = info
        if used_ns <= self._expired_ns():
            return None
        return replace(stored, expires_at=used_ns // _NS + self._retention_ms)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        body = _LazyBody(partial(self._published.open_body, stored.tenant, stored.handle))
        try:
            position = max(0, start)
            while end is None or position < end:
                chunk = await self._run(
                    body.read, position, CHUNK if end is None else min(CHUNK, end - position)
                )
                if chunk is None:
                    raise ResultExpired
                if not chunk:
                    return
                yield chunk
                position += len(chunk)
        finally:
            self._threads.detach(body.close)

    async def touch(self, stored: StoredResult) -> StoredResult:
        used_ns = await self._run(self._published.touch, stored.tenant, stored.handle, self._clock() * _NS)
        return stored if used_ns is None else replace(stored, expires_at=used_ns // _NS + self._retention_ms)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        return await self._run(self._published.delete, tenant, handle, self._expired_ns())

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        return await self._run(self._published.delete_session, key, epoch, self._expired_ns())

    async def delete_tenant(self, tenant: str) -> int:
        return await self._run(self._published.delete_tenant, tenant)

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        return [await self._run(self._published.count, key, self._expired_ns()) for key in keys]

    async def sweep(self) -> int:
        # One job per session, so that requests run between the jobs of a large sweep.
        deleted = 0
        for key in await self._run(self._published.dirs.all):
            deleted += (await self._run(self._published.tidy, key, self._expired_ns()))[0]
        return deleted

    async def stored_bytes(self) -> int:
        return self._published.quota.used

    async def usage(self) -> dict[str, int]:
        return self._published.quota.usage()

    async def check(self) -> None:
        self._published.quota.check()
        await self._run(self._probe, f"probe-{next(self._names)}")

    def _probe(self, name: str) -> None:
        self._root.check_paths()
        files, drafts = self._published.files, self._published.drafts
        fd = files.create(name, drafts)
        try:
            files.write(fd, memoryview(b"spillgate"))
            files.sync(fd)
        finally:
            os.close(fd)
            unlink(name, drafts)

    async def close(self) -> None:
        await self._group.close()
        await self._threads.close()
        self._root.close()

    def _expired_ns(self) -> int:
        return (self._clock() - self._retention_ms) * _NS

    async def _run(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await self._threads.run(job, *args)
        except OSError as error:
            raise translated(error, self._root.path) from error


class _LazyBody:
    """A body that is opened by its first read. Locked, because a cancelled reader may close it while a thread
    opens or reads it."""

    def __init__(self, open_body: Callable[[], int | None]) -> None:
        self._open = open_body
        self._fd: int | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes | None:
        """None if there is no body."""
        with self._lock:
            if self._is_closed:
                return b""
            if self._fd is None and (opened := self._open()) is not None:
                self._fd = opened
            return None if self._fd is None else os.pread(self._fd, size, offset)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)
