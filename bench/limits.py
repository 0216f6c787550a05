"""Spillgate beside the least that it has to do, the twin, and another version of itself, by turns.

    git worktree add /tmp/before <commit>; python -m bench.limits --before /tmp/before

`--disk DIRECTORY` keeps the results there: a file system of its own, for one with a journal.
"""

import argparse
import asyncio
import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from bench import load
from bench.servers import LOAD_CORE, Server, pin, running
from bench.speed import SIZES, requests


class Round(NamedTuple):
    """`micros`: processor time of the server for each result, in microseconds."""

    rate: float
    micros: float
    p99: float
    p999: float


def one_round(server: Server, sent: list[bytes], seconds: float) -> Round:
    before = server.cpu_seconds
    tally = asyncio.run(load.run(server.port, sent, seconds))
    assert set(tally.statuses) <= {200, 201}, f"{server.name} answered {tally.statuses}"
    micros = (server.cpu_seconds - before) / len(tally.seconds) * 1e6
    return Round(tally.rate, micros, tally.percentile(99) * 1000, tally.percentile(99.9) * 1000)


def measured(
    servers: dict[str, Server], size: int, rounds: int, seconds: float, bar: "tqdm[None]"
) -> dict[str, list[Round]]:
    sent = requests(size)
    found: dict[str, list[Round]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            once = one_round(server, sent, seconds if number else min(seconds, 1.0))
            if number:  # the first one warms up
                found[name].append(once)
            bar.update()
    return found


def rows(label: str, found: dict[str, list[Round]]) -> Iterator[str]:
    """Medians; and the median of the ratios, round by round, of Spillgate to each other server."""
    ours = found["spillgate"]
    for name, theirs in found.items():
        medians = [statistics.median(column) for column in zip(*theirs, strict=True)]
        rate = statistics.median(a.rate / b.rate for a, b in zip(ours, theirs, strict=True))
        micros = statistics.median(a.micros / b.micros for a, b in zip(ours, theirs, strict=True))
        yield (
            f"| {label} | {name} | {medians[0]:,.0f} | {medians[2]:.1f} | {medians[3]:.1f} | "
            f"{medians[1]:,.0f} | {rate:.2f} | {micros:.2f} |"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="the directory of another version")
    parser.add_argument("--disk", type=Path, help="where results are kept")
    parser.add_argument("--sizes", nargs="+", choices=[label.partition(",")[0] for label in SIZES])
    parser.add_argument("--only", nargs="+", help="of spillgate, before, unavoidable, bare, twin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    sizes = {
        label: n
        for label, n in SIZES.items()
        if not options.sizes or label.partition(",")[0] in options.sizes
    }
    names = ["spillgate", *(["before"] if options.before else []), "unavoidable", "bare", "twin"]
    with ExitStack() as stack:
        servers = {}
        for name in names:
            if options.only and name not in options.only:
                continue
            kind, tree = ("spillgate", options.before) if name == "before" else (name, None)
            trees = {} if tree is None else {"tree": tree}
            servers[name] = stack.enter_context(running(kind, disk=options.disk, **trees))
        pin(os.getpid(), LOAD_CORE)
        steps = (options.rounds + 1) * len(servers) * len(sizes)
        with tqdm(total=steps, unit="run", desc="limits") as bar:
            found = {
                label: measured(servers, size, options.rounds, options.seconds, bar)
                for label, size in sizes.items()
            }
    print("\n| result | server | /s | p99 ms | p99.9 ms | CPU µs | rate to it | CPU to it |")
    print("|---|---|---|---|---|---|---|---|")
    for label, of_label in found.items():
        print("\n".join(rows(label, of_label)), flush=True)


if __name__ == "__main__":
    main()
