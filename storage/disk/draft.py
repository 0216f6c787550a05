"""A body that is being written. Up to 1 MiB waits in memory, and is published together with others.

Bodies that are published at the same time are written in place and share their syncs. All bodies of a batch
are written, their write-back is started, and they are synced from the last to the first: the blocks of all
are allocated before the first sync, so that a journal commits once. The same is then done with all infos, and
each directory is synced once. An info exists only after its body was synced, and nothing is answered before
the end. A journalled ext4 commits twice for 16 results, and 17 times if the write-back of the infos is not
started.
"""

import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVarTuple, cast

from domain.errors import SpillgateError, StoreUnavailable
from domain.handles import SessionKey
from domain.results import Durability, StoredResult
from storage.base.threads import Batches, Threads
from storage.disk.layout import FileInfo, body_name, info_name
from storage.disk.published import PublishedBodies
from storage.disk.syscalls import size_of, translated, unlink, write_all

MOST = 32
"""The most results of a batch. Each has a file open, and its directory."""

Ts = TypeVarTuple("Ts")
SPILL = 1 << 20
READ = 1 << 19


@dataclass(slots=True)
class Publication:
    """A body in memory, and what becomes of it. The quota has counted its bytes."""

    stored: StoredResult
    chunks: list[bytes]
    size: int
    directory: int = -1
    fd: int | None = None
    made: list[str] = field(default_factory=list)
    """The files that were created."""
    error: Exception | None = None


class GroupPublish:
    """The only writer of `published` that writes in place."""

    def __init__(self, published: PublishedBodies) -> None:
        self._published = published
        self._batches = Batches(self._publish, "disk-publish", MOST)

    def run(self, body: Publication) -> Awaitable[bool]:
        """To be awaited at once; ends when body and info are durable. False if a file has the name of one of
        them: then nothing was written. Raises OSError and SpillgateError. The quota gets the bytes of what
        was not published back. The body is published even if the caller is cancelled."""
        return cast(Awaitable[bool], self._batches.run(body))

    async def close(self) -> None:
        """Returns when all has been published."""
        await self._batches.close()

    def _publish(self, batch: list[Publication]) -> list[object]:
        directories: dict[SessionKey, int] = {}
        try:
            self._each(batch, lambda one: self._write_body(one, directories))
            self._sync(batch, self._published.files.sync_data)
            self._each(batch, self._write_info)
            self._sync(batch, self._published.files.sync)
            for directory in directories.values():
                self._sync_directory(directory, [one for one in batch if one.directory == directory])
        except Exception as error:
            # Every caller gets it: nothing of the batch may stay.
            for one in batch:
                if one.error is None:
                    self._fail(one, error)
            raise
        finally:
            self._published.finish()
            for one in batch:
                _close(one)
            for directory in directories.values():
                os.close(directory)
        return [not isinstance(one.error, FileExistsError) and (one.error or True) for one in batch]

    def _sync(self, batch: list[Publication], sync: Callable[[int], None]) -> None:
        self._each(batch, lambda one: self._published.files.start_write_back(_open(one)))
        self._each(reversed(batch), lambda one: sync(_open(one)))

    def _each(self, batch: Iterable[Publication], step: Callable[[Publication], object]) -> None:
        """Takes the step with each that has not failed. One that fails takes away only its own files."""
        for one in batch:
            if one.error is None:
                try:
                    step(one)
                except (OSError, SpillgateError) as error:
                    self._fail(one, error)

    def _fail(self, one: Publication, error: Exception) -> None:
        one.error = error
        _close(one)
        left = 0
        for name in one.made:
            try:
                unlink(name, one.directory)
            except OSError:
                if name == body_name(one.stored.handle):
                    # The sweeper deletes it, and gives these bytes back.
                    left = size_of(name, one.directory) or 0
        self._published.quota.give(one.stored.tenant, one.size - left)

    def _write_body(self, one: Publication, directories: dict[SessionKey, int]) -> None:
        def create(directory: int) -> None:
            one.directory = directory
            one.fd = self._published.create(one.stored, directory)
            one.made.append(body_name(one.stored.handle))

        self._published.in_directory(one.stored, directories, create)
        for chunk in one.chunks:
            write_all(self._published.files, _open(one), chunk)

    def _write_info(self, one: Publication) -> None:
        _close(one)
        name = info_name(one.stored.handle)
        one.fd = self._published.files.create(name, one.directory)
        one.made.append(name)
        self._published.write_info(one.fd, FileInfo(one.size, one.stored))

    def _sync_directory(self, directory: int, batch: list[Publication]) -> None:
        try:
            self._published.files.sync(directory)
        except OSError as error:
            for one in batch:
                if one.error is None:
                    self._fail(one, error)


def _open(one: Publication) -> int:
    assert one.fd is not None
    return one.fd


def _close(one: Publication) -> None:
    fd, one.fd = one.fd, None
    if fd is not None:
        # What it wrote is synced, or fails for another reason.
        with suppress(OSError):
            os.close(fd)


class DiskDraft:
    """Its jobs run in worker threads, one after another. A cancelled caller does not stop a running job."""

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
            # A file has the name of the body: it is to be replaced.
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
