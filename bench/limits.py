"""Measures Spillgate in turn with a server that does the least, the twin, and another version of Spillgate.

    git worktree add /tmp/before <commit>; python -m bench.limits --before /tmp/before

Every server is started `--starts` times, because one start may be a tenth faster than the next. `--disk
DIRECTORY` is where results are stored, for example on a file system with a journal. `memory` is this version
with its ledger in memory. `redis` stores everything in a Redis with `appendfsync always`, on the core of the
load. `--real-time` (as root) runs the bench before all other programs, which p99.9 needs. Use it with
`--seconds` under 0.9, because Linux interrupts a real-time program after that.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from bench import corpus, load
from bench.redis import redis_server
from bench.servers import LOAD_CORE, Server, pin, running

SIZES = {"2 KB, passes": 2_000, "100 KB, stored": 100_000, "1 MB, stored": 1_000_000}
OTHERS = ("memory", "redis", "unavoidable", "bare", "twin")


class Round(NamedTuple):
    """`micros`: processor time of the server for each result, in microseconds."""

    rate: float
    micros: float
    p99: float
    p999: float


def requests(size: int) -> list[bytes]:
    return [
        load.request("/results", json.dumps({"tool_name": "bench", "content": text}).encode())
        for text in corpus.texts(size, min(2000, 16_000_000 // size))
    ]


def one_round(server: Server, sent: list[bytes], seconds: float) -> Round:
    before = server.cpu_seconds
    tally = asyncio.run(load.run(server.port, sent, seconds))
    assert set(tally.statuses) <= {200, 201}, f"{server.name} answered {tally.statuses}"
    rate = tally.rate
    micros = (server.cpu_seconds - before) / len(tally.seconds) * 1e6
    # The first answers wait for the other connections to be opened.
    del tally.seconds[: len(tally.seconds) // 20]
    return Round(rate, micros, tally.percentile(99) * 1000, tally.percentile(99.9) * 1000)


def measured(
    servers: dict[str, Server], size: int, rounds: int, seconds: float, bar: "tqdm[None]"
) -> dict[str, list[Round]]:
    sent = requests(size)
    found: dict[str, list[Round]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        # In turn forwards and backwards: a server pays for what the one before it left to be written.
        for name, server in sorted(servers.items(), reverse=number % 2 == 0):
            once = one_round(server, sent, seconds if number else min(seconds, 1.0))
            if number:  # the first one warms up
                found[name].append(once)
            bar.update()
            time.sleep(seconds / 2 if os.sched_getscheduler(0) else 0)
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


@contextmanager
def _over_redis() -> Iterator[Server]:
    with redis_server() as url, running("spillgate", SPILLGATE_STORAGE_URL=url) as server:
        yield server


def _started(name: str, disk: Path | None, before: Path) -> AbstractContextManager[Server]:
    if name == "redis":
        return _over_redis()
    if name == "before":
        return running("spillgate", disk=disk, tree=before)
    if name == "memory":
        return running("spillgate", disk=disk, SPILLGATE_LEDGER_URL="memory:")
    return running(name, disk=disk)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="the directory of another version")
    parser.add_argument("--disk", type=Path, help="where results are kept")
    parser.add_argument("--sizes", nargs="+", choices=[label.partition(",")[0] for label in SIZES])
    parser.add_argument("--only", nargs="+", help=f"of spillgate, before, {', '.join(OTHERS)}")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="with each start")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--real-time", action="store_true", help="before all other programs")
    options = parser.parse_args(arguments)
    sizes = {
        label: n
        for label, n in SIZES.items()
        if not options.sizes or label.partition(",")[0] in options.sizes
    }
    names = ["spillgate", *(["before"] if options.before else []), *OTHERS]
    if options.real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    names = [name for name in names if not options.only or name in options.only]
    found: dict[str, dict[str, list[Round]]] = {label: {name: [] for name in names} for label in sizes}
    steps = options.starts * (options.rounds + 1) * len(names) * len(sizes)
    with tqdm(total=steps, unit="run", desc="limits") as bar:
        for _ in range(options.starts):
            with ExitStack() as stack:
                servers = {
                    name: stack.enter_context(_started(name, options.disk, options.before)) for name in names
                }
                pin(os.getpid(), LOAD_CORE)
                for label, size in sizes.items():
                    for name, more in measured(servers, size, options.rounds, options.seconds, bar).items():
                        found[label][name] += more
    print("\n| result | server | /s | p99 ms | p99.9 ms | CPU µs | rate to it | CPU to it |")
    print("|---|---|---|---|---|---|---|---|")
    for label, of_label in found.items():
        print("\n".join(rows(label, of_label)), flush=True)


if __name__ == "__main__":
    main()
