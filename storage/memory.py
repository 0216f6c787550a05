"""A store in the memory of this process: the reference implementation. Its contents end with the process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice

from domain.errors import ResultExpired
from domain.handles import Handle, SessionKey
from domain.ports import Clock, Draft, Load
from domain.quotas import QuotaOf, unbounded
from domain.results import Durability, StoredResult
from storage.base.quota import Quota

CHUNK = 1 << 20
_BATCH = 1000


@dataclass(slots=True)
class _StoredBody:
    stored: StoredResult
    body: bytes
    used_at: int


class MemoryStore:
    warnings = ("Results are kept in the memory of this process: they end with it.",)
    load = Load()

    def __init__(
        self, *, clock: Clock, retention_seconds: float, max_bytes: int, quota_of: QuotaOf = unbounded
    ) -> None:
        self._clock = clock
        self._retention_ms = int(retention_seconds * 1000)
        self._quota = Quota(max_bytes, quota_of)
        self._sessions: dict[SessionKey, dict[Handle, _StoredBody]] = {}

    @asynccontextmanager
    async def draft(self, tenant: str) -> AsyncIterator[Draft]:
        draft = _MemoryDraft(self, self._quota, tenant)
        try:
            yield draft
        finally:
            draft.drop()

    def keep(self, stored: StoredResult, body: bytes) -> None:
        session = self._sessions.setdefault(stored.key, {})
        before = session.get(stored.handle)
        if before is not None:
            self._quota.give(stored.tenant, len(before.body))
        used_at = stored.stored_at if before is None else max(stored.stored_at, before.used_at)
        session[stored.handle] = _StoredBody(stored, body, used_at)

    def _alive(self, tenant: str, handle: Handle) -> _StoredBody | None:
        result = self._sessions.get(SessionKey(tenant, handle.session_id), {}).get(handle)
        return result if result is not None and not self._has_expired(result) else None

    def _has_expired(self, result: _StoredBody) -> bool:
        return result.used_at + self._retention_ms <= self._clock()

    def _remove(self, tenant: str, handle: Handle) -> None:
        key = SessionKey(tenant, handle.session_id)
        session = self._sessions[key]
        self._quota.give(tenant, len(session.pop(handle).body))
        if not session:
            del self._sessions[key]

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        result = self._alive(tenant, handle)
        if result is None:
            return None
        return replace(result.stored, expires_at=result.used_at + self._retention_ms)

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        result = self._sessions.get(stored.key, {}).get(stored.handle)
        if result is None:
            raise ResultExpired
        body = result.body
        end = len(body) if end is None else min(end, len(body))
        for offset in range(max(0, start), end, CHUNK):
            yield body[offset : min(offset + CHUNK, end)]

    async def touch(self, stored: StoredResult) -> StoredResult:
        result = self._sessions.get(stored.key, {}).get(stored.handle)
        if result is None:
            return stored
        result.used_at = max(result.used_at, self._clock())
        return replace(stored, expires_at=result.used_at + self._retention_ms)

    async def delete(self, tenant: str, handle: Handle) -> bool:
        is_stored = self._alive(tenant, handle) is not None
        if handle in self._sessions.get(SessionKey(tenant, handle.session_id), {}):
            self._remove(tenant, handle)
        return is_stored

    async def delete_session(self, key: SessionKey, epoch: int) -> int:
        session = self._sessions.get(key, {})
        handles = [handle for handle, result in session.items() if result.stored.epoch < epoch]
        return sum([await self.delete(key.tenant, handle) for handle in handles])

    async def delete_tenant(self, tenant: str) -> int:
        results = (one for key, session in self._sessions.items() if key.tenant == tenant for one in session)
        batch = list(islice(results, _BATCH))
        for handle in batch:
            self._remove(tenant, handle)
        return len(batch)

    async def count_results(self, keys: Sequence[SessionKey]) -> list[int]:
        sessions = [self._sessions.get(key, {}).values() for key in keys]
        return [sum(not self._has_expired(result) for result in session) for session in sessions]

    async def sweep(self) -> int:
        everything = [(key, result) for key, session in self._sessions.items() for result in session.values()]
        expired = [(key, result.stored.handle) for key, result in everything if self._has_expired(result)]
        for key, handle in expired:
            self._remove(key.tenant, handle)
        return len(expired)

    async def stored_bytes(self) -> int:
        return self._quota.used

    async def usage(self) -> dict[str, int]:
        return self._quota.usage()

    async def check(self) -> None:
        self._quota.check()

    async def close(self) -> None:
        self._sessions.clear()


class _MemoryDraft:
    def __init__(self, store: MemoryStore, quota: Quota, tenant: str) -> None:
        self._store = store
        self._quota = quota
        self._tenant = tenant
        self._chunks: list[bytes] = []

    async def write(self, chunk: bytes) -> None:
        self._quota.take(self._tenant, len(chunk))
        self._chunks.append(chunk)

    async def read(self) -> AsyncIterator[bytes]:
        for chunk in list(self._chunks):
            for offset in range(0, len(chunk), CHUNK):
                yield chunk[offset : offset + CHUNK]

    async def publish(self, stored: StoredResult) -> Durability:
        self._store.keep(stored, b"".join(self._chunks))
        self._chunks = []
        return Durability.MEMORY

    def drop(self) -> None:
        self._quota.give(self._tenant, sum(map(len, self._chunks)))
        self._chunks = []
