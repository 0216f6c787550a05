"""Where work on the bytes of a result runs: on the event loop, or in a thread."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LONG_BYTES = 256 << 10
"""Work on less runs on the event loop. It takes 0.1 to 8 ms, and a thread costs 0.1 ms: a tenth of a stored
result of 100 KB (bench/README.md)."""


async def in_thread_if_long(
    size: int, work: Callable[[*Ts], T], *args: *Ts, limiter: CapacityLimiter | None = None
) -> T:
    """Returns `work(*args)`. `size` is what it works on: bytes, or characters."""
    if size <= LONG_BYTES:
        return work(*args)
    return await run_sync(work, *args, limiter=limiter)
