"""Does counting block the loop? /livez while results are measured; hostile text against ordinary."""

import argparse
import asyncio
import base64
import json
import random
import statistics
import string
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tqdm import tqdm

from bench import corpus, hostile, load
from bench.servers import ROOT, Server, running

MEGABYTE = 1_000_000


ROUNDS = 7


def hostile_texts() -> dict[str, list[str]]:
    """A text for each round, so that none is met twice."""
    rng = random.Random(1)
    rounds = range(ROUNDS)
    return {
        "ordinary": corpus.texts(MEGABYTE, ROUNDS),
        "one letter": [letter * MEGABYTE for letter in "abcdefg"],
        "spaces": [" " * (MEGABYTE + n) for n in rounds],
        "newlines": ["\n" * (MEGABYTE + n) for n in rounds],
        "base64": [base64.b64encode(rng.randbytes(750_000)).decode() for _ in rounds],
        "random letters": ["".join(rng.choices(string.ascii_letters, k=MEGABYTE)) for _ in rounds],
    }


def _body(text: str, **policy: int) -> bytes:
    fields = {"tool_name": "bench", "content": text}
    return json.dumps({**fields, "policy": policy} if policy else fields).encode()


def _send(port: int, label: str, ready: Barrier) -> None:
    """Eight clients send one body each. In a process of its own: it is busy with that."""
    body = hostile.body(label)
    ready.wait()
    asyncio.run(load.run(port, [load.request("/results", body)], 0, clients=8))


def _hostile_row(label: str, tree: Path) -> list[float]:
    """p50, p99 and maximum of /livez in ms, and the peak of the server in MB."""
    processes = get_context("spawn")
    with running("spillgate", pinned=False, tree=tree) as server:
        asyncio.run(load.run(server.port, [load.request("/results", hostile.SMALL)], 0, clients=1))
        ready = processes.Barrier(2)
        sender = processes.Process(target=_send, args=(server.port, label, ready))
        sender.start()
        ready.wait()
        tally = load.Tally()
        while sender.is_alive():
            once = asyncio.run(load.run(server.port, [load.request("/livez", method="GET")], 0, clients=1))
            tally.seconds += once.seconds
            time.sleep(0.005)
        return [*(tally.percentile(at) * 1000 for at in (50, 99, 100)), server.peak / MEGABYTE]


def hostile_bodies(tree: Path) -> None:
    print("\n| /livez while eight clients send 8 MB of | p50 ms | p99 ms | max ms | peak MB |")
    print("|---|---|---|---|---|")
    for label in hostile.LABELS:
        cells = " | ".join(f"{one:.0f}" for one in _hostile_row(label, tree))
        print(f"| `{label}` | {cells} |", flush=True)


CAPS = {
    "stored by size": {},
    "by a cap of one token": {"max_bytes": 0, "max_tokens": 1},
    "passes, counted exactly": {"max_bytes": 0},
}


async def _seconds(server: Server, texts: list[str], caps: dict[str, int]) -> float:
    taken = []
    for text in texts:
        sent = load.request("/results", _body(text, **caps))
        started = time.perf_counter()
        tally = await load.run(server.port, [sent], 0, clients=1)
        assert set(tally.statuses) == {201 if caps.get("max_tokens") or not caps else 200}
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the directory of another version")
    parser.add_argument("--only-hostile", action="store_true", help="leave out the ordinary and hostile text")
    options = parser.parse_args()
    if not options.only_hostile:
        text_rows(options.tree)
    hostile_bodies(options.tree)


def text_rows(tree: Path) -> None:
    print("| /livez while eight 8 MB results are measured | requests | p50 ms | p99 ms | max ms |")
    print("|---|---|---|---|---|")
    text = corpus.texts(8 * MEGABYTE, 1)[0]
    with running("spillgate", pinned=False, tree=tree) as server:
        for label, caps in (("estimated (stored by size)", {}), ("counted exactly", {"max_bytes": 0})):
            sent = load.request("/results", _body(text, **caps))
            tally = asyncio.run(load.livez_during(server.port, [sent] * 8))
            figures = [tally.percentile(at) * 1000 for at in (50, 99, 100)]
            print(f"| {label} | {len(tally.seconds)} | " + " | ".join(f"{ms:.1f}" for ms in figures) + " |")
        rows = {}
        for name, texts in tqdm(hostile_texts().items(), desc="hostile text"):
            rows[name] = [asyncio.run(_seconds(server, texts, caps)) for caps in CAPS.values()]
    print("\n| 1 MB of " + "".join(f"| {label}, ms | x ordinary " for label in CAPS) + "|")
    print("|---" * (1 + 2 * len(CAPS)) + "|")
    ordinary = rows["ordinary"]
    for name, taken in rows.items():
        cells = [f"{t * 1000:.1f} | {t / o:.2f}" for t, o in zip(taken, ordinary, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
