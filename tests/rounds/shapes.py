"""The stores under the drill, each with the faults that it can have: what begins one, and what ends it."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.faults import network
from tests.faults.network import Network
from tests.redis_server import HOST, RedisCluster, RedisServer, text_of_reply

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "results"
S3_LOGIN = {"AWS_ACCESS_KEY_ID": "rounds", "AWS_SECRET_ACCESS_KEY": "rounds"}
PAGED_SECONDS = 100.0
"""As long as what pages must last, and a scrape."""

DISK = "size=1g"
SLOW_MS = 300
FULL = frozenset({507})

Step = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """What it ends by itself."""


@dataclass(frozen=True)
class Fault:
    """`allowed`: statuses beside 200, 201 and 503 that it may cause. `seconds`: how long it lasts, if it must
    page. `after`: what makes all as it was before, once the service is well again."""

    name: str
    begin: Step
    end: Step = nothing
    allowed: frozenset[int] = frozenset()
    seconds: float | None = None
    after: Step = nothing


@dataclass
class Shape:
    settings: dict[str, str]
    faults: list[Fault] = field(default_factory=list)
    replicas: int = 3


def in_thread(act: Callable[..., object], *given: object) -> Step:
    async def run() -> None:
        await asyncio.to_thread(act, *given)

    return run


def in_turn(*steps: Step) -> Step:
    async def run() -> None:
        for step in steps:
            await step()

    return run


@contextmanager
def disk(place: Path) -> Iterator[Path]:
    """A file system that `fill` can fill."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), file.tell(), 4096)
            file.seek(4096, os.SEEK_CUR)


def free(place: Path) -> None:
    (place / "filler").unlink()


def bound(server: RedisServer, most: str) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", most)


def full(name: str, server: RedisServer, seconds: float | None = None) -> Fault:
    return Fault(
        f"{name}: full", in_thread(bound, server, "1mb"), in_thread(bound, server, "0"), FULL, seconds
    )


def killed(name: str, server: RedisServer, seconds: float | None = None) -> Fault:
    lasting = " for minutes" if seconds else ""
    return Fault(
        f"{name}: killed, away{lasting}, started",
        in_thread(server.kill),
        in_thread(server.start),
        seconds=seconds,
    )


def silent(name: str, server: RedisServer) -> Fault:
    return Fault(f"{name}: silent (SIGSTOP)", in_thread(server.pause), in_thread(server.resume))


def slow(server: RedisServer) -> Fault:
    """It stops for SLOW_MS again and again."""
    tasks = list[asyncio.Task[None]]()

    async def pause() -> None:
        while True:
            await asyncio.to_thread(server.ask, "CLIENT", "PAUSE", str(SLOW_MS), "ALL")
            await asyncio.sleep(1.3 * SLOW_MS / 1000)

    async def begin() -> None:
        tasks.append(asyncio.create_task(pause()))

    async def end() -> None:
        tasks.pop().cancel()

    return Fault("Redis: slow (0.3 s of 0.4 s)", begin, end)


@asynccontextmanager
async def redis(place: Path) -> AsyncIterator[Shape]:
    with disk(place / "disk") as own, RedisServer(own / "redis", aof="always") as server:
        no_disk = Fault(
            "Redis: its disk is full, and Redis ends",
            in_thread(fill, own),
            in_turn(in_thread(free, own), in_thread(server.stop), in_thread(server.start)),
        )
        yield Shape(
            {"storage_url": server.url},
            [
                killed("Redis", server),
                killed("Redis", server, PAGED_SECONDS),
                silent("Redis", server),
                slow(server),
                full("Redis", server, PAGED_SECONDS),
                no_disk,
            ],
        )


