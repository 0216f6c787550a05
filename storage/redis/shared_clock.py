"""The clocks of the Redis servers, which all replicas use, and the record of an unconfirmed jump."""

import asyncio

from domain.ports import ClockReading
from storage.redis.connection import RedisConnection
from storage.redis.keys import CLOCK_KEY


class RedisClock:
    software = "Redis"

    def __init__(self, connection: RedisConnection) -> None:
        self._redis = connection

    async def read(self) -> ClockReading:
        times, jump = await asyncio.gather(
            self._redis.times(), self._redis.command("HGET", CLOCK_KEY, "jump_ms")
        )
        return ClockReading(times, int(jump or 0))

    async def note_jump(self, ms: int) -> None:
        await self._redis.command("HSET", CLOCK_KEY, "jump_ms", ms)

    async def confirm(self) -> None:
        await self._redis.command("UNLINK", CLOCK_KEY)
