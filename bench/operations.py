"""What an operator plans with: bytes in the ledgers, /metrics of 1,000 tenants, costs of keys, quotas, audit.

`bench.spans` measures tracing, `bench.sealing` encryption.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm

from bench import corpus, load
from bench.redis import now, redis_server
from bench.servers import LOAD_CORE, Server, pin, running
from domain.accounting import DAY_MS, HISTORY_DAYS, AccountingEntry, EntryDetails, EntryType
from domain.budget import Window
from domain.decisions import OutcomeKind, Trigger
from domain.handles import SessionKey
from domain.ports import Charge, Ledger
from domain.structs import replace
from storage import open_ledger
from storage.redis.connection import open_redis
from storage.redis.history import RedisHistory
from storage.sqlite.database import open_database
from storage.sqlite.sums import Added, SumGroups, add, collect

ENTRIES = 20_000
SESSIONS = 100
AT_ONCE = 50
TENANTS = 1_000
SCRAPES = 31
RESULTS = 2_000
BYTES = 2_000
WINDOW = Window(1 << 40, 0, 0)
API_KEY = "bench-key"

Size = Callable[[], Awaitable[int]]


def charge_of(number: int, *, is_named: bool) -> Charge:
    """The charge of a result of 2 KB that passes. The call id has the length that model providers use."""
    key = SessionKey("team-a", f"session-{number % SESSIONS:04}")
    call_id = f"call_{hashlib.sha256(str(number).encode()).hexdigest()[:24]}" if is_named else None
    entry = AccountingEntry(
        id=f"entry-{'0123456789abcdef'}-{number:08x}",
        type=EntryType.TOOL,
        timestamp=now(),
        tenant=key.tenant,
        session_id=key.session_id,
        tool_name="execute_shell",
        latency=812.5,
        command="execute_shell",
        charactersIn=64,
        charactersOut=BYTES,
        tokens_in=731,
        tokens_out=731,
        outcome=OutcomeKind.PASS,
        tool_call_id=call_id,
        turn=7,
        details=EntryDetails(bytes=BYTES, lines=40, tokens=731),
    )
    fingerprint = hashlib.sha256(b"%d" % number).hexdigest() if is_named else ""
    return Charge(key, 0, 731, entry, WINDOW, True, call_id, fingerprint)


def unnamed(number: int) -> Charge:
    return charge_of(number, is_named=False)


def named_call(number: int) -> Charge:
    return charge_of(number, is_named=True)


def stored_call(number: int) -> Charge:
    """A result that was stored, with a text of the usual length in its place."""
    charge = named_call(number)
    details = replace(
        charge.entry.details,
        tool_output_handle=f"session-{charge.key.session_id}/file-{number:08x}-2f34-8d5a-9c1b-6f0d3f7a2e11",
        tool_output_reason="size_cap",
        truncated=True,
    )
    stored = {"trigger": Trigger.SIZE_CAP, "outcome": OutcomeKind.STORE, "tokens_saved": 20_000}
    return replace(charge, entry=replace(charge.entry, details=details, **stored), text="x" * 350)


async def grown(url: str, size: Size, make: Callable[[int], Charge]) -> float:
    """Bytes of one more entry: those of the first entries, with their sessions and sums, are not counted. Nor
    are connections: they are closed while the size is taken."""

    async def write(first: int, count: int) -> int:
        ledger = await opened(url)
        for start in range(first, first + count, AT_ONCE):
            await asyncio.gather(*[ledger.settle(make(number)) for number in range(start, start + AT_ONCE)])
        await ledger.close()
        return await size()

    before = await write(0, 1_000)
    return (await write(1_000, ENTRIES) - before) / ENTRIES


async def opened(url: str) -> Ledger:
    times = {"session_retention_seconds": 86_400.0, "entry_retention_seconds": 30 * 86_400.0}
    return await open_ledger(url, clock=now, **times)


async def in_sqlite(make: Callable[[int], Charge]) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-ledger-") as folder:
        path = Path(folder, "ledger.db")

        async def size() -> int:
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return path.stat().st_size

        return await grown(f"sqlite://{path}", size, make)


async def in_redis(url: str, make: Callable[[int], Charge]) -> float:
    client = open_redis(url)
    await client.command("FLUSHALL", "SYNC")

    async def size() -> int:
        # The replies to changes, `once:`, expire after a minute: they are no part of what is kept.
        cursor, keys = b"0", list[bytes]()
        while True:
            cursor, found = await client.command("SCAN", cursor, "MATCH", "*:once:*", "COUNT", 10_000)
            keys += found
            if cursor in (b"0", 0):
                break
        for start in range(0, len(keys), 1_000):
            await client.command("UNLINK", *keys[start : start + 1_000])
        await asyncio.sleep(1)
        return int((await client.command("INFO", "memory"))["used_memory"])

    found = await grown(url, size, make)
    await client.close()
    return found


def ledger_rows() -> Iterator[str]:
    measures: dict[str, Callable[[Callable[[int], Charge]], Awaitable[float]]] = {"SQLite": in_sqlite}
    with ExitStack() as stack:
        if shutil.which("redis-server"):
            measures["Redis"] = partial(in_redis, stack.enter_context(redis_server()))
        for name, measure in measures.items():
            plain, named, stored = [
                asyncio.run(_awaited(measure, make)) for make in (unnamed, named_call, stored_call)
            ]
            yield f"| {name} | {plain:,.0f} | {named - plain:,.0f} | {stored - named:,.0f} |"


TENANTS = {"1 key, 1 door, 10 tools": (1, 1, 10), "5, 2, 15": (5, 2, 15), "20, 3, 30": (20, 3, 30)}


def day_of(keys: int, doors: int, tools: int) -> list[AccountingEntry]:
    """A day of a tenant. Few tools return most; one in twenty is stored, one in ten is a model call."""
    dice, made = random.Random(1), list[AccountingEntry]()
    for number in range(ENTRIES):
        share, one = dice.random(), charge_of(number, is_named=False).entry
        changes: dict[str, Any] = {
            "tool_name": f"a_tool_{int(dice.paretovariate(1)) % tools}",
            "key": f"key-{dice.randrange(keys)}",
            "client": f"client-{dice.randrange(doors)}",
            "latency": dice.random() * 900,
            "tokens_in": dice.randrange(9_000),
            "tokens_saved": dice.randrange(500),
        }
        if share < 0.05:
            changes |= {"trigger": Trigger.SIZE_CAP, "outcome": OutcomeKind.STORE}
        elif share > 0.9:
            changes |= {"type": EntryType.LLM, "outcome": None, "model": "a-model", "cost_usd": dice.random()}
        made.append(replace(one, **changes))
    return made


async def sums_in_redis(entries: list[AccountingEntry], url: str) -> tuple[int, int]:
    """Bytes of the sums of a day: while its entries are kept, and packed."""
    client, ledger = open_redis(url), await opened(url)
    assert isinstance(ledger, RedisHistory)
    await client.command("FLUSHALL", "SYNC")
    for start in range(0, len(entries), AT_ONCE):
        await asyncio.gather(*map(ledger.append, entries[start : start + AT_ONCE]))
    keys = await client.command("KEYS", "*:day:*")
    kept = sum([await client.command("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys])
    await ledger._pack_days("team-a", sorted({one.timestamp // DAY_MS for one in entries}))
    (key,) = await client.command("KEYS", "*:earlier")
    packed = await client.command("MEMORY", "USAGE", key)
    await ledger.close()
    await client.close()
    return kept, packed


def sums_in_sqlite(entries: list[AccountingEntry]) -> tuple[int, float]:
    """Groups of a day, and bytes of its sums."""
    added: Added = {}
    for entry in entries:
        collect(added, replace(entry, timestamp=entry.timestamp // DAY_MS * DAY_MS))
    with tempfile.TemporaryDirectory(prefix="bench-sums-") as folder:
        path, days = Path(folder, "ledger.db"), 20
        writer = open_database(path).writer
        groups = SumGroups()
        for day in range(days):
            earlier = {(name, hour - 24 * day, group): one for (name, hour, group), one in added.items()}
            add(writer, groups, earlier, 1)
        writer.execute("DELETE FROM period_sums WHERE length < ?", (DAY_MS,))
        writer.execute("VACUUM")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return len(added), path.stat().st_size / days


def sums_rows() -> Iterator[str]:
    with redis_server() as url:
        for name, kind in TENANTS.items():
            entries = day_of(*kind)
            groups, in_sqlite = sums_in_sqlite(entries)
            kept, packed = asyncio.run(sums_in_redis(entries, url))
            year = HISTORY_DAYS / 1e6
            yield (
                f"| {name} | {groups} | {kept / 1e3:,.0f} | {packed / 1e3:,.1f} | {packed * year:,.1f} "
                f"| {in_sqlite / 1e3:,.0f} | {in_sqlite * year:,.0f} |"
            )


async def _awaited(
    measure: Callable[[Callable[[int], Charge]], Awaitable[float]], make: Callable[[int], Charge]
) -> float:
    return await measure(make)


def key_line(tenant: str, key: str, role: str = "agent") -> str:
    return f"{tenant}:{hashlib.sha256(key.encode()).hexdigest()}:{role}:{tenant}"


@contextmanager
def key_file(*lines: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-keys-") as folder:
        path = Path(folder, "keys")
        path.write_text("".join(f"{line}\n" for line in lines))
        path.chmod(0o600)
        yield path


def with_headers(request: bytes, **headers: str) -> bytes:
    given = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    first, _, rest = request.partition(b"\r\n")
    return first + b"\r\n" + given.encode() + rest


def scrape_row(label: str, **settings: str) -> str:
    """Each tenant has one session with one result. Between two scrapes the others are served."""
    lines = [key_line(f"team-{number:04}", f"key-{number}") for number in range(TENANTS)]
    with key_file(key_line("ops", API_KEY, "metrics"), *lines) as path, ExitStack() as stack:
        server = stack.enter_context(running("spillgate", SPILLGATE_API_KEYS_FILE=str(path), **settings))
        pin(os.getpid(), LOAD_CORE)
        sent = json.dumps({"tool_name": "bench", "content": "x", "session_id": "s"}).encode()
        for start in range(0, TENANTS, 50):
            posts = [
                with_headers(load.request("/results", sent), Authorization=f"Bearer key-{number}")
                for number in range(start, start + 50)
            ]
            statuses = asyncio.run(_each(server, posts))
            assert statuses == {200: 50}, statuses
        scrape = with_headers(load.request("/metrics", method="GET"), Authorization=f"Bearer {API_KEY}")
        milliseconds, processor = [], []
        for _ in range(SCRAPES):
            before = server.cpu_seconds
            tally = asyncio.run(load.run(server.port, [scrape], 0.5, clients=1))
            assert set(tally.statuses) == {200}, tally.statuses
            milliseconds += tally.seconds
            processor.append((server.cpu_seconds - before) / len(tally.seconds))
        median, cpu = statistics.median(milliseconds) * 1000, statistics.median(processor) * 1000
        return f"| {label} | {TENANTS:,} | {median:.1f} | {cpu:.1f} |"


async def _each(server: Server, requests: list[bytes]) -> dict[int, int]:
    """Sends each request once."""
    statuses: dict[int, int] = {}
    for one in requests:
        for status, count in (await load.run(server.port, [one], 0, clients=1)).statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return statuses


QUOTAS = {
    "SPILLGATE_TENANT_REQUESTS_PER_SECOND": "1000000",
    "SPILLGATE_TENANT_STORAGE_MAX_BYTES": "1000000000000",
}
AUDIT = {"SPILLGATE_AUDIT": "audit.ndjson"}
"""Below the folder of the keys."""
WAYS = {"no keys": {}, "keys": {}, "keys, audit": AUDIT, "keys, roles, quotas, request ids": QUOTAS}
READS = {"keys": {}, "keys, audit": AUDIT}


def request_rows(rounds: int, seconds: float, bar: "tqdm[None]") -> Iterator[str]:
    """The processor time of the server for each request of 2 KB."""
    plain = [
        load.request("/results", json.dumps({"tool_name": "bench", "content": text}).encode())
        for text in corpus.texts(BYTES, RESULTS)
    ]
    keyed = [_with_key(one) for one in plain]
    named = [with_headers(one, X_Request_ID=f"bench-{number:08}") for number, one in enumerate(keyed)]
    sent = dict(zip(WAYS, (plain, keyed, keyed, named), strict=True))
    found = _by_turns(WAYS, lambda name, server: sent[name], rounds, seconds, bar)
    for name, times in found.items():
        shares = [_more(times, found[other]) for other in ("no keys", "keys")]
        yield f"| {name} | {statistics.median(times) * 1e6:,.0f} | {' | '.join(shares)} |"


def read_rows(rounds: int, seconds: float, bar: "tqdm[None]") -> Iterator[str]:
    """The same for each reading of 20 lines of a stored result."""
    content = "".join(f"line {number} of a stored result\n" for number in range(4_000))

    def sent(name: str, server: Server) -> list[bytes]:
        url, headers = f"{server.url}/results", {"Authorization": f"Bearer {API_KEY}"}
        stored = httpx.post(url, json={"tool_name": "bench", "content": content}, headers=headers)
        path = f"/results/{stored.json()['handle']}/lines?limit=20"
        return [_with_key(load.request(path, method="GET"))]

    found = _by_turns(READS, sent, rounds, seconds, bar)
    for name, times in found.items():
        yield f"| {name} | {statistics.median(times) * 1e6:,.0f} | {_more(times, found['keys'])} |"


def _with_key(request: bytes) -> bytes:
    return with_headers(request, Authorization=f"Bearer {API_KEY}")


def _by_turns(
    ways: dict[str, dict[str, str]],
    requests: Callable[[str, Server], list[bytes]],
    rounds: int,
    seconds: float,
    bar: "tqdm[None]",
) -> dict[str, list[float]]:
    """Seconds for each request, of servers that take turns, in short rounds, so that a slow minute of the
    machine slows all of them."""
    with key_file(key_line("team-a", API_KEY)) as path, ExitStack() as stack:
        servers = {}
        for name, settings in ways.items():
            keys = {} if name == "no keys" else {"SPILLGATE_API_KEYS_FILE": str(path)}
            if settings is AUDIT:
                settings = {key: str(path.with_name(file)) for key, file in AUDIT.items()}
            servers[name] = stack.enter_context(running("spillgate", **settings, **keys))
        pin(os.getpid(), LOAD_CORE)
        sent = {name: requests(name, server) for name, server in servers.items()}
        found: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(rounds + 1):
            for name, server in servers.items():
                before = server.cpu_seconds
                tally = asyncio.run(load.run(server.port, sent[name], seconds))
                assert set(tally.statuses) == {200}, tally.statuses
                # The first round warms up.
                found[name] += [(server.cpu_seconds - before) / len(tally.seconds)] if number else []
                bar.update()
    return found


def _more(times: list[float], others: list[float]) -> str:
    """The median of the rounds' ratios, and their quartiles."""
    low, median, high = statistics.quantiles([one / other for one, other in zip(times, others, strict=True)])
    return f"{median - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.2)
    options, _ = parser.parse_known_args()
    print("| ledger | bytes of an entry | more for a call id | more if it is stored |\n|---|---|---|---|")
    for row in ledger_rows():
        print(row, flush=True)
    if shutil.which("redis-server"):
        print("\n| tenant | groups | Redis KB | packed | MB in 13 months | SQLite KB | MB in 13 months |")
        print("|---|---|---|---|---|---|---|")
        for row in sums_rows():
            print(row, flush=True)
    print("\n| GET /metrics, ledger in | tenants | p50 ms | processor ms |\n|---|---|---|---|")
    print(scrape_row("SQLite"), flush=True)
    if shutil.which("redis-server"):
        with redis_server() as url:
            print(scrape_row("Redis", SPILLGATE_STORAGE_URL=url), flush=True)
    with tqdm(total=(options.rounds + 1) * (len(WAYS) + len(READS)), unit="run", desc="requests") as bar:
        rows = list(request_rows(options.rounds, options.seconds, bar))
        reads = list(read_rows(options.rounds, options.seconds, bar))
    print(
        "\n| 2 KB, passes | processor µs | more than without keys | more than with keys |\n|---|---|---|---|"
    )
    print("\n".join(rows))
    print("\n| 20 lines of a stored result | processor µs | more than with keys |\n|---|---|---|")
    print("\n".join(reads))


if __name__ == "__main__":
    main()
