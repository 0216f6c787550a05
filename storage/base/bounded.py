"""Bounds the operations of one server: how many run at once, and how long each may take. Sends nothing to a
server that does not answer."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import ClassVar, TypeVar

from domain.errors import StorageError, StoreBusy, StoreUnavailable

T = TypeVar("T")

REQUEST_SECONDS = 0.8
"""The bound of an operation, if the URL has no `timeout`. It also bounds the time that one request waits for
slow answers in all: a caller gets a 503 within a second, however many operations its request takes."""

BUSY_SECONDS = 0.3
"""The part of that time in which an operation waits for a free connection."""

CONNECT_SECONDS = 0.5
"""The most seconds for opening a connection."""

AWAY_SECONDS = 1.0
"""The seconds for which nothing is sent to a server that did not answer. After them, one caller tries it."""

_QUICK = 0.25
"""The share of the bound in which an answer is not slow."""

_LEAST = 0.5
"""The share of the bound that must be left; with less, no further operation is sent."""

_FRESH_SECONDS = 5.0

_slow: ContextVar[tuple[float, float]] = ContextVar("server_slow", default=(0.0, float("-inf")))
"""How many seconds the running request has waited for slow answers, and when the last of them came."""


class BoundedServer(ABC):
    software: ClassVar[str]
    """Its name in errors."""
    driver_errors: ClassVar[tuple[type[BaseException], ...]]

    def __init__(
        self, max_connections: int, named: str, seconds: float | None = None, *, may_take_long: bool = False
    ) -> None:
        """`named` is the server's address in the log. `seconds`: the bound of an operation. `may_take_long`:
        the time of its operations does not count as waiting for slow answers."""
        self.named = named
        self.running = self.waiting = 0
        self._gate = asyncio.Semaphore(max_connections)
        self._seconds = seconds
        self._may_take_long = may_take_long
        self._is_away = False
        self._why_away = StorageError()
        self._try_at = 0.0

    @abstractmethod
    def _translated(self, error: BaseException) -> StorageError: ...

    @abstractmethod
    def _is_unreachable(self, error: BaseException) -> bool:
        """Returns whether no server answered, so that the next operation would wait in vain, too."""

    @property
    def is_away(self) -> bool:
        """Whether the server did not answer the last operation."""
        return self._is_away

    async def within(self, act: Callable[[], Awaitable[T]], more: float = 0.0) -> T:
        """Runs `act` within the bound of an operation plus `more` seconds. Raises StorageError."""
        begun = time.monotonic()
        bound = self._seconds or REQUEST_SECONDS
        waited, at = _slow.get()
        is_counted = not self._may_take_long and begun <= at + _FRESH_SECONDS
        left = bound - (waited if is_counted else 0.0)
        if self._is_away:
            if begun < self._try_at or left < bound * _LEAST:
                raise StoreUnavailable(self._why_away.detail, cause=self._why_away.cause)
            # Other callers are refused until this try has succeeded or failed.
            self._try_at = begun + AWAY_SECONDS
        if left < bound * _LEAST:
            raise StoreUnavailable(
                f"{self.software} answers too slowly. Try again in a moment.", cause=self.named
            )
        ends = begun + left + more
        await self._wait_for_connection()
        self.running += 1
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                done = await act()
        except self.driver_errors as error:
            failure = self._translated(error)
            if self._is_unreachable(error):
                self._is_away, self._try_at = True, time.monotonic() + AWAY_SECONDS
                self._why_away = failure
            raise failure from error
        finally:
            self.running -= 1
            self._gate.release()
            took = time.monotonic() - begun
            if took > bound * _QUICK and not self._may_take_long:
                _slow.set((bound - left + took, time.monotonic()))
        self._is_away = False
        return done

    async def _wait_for_connection(self) -> None:
        """Takes one of the connections. Not left to the driver's pool, which does not report how many callers
        wait."""
        if not self._gate.locked():
            await self._gate.acquire()
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._gate.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"Every connection to {self.software} is busy. Try again.", cause=self.named
            ) from None
        finally:
            self.waiting -= 1
