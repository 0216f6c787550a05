"""Results a second, as ratios: Spillgate, the twin and the bare server in turn, same load, same run."""

import argparse
import asyncio
import json
import os
import statistics
from contextlib import ExitStack

from tqdm import tqdm

from bench import corpus, load
from bench.servers import LOAD_CORE, Server, pin, running

NAMES = ("spillgate", "twin", "bare")
SIZES = {"2 KB, passes": 2_000, "100 KB, stored": 100_000, "1 MB, stored": 1_000_000}


def requests(size: int) -> list[bytes]:
    return [
        load.request("/results", json.dumps({"tool_name": "bench", "content": text}).encode())
        for text in corpus.texts(size, min(2000, 16_000_000 // size))
    ]


def measure(servers: list[Server], size: int, rounds: int, seconds: float, bar: "tqdm[None]") -> list[str]:
    """A row: median rates, then Spillgate against the twin and the bare server, round by round."""
    sent = requests(size)
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            tally = asyncio.run(load.run(server.port, sent, seconds))
            wrong = {status for status in tally.statuses if status not in (200, 201)}
            assert not wrong, f"{server.name} answered {tally.statuses}"
            rates[server.name].append(tally.rate)
            bar.update()
    ours = rates["spillgate"]
    ratios = [
        statistics.median(a / b for a, b in zip(ours, rates[other], strict=True))
        for other in ("twin", "bare")
    ]
    medians = [f"{statistics.median(rates[name]):,.0f}" for name in NAMES]
    return [*medians, f"{ratios[0]:.2f} x", f"{ratios[1]:.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with ExitStack() as stack:
        servers = [stack.enter_context(running(name)) for name in NAMES]
        pin(os.getpid(), LOAD_CORE)
        steps = (options.rounds + 1) * len(NAMES) * len(SIZES)
        with tqdm(total=steps, unit="run", desc="speed") as bar:
            rows = []
            for label, size in SIZES.items():
                measure(servers, size, 1, 1.0, bar)
                rows.append([label, *measure(servers, size, options.rounds, options.seconds, bar)])
    print("\n| result | spillgate /s | twin /s | bare /s | against twin | share of bare |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
