"""A body on its way to Redis, in segments of a fixed size, each a zstd frame with its size and checksum."""

import asyncio
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from content.threads import in_thread_if_long
from domain.errors import StoreFull, StoreUnavailable
from domain.results import Durability, StoredResult
from storage.base.damage import DamagedInfo
from storage.base.quota import SharedQuota
from storage.redis.connection import RedisConnection
from storage.redis.keys import body_key

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

T = TypeVar("T")
SEGMENT = 1 << 20
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}

_of_thread = threading.local()


class RedisPublisher(Protocol):
    """What a draft needs of its store."""

    connection: RedisConnection
    quota: SharedQuota
    jobs: set[asyncio.Task[Any]]
    draft_ms: int

    @property
    def body_ms(self) -> int: ...

    async def take(self, tenant: str, size: int) -> None: ...

    async def put_info(
        self, stored: StoredResult, size: int, body: str, segment: bytes
    ) -> tuple[str, int, Durability]: ...


class RedisDraft:
    """The last segment waits in memory until `publish`; earlier ones are in Redis under a key of the draft.
    Jobs run one after another. A cancelled caller does not stop a running job."""

    def __init__(self, store: RedisPublisher, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._body = ""
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._size = 0
        self._sent = 0
        self._published = 0
        self._renew_at = 0.0
        self._is_done = False
        self._is_in_redis = False
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_in_redis or self._lock.locked():
            await self._run(self._discard())
        else:
            self._end()

    async def write(self, chunk: bytes) -> None:
        if self._is_done:
            raise _lost()
        await self._store.take(self._tenant, len(chunk))
        self._size += len(chunk)
        self._waiting.append(memoryview(chunk))
        self._waiting_bytes += len(chunk)
        while self._waiting_bytes > SEGMENT:
            await self._run(self._send())
        if self._sent and time.monotonic() > self._renew_at:
            await self._run(self._renew())

    async def read(self) -> AsyncIterator[bytes]:
        for number in range(self._sent):
            segment = await self._store.connection.command("HGET", body_key(self._body), number)
            if segment is None:
                raise _lost()
            try:
                yield await unpack(segment, SEGMENT)
            except DamagedInfo:
                raise _lost() from None
        for piece in list(self._waiting):
            for start in range(0, len(piece), SEGMENT):
                yield bytes(piece[start : start + SEGMENT])

    async def publish(self, stored: StoredResult) -> Durability:
        if self._sent or self._lock.locked():
            return await self._run(self._publish(stored))
        # One command: if the caller is cancelled, the result may be published, as if its reply were lost.
        return await self._publish(stored)

    async def _run(self, job: Coroutine[Any, Any, T]) -> T:
        async def locked() -> T:
            async with self._lock:
                return await job

        task = asyncio.create_task(locked())
        self._store.jobs.add(task)
        task.add_done_callback(self._store.jobs.discard)
        return await asyncio.shield(task)

    def _cut(self) -> list[memoryview]:
        """Takes the next segment out of the waiting bytes."""
        pieces: list[memoryview] = []
        room = SEGMENT
        while room and self._waiting:
            piece = self._waiting.popleft()
            if len(piece) > room:
                self._waiting.appendleft(piece[room:])
                piece = piece[:room]
            pieces.append(piece)
            room -= len(piece)
        self._waiting_bytes -= SEGMENT - room
        return pieces

    async def _send(self, keep_ms: int | None = None) -> None:
        """Raises StoreUnavailable if an earlier segment has expired."""
        if self._is_done:
            raise _lost()
        self._body = self._body or secrets.token_hex(16)
        segment = await pack(self._cut())
        self._is_in_redis = True
        key, number = body_key(self._body), self._sent
        self._sent += 1
        adding = ("HSET", key, number, segment), ("PEXPIRE", key, keep_ms or self._store.draft_ms)
        if await self._store.connection.batch(*adding, ("HLEN", key)) != self._sent:
            raise _lost()
        self._plan_renewal()

    async def _renew(self) -> None:
        await self._store.connection.command("PEXPIRE", body_key(self._body), self._store.draft_ms)
        self._plan_renewal()

    def _plan_renewal(self) -> None:
        self._renew_at = time.monotonic() + self._store.draft_ms / 4000

    async def _publish(self, stored: StoredResult) -> Durability:
        if self._is_done:
            raise _lost()
        body, segment = "", b""
        if self._sent:
            body = self._body
            # If the process is killed after this step, the body expires.
            await self._send(self._store.body_ms)
        elif self._waiting_bytes:
            segment = await pack(self._cut())
        was_in_redis, self._is_in_redis = self._is_in_redis, False
        try:
            body_in_redis, self._published, durability = await self._store.put_info(
                stored, self._size, body, segment
            )
        except StoreFull:
            self._is_in_redis = was_in_redis
            raise
        # After any other failure the result may have been published: its body must stay.
        self._is_in_redis = was_in_redis and body_in_redis != body
        self._end()
        return durability

    async def _discard(self) -> None:
        self._end()
        if self._is_in_redis:
            # If Redis does not answer, the body expires.
            with suppress(StoreUnavailable):
                await self._store.connection.command("UNLINK", body_key(self._body))

    def _end(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._store.quota.end_draft(self._tenant, self._size, self._published)
            self._waiting.clear()


async def pack(pieces: list[memoryview]) -> bytes:
    """Packs pieces as one segment."""
    return await in_thread_if_long(sum(map(len, pieces)), _pack, pieces)


async def unpack(segment: bytes, size: int) -> bytes:
    """Raises DamagedInfo if the segment is damaged or does not have `size` bytes."""
    try:
        # A damaged frame may claim any size.
        if zstd.get_frame_info(segment).decompressed_size != size:
            raise DamagedInfo("a segment has another size")
        body = await in_thread_if_long(size, zstd.decompress, segment)
    except zstd.ZstdError:
        raise DamagedInfo("a segment cannot be unpacked") from None
    if len(body) != size:
        raise DamagedInfo("a segment has another size")
    return body


def _pack(pieces: list[memoryview]) -> bytes:
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    compressor = getattr(_of_thread, "compressor", None)
    if compressor is None:
        compressor = _of_thread.compressor = zstd.ZstdCompressor(options=_OPTIONS)
    packed: bytes = compressor.compress(body, mode=zstd.ZstdCompressor.FLUSH_FRAME)
    return packed


def _lost() -> StoreUnavailable:
    return StoreUnavailable("This draft is closed or has expired and was not stored. Send the result again.")
