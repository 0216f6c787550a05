"""Small bodies that arrive while others are on their way to Redis go there together, in one round trip."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.errors import StorageError, StoreUnavailable
from storage.redis_client import RedisClient, Step, Written
from storage.redis_segments import INLINE, pack

UNDER_WAY = 4
ROOM = 1 << 19
"""Bytes of a batch, not packed. Few enough that Redis works on one while the next is packed."""

Making = Callable[[bytes], Step]
"""Of what is packed."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    pieces: Sequence[memoryview]
    size: int
    making: Making
    answer: asyncio.Future[Written]

    def succeed(self, written: Written) -> None:
        if not self.answer.done():
            self.answer.set_result(written)

    def fail(self, error: StorageError) -> None:
        if not self.answer.done():
            self.answer.set_exception(type(error)(error.detail))


class Batches:
    """Packs, and writes. For a server that is no cluster: keys of any tag may share a round trip there."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._waiting: list[_Waiting] = []
        self._under_way = 0
        self._running: set[asyncio.Task[None]] = set()

    async def write(self, pieces: Sequence[memoryview], making: Making) -> Written:
        """As the client's `write` of one step. A step is written even if its caller is cancelled."""
        size = sum(map(len, pieces))
        # Alone, too, what waits for the disk: who comes next would wait for two syncs.
        if size > INLINE or self._client.is_lingering:
            return await self._client.write(making(await pack(pieces)))
        answer: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(pieces, size, making, answer))
        if self._under_way < UNDER_WAY:
            # It begins after whatever else is ready now, and takes that along.
            self._under_way += 1
            task = asyncio.create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await answer

    async def _run(self) -> None:
        try:
            while batch := self._taken():
                await self._pass(batch)
        finally:
            self._under_way -= 1

    async def _pass(self, batch: Sequence[_Waiting]) -> None:
        try:
            await self._send(batch, [one.making(await pack(one.pieces)) for one in batch])
        finally:
            # None waits for ever, whatever it was.
            for one in batch:
                one.answer.cancel()

    def _taken(self) -> list[_Waiting]:
        """As many as there is room for."""
        count = room = 0
        while count < len(self._waiting) and room + self._waiting[count].size <= ROOM:
            room += self._waiting[count].size
            count += 1
        taken = self._waiting[:count]
        del self._waiting[:count]
        return taken

    async def _send(self, batch: Sequence[_Waiting], steps: Sequence[Step]) -> None:
        try:
            written = await self._client.write(*steps)
        except StoreUnavailable as error:
            # Those that wait would wait as long again.
            for one in (*batch, *self._waiting):
                one.fail(error)
            self._waiting.clear()
        except StorageError as error:
            if len(batch) == 1:
                batch[0].fail(error)
                return
            # The fault of one: each hears its own. What was written already is harmless to write twice.
            for one, step in zip(batch, steps, strict=True):
                await self._send([one], [step])
        else:
            for one, reply in zip(batch, written.replies, strict=True):
                one.succeed(Written([reply], written.durability))
