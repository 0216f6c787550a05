"""Times the operations of a port."""

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any


class Timed:
    """A port whose `operations`, which are coroutine functions, are timed; all else is the port's own."""

    def __init__(
        self, port: object, operations: tuple[str, ...], timer: Callable[[str], Callable[[float], None]]
    ) -> None:
        """`timer` returns what takes the seconds of the operation of that name."""
        self._port = port
        for name in operations:
            setattr(self, name, _timed(getattr(port, name), timer(name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def _timed(
    operation: Callable[..., Awaitable[Any]], took: Callable[[float], None]
) -> Callable[..., Awaitable[Any]]:
    async def timed(*arguments: Any) -> Any:
        began = perf_counter()
        try:
            return await operation(*arguments)
        finally:
            took(perf_counter() - began)

    return timed
