"""Charges of the three ledgers by turns: rate, processor time of the caller and of the server, bytes."""

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

from domain.accounting import AccountingEntry, EntryDetails, EntryType
from domain.budget import Window
from domain.handles import SessionKey
from domain.outcomes import OutcomeKind
from domain.ports import Charge, Ledger
from storage import open_ledger
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

TENANTS, SESSIONS = 8, 64
CALLERS = (1, 16)
WINDOW = Window(200_000, 8_000, 16_000)
_numbers = itertools.count()


@dataclass
class Contestant:
    """`processes` belong to its server. `size` returns the bytes that it holds."""

    name: str
    ledger: Ledger
    processes: Callable[[], Sequence[psutil.Process]]
    size: Callable[[], int]
    rates: dict[int, list[float]] = field(default_factory=dict)
    own: dict[int, list[float]] = field(default_factory=dict)
    server: dict[int, list[float]] = field(default_factory=dict)


def charge(now: int) -> Charge:
    number = next(_numbers)
    key = SessionKey(f"team-{number % TENANTS}", f"run-{number // 50 % SESSIONS}")
    entry = AccountingEntry(
        id=f"entry-0123456789abcdef-{number:08x}",
        type=EntryType.TOOL,
        timestamp=now,
        tenant=key.tenant,
        session_id=key.session_id,
        tool_name=f"tool_{number % 12}",
        latency=1.5,
        charactersIn=2000,
        charactersOut=2000,
        tokens_out=512,
        outcome=OutcomeKind.PASS,
        provider="anthropic",
        tool_call_id=f"toolu_{number:024x}",
        turn=number % 50,
        client="claude-code",
        key="ci",
        details=EntryDetails(bytes=2000, lines=40, tokens=512),
    )
    return Charge(key, 0, 512, entry, WINDOW, False, entry.tool_call_id, f"{number:032x}")


async def run(contestant: Contestant, callers: int, seconds: float) -> None:
    done, ends = 0, time.monotonic() + seconds

    async def call() -> None:
        nonlocal done
        while time.monotonic() < ends:
            await contestant.ledger.settle(charge(time.time_ns() // 1_000_000))
            done += 1

    before, own, began = _processor(contestant), time.process_time(), time.monotonic()
    await asyncio.gather(*[call() for _ in range(callers)])
    took = time.monotonic() - began
    contestant.rates.setdefault(callers, []).append(done / took)
    contestant.own.setdefault(callers, []).append((time.process_time() - own) / done * 1e6)
    contestant.server.setdefault(callers, []).append((_processor(contestant) - before) / done * 1e6)


def _processor(contestant: Contestant) -> float:
    spent = 0.0
    for process in contestant.processes():
        times = process.cpu_times()
        spent += times.user + times.system
    return spent


@asynccontextmanager
async def contestants(folder: str) -> AsyncIterator[list[Contestant]]:
    options = {
        "clock": lambda: time.time_ns() // 1_000_000,
        "session_retention_seconds": 86_400.0,
        "entry_retention_seconds": 30 * 86_400.0,
    }
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(RedisServer(Path(folder) / "redis", aof="always"))
        # On the same disk: in memory nothing waits for it.
        postgres = stack.enter_context(PostgresServer(under=folder))
        made = []
        for name, url, processes, size in (
            ("SQLite", f"sqlite://{folder}/ledger.db", list, lambda: os.path.getsize(f"{folder}/ledger.db")),
            ("Redis", redis.url, lambda: [psutil.Process(redis.pid)], lambda: _memory(redis)),
            ("PostgreSQL", postgres.url, lambda: _family(postgres.pid), lambda: _on_disk(postgres)),
        ):
            ledger = await open_ledger(url, **options)
            stack.push_async_callback(ledger.close)
            made.append(Contestant(name, ledger, processes, size))
        yield made


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children()]


def _memory(redis: RedisServer) -> int:
    info = redis.ask("INFO", "memory").decode()
    return int(info.partition("used_memory:")[2].split("\r\n")[0])


def _on_disk(postgres: PostgresServer) -> int:
    return int(postgres.sql("SELECT pg_database_size('ledger')"))


async def measure(folder: str, rounds: int, seconds: float) -> None:
    async with contestants(folder) as all_of_them:
        for one in all_of_them:
            for callers in CALLERS:
                await run(one, callers, 0.5)
            one.rates.clear(), one.own.clear(), one.server.clear()
        begun = [one.size() for one in all_of_them]
        for _ in range(rounds):
            for callers in CALLERS:
                for one in all_of_them:
                    await run(one, callers, seconds)
        print("| ledger | callers | charges a second | processor µs a charge: caller | server | bytes |")
        print("|---|---|---|---|---|---|")
        for one, size in zip(all_of_them, begun, strict=True):
            count = sum(sum(rates) * seconds for rates in one.rates.values())
            for callers in CALLERS:
                rate, own, server = (
                    statistics.median(figures[callers]) for figures in (one.rates, one.own, one.server)
                )
                grown = (one.size() - size) / count
                print(f"| {one.name} | {callers} | {rate:.0f} | {own:.0f} | {server:.0f} | {grown:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--folder", help="on the disk that is measured")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="bench-ledgers-", dir=options.folder) as folder:
        os.chmod(folder, 0o755)
        uvloop.run(measure(folder, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
