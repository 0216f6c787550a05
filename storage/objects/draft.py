"""A body that is written to a bucket by `publish`: until then up to 1 MiB waits in memory, more in a
temporary file."""

import asyncio
import os
import secrets
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import IO, Protocol, Self, TypeVar, TypeVarTuple

from domain.errors import StorageError, StoreUnavailable
from domain.results import Durability, StoredResult
from storage.base.quota import SharedQuota
from storage.objects.bucket import PART, Bucket
from storage.objects.layout import ObjectInfo

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CHUNK = 1 << 20


class ObjectPublisher(Protocol):
    """The part of the store that a draft needs. `put_info` blocks."""

    bucket: Bucket
    quota: SharedQuota

    def put_info(self, info: ObjectInfo, data: bytes) -> bool: ...


class ObjectDraft:
    """Its jobs run in worker threads, one after another. A cancelled caller does not stop a running job.
    After a StorageError, or once its caller has left, the draft is abandoned: no later step publishes it."""

    def __init__(self, store: ObjectPublisher, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._waiting = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0
        self._sent: list[str] = []
        self._lock = threading.Lock()
        self._is_done = self._is_abandoned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        was_refused, self._is_abandoned = self._is_abandoned, True
        if self._lock.locked() and not was_refused:
            # Even after a cancellation, the result exists or does not exist.
            with suppress(StorageError):
                await self._store.bucket.run(self._wait)
        # If a job still runs, that job drops the draft at its end.
        if self._lock.acquire(blocking=False):
            left = self._drop()
            self._lock.release()
            if left:
                # The caller has already waited for the store once.
                await self._store.bucket.detach(partial(self._store.bucket.delete, left))

    async def write(self, chunk: bytes) -> None:
        self._store.quota.take(self._tenant, len(chunk))
        self._size += len(chunk)
        self._waiting += chunk
        if len(self._waiting) > CHUNK:
            await self._spill()

    async def read(self) -> AsyncIterator[bytes]:
        spilled = self._size - len(self._waiting)
        for start in range(0, spilled, CHUNK):
            yield await self._on_disk(self._read_at, start, min(CHUNK, spilled - start))
        if self._waiting:
            yield bytes(self._waiting)

    async def publish(self, stored: StoredResult) -> Durability:
        if self._file is not None:
            await self._spill()
        parts = 1 + self._size // PART
        try:
            await self._store.bucket.run(self._with_lock, self._publish, stored, parts=parts)
        except StorageError:
            self._is_abandoned = True
            raise
        return Durability.OBJECT

    async def _spill(self) -> None:
        data, self._waiting = self._waiting, bytearray()
        await self._on_disk(self._append, data)

    async def _on_disk(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await asyncio.to_thread(partial(self._with_lock, job, *args))
        except OSError as error:
            self._is_abandoned = True
            raise StoreUnavailable(
                "The folder of temporary files does not take results of this size. TMPDIR names another one.",
                cause=os.strerror(error.errno or 0),
            ) from error

    def _wait(self) -> None:
        with self._lock:
            pass

    def _with_lock(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            with self._lock:
                if self._is_done or self._is_abandoned:
                    raise _lost()
                return job(*args)
        finally:
            # The lock is released: from here on, a caller that leaves drops the draft itself.
            if self._is_abandoned:
                with self._lock:
                    left = self._drop()
                if left:
                    with suppress(StorageError):
                        self._store.bucket.delete(left)

    def _append(self, data: bytearray) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self._file.flush()

    def _read_at(self, start: int, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(start)
        return self._file.read(size)

    def _publish(self, stored: StoredResult) -> None:
        info = ObjectInfo(stored, secrets.token_hex(16), self._size, used_at=stored.stored_at)
        data = info.encoded()
        self._sent = [info.body_path]
        if self._file is not None:
            self._file.seek(0)
        self._store.bucket.put(info.body_path, self._file or bytes(self._waiting))
        if self._is_abandoned:
            raise _lost()
        # From here on the result may exist although the reply is lost: its body must stay.
        self._is_done = True
        is_ours = False
        try:
            is_ours = self._store.put_info(info, data)
        finally:
            self._end(self._size if is_ours else 0)
        if not is_ours:
            with suppress(StorageError):
                self._store.bucket.delete(self._sent)

    def _drop(self) -> list[str]:
        """Returns the paths of objects that may remain in the bucket. May be called again."""
        if self._is_done:
            return []
        self._is_done = True
        self._end()
        return self._sent

    def _end(self, published: int = 0) -> None:
        self._store.quota.end_draft(self._tenant, self._size, published)
        self._waiting.clear()
        if self._file is not None:
            self._file.close()


def _lost() -> StoreUnavailable:
    return StoreUnavailable("This draft is closed or incomplete and was not stored. Send the result again.")
