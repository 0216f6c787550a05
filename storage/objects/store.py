"""Bodies in a bucket. A body becomes a result when its info is created, with a conditional write."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from domain.errors import ResultExpired, StoreUnavailable
from domain.handles import Handle, SessionKey, is_name, is_safe
from domain.ports import Clock, Draft, Load
from domain.quotas import QuotaOf, unbounded
from domain.results import StoredResult
from storage.base.damage import DamagedInfo, Notices
from storage.base.quota import SharedQuota
from storage.objects.bucket import Bucket
from storage.objects.draft import CHUNK, ObjectDraft
from storage.objects.layout import (
    TOP,
    ListedResult,
    ObjectInfo,
    info_path,
    read_info,
    result_of,
    session_path,
)

if TYPE_CHECKING:
    from obstore import UpdateVersion

READ = 4 << 20
"""Bytes that a reader requests at a time."""

GRACE_SECONDS = 60.0
"""The time for which a deleted body of several requests stays readable, for readers that have started."""

ORPHAN_MS = 3_600_000
"""The age at which a body without an info is deleted: its writer was killed."""

LONGEST_SCAN_MS = 600_000
"""The longest time between two listings of the bucket. It is a sixteenth of the retention if that is
shorter."""

_STEPS = 16
_AT_ONCE = 16
_ATTEMPTS = 5
_BATCH = 200


class ObjectStore:
    """Any number of processes may use one bucket and prefix. `max_bytes` (0: no bound) and the quotas are for
    all of them together; each process knows the bytes of the others as of its last listing of the bucket. The
    first sweep makes the first listing.

    A use is recorded once in a sixteenth of the retention: a result lives at least 15/16 of the
    retention after its last use."""

    load = Load()

    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Clock,
        retention_seconds: float,
        max_bytes: int,
        quota_of: QuotaOf = unbounded,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.bucket = bucket
        self.warnings = warnings
        self._clock = clock
        self._retention_ms = int(retention_seconds * 1000)
        self._step_ms = self._retention_ms // _STEPS
        self.quota = SharedQuota(max_bytes, quota_of)
        self._notices = Notices()
        self._scanned_at: int | None = None
        self._leaving: deque[tuple[float, str]] = deque()

    def draft(self, tenant: str) -> AbstractAsyncContextManager[Draft]:
        return ObjectDraft(self, tenant)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        if not is_safe(tenant, handle):
            return None
        info, _ = await self.bucket.run(self._look, info_path(tenant, handle))
        if info is None or self._has_expired(info):
            return None
        return replace(info.stored, expires_at=info.used_at + self._retention_ms)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        info, _ = await self.bucket.run(self._look, info_path(stored.tenant, stored.handle))
        if info is None:
            raise ResultExpired
        position = max(0, start)
        end = info.size if end is None else min(end, info.size)
        while position < end:
            data = await self.bucket.run(self._read, info, position, min(position + READ, end))
            if data is None:
                raise ResultExpired
            for at in range(0, len(data), CHUNK):
                yield data[at : at + CHUNK]
            position += len(data)

    async def touch(self, stored: StoredResult) -> StoredResult:
        now = self._clock()
        if stored.expires_at > now + self._retention_ms - self._step_ms:
            return stored
        used_at = await self.bucket.run(self._touch, info_path(stored.tenant, stored.handle), now)
        return stored if used_at is None else replace(stored, expires_at=used_at + self._retention_ms)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        return is_safe(tenant, handle) and await self.bucket.run(self._delete, info_path(tenant, handle))

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        def is_later(info: ObjectInfo) -> bool:
            return info.stored.epoch >= epoch

        deleted = 0
        async for batch in self._listed_session(key):
            jobs = [self.bucket.run(self._delete, one.path, is_later) for one in batch]
            deleted += sum(await asyncio.gather(*jobs))
        return deleted

    async def delete_tenant(self, tenant: str) -> int:
        deleted = 0
        if is_name(tenant):
            async for batch in self._listed(f"{TOP}/{tenant}"):
                await asyncio.gather(*[self.bucket.run(self._delete_all, one) for one in batch])
                if (deleted := deleted + len(batch)) >= _BATCH:
                    break
        return deleted

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        return [await self._count(key) for key in keys]

    async def _count(self, key: SessionKey) -> int:
        alive = 0
        async for batch in self._listed_session(key):
            alive += sum(await asyncio.gather(*[self.bucket.run(self._is_alive, one) for one in batch]))
        return alive

    async def sweep(self) -> int:
        now = time.monotonic()
        while self._leaving and self._leaving[0][0] <= now:
            await self.bucket.run(self.bucket.delete, [self._leaving.popleft()[1]])
        pause = min(LONGEST_SCAN_MS, self._step_ms)
        if self._scanned_at is not None and 0 <= self._clock() - self._scanned_at < pause:
            return 0
        return await self._scan()

    async def stored_bytes(self) -> int:
        return self.quota.used

    async def usage(self) -> dict[str, int]:
        return self.quota.usage()

    async def check(self) -> None:
        self.quota.check()
        await self.bucket.run(self.bucket.put, "probe", b"spillgate")

    async def close(self) -> None:
        if left := [path for _, path in self._leaving]:
            await self.bucket.detach(partial(self.bucket.delete, left))
        await self.bucket.close()

    # The methods from here on block, unless they are `async`.

    def put_info(self, info: ObjectInfo, data: bytes) -> bool:
        """Publishes a result whose body is stored. `data` is the encoded info. False if a concurrent retry of
        this call has published the same content. A result that has expired, or whose body is missing or cut,
        is replaced.

        Stores have no conditional delete, so a sweep that has read an expired info might delete the info's
        replacement. Therefore a sweep spares an expired info for another sixteenth of the retention. A
        retry that comes even later, between the sweep's two requests, can still be lost."""
        for _ in range(_ATTEMPTS):
            if self.bucket.create(info.path, data):
                return True
            before, version = self._look(info.path)
            # If the reply to a write is lost, the write is repeated, and finds what it wrote.
            if before is not None and before.body == info.body:
                return True
            if (
                before is not None
                and not self._has_expired(before)
                and self.bucket.size(before.body_path) == before.size
            ):
                self._touch(info.path, info.used_at)
                return False
            if version is not None and self.bucket.update(info.path, data, version):
                if before is not None:
                    self.quota.give(before.stored.tenant, before.size)
                    self._remove_body(before)
                return True
        raise StoreUnavailable("This result was changed by others at the same time. Send it again.")

    def _read(self, info: ObjectInfo, start: int, end: int) -> bytes | None:
        """None if the body is missing, or damaged in the bucket. Raises StoreUnavailable if it was damaged in
        transfer."""
        try:
            data = self.bucket.get_range(info.body_path, start, end)
        except StoreUnavailable:
            if self.bucket.size(info.body_path) in (None, info.size):
                raise
            data = b""
        if data is None or len(data) == end - start:
            return data
        if self.bucket.size(info.body_path) == info.size:
            raise _damaged()
        self._notices.warn(
            info.body_path, "is damaged (it is shorter than it was stored): delete its result."
        )
        return None

    def _look(self, path: str) -> "tuple[ObjectInfo | None, UpdateVersion | None]":
        """The info and the version of its object. Without an info, a version means that the info is damaged
        in the bucket, no version that it is missing. Raises StoreUnavailable if it was damaged in transfer:
        two reads differ, or are too short."""
        first = self.bucket.get(path)
        with suppress(DamagedInfo):
            return _decoded(first, path)
        second = self.bucket.get(path)
        try:
            return _decoded(second, path)
        except DamagedInfo as damage:
            assert first is not None
            assert second is not None
            if second[0] != first[0] or self.bucket.size(path) != len(second[0]):
                raise _damaged() from None
            self._notices.warn(path, f"is damaged ({damage}): its result is not read. Delete it.")
            return None, second[1]

    def _touch(self, path: str, now: int) -> int | None:
        """Returns the recorded last use in Unix ms. None if the result does not exist."""
        for _ in range(_ATTEMPTS):
            info, version = self._look(path)
            if info is None or version is None:
                return None
            if now - info.used_at < self._step_ms:
                return info.used_at
            if self.bucket.update(path, replace(info, used_at=now).encoded(), version):
                return now
        return None

    def _delete(self, path: str, is_spared: Callable[[ObjectInfo], bool] | None = None) -> bool:
        """Returns whether a result was deleted that had not expired."""
        info, version = self._look(path)
        if version is None or (info is not None and is_spared is not None and is_spared(info)):
            return False
        self.bucket.delete([path])
        if info is None:
            return False
        self.quota.give(info.stored.tenant, info.size)
        self._remove_body(info)
        return not self._has_expired(info)

    def _delete_all(self, listed: ListedResult) -> None:
        self._delete(listed.path)
        self.bucket.delete(listed.bodies)

    def _remove_body(self, info: ObjectInfo) -> None:
        """Deletes the body of a result whose info is deleted; a body of several requests a minute later."""
        if info.size <= READ:
            self.bucket.delete([info.body_path])
        else:
            self._leaving.append((time.monotonic() + GRACE_SECONDS, info.body_path))

    def _has_expired(self, info: ObjectInfo, ms_ago: int = 0) -> bool:
        return info.used_at + self._retention_ms + ms_ago <= self._clock()

    def _settle(self, listed: ListedResult) -> tuple[int, bool]:
        """Deletes a result that expired a sixteenth of the retention ago (see `put_info`), and what a crash
        left. Returns the bytes that stay, and whether a result was deleted. Does not give bytes back to the
        quota: the scan counts what stays."""
        if len(listed.bodies) == 1 and self._is_recent(listed):
            return listed.size, False
        info, version = self._look(listed.path)
        if version is None:
            if self._is_orphan(listed):
                self.bucket.delete(listed.bodies)
            return 0, False
        if info is None:
            if self._clock() - listed.newest_at < self._retention_ms:
                return listed.size, False
            self.bucket.delete([listed.path])
            return 0, True
        if self._has_expired(info, self._step_ms):
            self.bucket.delete([listed.path])
            self._remove_body(info)
            return 0, True
        if self._is_orphan(listed) and (left := set(listed.bodies) - {info.body_path}):
            self.bucket.delete(list(left))
        return info.size, False

    def _is_alive(self, listed: ListedResult) -> bool:
        if self._is_recent(listed):
            return True
        info, _ = self._look(listed.path)
        return info is not None and not self._has_expired(info)

    def _is_recent(self, listed: ListedResult) -> bool:
        """True if the info is too young to have expired. Its age is by the bucket's clock: a sixteenth of the
        retention is left as a margin, and an age below 0 proves nothing."""
        age = self._clock() - listed.info_at if listed.info_at is not None else -1
        return 0 <= age < self._retention_ms - self._step_ms

    def _is_orphan(self, listed: ListedResult) -> bool:
        return self._clock() - listed.newest_at > ORPHAN_MS

    async def _listed_session(self, key: SessionKey) -> AsyncIterator[list[ListedResult]]:
        """What the bucket holds of each result of a session that has an info, in batches."""
        if is_name(key.tenant) and is_name(key.session_id):
            async for batch in self._listed(session_path(key), infos_only=True):
                yield batch

    async def _listed(self, top: str = TOP, *, infos_only: bool = False) -> AsyncIterator[list[ListedResult]]:
        """What the bucket holds of each result below `top`, in batches; even of results without an info."""
        batch: dict[str, ListedResult] = {}
        async for page in self.bucket.pages(top):
            for meta in page:
                path = result_of(meta["path"])
                if path is None or (infos_only and path != meta["path"]):
                    continue
                if path not in batch and len(batch) == _AT_ONCE:
                    yield list(batch.values())
                    batch = {}
                batch.setdefault(path, ListedResult(path)).add(meta)
        yield list(batch.values())

    async def _scan(self) -> int:
        """Lists the bucket: deletes what has expired and what a crash left, and counts the rest."""
        began, before = self._clock(), Counter(self.quota.usage())
        before.subtract(self.quota.drafted())
        deleted, stored_bytes = 0, Counter[str]()
        async for batch in self._listed():
            settled = await asyncio.gather(*[self.bucket.run(self._settle, listed) for listed in batch])
            for listed, (size, _) in zip(batch, settled, strict=True):
                stored_bytes[listed.tenant] += size
            deleted += sum(was_deleted for _, was_deleted in settled)
        for tenant in {*before, *stored_bytes}:
            self.quota.give(tenant, before[tenant] - stored_bytes[tenant])
        self._scanned_at = began
        return deleted


def _decoded(
    versioned: "tuple[bytes, UpdateVersion] | None", path: str
) -> "tuple[ObjectInfo | None, UpdateVersion | None]":
    """Raises DamagedInfo."""
    return (None, None) if versioned is None else (read_info(versioned[0], path), versioned[1])


def _damaged() -> StoreUnavailable:
    return StoreUnavailable("The object store returned a damaged object. Try again.")
