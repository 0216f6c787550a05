"""Combines the clocks of a store and a ledger that are on different servers."""

import asyncio

from domain.ports import ClockReading, SharedClock


class BothClocks:
    def __init__(self, first: SharedClock, second: SharedClock) -> None:
        self._both = first, second
        self.software = f"{first.software} or {second.software}"

    async def read(self) -> ClockReading:
        first, second = await asyncio.gather(*[one.read() for one in self._both])
        return ClockReading({**first.times, **second.times}, max(first.jump_ms, second.jump_ms, key=abs))

    async def note_jump(self, ms: int) -> None:
        await asyncio.gather(*[one.note_jump(ms) for one in self._both])

    async def confirm(self) -> None:
        await asyncio.gather(*[one.confirm() for one in self._both])
