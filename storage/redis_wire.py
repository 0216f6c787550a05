"""A conversation on one connection: some commands, then as many replies."""

from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

Arg = str | bytes | int
Command = tuple[Arg, ...]


async def converse(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    """All commands in one go, then all replies; a refusal stands in its command's place."""
    try:
        await connection.send_packed_command(_packed(commands), check_health=False)
    except RuntimeError as error:
        # What uvloop says of a transport that the other side has reset.
        raise RedisConnectionError("closed") from error
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def _packed(commands: Sequence[Command]) -> bytes:
    """As redis-py packs them, in a third of the time."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for arg in command:
            if isinstance(arg, str):
                arg = arg.encode()
            elif isinstance(arg, int):
                arg = b"%d" % arg
            parts += (b"$%d\r\n" % len(arg), arg, b"\r\n")
    return b"".join(parts)
