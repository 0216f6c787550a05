"""Encryption at rest: MB of bodies that one core seals and opens a second, and the cost of a small result."""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable

from bench.redis import now
from bench.servers import LOAD_CORE, pin
from domain.handles import Handle
from domain.ports import ResultStore
from domain.results import Measure, StoredResult
from storage import open_sealed_store, open_store
from storage.sealed.keys import StorageKey

MB = 1_000_000
ROUNDS = 5
SIZES = {"2 KB": (2_000, 2_000), "100 KB": (100_000, 500), "16 MB": (16 * MB, 8)}
"""Bytes of a body, and how many of them a round stores and reads."""

PIECE = 1 << 18


class _Ring:
    in_force = {"bench": StorageKey("bench", bytes(32))}  # noqa: RUF012
    warnings = ()


def _stored(number: int, body: bytes) -> StoredResult:
    handle = Handle("bench", f"00000000-0000-4000-8000-{number:012}")
    measure = Measure(len(body), 1, len(body), 0, True)
    sha256, stored_at = hashlib.sha256(b"bench").hexdigest(), now()
    return StoredResult(
        "default", handle, "bench", None, None, None, False, measure, sha256, stored_at, stored_at, 0
    )


async def _write(store: ResultStore, number: int, body: bytes) -> None:
    async with store.draft("default") as draft:
        for start in range(0, len(body), PIECE):
            await draft.write(body[start : start + PIECE])
        await draft.publish(_stored(number, body))


async def _read(store: ResultStore, number: int, body: bytes) -> None:
    size = sum([len(piece) async for piece in store.read(_stored(number, body))])
    assert size == len(body)


async def _cpu_seconds(
    act: Callable[[ResultStore, int, bytes], Awaitable[None]], store: ResultStore, body: bytes, count: int
) -> float:
    began = time.process_time()
    for number in range(count):
        await act(store, number, body)
    return time.process_time() - began


async def _measure(size: int, count: int) -> tuple[float, float, float, float]:
    """CPU seconds of a body: written and read sealed, written and read plain. The best of ROUNDS."""
    body, best = os.urandom(size), [float("inf")] * 4
    for _ in range(ROUNDS):
        plain, inner = [
            await open_store("memory:", clock=now, retention_seconds=600, max_bytes=0) for _ in range(2)
        ]
        sealed = await open_sealed_store(inner, _Ring(), now)
        taken = [
            await _cpu_seconds(act, store, body, count)
            for store in (sealed, plain)
            for act in (_write, _read)
        ]
        best = [min(pair) for pair in zip(best, taken, strict=True)]
        await plain.close()
        await inner.close()
    write, read, plain_write, plain_read = (seconds / count for seconds in best)
    return write, read, plain_write, plain_read


def main() -> None:
    pin(0, LOAD_CORE)
    print("| body | sealed MB/s | opened MB/s | more µs to store | more µs to read |\n|---|---|---|---|---|")
    for name, (size, count) in SIZES.items():
        write, read, plain_write, plain_read = asyncio.run(_measure(size, count))
        rates = (size / MB / (write - plain_write), size / MB / (read - plain_read))
        more = ((write - plain_write) * 1e6, (read - plain_read) * 1e6)
        print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {more[0]:,.0f} | {more[1]:,.0f} |")


if __name__ == "__main__":
    main()
