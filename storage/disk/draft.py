"""A body that is being written. Up to 1 MiB waits in memory, and is published together with others."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self, TypeVarTuple

from domain.errors import StoreUnavailable
from domain.results import Durability, StoredResult
from storage.base.threads import Threads
from storage.disk.group_publish import GroupPublish, Publication
from storage.disk.layout import FileInfo
from storage.disk.published import PublishedBodies
from storage.disk.syscalls import translated, unlink, write_all

Ts = TypeVarTuple("Ts")
SPILL = 1 << 20
READ = 1 << 19


class DiskDraft:
    """A body that is being written. Its jobs run in worker threads, one after another; cancelling the caller
    does not stop a running job."""

    def __init__(
        self, published: PublishedBodies, threads: Threads, group: GroupPublish, tenant: str, name: str
    ) -> None:
        self._published = published
        self._tenant = tenant
        self._threads = threads
        self._group = group
        self._name = name
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._spilled = 0
        self._fd: int | None = None
        self._lock = threading.Lock()
        self._is_done = False
        self._in_thread = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is None and not self._in_thread:
            self._drop()
        else:
            await self._run(self._drop)

    async def write(self, chunk: bytes) -> None:
        self._published.quota.take(self._tenant, len(chunk))
        self._waiting.append(chunk)
        self._waiting_bytes += len(chunk)
        if self._waiting_bytes >= SPILL:
            await self._run(self._spill)

    async def read(self) -> AsyncIterator[bytes]:
        offset = 0
        while offset < self._spilled:
            chunk = await self._threads.run(self._read_at, offset)
            offset += len(chunk)
            yield chunk
        for waiting in list(self._waiting):
            for start in range(0, len(waiting), SPILL):
                yield waiting[start : start + SPILL]

    async def publish(self, stored: StoredResult) -> Durability:
        if self._fd is None and not self._in_thread and not self._is_done:
            body = Publication(stored, self._waiting, self._waiting_bytes)
            self._waiting, self._waiting_bytes = [], 0
            try:
                self._is_done = await self._group.run(body)
            except OSError as error:
                raise translated(error, self._published.root) from error
            if self._is_done:
                return Durability.DISK
            # A file with the name of the body exists: a rename can replace it.
            for chunk in body.chunks:
                await self.write(chunk)
        await self._run(self._publish, stored)
        return Durability.DISK

    async def _run(self, job: Callable[[*Ts], None], *args: *Ts) -> None:
        self._in_thread = True
        try:
            await self._threads.run(self._one_at_a_time, job, args)
        except OSError as error:
            raise translated(error, self._published.root) from error
        self._in_thread = False

    def _one_at_a_time(self, job: Callable[[*Ts], None], args: tuple[*Ts]) -> None:
        with self._lock:
            try:
                job(*args)
            except OSError:
                self._drop()
                raise

    def _spill(self) -> None:
        fd = self._open()
        for chunk in self._waiting:
            write_all(self._published.files, fd, chunk)
        self._spilled += self._waiting_bytes
        self._waiting = []
        self._waiting_bytes = 0

    def _open(self) -> int:
        if self._is_done:
            raise StoreUnavailable("This draft is closed and was not stored. Send the result again.")
        if self._fd is None:
            self._fd = self._published.files.create(self._name, self._published.drafts)
        return self._fd

    def _read_at(self, offset: int) -> bytes:
        with self._lock:
            return os.pread(self._open(), min(READ, self._spilled - offset), offset)

    def _publish(self, stored: StoredResult) -> None:
        body = self._open()
        self._spill()
        self._published.files.sync_data(body)
        self._write_info(FileInfo(self._spilled, stored))
        directory = self._published.rename(self._name, f"{self._name}.json", stored)
        # From here on the bytes count as published, even if the sync fails.
        self._spilled = 0
        try:
            self._published.files.sync(directory)
        finally:
            os.close(directory)
        self._close()

    def _write_info(self, info: FileInfo) -> None:
        files = self._published.files
        fd = files.create(f"{self._name}.json", self._published.drafts)
        try:
            self._published.write_info(fd, info)
            files.sync(fd)
        finally:
            os.close(fd)

    def _drop(self) -> None:
        """Deletes everything that was not published. May be called again."""
        has_file = self._fd is not None
        self._close()
        if left := self._spilled + self._waiting_bytes:
            self._published.quota.give(self._tenant, left)
        self._waiting = []
        self._waiting_bytes = self._spilled = 0
        if has_file:
            unlink(self._name, self._published.drafts)
            unlink(f"{self._name}.json", self._published.drafts)

    def _close(self) -> None:
        self._is_done = True
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
