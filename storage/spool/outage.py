"""Whether Redis is away, who answers then, and the task that asks whether Redis is back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Never, TypeVar, TypeVarTuple

from domain.errors import StorageError, StoreBusy, StoreFull, StoreUnavailable
from storage.redis.connection import renew_patience

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PAUSE_SECONDS = 0.5
"""The pause before each check whether Redis is back."""


class Outage:
    """Begins with a StoreUnavailable from Redis, and ends when `watch` has taken every step of the return.
    Until then no other call is sent to Redis. `changed` gets the reason when it begins, and None when it
    ends."""

    def __init__(self, changed: Callable[[str | None], None] = lambda why: None) -> None:
        self._changed = changed
        self.due = asyncio.Event()
        """Set while steps of the return are to be taken."""
        self.steps: list[Callable[[], Awaitable[None]]] = []
        """The steps of the return, the replay of the journal last. Each raises StorageError if it failed."""
        self.why: str | None = None
        """The detail of the last StoreUnavailable; None: Redis is there."""

    async def first(
        self, shared: Callable[[*Ts], Awaitable[T]], local: Callable[[*Ts], Awaitable[T]], *args: *Ts
    ) -> T:
        """Calls `shared`, or `local` if Redis is away."""
        if self.why is None:
            try:
                return await shared(*args)
            except StoreBusy:
                # This process is busy, Redis is not away.
                raise
            except StoreUnavailable as error:
                self._set(error.detail)
                self.due.set()
        return await local(*args)

    async def watch(self) -> Never:
        while True:
            await self.due.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            renew_patience()
            self.due.clear()
            is_whole = False
            try:
                is_whole = await self._return()
                self._set(None)
            except StorageError as error:
                # In `first` alone it begins: here this process may be busy.
                self.why = self.why and error.detail
            finally:
                if not is_whole:
                    self.due.set()

    async def _return(self) -> bool:
        """Takes the steps. Returns False if one has to wait until Redis has room."""
        is_whole = True
        for step in self.steps:
            try:
                await step()
            except StoreFull:
                # A full Redis is not away: it refuses writes itself.
                is_whole = False
        return is_whole

    def _set(self, why: str | None) -> None:
        before, self.why = self.why, why
        if (before is None) is not (why is None):
            self._changed(why)


async def refuse(*args: object) -> Never:
    """The answer to questions that only Redis can answer."""
    raise StoreUnavailable("Redis is away, and only Redis knows this. Try again in a moment.")
