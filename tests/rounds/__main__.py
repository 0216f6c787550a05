"""`make rounds`: runs the drill and prints its table. Exits 1 if a result was lost or an error unexpected."""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.faults.calls import Kept, read_back
from tests.rounds.agents import EXPECTED, Agents, Tally
from tests.rounds.deployment import Deployment
from tests.rounds.pager import STEP_SECONDS, Pager
from tests.rounds.shapes import S3_LOGIN, SHAPES, Fault, nothing

QUIET_SECONDS = 4.0
"""Without a failure for so long it is well again; and how long each round begins without a fault."""

PAGER_SECONDS = 30.0
"""In which the last alert ends."""

HEAD = ("store", "fault", "results a second", "tries", "failed", "lost", "well again after", "the pager")


@dataclass
class Row:
    shape: str
    fault: str
    tally: Tally
    began: float
    ended: float
    well_at: float = 0.0
    rate: float = 0.0
    """Results answered a second, before the fault."""

    lost: list[str] = field(default_factory=list)


async def drill(name: str, options: argparse.Namespace) -> list[Row]:
    """Every fault of one kind of store."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix=f"rounds-{name}-") as folder:
        place = Path(folder)
        async with SHAPES[name](place) as shape, Deployment(place, shape).running() as service:
            pager = Pager(service.targets, "scrape")
            scraping = asyncio.create_task(pager.follow())
            await _ready(service.url)
            faults = [*service.faults(), *(service.shared_faults() if name == "redis" else []), *shape.faults]
            for fault in faults:
                if options.only in fault.name and (options.long or fault.seconds is None):
                    rows.append(await _round(name, fault, service, options))
                    _print(rows[-1], "")
                    await fault.after()
            await asyncio.sleep(PAGER_SECONDS if options.long else 0)
            scraping.cancel()
            said = await asyncio.to_thread(pager.said)
            for row in rows:
                row.tally.kept.clear()
            _table(rows, said)
    return rows


async def _ready(url: str) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.2)


async def _round(name: str, fault: Fault, service: Deployment, options: argparse.Namespace) -> Row:
    tally = Tally(EXPECTED | fault.allowed)
    agents = Agents(service.url, "agent", options.agents, tally, f"{name}-{time.time_ns()}")
    agents.start()
    await asyncio.sleep(2 * QUIET_SECONDS)
    row = Row(name, fault.name, tally, time.time(), 0.0, rate=tally.answered / (2 * QUIET_SECONDS))
    await fault.begin()
    if fault.end is nothing:
        row.ended = row.began
        await asyncio.sleep(options.seconds)
    else:
        await asyncio.sleep(fault.seconds or options.seconds)
        await fault.end()
        row.ended = time.time()
    deadline = time.time() + 60
    while time.time() < deadline and time.time() - max([row.ended, *tally.failures[-1:]]) < QUIET_SECONDS:
        await asyncio.sleep(0.2)
    row.well_at = max([row.ended, *tally.failures[-1:]])
    await agents.stop()
    gate = asyncio.Semaphore(8)

    async def read(kept: Kept) -> list[str]:
        async with gate:
            return await read_back(agents.client, kept)

    row.lost = [one for found in await asyncio.gather(*map(read, tally.kept)) for one in found]
    await agents.close()
    return row


def _cells(row: Row, pager: str) -> Sequence[str]:
    tries, failed = sum(row.tally.answers.values()), len(row.tally.failures)
    failures = {str(answer): count for answer, count in row.tally.answers.items() if answer not in (200, 201)}
    shown = ", ".join(f"{answer}: {count}" for answer, count in sorted(failures.items()))
    unexpected = f"; unexpected: {', '.join(map(str, row.tally.unexpected))}" if row.tally.unexpected else ""
    return (
        row.shape,
        row.fault,
        f"{row.rate:.0f}",
        str(tries),
        f"{failed} ({shown}{unexpected})" if failed else "0",
        str(len(row.lost)),
        f"{row.well_at - row.ended:.1f} s",
        pager or "nothing",
    )


def _print(row: Row, pager: str) -> None:
    print(f"| {' | '.join(_cells(row, pager))} |", flush=True)
    for fault in row.lost[:5]:
        print(f"  {fault}", flush=True)


def _table(rows: list[Row], said: list[tuple[str, float, float]]) -> None:
    print(f"\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for row in rows:
        heard = [
            f"`{alert}` after {first - row.began:.0f} s{_late(last - row.ended)}"
            for alert, first, last in said
            if row
            is max((one for one in rows if one.began <= first), key=lambda one: one.began, default=None)
        ]
        _print(row, "; ".join(heard))
    print(flush=True)


def _late(seconds: float) -> str:
    """An alert that is heard at the scrape after the end has ended with the fault."""
    return f", until {seconds:.0f} s after the end" if seconds > STEP_SECONDS else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rounds", description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each fault lasts")
    parser.add_argument("--long", action="store_true", help="also the faults of minutes, which must page")
    parser.add_argument("--only", default="", help="faults whose name has this text")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    options = parser.parse_args()
    os.environ.update(S3_LOGIN)
    rows = [row for name in options.shapes.split(",") for row in asyncio.run(drill(name, options))]
    bad = [row for row in rows if row.lost or row.tally.unexpected]
    print(
        f"{len(rows)} faults, {sum(sum(row.tally.answers.values()) for row in rows)} tries, "
        f"{sum(len(row.lost) for row in rows)} lost, {len(bad)} rounds with a fault of the service"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
