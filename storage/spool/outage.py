"""Whether Redis is away: while it is, only the checks of one task ask it, and the spool serves."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Never, TypeVar

from domain.errors import StorageError, StoreBusy, StoreFull, StoreUnavailable

T = TypeVar("T")
Task = Callable[[], Coroutine[Any, Any, None]]
Supervise = Callable[[str, Task], Coroutine[Any, Any, None]]
PAUSE_SECONDS = 0.5
"""Before each check whether Redis is back."""


class Outage:
    """Begins with a StoreUnavailable from Redis. Ends when every check has succeeded and the journal is
    replayed. `changed` is called with the reason as it begins, with None as it ends; `forget` before each
    check. `supervise` runs the task that checks, under a name."""

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
        """What the last StoreUnavailable said."""

    def ends_after(self, check: Callable[[], Awaitable[None]]) -> None:
        """`check` raises StorageError while Redis is away."""
        self._checks.append(check)

    def ends_with(self, replay: Callable[[], Awaitable[None]]) -> None:
        """`replay` returns when the journal is empty. Raises StorageError."""
        self._replay = replay

    def begin(self, error: StoreUnavailable) -> None:
        """Raises `error` where it only says that this process is busy."""
        if isinstance(error, StoreBusy):
            raise error
        if not self.is_on:
            self.is_on, self.why = True, error.detail
            self._changed(error.detail)
        self.watch()

    def watch(self) -> None:
        """Checks until Redis is there and has all of the journal."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._supervise("spool", self._watch))

    async def first(self, primary: Callable[[], Awaitable[T]], spool: Callable[[], Awaitable[T]]) -> T:
        """What Redis answers, or, while it is away, the spool."""
        if not self.is_on:
            try:
                return await primary()
            except StoreUnavailable as error:
                self.begin(error)
        return await spool()

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
                    # A full Redis is there, and says so itself to those that write.
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


async def refuse() -> Never:
    """For what only Redis knows."""
    raise away()


def away() -> StoreUnavailable:
    return StoreUnavailable("Redis is away, and only Redis knows this. Try again in a moment.")
