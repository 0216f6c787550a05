"""Load on a Redis Cluster, and whether a result that is gone was lost by Redis itself."""

import asyncio
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from redis.crc import key_slot

from domain.handles import DEFAULT_TENANT, SessionKey
from storage.redis.keys import shard_of
from tests.counts import FULL
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.redis_server import PRIMARIES, SLOTS, RedisServer

SIZES = (2_000, 13_000, 13_000, 50_000, 80_000)
"""The last takes two small segments."""

WEIGHTS = (4, 6, 6, 3, 1)
PAUSE_SECONDS = 0.02 if FULL else 0.6
"""Of a writer between two results: else the load alone keeps the processors busy while replicas take over."""


def slot_of(session_id: str) -> int:
    return key_slot(shard_of(SessionKey(DEFAULT_TENANT, session_id)).key("").encode())


def sessions_of_nodes(name: str) -> list[str]:
    """A session for each primary of a new cluster."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PRIMARIES:
        session_id, number = f"{name}-{number}", number + 1
        found.setdefault(slot_of(session_id) * PRIMARIES // SLOTS, session_id)
    return [found[node] for node in range(PRIMARIES)]


@dataclass
class Load:
    """Writers that send each result until it is acknowledged, to any replica of the service."""

    clients: list[httpx.AsyncClient]
    name: str
    kept: list[Kept] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    _sent: int = 0

    def __post_init__(self) -> None:
        self._source = random.Random(self.name)
        self._stopping = asyncio.Event()
        self._tasks = list[asyncio.Task[None]]()

    def start(self, writers: int) -> None:
        self._stopping.clear()
        names = [f"{self.name}-{number}" for number in range(writers)]
        self._tasks = [asyncio.create_task(self._write(name)) for name in names]

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _write(self, session_id: str) -> None:
        while not self._stopping.is_set():
            self._sent += 1
            name = f"{self.name}-{self._sent}"
            size = self._source.choices(SIZES, WEIGHTS)[0]
            await self.acknowledged(Call(session_id, text_of(name, size), name, is_streamed=size > 60_000))
            await asyncio.sleep(PAUSE_SECONDS)

    async def acknowledged(self, call: Call) -> None:
        while True:
            answer = await call.send(self._source.choice(self.clients))
            self.statuses[answer.status_code] += 1
            if answer.status_code == 201:
                self.kept.append(Kept.of(call, answer))
            if answer.status_code != 503:
                return
            assert answer.json()["stored"] is False
            await asyncio.sleep(max(0.05, PAUSE_SECONDS))

    async def missing(self, kept: list[Kept]) -> list[str]:
        gate = asyncio.Semaphore(4)

        async def look(one: Kept) -> list[str]:
            async with gate:
                return await read_back(self.clients[0], one)

        return [fault for found in await asyncio.gather(*map(look, kept)) for fault in found]


class KilledPrimary:
    """A copy of what a primary had on disk when it was killed."""

    def __init__(self, node: RedisServer, copy: Path) -> None:
        shutil.copytree(node.directory / "appendonlydir", copy / "appendonlydir")
        self._server = RedisServer(copy, aof="always")

    def has(self, faults: list[str]) -> list[str]:
        """Those of the faults whose results it had: Redis had acknowledged them, and its replica had not got
        them yet."""
        with self._server as server:
            keys = server.ask("KEYS", "spillgate:*:result:*").decode()
        return [fault for fault in faults if fault.split()[1].rpartition("/")[2] in keys]
