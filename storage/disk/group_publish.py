"""Publishes bodies of up to 1 MiB together: written in place, with shared syncs.

All bodies of a batch are written, their write-back is started, and they are synced from the last to the
first. So the blocks of all are allocated before the first sync, and the file system's journal commits once.
The same is then done with all infos, and each directory is synced once. An info exists only after its body
was synced, and no caller gets an answer before the end. For 16 results, ext4 with a journal commits twice; it
commits 17 times if the write-back of the infos is not started.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from domain.errors import SpillgateError
from domain.handles import SessionKey
from domain.results import StoredResult
from storage.base.threads import Batches
from storage.disk.layout import FileInfo, body_name, info_name
from storage.disk.published import PublishedBodies
from storage.disk.syscalls import size_of, unlink, write_all

MOST = 32
"""The most results of a batch. Each has two open descriptors: its file and its directory."""


@dataclass(slots=True)
class Publication:
    """A body in memory, and the outcome of its publication. The quota includes its bytes."""

    stored: StoredResult
    chunks: list[bytes]
    size: int
    directory: int = -1
    fd: int | None = None
    made: list[str] = field(default_factory=list)
    """The files that were created."""
    error: Exception | None = None


class GroupPublish:
    """Writes bodies in place. A `published` has only one GroupPublish."""

    def __init__(self, published: PublishedBodies) -> None:
        self._published = published
        self._batches = Batches(self._publish, "disk-publish", MOST)

    def run(self, body: Publication) -> Awaitable[bool]:
        """Publishes the body; await it at once. Returns when body and info are durable; False, with nothing
        written, if a file with one of their names exists. Raises OSError and SpillgateError; then the quota
        gets the bytes back. The body is published even if the caller is cancelled."""
        return cast(Awaitable[bool], self._batches.run(body))

    async def close(self) -> None:
        """Returns when all bodies have been published."""
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
            # Every caller gets the error, so no file of the batch may stay.
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
        """Runs the step for each body that has not failed. A body that fails loses only its own files."""
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
                    # The next sweep deletes the file, and returns its bytes to the quota.
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
        # Its files were synced, or have failed for another reason.
        with suppress(OSError):
            os.close(fd)
