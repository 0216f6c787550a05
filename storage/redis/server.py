"""One server of Redis over redis-py: its connections, bounds in time, and whether it is away."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from domain.errors import StorageError
from storage.base.bounded import BoundedServer
from storage.redis.facts import DRIVER_ERRORS, is_unreachable, translated

T = TypeVar("T")
Arg = str | bytes | int


class RedisNode(BoundedServer):
    """All methods raise StoreUnavailable or StorageError."""

    software = "Redis"
    driver_errors = DRIVER_ERRORS

    def __init__(
        self,
        client: Redis,
        max_connections: int,
        named: str,
        host: str = "",
        port: int = 0,
        seconds: float | None = None,
    ) -> None:
        """See BoundedServer."""
        super().__init__(max_connections, named, seconds)
        self.client = client
        self.host, self.port = host, port

    async def send(
        self, commands: Sequence[Sequence[Arg]], *, is_asking: bool = False, more: float = 0.0
    ) -> list[Any]:
        """Sends the commands on one connection, in one round trip, within the bound of an operation plus
        `more` seconds. Returns the replies; an error is returned as a reply. `is_asking`: they
        are for a slot that moves to this server."""
        if len(commands) == 1 and not is_asking:
            return await self.within(_again_if_closed(lambda: self._one(commands[0])), more)
        asking = [("ASKING",)] if is_asking else []
        replies = await self.within(_again_if_closed(lambda: self._piped([*asking, *commands])), more)
        return replies[len(asking) :]

    @property
    def servers(self) -> list["RedisNode"]:
        return [self]

    async def primaries(self) -> list["RedisNode"]:
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

    def _translated(self, error: BaseException) -> StorageError:
        return translated(error, self.named)

    def _is_unreachable(self, error: BaseException) -> bool:
        return is_unreachable(error)


def _again_if_closed(act: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    async def acted() -> T:
        try:
            return await act()
        except RuntimeError:
            # uvloop raises it for a connection that Redis has closed. redis-py does not retry it.
            return await act()

    return acted
