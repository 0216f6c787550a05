"""Wrong keys are answered slowly, by the address that they come from. Right keys never wait."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

FREE = 5
"""Wrong keys of an address that are answered at once."""
FIRST_SECONDS = 0.1
MOST_SECONDS = 2.0
FORGET_SECONDS = 60.0
"""After its last wrong key."""
MOST_ADDRESSES = 4096
MOST_WAITING = 256
"""Answers that wait at a time. More are sent at once: they must not hold all connections."""


class WrongKeys:
    def __init__(
        self,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._monotonic = monotonic
        self._counts = OrderedDict[str, tuple[int, float]]()
        self._waiting = 0

    async def delay(self, address: str) -> None:
        """Counts a wrong key, and waits: FIRST_SECONDS, doubled with each, at most MOST_SECONDS."""
        now = self._monotonic()
        count, last = self._counts.pop(address, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        self._counts[address] = count, now
        if len(self._counts) > MOST_ADDRESSES:
            self._counts.popitem(last=False)
        if count <= FREE or self._waiting >= MOST_WAITING:
            return
        self._waiting += 1
        try:
            await self._sleep(min(MOST_SECONDS, FIRST_SECONDS * 2.0 ** min(count - FREE - 1, 30)))
        finally:
            self._waiting -= 1
