"""A body on its way to Redis: what fits one segment waits in memory, and is sent as it is published."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Self

from domain.errors import StoreUnavailable
from domain.ports import Clock
from domain.results import Durability, StoredResult
from storage.redis_client import command
from storage.redis_keys import draft_key, result_keys
from storage.redis_segments import SEGMENT, pack, unpack
from storage.redis_shelf import Leftover, Shelf, Source


class Tasks:
    """Jobs that are not abandoned half-way: a cancelled caller stops waiting, they run to their end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(job())
        self._running.add(task)
        task.add_done_callback(self._ended)
        # Not shielded: a shield's own future would keep an error that nobody waits for any more.
        await asyncio.wait([task])
        task.result()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Returns when every job has ended."""
        await asyncio.gather(*self._running, return_exceptions=True)


class RedisDraft:
    """Its jobs run one after another. Segments that were sent expire `keep_ms` after the last write."""

    def __init__(self, shelf: Shelf, clock: Clock, tasks: Tasks, keep_ms: int) -> None:
        self._shelf = shelf
        self._client = shelf.client
        self._clock = clock
        self._tasks = tasks
        self._keep_ms = keep_ms
        self._id = secrets.token_hex(16)
        self._key = draft_key(self._id)
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._uncounted = 0
        self._sent = 0
        self._renew_at = 0.0
        self._left_keys = [self._key]
        self._turn = asyncio.Lock()
        self._is_in_redis = False
        self._is_done = False
        self._to_settle: str | None = None
        self._durability = Durability.MEMORY

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._turn.locked() or self._is_in_redis:
            await self._run(self._leave)
        else:
            self._drop()

    async def write(self, chunk: bytes) -> None:
        if self._is_done:
            raise _lost()
        await self._shelf.count.take(len(chunk))
        self._uncounted += len(chunk)
        self._waiting.append(memoryview(chunk))
        self._waiting_bytes += len(chunk)
        while self._waiting_bytes > SEGMENT:
            await self._run(self._send)
        if self._sent and asyncio.get_running_loop().time() > self._renew_at:
            await self._run(self._renew)

    async def read(self) -> AsyncIterator[bytes]:
        for number in range(self._sent):
            segment = await self._client.run(command("HGET", self._key, number))
            if segment is None:
                raise _lost()
            yield await unpack(segment, SEGMENT)
        for piece in list(self._waiting):
            for start in range(0, len(piece), SEGMENT):
                yield bytes(piece[start : start + SEGMENT])

    async def publish(self, stored: StoredResult) -> Durability:
        await self._run(partial(self._publish, stored))
        return self._durability

    async def _run(self, job: Callable[[], Awaitable[None]]) -> None:
        async def in_turn() -> None:
            async with self._turn:
                await job()

        await self._tasks.run(in_turn)

    def _cut(self) -> list[memoryview]:
        """The next segment of what waits."""
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

    async def _send(self) -> None:
        if self._is_done:
            raise _lost()
        segment = await pack(self._cut())
        await self._keep(self._sent + 1, segment)
        self._sent += 1
        self._uncounted -= SEGMENT

    async def _renew(self) -> None:
        await self._keep(self._sent)

    async def _keep(self, sent: int, segment: bytes | None = None) -> None:
        self._is_in_redis = True
        steps = [] if segment is None else [command("HSET", self._key, sent - 1, segment)]
        due_at = self._clock() + self._keep_ms
        *_, total = await self._client.pipeline(
            *steps,
            command("PEXPIRE", self._key, self._keep_ms),
            self._shelf.count.counting(self._id, sent * SEGMENT, due_at),
        )
        self._shelf.count.learn(total, 0 if segment is None else SEGMENT)
        self._renew_at = asyncio.get_running_loop().time() + self._keep_ms / 4000

    async def _publish(self, stored: StoredResult) -> None:
        if self._is_done:
            raise _lost()
        keys = result_keys(stored.tenant, stored.handle)
        size = self._sent * SEGMENT + self._waiting_bytes
        last = await pack(self._cut()) if self._waiting_bytes else None
        key = await self._brought(f"{keys.result}:{self._id}") if self._client.is_cluster else self._key
        source = Source(self._id, key, self._sent, last, size, self._uncounted)
        self._is_in_redis, self._to_settle = True, keys.count_name
        self._durability = await self._shelf.place(keys, stored, source)
        self._is_in_redis, self._to_settle = self._sent > 0 and self._client.is_cluster, None
        self._is_done, self._uncounted = True, 0

    async def _brought(self, key: str) -> str:
        """In a cluster a draft does not know its slot before its session: its segments are copied there."""
        self._left_keys.append(key)
        for number in range(self._sent):
            segment = await self._client.run(command("HGET", self._key, number))
            if segment is None:
                raise _lost()
            await self._client.pipeline(
                command("HSET", key, number, segment), command("PEXPIRE", key, self._keep_ms)
            )
        return key

    async def _leave(self) -> None:
        """Leaves nothing in Redis of what was not published."""
        self._drop()
        if self._is_in_redis:
            left = Leftover(tuple(self._left_keys), self._id, self._to_settle)
            await self._shelf.clear(left, self._clock())

    def _drop(self) -> None:
        """What waits here. A job that has not begun yet will find itself too late."""
        self._is_done = True
        self._shelf.count.give(self._uncounted)
        self._uncounted = self._waiting_bytes = 0
        self._waiting.clear()


def _lost() -> StoreUnavailable:
    return StoreUnavailable(
        "This draft is closed or has expired; nothing of it is kept. Send the result again."
    )
