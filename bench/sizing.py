"""What a result takes: processor time of the service and of Redis, and memory of Redis, by kind of result."""

import argparse
import asyncio
import base64
import itertools
import json
import os
import random
import time
from collections.abc import Iterator

import httpx
import psutil

from bench.corpus import _made, records
from bench.redis import redis_server
from bench.servers import ROOT, Server, running

COUNT = 300
SIZE = 40_000
SMALL = 2_000
ENTRY_BYTES, CALL_BYTES, TEXT_BYTES = 320, 595, 900
"""In Redis: bench.operations."""
PACKED = 0.5
"""Bytes of a body in Redis for each of its bytes, and processor time of a result: as `measure` found them."""
PASS_MS, STORE_MS = 1.0, 2.5
CLIENTS = 16
TEXT = {"Content-Type": "text/plain"}


def main() -> None:
    options = _options()
    if options.agents:
        print(worked(options))
    else:
        measure()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=0, help="works a size out instead of measuring")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two results of an agent")
    parser.add_argument("--hours", type=float, default=8.0, help="hours a day in which agents work")
    parser.add_argument("--stored", type=float, default=0.05, help="share of the results that are stored")
    parser.add_argument("--kb", type=float, default=40.0, help="KB of a stored result")
    parser.add_argument("--ledger-days", type=float, default=30.0)
    parser.add_argument("--retention-hours", type=float, default=24.0)
    return parser.parse_args()


def worked(of: argparse.Namespace) -> str:
    """The size by the formula of docs/operations.md. The peak is three times the mean rate."""
    results = of.agents * of.hours * 3600 / of.every
    days = of.retention_hours / 24
    entries = results * ENTRY_BYTES * of.ledger_days
    calls = results * (CALL_BYTES + of.stored * TEXT_BYTES) * days
    bodies = results * of.stored * of.kb * 1000 * PACKED * days
    data = (entries + calls + bodies) / 1e9
    peak = 3 * of.agents / of.every
    cores = peak * ((1 - of.stored) * PASS_MS + of.stored * STORE_MS) / 1000
    return (
        f"{results:,.0f} results a day, {peak:.0f} a second at the peak: {cores:.2f} cores in all\n"
        f"entries {entries / 1e9:.2f} GB, call ids {calls / 1e9:.2f} GB, bodies {bodies / 1e9:.2f} GB\n"
        f"data {data:.1f} GB, maxmemory {1.5 * data:.1f} GB, memory of the machine {3 * data:.1f} GB"
    )


def measure() -> None:
    print(
        f"{COUNT} results of each kind, a session for each 20, {CLIENTS} clients. Processor times are of all "
        "threads.\n"
    )
    print(
        "| kind | KB each | Redis MB for 1,000 | of the bytes | service ms | Redis ms | a second and core |"
    )
    print("|---|---|---|---|---|---|---|")
    with redis_server() as url, running("spillgate", pinned=False, SPILLGATE_STORAGE_URL=url) as server:
        redis = psutil.Process(_redis_pid(url))
        for kind, bodies in kinds().items():
            print(_row(kind, bodies, server, redis, url), flush=True)


def kinds() -> dict[str, list[bytes]]:
    """Texts of SIZE bytes, and of the recorded results those that are stored, as large as they are."""
    found = {
        "2 KB, passes": [_cut(text, SMALL) for text in _texts(_made(), SMALL)],
        "log": [_cut(text, SIZE) for text in _texts(_made(), SIZE)],
        "JSON": [_cut(text, SIZE) for text in _texts(_objects(), SIZE)],
        "source code": _windows("*.py"),
        "prose": _windows("*.md"),
        "base64, does not pack": [base64.b64encode(os.urandom(SIZE * 3 // 4)) for _ in range(COUNT)],
    }
    recorded = [one["text"].encode() for one in records() if len(one["text"].encode()) > 12_288]
    return found | ({"recorded, stored": recorded[:COUNT]} if recorded else {})


def _texts(lines: Iterator[str], size: int) -> Iterator[str]:
    for _ in range(COUNT):
        text = ""
        while len(text) < size:
            text += f"{next(lines)}\n"
        yield text


def _objects() -> Iterator[str]:
    source = random.Random(3)
    for number in itertools.count():
        yield json.dumps(
            {
                "id": number,
                "name": " ".join(source.choices(("Ada", "Grace", "Edsger", "Barbara", "Alan"), k=2)),
                "price": round(source.uniform(1, 900), 2),
                "tags": source.sample(("new", "sale", "eu", "us", "bulk", "fragile"), 2),
                "sku": f"{source.getrandbits(48):012x}",
                "is_active": source.random() < 0.9,
            }
        )


def _windows(pattern: str) -> list[bytes]:
    """Pieces of the files of this repository."""
    folders = ("app", "storage", "extraction", "content", "docs")
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob(pattern))
    data = b"\n".join(path.read_bytes() for path in paths)
    step = (len(data) - SIZE) // COUNT
    starts = range(0, step * COUNT, step)
    return [data[start : start + SIZE].decode(errors="ignore").encode() for start in starts]


def _cut(text: str, size: int) -> bytes:
    return text.encode()[:size]


def _row(kind: str, bodies: list[bytes], server: Server, redis: psutil.Process, url: str) -> str:
    _send(server, kind, bodies[:20], "before")
    memory, cpu, used = _used_memory(url), server.cpu_seconds, _cpu(redis)
    _send(server, kind, bodies, "measured")
    # What the ledger writes beside the answers.
    time.sleep(1)
    count, size = len(bodies), sum(map(len, bodies))
    memory, cpu, used = _used_memory(url) - memory, server.cpu_seconds - cpu, _cpu(redis) - used
    per = 1000 / count
    return (
        f"| {kind} | {size / count / 1000:.0f} | {memory * per / 1e6:.2f} | {memory / size:.2f} "
        f"| {cpu * per:.2f} | {used * per:.2f} | {count / cpu:.0f} |"
    )


def _send(server: Server, kind: str, bodies: list[bytes], run: str) -> None:
    prefix = f"{run}-{kind.split(',')[0].replace(' ', '-')}"
    asyncio.run(_sent(server.url, prefix, bodies))


async def _sent(url: str, prefix: str, bodies: list[bytes]) -> None:
    waiting = iter(enumerate(bodies))

    async def work() -> None:
        for number, body in waiting:
            fields = {
                "session_id": f"{prefix}-{number // 20}",
                "tool_call_id": f"call-{number}",
                "tool_name": "t",
            }
            sent = await client.post("/results", params=fields, content=body, headers=TEXT)
            sent.raise_for_status()

    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        await asyncio.gather(*(work() for _ in range(CLIENTS)))


def _redis_pid(url: str) -> int:
    return int(_info(url)["process_id"])


def _used_memory(url: str) -> int:
    return int(_info(url)["used_memory"])


def _info(url: str) -> dict[str, str]:
    from redis import Redis

    with Redis.from_url(url) as client:
        return {str(name): str(value) for name, value in client.info().items()}


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
