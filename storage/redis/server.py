"""One server of Redis over redis-py: its connections, bounds in time, and whether it is away."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from domain.errors import StorageError, StoreBusy, StoreUnavailable
from storage.redis.facts import DRIVER_ERRORS, is_unreachable, translated

T = TypeVar("T")
Arg = str | bytes | int

REQUEST_SECONDS = 0.8
"""Where the URL has no `timeout`: the bound of an operation, and of all slow answers that one request waits
for. A caller gets a 503 within a second, however many operations its request takes."""

BUSY_SECONDS = 0.3
"""How much of that an operation waits for a free connection."""

AWAY_SECONDS = 1.0
"""How long nothing is sent to a server that did not answer; then one caller tries it."""

_QUICK = 0.25
"""The share of the bound in which an answer is not slow."""

_LEAST = 0.5
"""The share that must be left, or nothing is sent any more."""

_FRESH_SECONDS = 5.0

_slow: ContextVar[tuple[float, float]] = ContextVar("redis_slow", default=(0.0, float("-inf")))
"""The seconds that the running request has waited for slow answers, and when it got the last of them."""


class Server:
    """All methods raise StoreUnavailable or StorageError."""

    def __init__(
        self,
        client: Redis,
        max_connections: int,
        named: str,
        host: str = "",
        port: int = 0,
        seconds: float | None = None,
    ) -> None:
        """`named` is its address in the log. `seconds`: the bound of an operation."""
        self.client = client
        self.named = named
        self.host, self.port = host, port
        self.running = self.waiting = 0
        self._gate = asyncio.Semaphore(max_connections)
        self._seconds = seconds
        self._is_away = False
        self._why_away = StorageError()
        self._try_at = 0.0

    async def send(
        self, commands: Sequence[Sequence[Arg]], *, is_asking: bool = False, more: float = 0.0
    ) -> list[Any]:
        """Sends the commands on one connection, in one round trip, within the bound of an operation plus
        `more` seconds. Returns the replies; an error is returned as a reply. `is_asking`: they
        are for a slot that moves to this server."""
        if len(commands) == 1 and not is_asking:
            return await self._within(lambda: self._one(commands[0]), more)
        asking = [("ASKING",)] if is_asking else []
        replies = await self._within(lambda: self._piped([*asking, *commands]), more)
        return replies[len(asking) :]

    @property
    def servers(self) -> list["Server"]:
        return [self]

    @property
    def is_away(self) -> bool:
        """Whether it did not answer when it was last asked."""
        return self._is_away

    async def primaries(self) -> list["Server"]:
        return [self]

    async def probe_values(self) -> list[str]:
        return [secrets.token_hex(8)]

    async def close(self) -> None:
        await self.client.aclose()

    async def _one(self, command: Sequence[Arg]) -> list[Any]:
        try:
            return [await self.client.execute_command(*command)]  # type: ignore[no-untyped-call]
        except ResponseError as error:
            return [error]

    async def _piped(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        pipe: Any = self.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return list(await pipe.execute(raise_on_error=False))

    async def _within(self, act: Callable[[], Awaitable[T]], more: float) -> T:
        begun = time.monotonic()
        bound = self._seconds or REQUEST_SECONDS
        waited, at = _slow.get()
        left = bound - (waited if begun <= at + _FRESH_SECONDS else 0.0)
        if self._is_away:
            if begun < self._try_at or left < bound * _LEAST:
                raise StoreUnavailable(self._why_away.detail, cause=self._why_away.cause)
            # Other callers are refused until this try has succeeded or failed.
            self._try_at = begun + AWAY_SECONDS
        if left < bound * _LEAST:
            raise StoreUnavailable("Redis answers too slowly. Try again in a moment.", cause=self.named)
        ends = begun + left + more
        await self._wait_for_connection()
        self.running += 1
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                try:
                    done = await act()
                except RuntimeError:
                    # uvloop raises it for a connection that Redis has closed. redis-py does not retry it.
                    done = await act()
        except DRIVER_ERRORS as error:
            failure = translated(error, self.named)
            if is_unreachable(error):
                self._is_away, self._try_at = True, time.monotonic() + AWAY_SECONDS
                self._why_away = failure
            raise failure from error
        finally:
            self.running -= 1
            self._gate.release()
            if (took := time.monotonic() - begun) > bound * _QUICK:
                _slow.set((bound - left + took, time.monotonic()))
        self._is_away = False
        return done

    async def _wait_for_connection(self) -> None:
        """Takes one of the connections. redis-py has a pool that waits for one, but it cannot tell how many
        callers wait."""
        if not self._gate.locked():
            await self._gate.acquire()
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._gate.acquire()
        except TimeoutError:
            raise StoreBusy("Every connection to Redis is busy. Try again.", cause=self.named) from None
        finally:
            self.waiting -= 1