@asynccontextmanager
async def sentinel(place: Path) -> AsyncIterator[Shape]:
    """A primary, a replica, and three sentinels."""
    options = ["--replica-announce-ip", HOST, "--repl-diskless-sync-delay", "0"]
    with contextlib.ExitStack() as servers:
        primary, replica = (
            servers.enter_context(RedisServer(place / name, aof="always", options=options))
            for name in ("primary", "replica")
        )
        replica.ask("REPLICAOF", HOST, str(primary.port))
        watchers = []
        for number in range(3):
            conf = place / f"sentinel-{number}.conf"
            conf.write_text(
                f"sentinel monitor main {HOST} {primary.port} 2\n"
                "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
            )
            watcher = RedisServer(place / f"sentinel-{number}", config=conf, options=["--sentinel"])
            watchers.append(servers.enter_context(watcher))

        async def until_replicated() -> None:
            while any(
                b"num-slaves\r\n$1\r\n1" not in one.ask("SENTINEL", "MASTER", "main") for one in watchers
            ) or not any(b"master_link_status:up" in one.ask("INFO") for one in (primary, replica)):
                await asyncio.sleep(0.1)

        await until_replicated()
        url = f"redis+sentinel://{','.join(f'{HOST}:{one.port}' for one in watchers)}/main"
        over = Fault(
            "Sentinel: the primary is killed, its replica takes over",
            in_thread(primary.kill),
            after=in_turn(in_thread(primary.start), until_replicated),
        )
        cut = Fault(
            "Sentinel: the primary is silent, its replica takes over",
            in_thread(replica.pause),
            after=in_turn(in_thread(replica.resume), until_replicated),
        )
        watching = Fault(
            "Sentinel: two of the three sentinels are killed",
            in_turn(*[in_thread(one.kill) for one in watchers[:2]]),
            in_turn(*[in_thread(one.start) for one in watchers[:2]]),
        )
        yield Shape({"storage_url": url}, [over, cut, watching])


@asynccontextmanager
async def cluster(place: Path) -> AsyncIterator[Shape]:
    """Three primaries, each with a replica."""
    with RedisCluster(place, replicas=3, timeout_ms=3000) as nodes:
        well = in_thread(nodes.until_well)
        one, other = nodes.nodes[1], nodes.nodes[4]
        over = Fault(
            "Cluster: a primary is killed, its replica takes over",
            in_thread(one.kill),
            after=in_turn(in_thread(one.start), well),
        )
        cut = Fault(
            "Cluster: a primary is silent, its replica takes over",
            in_thread(other.pause),
            after=in_turn(in_thread(other.resume), well),
        )
        moved = Fault("Cluster: slots move", in_thread(reshard, nodes))
        yield Shape(
            {"storage_url": nodes.url},
            [
                over,
                cut,
                killed("Cluster: a replica", nodes.nodes[3]),
                full("Cluster: a primary", nodes.nodes[0]),
                moved,
            ],
        )


def reshard(nodes: RedisCluster) -> None:
    first = nodes.nodes[0]
    source, target = (text_of_reply(nodes.nodes[n].ask("CLUSTER", "MYID")) for n in (0, 2))
    command = ["redis-cli", "--cluster", "reshard", f"{HOST}:{first.port}", "--cluster-yes"]
    command += ["--cluster-from", source, "--cluster-to", target, "--cluster-slots", "3000"]
    subprocess.run(command, check=True, capture_output=True)


@asynccontextmanager
async def s3(place: Path) -> AsyncIterator[Shape]:
    """moto behind a network that can be cut; the ledger in Redis."""
    python = ROOT / ".objects/bin/python"
    command = [python, ROOT / "tests/objects/moto_server.py"]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as moto,
        RedisServer(place / "ledger", aof="always") as server,
    ):
        assert moto.stdout is not None
        port = int(await asyncio.to_thread(moto.stdout.readline))
        httpx.put(f"http://{HOST}:{port}/{BUCKET}", trust_env=False).raise_for_status()
        async with Network(port, begins=(b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")) as net:

            def spoilt(how: network.Fault) -> Step:
                async def begin() -> None:
                    net.spoil(how, 0)

                return begin

            url = f"s3://{BUCKET}/rounds?endpoint=http://{HOST}:{net.port}&region=us-east-1"
            faults = [
                Fault("S3: refuses connections", net.refuse, net.heal),
                Fault("S3: silent", spoilt(network.silence), net.heal),
                Fault("S3: answers are cut", spoilt(network.reset), net.heal),
                Fault("S3: answers are noise", spoilt(network.garble), net.heal),
                killed("S3: the ledger's Redis", server),
            ]
            yield Shape({"storage_url": url, "ledger_url": server.url}, faults)
        moto.kill()


@asynccontextmanager
async def on_disk(place: Path) -> AsyncIterator[Shape]:
    """One process owns a directory."""
    with disk(place / "disk") as own:
        no_disk = Fault("disk: full", in_thread(fill, own), in_thread(free, own), FULL, PAGED_SECONDS)
        yield Shape({"storage_url": f"disk://{own}/state"}, [no_disk], replicas=1)


SHAPES = {"redis": redis, "sentinel": sentinel, "cluster": cluster, "s3": s3, "disk": on_disk}
