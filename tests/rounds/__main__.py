"""`make rounds`: runs the drill and prints its table. Exits 1 if a result was lost or an error unexpected."""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.faults.calls import read_back
from tests.faults.service_process import Service
from tests.keys import key_file
from tests.redis_server import HOST, free_port
from tests.rounds.agents import EXPECTED, Agents, Tally
from tests.rounds.pager import Pager
from tests.rounds.shapes import ROOT, S3_LOGIN, SHAPES, Fault, Shape, nothing

REPLICAS = 3
QUIET_SECONDS = 3.0
"""Without a failure for so long it is well again."""
LONG_SECONDS = 150.0
HEAD = ("store", "fault", "tries", "failed", "unexpected", "lost", "well again after", "the pager")


@dataclass
class Row:
    shape: str
    fault: str
    tally: Tally
    began: float
    ended: float
    well_at: float = 0.0
    lost: list[str] = field(default_factory=list)


class Deployment:
    """Three replicas with encryption at rest, behind HAProxy as deploy/proxy has it."""

    def __init__(self, place: Path, shape: Shape) -> None:
        self._place, self._shape = place, shape
        self._ports = [free_port() for _ in range(REPLICAS)]
        self._port = free_port()
        self.url = f"http://{HOST}:{self._port}"
        self.replicas: list[Service] = []
        self._starts = 0
        self._proxy: subprocess.Popen[bytes] | None = None

    @property
    def targets(self) -> dict[str, str]:
        return {f"replica-{number}": f"http://{HOST}:{port}" for number, port in enumerate(self._ports)}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Deployment"]:
        key_file(self._place / "keys", "team:agent", "operators:scrape:metrics")
        (self._place / "storage.keys").write_text(f"2026-11:{os.urandom(32).hex()}\n")
        (self._place / "storage.keys").chmod(0o600)
        self.replicas = [self._spawn(number) for number in range(REPLICAS)]
        try:
            for replica in self.replicas:
                await replica.listening()
            self.start_proxy()
            yield self
        finally:
            self.stop_proxy()
            for replica in self.replicas:
                replica.kill()

    def _spawn(self, number: int) -> Service:
        self._starts += 1
        settings = {
            **self._shape.settings,
            "api_keys_file": str(self._place / "keys"),
            "storage_key_file": str(self._place / "storage.keys"),
            "trusted_proxies": HOST,
        }
        command = ("-m", "command.main", "serve", "--port", str(self._ports[number]))
        log = self._place / f"replica-{number}-{self._starts}.log"
        return Service(self._place / "state", log, command, settings)

    async def start_again(self) -> None:
        self.replicas[0] = await self._spawn(0).listening()

    def start_proxy(self) -> None:
        example = (ROOT / "deploy" / "proxy" / "haproxy.cfg").read_text()
        servers = "".join(f"  server s{port} {HOST}:{port}\n" for port in self._ports)
        text = re.sub(r"(  server \S+ \S+\n)+", servers, example.replace(":8080", f":{self._port}"))
        config = self._place / "haproxy.cfg"
        config.write_text(text)
        found = shutil.which("haproxy") or "/usr/sbin/haproxy"
        with (self._place / "haproxy.log").open("wb") as log:
            self._proxy = subprocess.Popen([found, "-db", "-f", str(config)], stdout=log, stderr=log)

    def stop_proxy(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()

    def faults(self) -> list[Fault]:
        """Those of the replicas and of the balancer."""

        async def kill() -> None:
            self.replicas[0].kill()

        async def stop() -> None:
            await self.replicas[0].stop()

        async def pause() -> None:
            os.kill(self.replicas[0].pid, 19)

        async def resume() -> None:
            os.kill(self.replicas[0].pid, 18)

        async def no_proxy() -> None:
            self.stop_proxy()

        async def proxy() -> None:
            self.start_proxy()

        return [
            Fault("a replica: kill -9, started again", kill, self.start_again),
            Fault("a replica: SIGTERM, started again", stop, self.start_again),
            Fault("a replica: stopped (SIGSTOP)", pause, resume),
            Fault("the balancer: kill -9, started again", no_proxy, proxy),
        ]


async def drill(name: str, options: argparse.Namespace) -> list[Row]:
    """Every fault of one kind of store."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix=f"rounds-{name}-") as folder:
        place = Path(folder)
        async with SHAPES[name](place) as shape, Deployment(place, shape).running() as service:
            pager = Pager(service.targets, "scrape")
            scraping = asyncio.create_task(pager.follow())
            await _ready(service.url)
            faults = [*(service.faults() if name == "redis" else []), *shape.faults]
            for fault in faults:
                if options.long or not fault.is_long:
                    rows.append(await _round(name, fault, service, options))
                    _print(rows[-1], "")
            # The last alert has time to end.
            await asyncio.sleep(20 if options.long else 0)
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
    await asyncio.sleep(QUIET_SECONDS)
    row = Row(name, fault.name, tally, time.time(), 0.0)
    await fault.begin()
    if fault.end is nothing:
        row.ended = row.began
        await asyncio.sleep(options.seconds)
    else:
        await asyncio.sleep(LONG_SECONDS if fault.is_long else options.seconds)
        row.ended = time.time()
        await fault.end()
    deadline = time.time() + 60
    while time.time() < deadline and time.time() - max([row.ended, *tally.failures[-1:]]) < QUIET_SECONDS:
        await asyncio.sleep(0.2)
    row.well_at = max([row.ended, *tally.failures[-1:]])
    await agents.stop()
    gate = asyncio.Semaphore(8)

    async def read(kept: object) -> list[str]:
        async with gate:
            return await read_back(agents.client, kept)  # type: ignore[arg-type]

    row.lost = [one for found in await asyncio.gather(*map(read, tally.kept)) for one in found]
    await agents.close()
    return row


def _cells(row: Row, pager: str) -> Sequence[str]:
    tries, failed = sum(row.tally.answers.values()), len(row.tally.failures)
    failures = {str(answer): count for answer, count in row.tally.answers.items() if answer not in (200, 201)}
    shown = ", ".join(f"{answer} {count}" for answer, count in sorted(failures.items()))
    unexpected = ", ".join(f"{answer} {count}" for answer, count in row.tally.unexpected.items())
    well = f"{row.well_at - row.ended:.1f} s"
    return (
        row.shape,
        row.fault,
        str(tries),
        f"{failed} ({shown})" if failed else "0",
        unexpected or "0",
        str(len(row.lost)),
        well,
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
            f"{alert} {first - row.began:+.0f} s to {last - row.ended:+.0f} s after the end"
            for alert, first, last in said
            if row.began <= first <= row.well_at + 60
        ]
        _print(row, "; ".join(heard))
    print(flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rounds", description=__doc__)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each fault lasts")
    parser.add_argument("--long", action="store_true", help="also the fault of minutes, which must page")
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
