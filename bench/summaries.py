"""Summaries of a million entries of 30 days in SQLite, of this version and of the one in `--before DIR`."""

import argparse
import asyncio
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.servers import ROOT
from domain.accounting import (
    DAY_MS,
    PERIOD_MS,
    AccountingEntry,
    EntryDetails,
    EntryFilter,
    EntryType,
    GroupBy,
)
from domain.outcomes import OutcomeKind, Trigger
from storage import open_ledger

COUNT, DAYS, AT_ONCE, TIMES = 1_000_000, 30, 500, 5
NOW = 1_790_000_000_000
TODAY = NOW // DAY_MS * DAY_MS
HOUR = NOW // PERIOD_MS[GroupBy.HOUR] * PERIOD_MS[GroupBy.HOUR]
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "30 days by day, type": ({"since": TODAY - DAYS * DAY_MS}, "day type"),
    "30 days by tool, type": ({"since": TODAY - DAYS * DAY_MS}, "tool_name type"),
    "30 days of all tenants by tenant, day, model": (
        {"tenant": None, "since": TODAY - DAYS * DAY_MS},
        "tenant day model",
    ),
    "30 days by key": ({"since": TODAY - DAYS * DAY_MS}, "key"),
    "7 days by hour, type": ({"since": HOUR - 7 * DAY_MS}, "hour type"),
    "24 h by hour, type": ({"since": HOUR - DAY_MS}, "hour type"),
    "6 h by minute, type": ({"since": NOW - DAY_MS // 4}, "minute type"),
}


def entries() -> Iterator[AccountingEntry]:
    dice = random.Random(1)
    for number in range(COUNT):
        share = dice.random()
        kind = EntryType.TOOL if share < 0.8 else EntryType.EXTRACT if share < 0.9 else EntryType.LLM
        is_stored = share < 0.04
        yield AccountingEntry(
            id=f"entry-0123456789abcdef-{number:08x}",
            type=kind,
            timestamp=NOW - DAYS * DAY_MS + DAYS * DAY_MS * number // COUNT,
            tenant="default",
            session_id=f"session-{number % 1000}",
            tool_name=f"tool_{dice.randrange(12)}",
            latency=dice.random() * 900,
            tokens_in=dice.randrange(9_000),
            tokens_saved=dice.randrange(500),
            trigger=Trigger.SIZE_CAP if is_stored else None,
            outcome=OutcomeKind.STORE if is_stored else OutcomeKind.PASS,
            model="a-model" if kind is EntryType.LLM else None,
            key=f"key-{number % 5}",
            client=("claude-code", "codex")[number % 2],
            details=EntryDetails(bytes=2000, lines=40, tokens=731),
        )


async def measure(path: Path) -> None:
    """Prints the least processor time of each, in ms."""
    times = {"session_retention_seconds": 86_400.0, "entry_retention_seconds": (DAYS + 1) * 86_400.0}
    ledger = await open_ledger(f"sqlite://{path}", clock=lambda: NOW, **times)
    waiting, began = entries(), time.process_time()
    while some := list(itertools.islice(waiting, AT_ONCE)):
        await asyncio.gather(*map(ledger.append, some))
    spent = (time.process_time() - began) / COUNT * 1e6
    print(f"append, µs|{spent:.0f}", flush=True)
    for name, (wanted, keys) in ASKED.items():
        least = float("inf")
        for _ in range(TIMES):
            began = time.process_time()
            found = await ledger.summary(
                EntryFilter(**{"tenant": "default", **wanted}), *map(GroupBy, keys.split())
            )
            least = min(least, time.process_time() - began)
        assert found.total.entries
        print(f"{name}|{least * 1000:.1f}", flush=True)
    await ledger.close()


def measured(tree: Path) -> dict[str, str]:
    """By the ledger of the tree."""
    with tempfile.TemporaryDirectory(prefix="bench-summaries-") as folder:
        command = [sys.executable, str(Path(__file__).resolve()), "--in", folder]
        # `bench` may be of either version: it holds no ledger.
        place = {**os.environ, "PYTHONPATH": str(tree)}
        text = subprocess.run(command, cwd=tree, env=place, check=True, capture_output=True, text=True).stdout
    return dict(line.split("|") for line in text.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--in", type=Path, dest="folder", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args()
    if options.folder:
        asyncio.run(measure(options.folder / "ledger.db"))
        return
    ours = measured(ROOT)
    before = measured(options.before) if options.before else {}
    print("| ms of processor time | this version | before |\n|---|---|---|")
    for name, figure in ours.items():
        print(f"| {name} | {figure} | {before.get(name, '')} |")


if __name__ == "__main__":
    main()
