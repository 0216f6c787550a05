"""Redis: storing against a bare SET of the same bytes, memory against raw bytes, passing against SQLite."""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import uvloop
from tqdm import tqdm

from app.http.edge.server import tune_memory
from bench import corpus, load
from bench.servers import LOAD_CORE, free_port, pin, running
from domain.handles import Handle
from domain.results import Measure, StoredResult
from storage.base import bounded
from storage.redis.connection import RedisConnection, open_redis
from storage.redis.draft import pack
from storage.redis.store import RedisStore

SIZE = 100_000
TEXTS = 500
RECORDS = 10_000
CLIENTS = (1, 16)
PASSING = 2_000
CAP = 12_288
MB = 1_000_000

# As in docker-compose.yml, without rewrites of the append-only file during a run.
AOF = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--save", "")

Act = Callable[[int], Awaitable[None]]


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Runs a redis-server on a free loopback port, yields its URL, then stops it and removes its data."""
    folder = tempfile.mkdtemp(prefix="bench-redis-")
    port = free_port()
    place = ("--bind", "127.0.0.1", "--port", str(port), "--dir", folder)
    process = subprocess.Popen(["redis-server", *place, *AOF], stdout=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as asking:
            asking.sendall(b"PING\r\n")
            if asking.recv(64).startswith(b"+PONG"):
                return
        time.sleep(0.02)
    raise RuntimeError("redis-server did not start")


def now() -> int:
    return time.time_ns() // 1_000_000


def open_store(client: RedisConnection) -> RedisStore:
    return RedisStore(client, clock=now, retention_seconds=86_400, max_bytes=1 << 40)


def new_handle() -> Handle:
    return Handle("bench", str(uuid.uuid4()))


def known_of(body: bytes) -> StoredResult:
    measure = Measure(len(body), body.count(b"\n") + 1, len(body), len(body) // 4, False)
    return StoredResult(
        tenant="default",
        handle=new_handle(),
        tool_name="execute_shell",
        tool_arguments='{"command": "journalctl --since today"}',
        tool_kind=None,
        provider="bench",
        is_error=False,
        measure=measure,
        sha256=hashlib.sha256(body).hexdigest(),
        stored_at=now(),
        expires_at=0,
        epoch=0,
    )


async def put(store: RedisStore, stored: StoredResult, body: bytes) -> None:
    async with store.draft(stored.tenant) as draft:
        await draft.write(body)
        await draft.publish(stored)


async def rate(act: Act, clients: int, seconds: float) -> float:
    """Returns the operations per second. Each client runs its operations one after another."""
    done, started = 0, time.perf_counter()

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < started + seconds:
            done += 1
            await act(done)

    await asyncio.gather(*(work() for _ in range(clients)))
    return done / (time.perf_counter() - started)


@dataclass(frozen=True)
class Texts:
    """Different texts, each packed as the store packs it. `known` holds RECORDS records, made before the run
    because making them is not the store's work. The body of record n is `bodies[n % TEXTS]`."""

    bodies: list[bytes]
    packed: list[bytes]
    known: list[StoredResult]

    @property
    def share(self) -> float:
        return sum(map(len, self.packed)) / sum(map(len, self.bodies))


async def ordinary_texts() -> Texts:
    bodies = [text.encode() for text in corpus.texts(SIZE, TEXTS)]
    packed = [await pack([memoryview(body)]) for body in bodies]
    known = [known_of(body) for body in bodies]
    records = [replace(known[number % TEXTS], handle=new_handle()) for number in range(RECORDS)]
    return Texts(bodies, packed, records)


