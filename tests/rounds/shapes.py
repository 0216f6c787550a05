"""The stores under the drill, each with the faults that it can have: what begins one, and what ends it."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.faults.network import Network
from tests.redis_server import HOST, RedisCluster, RedisServer

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "results"
S3_LOGIN = {"AWS_ACCESS_KEY_ID": "rounds", "AWS_SECRET_ACCESS_KEY": "rounds"}


@dataclass(frozen=True)
class Fault:
    """`allowed`: statuses beside 200, 201 and 503 that it may cause."""

    name: str
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]
    allowed: frozenset[int] = frozenset()
    is_long: bool = False


@dataclass
class Shape:
    settings: dict[str, str]
    faults: list[Fault] = field(default_factory=list)


def in_thread(act: Callable[..., object], *given: object) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await asyncio.to_thread(act, *given)

    return run


async def nothing() -> None:
    """What it ends by itself."""


def _server_faults(name: str, server: RedisServer, *, has_long: bool = False) -> list[Fault]:
    faults = [
        Fault(f"{name}: kill -9, started again", in_thread(server.kill), in_thread(server.start)),
        Fault(f"{name}: stopped (SIGSTOP)", in_thread(server.pause), in_thread(server.resume)),
    ]
    if has_long:
        away = Fault(
            f"{name}: away for minutes", in_thread(server.kill), in_thread(server.start), is_long=True
        )
        faults.append(away)
    return faults


@asynccontextmanager
async def redis(place: Path) -> AsyncIterator[Shape]:
    with RedisServer(place / "redis", aof="always") as server:

        def bound(most: str) -> None:
            server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            server.ask("CONFIG", "SET", "maxmemory", most)

        full = Fault("Redis: full", in_thread(bound, "1mb"), in_thread(bound, "0"), frozenset({507}))
        yield Shape({"storage_url": server.url}, [*_server_faults("Redis", server, has_long=True), full])


@asynccontextmanager
async def sentinel(place: Path) -> AsyncIterator[Shape]:
    """A primary, a replica, and three sentinels."""
    options = ["--replica-announce-ip", HOST, "--repl-diskless-sync-delay", "0"]
    with _Servers() as servers:
        primary = servers.start(RedisServer(place / "primary", aof="always", options=options))
        replica = servers.start(RedisServer(place / "replica", aof="always", options=options))
        replica.ask("REPLICAOF", HOST, str(primary.port))
        watchers = []
        for number in range(3):
            conf = place / f"sentinel-{number}.conf"
            conf.write_text(
                f"sentinel monitor main {HOST} {primary.port} 2\n"
                "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
            )
            watcher = RedisServer(place / f"sentinel-{number}", config=conf, options=["--sentinel"])
            watchers.append(servers.start(watcher))
        while any(b"num-slaves\r\n$1\r\n1" not in one.ask("SENTINEL", "MASTER", "main") for one in watchers):
            await asyncio.sleep(0.1)
        url = f"redis+sentinel://{','.join(f'{HOST}:{one.port}' for one in watchers)}/main"
        lost = Fault(
            "Sentinel: the primary is killed, its replica takes over", in_thread(primary.kill), nothing
        )
        yield Shape({"storage_url": url}, [lost])


class _Servers:
    def __init__(self) -> None:
        self._started: list[RedisServer] = []

    def __enter__(self) -> "_Servers":
        return self

    def __exit__(self, *error: object) -> None:
        for server in self._started:
            server.stop()

    def start(self, server: RedisServer) -> RedisServer:
        server.start()
        self._started.append(server)
        return server


@asynccontextmanager
async def cluster(place: Path) -> AsyncIterator[Shape]:
    """Three nodes without replicas: a third of the sessions is away with a node."""
    with RedisCluster(place) as nodes:
        yield Shape({"storage_url": nodes.url}, _server_faults("Cluster: a node", nodes.nodes[1]))


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
        async with Network(port, begins=(b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")) as network:
            url = f"s3://{BUCKET}/rounds?endpoint=http://{HOST}:{network.port}&region=us-east-1"
            faults = [
                Fault("S3: refuses connections", network.refuse, network.heal),
                *_server_faults("S3: the ledger's Redis", server)[:1],
            ]
            yield Shape({"storage_url": url, "ledger_url": server.url}, faults)
        moto.kill()


SHAPES = {"redis": redis, "sentinel": sentinel, "cluster": cluster, "s3": s3}
