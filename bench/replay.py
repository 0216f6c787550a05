"""Replays a folder of recorded results over HTTP and prints what became of them."""

import argparse
import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
from tqdm import tqdm

from bench import corpus
from bench.servers import Server, running


@dataclass
class Replay:
    outcomes: Counter[str] = field(default_factory=Counter)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)
    tokens_in: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    read_back: int = 0
    differing: int = 0


async def _one(client: httpx.AsyncClient, record: dict[str, Any], seen: Replay) -> None:
    sent = {
        "session_id": "replay",
        "tool_name": record["tool"],
        "tool_call_id": record["id"],
        "tool_arguments": record["args"],
        "content": record["text"],
    }
    started = time.perf_counter()
    answer = await client.post("/results", json=sent)
    seen.seconds.append(time.perf_counter() - started)
    answer.raise_for_status()
    told = answer.json()
    kind = told["outcome"]
    seen.outcomes[kind] += 1
    seen.bytes_in[kind] += told["measure"]["bytes"]
    seen.bytes_out[kind] += len(told["content"].encode())
    seen.tokens_in[kind] += told["measure"]["tokens"]
    if told["handle"]:
        body = await client.get(f"/results/{told['handle']}/content")
        seen.read_back += 1
        seen.differing += body.content != record["text"].encode()
    else:
        seen.differing += told["content"] != record["text"]


async def replay(base: str, records: list[dict[str, Any]], concurrency: int) -> tuple[Replay, float, Any]:
    """What was seen, wall seconds, and the service's own summary by outcome."""
    seen = Replay()
    waiting = iter(records)
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=60, trust_env=False) as client:
        with tqdm(total=len(records), unit="result", desc="replay") as bar:

            async def work() -> None:
                for record in waiting:
                    await _one(client, record, seen)
                    bar.update()

            started = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(concurrency)))
            wall = time.perf_counter() - started
        summary = await client.get("/accounting/summary", params={"group_by": "outcome", "type": "tool"})
    return seen, wall, summary.json()


def report(seen: Replay, wall: float, summary: Any, server: Server | None) -> None:
    print(
        "\n| outcome | results | bytes in | bytes out | tokens in | tokens out |\n|---|---|---|---|---|---|"
    )
    out = {row["group"]: row["tokens_out"] for row in summary["rows"]}
    for kind, count in seen.outcomes.most_common():
        figures = [count, seen.bytes_in[kind], seen.bytes_out[kind], seen.tokens_in[kind], out[kind]]
        print(f"| {kind} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")
    total = summary["total"]
    print(f"\n{total['tokens_saved']:,} of {total['tokens_in']:,} tokens saved.")
    print(f"{seen.read_back} stored results read back, {seen.differing} results not byte-identical.")
    seconds = sorted(seen.seconds)
    p50, p99 = (seconds[int(len(seconds) * share)] * 1000 for share in (0.5, 0.99))
    peak = f", peak memory {server.peak / 1e6:.0f} MB" if server else ""
    print(f"{len(seconds) / wall:,.0f} results a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms{peak}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--url", help="a running service; default: one is started for this")
    options = parser.parse_args()
    records = corpus.records()
    if not records:
        parser.exit(1, f"No tool_results.jsonl in {corpus.folder()}: set RECORDED_RESULTS to its folder.\n")
    if options.url:
        report(*asyncio.run(replay(options.url, records, options.concurrency)), None)
        return
    with running("spillgate", pinned=False) as server:
        base = server.url
        report(*asyncio.run(replay(base, records, options.concurrency)), server)


if __name__ == "__main__":
    main()
