"""Whether Redis is away: while it is, nothing asks it but one check, and the local spool does its work."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from domain.errors import StorageError, StoreBusy, StoreFull, StoreUnavailable
from storage.redis.connection import renew_patience

T = TypeVar("T")
PAUSE_SECONDS = 0.5
"""Before each check whether it is back."""


class Outage:
    """Begins with the first StoreUnavailable and ends with a check that succeeds. One for store and ledger:
    what one of them learns spares the other the wait. `changed` is called with the reason as an outage
    begins, and with None as it ends."""

    def __init__(self, changed: Callable[[str | None], None] = lambda why: None) -> None:
        self._changed = changed
        self._checks: list[Callable[[], Awaitable[None]]] = []
        self._debts: list[Callable[[], Awaitable[bool]]] = []
        self._watching: asyncio.Task[None] | None = None
        self.is_on = False
        self.why = ""
        """What Redis, or its absence, was said to be last."""

    def ends_after(self, check: Callable[[], Awaitable[None]]) -> None:
        """One more check that has to succeed. It raises StorageError."""
        self._checks.append(check)

    def ends_with(self, pay: Callable[[], Awaitable[bool]]) -> None:
        """What Redis is still owed when the checks have succeeded. `pay` answers False, at once, where it is
        nothing; it raises StorageError."""
        self._debts.append(pay)

    def begin(self, error: StoreUnavailable) -> None:
        """Raises the error where it is no reason: a flood must not divide the budgets of its sessions."""
        if not self.is_on:
            if isinstance(error, StoreBusy):
                raise error
            self.is_on, self.why = True, error.detail
            self._changed(error.detail)
            self._watching = asyncio.create_task(self._watch())

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
        while self.is_on:
            # First a pause: where the check succeeds and the work does not, it would begin anew at once.
            await asyncio.sleep(PAUSE_SECONDS)
            # What its first caller and the checks before have waited for must not put this one off.
            renew_patience()
            try:
                for check in self._checks:
                    # Full, it is there, and says so itself to whoever writes.
                    with suppress(StoreFull):
                        await check()
                # Again, until none of them has waited: meanwhile there may have come more.
                while any([await pay() for pay in self._debts]):
                    pass
                self.is_on = False
            except StorageError as error:
                self.why = error.detail
        self._changed(None)


def away() -> StoreUnavailable:
    """For what only Redis can know."""
    return StoreUnavailable(
        "Redis is away, and this is not in the local spool: it may be in Redis. Try again in a moment."
    )
