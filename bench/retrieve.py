"""Retrieval by size: first and second question, memory, and /livez during both; ordinary and hostile text."""

import asyncio
import json
import random
import string
import time
from collections.abc import Iterator

import httpx
from tqdm import tqdm

from bench import corpus, load
from bench.servers import running

MB = 1_000_000
ROUNDS = 3
FIRST, SECOND = "Which request failed with a timeout, and on which host?", "error 404 for the user agent"


def ordinary(size: int) -> Iterator[tuple[str, str]]:
    """The largest recorded result of each kind, over and over."""
    largest = {
        record["kind"]: record["text"] for record in sorted(corpus.records(), key=lambda one: one["bytes"])
    }
    if not largest:
        yield "mixed", corpus.texts(size, 1)[0]
    for kind, text in largest.items():
        if kind in ("log", "json", "html", "csv", "shell"):
            yield kind, (text * (size // len(text) + 1))[:size]


def hostile(size: int) -> Iterator[tuple[str, str]]:
    rng = random.Random(1)
    yield "one line", "x" * size
    yield "one-character lines", "a\n" * (size // 2)
    yield "deep JSON", '{"a":' * (size // 5)
    yield "brackets", "[" * size
    yield "numbers", "[" + "1," * (size // 2)
    yield "backslashes", '{"a": "' + "\\" * size
    yield "headings", "# a\n" * (size // 4)
    yield "base64", "".join(rng.choices(string.ascii_letters + string.digits + "+/", k=size))
    yield "noise", "".join(rng.choices(string.printable, k=size))


def keep(client: httpx.Client, text: str) -> str:
    headers = {"Content-Type": "text/plain"}
    kept = client.post("/results?tool_name=bench", content=text.encode(), headers=headers)
    kept.raise_for_status()
    return str(kept.json()["handle"])


def seconds(client: httpx.Client, handle: str, extract: str) -> float:
    started = time.perf_counter()
    answer = client.post("/extract", json={"handle": handle, "extract": extract, "mode": "retrieve"})
    answer.raise_for_status()
    assert answer.json()["status"] == "complete", answer.json()["warnings"]
    return time.perf_counter() - started


def row(label: str, text: str, rounds: int) -> None:
    """In a fresh server each time: its peak, before and after, is the memory."""
    first, second, growth = [], [], []
    size = len(text.encode())
    for _ in range(rounds):
        with running("spillgate", pinned=False) as server:
            client = httpx.Client(base_url=server.url, timeout=120, trust_env=False)
            seconds(client, keep(client, "warm up " * 4000), FIRST)
            handle = keep(client, text)
            before = server.peak
            first.append(seconds(client, handle, FIRST))
            second.append(seconds(client, handle, SECOND))
            growth.append((server.peak - before) / size)
            client.close()
    ratio = min(first) / min(second)
    cells = f"{min(first) * 1000:,.0f} | {min(second) * 1000:,.0f} | {ratio:.1f} x | {max(growth):.1f} x"
    print(f"| {size / MB:.0f} MB of {label} | {cells} |", flush=True)


def main() -> None:
    print("| retrieve | first question ms | second ms | faster | growth of the peak |\n|---|---|---|---|---|")
    for size, rounds in ((MB, ROUNDS), (20 * MB, 1)):
        for label, text in tqdm(list(ordinary(size)), desc=f"{size // MB} MB"):
            row(label, text, rounds)
    for label, text in tqdm(list(hostile(20 * MB)), desc="hostile"):
        row(label, text, 1)
    with running("spillgate", pinned=False) as server:
        client = httpx.Client(base_url=server.url, timeout=120, trust_env=False)
        handles = [keep(client, text) for _, text in ordinary(8 * MB)][:4]
        asked = [{"handle": handle, "extract": FIRST, "mode": "retrieve"} for handle in handles]
        sent = [load.request("/extract", json.dumps(one).encode()) for one in asked]
        tally = asyncio.run(load.livez_during(server.port, sent))
        client.close()
    figures = " | ".join(f"{tally.percentile(at) * 1000:.1f}" for at in (50, 99, 100))
    print("\n| /livez while four 8 MB results are indexed | requests | p50 ms | p99 ms | max ms |")
    print(f"|---|---|---|---|---|\n| | {len(tally.seconds)} | {figures} |")


if __name__ == "__main__":
    main()
