"""While Redis is away: bodies on the local disk, entries in a journal that is replayed when Redis is back."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Never, TypeVar, TypeVarTuple

from domain.errors import StorageError, StoreBusy, StoreFull, StoreUnavailable

T = TypeVar("T")
Task = Callable[[], Coroutine[Any, Any, None]]
Supervise = Callable[[str, Task], Coroutine[Any, Any, None]]
Ts = TypeVarTuple("Ts")
PAUSE_SECONDS = 0.5
"""The pause before each check whether Redis is back."""


class Outage:
    """Begins with a StoreUnavailable from Redis. Ends when all checks have succeeded and the journal is
    replayed; until then one task runs the checks and no other sends anything to Redis. Calls `changed` with
    the reason when it begins and with None when it ends, and `forget` before each check.
    `supervise` runs the task that checks, under a name."""

    def __init__(
        self,
        changed: Callable[[str | None], None] = lambda why: None,
        forget: Callable[[], None] = lambda: None,
        supervise: Supervise = lambda name, task: task(),
    ) -> None:
        self._changed = changed
        self._forget = forget
        self._supervise = supervise
        self._checks: list[Callable[[], Awaitable[None]]] = []
        self._replay: Callable[[], Awaitable[None]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.is_on = False
        self.why = ""
        """The detail of the last StoreUnavailable."""

    def ends_after(self, check: Callable[[], Awaitable[None]]) -> None:
        """Adds a check; it raises StorageError while Redis is away."""
        self._checks.append(check)

    def ends_with(self, replay: Callable[[], Awaitable[None]]) -> None:
        """Sets what replays the journal; it raises StorageError."""
        self._replay = replay

    def begin(self, error: StoreUnavailable) -> None:
        """Raises `error` if it is a StoreBusy: this process is busy, Redis is not away."""
        if isinstance(error, StoreBusy):
            raise error
        if not self.is_on:
            self.is_on, self.why = True, error.detail
            self._changed(error.detail)
        self.watch()

    def watch(self) -> None:
        """Starts the checks, which end when Redis is back and has the whole journal."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._supervise("spool", self._watch))

    async def first(
        self, primary: Callable[[*Ts], Awaitable[T]], spool: Callable[[*Ts], Awaitable[T]], *args: *Ts
    ) -> T:
        """Calls `primary`, or `spool` if Redis is away."""
        if not self.is_on:
            try:
                return await primary(*args)
            except StoreUnavailable as error:
                self.begin(error)
        return await spool(*args)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        is_replayed = False
        while not is_replayed:
            await asyncio.sleep(PAUSE_SECONDS)
            self._forget()
            try:
                for check in self._checks:
                    # A full Redis is not away: it refuses writes itself.
                    with suppress(StoreFull):
                        await check()
                with suppress(StoreFull):
                    if self._replay is not None:
                        await self._replay()
                    is_replayed = True
            except StorageError as error:
                self.why = error.detail
                is_replayed = False
            else:
                if self.is_on:
                    self.is_on = False
                    self._changed(None)


async def refuse(*args: object) -> Never:
    """The answer to questions that only Redis can answer."""
    raise away()


def away() -> StoreUnavailable:
    return StoreUnavailable("Redis is away, and only Redis knows this. Try again in a moment.")
