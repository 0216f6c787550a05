"""A body on its way to an object store. Each full segment is sent at once; the last waits until `publish`."""

import secrets
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVarTuple

from domain.errors import StorageError, StoreUnavailable
from domain.results import Durability, StoredResult
from storage.base.quota import SharedQuota
from storage.objects.bucket import Bucket, SegmentCache
from storage.objects.layout import ObjectInfo, segment_path

Ts = TypeVarTuple("Ts")
CHUNK = 1 << 20


class ObjectPublisher(Protocol):
    """What a draft needs of its store. `remove_segments` and `put_info` block."""

    bucket: Bucket
    cache: SegmentCache
    quota: SharedQuota
    segment_bytes: int

    async def fetch(self, path: str, is_intact: Callable[[bytes], bool]) -> bytes | None: ...

    def put_info(self, info: ObjectInfo, data: bytes) -> bool: ...

    def remove_segments(self, paths: list[str]) -> None: ...


class ObjectDraft:
    """Its jobs run in worker threads, one after another. A cancelled caller does not stop a running job.
    After a StorageError the draft is abandoned: its caller was refused, so no later step publishes it."""

    def __init__(self, store: ObjectPublisher, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._body = secrets.token_hex(16)
        self._waiting = bytearray()
        self._sent: list[str] = []
        self._checksums: list[int] = []
        self._size = 0
        self._lock = threading.Lock()
        self._is_done = self._in_thread = self._is_abandoned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._in_thread:
            self._drop()
        elif not self._is_abandoned:
            with suppress(StorageError):
                await self._store.bucket.run(self._drop_with_lock)
        # Where a job still runs, that job drops the draft at its end.
        elif self._lock.acquire(blocking=False):
            is_done = self._is_done
            if not is_done:
                self._drop()
            self._lock.release()
            if self._sent and not is_done:
                # The caller has waited for the store once already.
                await self._store.bucket.detach(partial(self._store.remove_segments, self._sent))

    async def write(self, chunk: bytes) -> None:
        self._store.quota.take(self._tenant, len(chunk))
        self._size += len(chunk)
        self._waiting += chunk
        while len(self._waiting) > self._store.segment_bytes:
            await self._run(self._send)

    async def read(self) -> AsyncIterator[bytes]:
        for path, checksum in zip(self._sent, self._checksums, strict=True):
            segment = await self._store.fetch(path, partial(_has_checksum, checksum))
            if segment is None:
                raise _lost()
            for start in range(0, len(segment), CHUNK):
                yield segment[start : start + CHUNK]
        waiting = bytes(self._waiting)
        for start in range(0, len(waiting), CHUNK):
            yield waiting[start : start + CHUNK]

    async def publish(self, stored: StoredResult) -> Durability:
        await self._run(self._publish, stored)
        return Durability.OBJECT

    async def _run(self, job: Callable[[*Ts], None], *args: *Ts) -> None:
        self._in_thread = True
        try:
            await self._store.bucket.run(self._with_lock, job, args)
        except StorageError:
            self._is_abandoned = True
            raise

    def _with_lock(self, job: Callable[[*Ts], None], args: tuple[*Ts]) -> None:
        try:
            with self._lock:
                if self._is_done or self._is_abandoned:
                    raise _lost()
                job(*args)
        finally:
            # The lock is released: a caller that abandons the draft now gets it, and drops the draft itself.
            if self._is_abandoned:
                with suppress(StorageError):
                    self._drop_with_lock()

    def _send(self) -> None:
        size = self._store.segment_bytes
        self._put(segment_path(self._body, len(self._checksums)), bytes(self._waiting[:size]))
        del self._waiting[:size]

    def _put(self, path: str, segment: bytes) -> None:
        self._store.bucket.put(path, segment)
        self._sent.append(path)
        self._checksums.append(zlib.crc32(segment))
        self._store.cache.put(path, segment)

    def _publish(self, stored: StoredResult) -> None:
        last = bytes(self._waiting)
        checksums = (*self._checksums, zlib.crc32(last))
        segment = self._store.segment_bytes
        info = ObjectInfo(stored, self._body, self._size, segment, checksums, used_at=stored.stored_at)
        data = info.encoded()
        self._put(info.segments[-1], last)
        if self._is_abandoned:
            raise _lost()
        # From here on the result may exist although the reply is lost: its body must stay.
        self._is_done = True
        is_ours = False
        try:
            is_ours = self._store.put_info(info, data)
        finally:
            self._store.quota.end_draft(self._tenant, self._size, self._size if is_ours else 0)
        self._waiting.clear()
        if not is_ours:
            with suppress(StorageError):
                self._store.remove_segments(info.segments)

    def _drop_with_lock(self) -> None:
        with self._lock:
            if not self._is_done:
                self._drop()
                self._store.remove_segments(self._sent)

    def _drop(self) -> None:
        self._is_done = True
        self._store.quota.end_draft(self._tenant, self._size)
        self._waiting.clear()


def _has_checksum(checksum: int, segment: bytes) -> bool:
    return zlib.crc32(segment) == checksum


def _lost() -> StoreUnavailable:
    return StoreUnavailable("This draft is closed or incomplete and was not stored. Send the result again.")