async def storing(url: str, clients: int, rounds: int, seconds: float, bar: "tqdm[None]") -> str:
    """Returns a row: medians, and the shares of each round."""
    client = open_redis(url)
    store = open_store(client)
    texts = await ordinary_texts()

    async def bare(number: int) -> None:
        await client.command("SET", f"bench:{uuid.uuid4()}", texts.packed[number % TEXTS])

    async def packing(number: int) -> None:
        body = await pack([memoryview(texts.bodies[number % TEXTS])])
        await client.command("SET", f"bench:{uuid.uuid4()}", body)

    async def stored(number: int) -> None:
        await put(store, texts.known[number % RECORDS], texts.bodies[number % TEXTS])

    rates: dict[Act, list[float]] = {bare: [], packing: [], stored: []}
    for number in range(rounds + 1):
        for act, found in rates.items():
            await client.command("FLUSHALL", "SYNC")
            one = await rate(act, clients, seconds)
            # The first round is not counted.
            found += [one] if number else []
            bar.update()
    await store.close()
    medians = " | ".join(f"{statistics.median(found):,.0f}" for found in rates.values())
    shares = " | ".join(share_of(rates[stored], rates[other]) for other in (bare, packing))
    return f"| {clients} | {texts.share:.0%} | {medians} | {shares} |"


def share_of(rates: list[float], others: list[float]) -> str:
    """Returns the median, the lowest and the highest of the rounds."""
    shares = [one / other for one, other in zip(rates, others, strict=True)]
    return f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"


async def used_memory(client: RedisConnection) -> int:
    info = await client.command("INFO", "memory")
    return int(info["used_memory"])


async def holding(url: str, label: str, bodies: Sequence[bytes]) -> str:
    """Returns a row: the growth of Redis's memory, its own overhead included."""
    client = open_redis(url)
    store = open_store(client)
    await client.command("FLUSHALL", "SYNC")
    await put(store, known_of(b"warm"), b"warm")
    before = await used_memory(client)
    for body in bodies:
        await put(store, known_of(body), body)
    grown, raw = await used_memory(client) - before, sum(map(len, bodies))
    await store.close()
    return f"| {label} | {len(bodies)} | {raw / MB:.2f} | {grown / MB:.2f} | {grown / raw:.1%} |"


def passing(url: str, rounds: int, seconds: float, bar: "tqdm[None]") -> str:
    """Returns a row: two services take turns, one with its ledger in Redis, one in SQLite."""
    sent = [
        load.request("/results", json.dumps({"tool_name": "bench", "content": text}).encode())
        for text in corpus.texts(PASSING, 2_000)
    ]
    rates: dict[str, list[float]] = {"redis": [], "sqlite": []}
    with running("spillgate", SPILLGATE_STORAGE_URL=url) as redis, running("spillgate") as sqlite:
        pin(os.getpid(), LOAD_CORE)
        for number in range(rounds + 1):
            for server, found in zip((redis, sqlite), rates.values(), strict=True):
                tally = asyncio.run(load.run(server.port, sent, seconds))
                assert set(tally.statuses) == {200}, tally.statuses
                found += [tally.rate] if number else []
                bar.update()
    medians = " | ".join(f"{statistics.median(found):,.0f}" for found in rates.values())
    return f"| {medians} | {share_of(rates['redis'], rates['sqlite'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    if shutil.which("redis-server") is None:
        sys.exit("redis-server is not installed: apt-get install redis-server, or brew install redis.")
    # Another measurement may have pinned this process to a core.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    tune_memory()
    # Flushing is slow.
    bounded.REQUEST_SECONDS = 60.0
    bodies = [record["text"].encode() for record in corpus.records()]
    large = [body for body in bodies if len(body) > CAP]
    with redis_server() as url, tqdm(total=8 * (options.rounds + 1), unit="run", desc="redis") as bar:
        stored = [
            uvloop.run(storing(url, clients, options.rounds, options.seconds, bar)) for clients in CLIENTS
        ]
        kept = [("all", bodies), ("past the size cap", large)] if bodies else []
        held = [uvloop.run(holding(url, label, found)) for label, found in kept]
        passed = passing(url, options.rounds, max(1.0, options.seconds), bar)
    print(
        "\n| clients | packed to | bare SET /s | packed and SET /s | stored /s | of SET | of packed and SET |"
    )
    print("|---|---|---|---|---|---|---|")
    print("\n".join(stored))
    print("\n| recorded results | number | raw MB | in Redis MB | share |\n|---|---|---|---|---|")
    print("\n".join(held) or "| none: set RECORDED_RESULTS | | | | |")
    print("\n| 2 KB passes, ledger in Redis /s | in SQLite /s | share |\n|---|---|---|")
    print(passed)


if __name__ == "__main__":
    main()
