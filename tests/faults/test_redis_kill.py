"""Redis and replicas killed at any moment: what was acknowledged is there, whole, and accounted once."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tests.counts import count, kills
from tests.faults import audit
from tests.faults.calls import Call, Kept, insist, read_back, text_of
from tests.faults.service_process import Service, Services, service_with
from tests.faults.test_kill import storage_keys
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

CAMPAIGNS = count(1, 2)
CYCLES = kills(3, 30) // CAMPAIGNS
REPLICAS = 2
WRITERS = 3
LEAST = 4
"""Stored and acknowledged in a cycle before anything is killed."""

STORED = 13_000
SIZES = (2_000, 2_000, STORED, STORED, STORED, 50_000, 50_000, 80_000)
"""The last takes two small segments."""

PAUSE_SECONDS = count(0.12, 0.06)
"""Of a writer between two results."""

SMALL_SEGMENTS = service_with("small segments")


class Campaign:
    """One Redis with its replicas: what they acknowledged while one or the other was killed."""

    def __init__(
        self,
        services: Services,
        place: Path,
        server: RedisServer,
        seed: int,
        command: tuple[str, ...] = SMALL_SEGMENTS,
        **settings: str,
    ) -> None:
        self._settings = settings
        self._services = services
        self._place = place
        self._server = server
        self._command = command
        self._source = random.Random(seed)
        self._name = f"campaign-{seed}"
        self._replicas: list[Service] = []
        self._clients: list[httpx.AsyncClient] = []
        self._sent = 0
        self.kept: list[Kept] = []
        self.faults: list[str] = []
        """What was wrong after the last cycle with what it acknowledged, and with some of what was before."""
        self.passed: list[str] = []
        """Entry ids."""
        self._refused = 0
        """Tries of named calls that were not acknowledged: each is tried until it is."""
        self.retried = 0
        """Named calls that were acknowledged after a try that was not."""

    async def start(self) -> None:
        spawned = [self._spawn() for _ in range(REPLICAS)]
        self._replicas = [await service.listening() for service in spawned]
        self._clients = [service.client() for service in self._replicas]

    def _spawn(self) -> Service:
        return self._services.spawn(
            self._place, self._command, storage_url=self._server.url, **self._settings
        )

    async def stop(self) -> None:
        for service, client in zip(self._replicas, self._clients, strict=True):
            await client.aclose()
            assert service.failures() == []
            service.kill()

    async def cycle(self, victim: Literal["redis", "replica"], load_seconds: float) -> None:
        """Loaded for a moment, something is killed and comes back, and all go on."""
        before, number = len(self.kept), self._source.randrange(REPLICAS)
        stopping = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(self._write(stopping))
            while len(self.kept) < before + LEAST:
                await asyncio.sleep(0.01)
            await asyncio.sleep(load_seconds)
            if victim == "redis":
                await self._kill_redis()
            else:
                refused = self._refused
                self._replicas[number].kill()
                while self._refused == refused:
                    await asyncio.sleep(0.01)
            stopping.set()
        if victim == "replica":
            await self._replace(number)
        older = self.kept[:before]
        newest = [*self.kept[before:], *self._source.sample(older, min(4, len(older)))]
        self.faults = [fault for kept in newest for fault in await read_back(self._any(), kept)]

    async def _kill_redis(self) -> None:
        self._server.kill()
        await asyncio.sleep(self._source.uniform(0, 0.05))
        await asyncio.to_thread(self._server.start)
        for number in range(REPLICAS):
            call = self._call(is_named=True, size=STORED)
            while (answer := await call.send(self._clients[number])).status_code == 503:
                await asyncio.sleep(0.02)
            self.kept.append(Kept.of(call, answer))

    async def _replace(self, number: int) -> None:
        await self._clients[number].aclose()
        self._replicas[number] = await self._spawn().listening()
        self._clients[number] = self._replicas[number].client()

    def _any(self) -> httpx.AsyncClient:
        return self._source.choice(self._clients)

    def _call(self, *, is_named: bool, size: int | None = None) -> Call:
        self._sent += 1
        name = f"{self._name}-{self._sent}"
        text = text_of(name, size or self._source.choice(SIZES))
        call_id = name if is_named else None
        return Call(f"{self._name}-{self._sent % 3}", text, call_id, is_streamed=self._source.random() < 0.5)

    async def _write(self, stopping: asyncio.Event) -> None:
        """Sends results in turn; a named one is sent to any replica until it is acknowledged."""
        while not stopping.is_set():
            call = self._call(is_named=self._source.random() < 0.5)
            tries = 1
            while not await self._acknowledged(call) and call.call_id is not None:
                tries += 1
                self._refused += 1
                await asyncio.sleep(0.05)
            self.retried += tries > 1 and call.call_id is not None
            await asyncio.sleep(PAUSE_SECONDS)

    async def _acknowledged(self, call: Call) -> bool:
        try:
            answer = await call.send(self._any())
        except httpx.TransportError:
            return False
        if answer.status_code == 503:
            assert answer.json()["stored"] is False
            await asyncio.sleep(0.02)
            return False
        if answer.status_code == 200:
            self.passed.append(answer.json()["entry_id"])
        else:
            self.kept.append(Kept.of(call, answer))
        return True

    async def check_all(self) -> None:
        client = self._any()
        assert [fault for kept in self.kept for fault in await read_back(client, kept)] == []
        entries = await audit.tool_entries(client)
        assert audit.misbooked(self.kept, entries) == []
        booked = [entry["id"] for entry in entries]
        assert len(set(booked)) == len(booked)
        assert set(self.passed) <= set(booked)
        for number in range(3):
            session_id = f"{self._name}-{number}"
            charged = sum(entry["tokens_out"] for entry in entries if entry["session_id"] == session_id)
            session = (await insist(partial(client.get, f"/sessions/{session_id}"))).json()
            assert session["budget"]["reserved_tokens"] == charged


@pytest.mark.repeated
async def test_through_many_kills_under_load_all_that_was_acknowledged_is_there(
    services: Services, tmp_path: Path
) -> None:
    async def run(seed: int) -> Campaign:
        with RedisServer(tmp_path / f"redis-{seed}", aof="always") as server:
            # One campaign of two is encrypted.
            settings = {"storage_key_file": storage_keys(tmp_path)} if seed % 2 == 0 else {}
            campaign = Campaign(services, tmp_path, server, seed, **settings)
            await campaign.start()
            source = random.Random(seed)
            for cycle in range(CYCLES):
                await campaign.cycle("replica" if cycle % 3 == 2 else "redis", source.uniform(0, 0.2))
                assert campaign.faults == []
            await campaign.check_all()
            await campaign.stop()
        return campaign

    campaigns = await asyncio.gather(*[run(seed) for seed in range(CAMPAIGNS)])
    assert sum(len(campaign.kept) for campaign in campaigns) > 4 * CAMPAIGNS * CYCLES
    assert sum(len(campaign.passed) for campaign in campaigns) > CAMPAIGNS * CYCLES
    assert sum(campaign.retried for campaign in campaigns) > CAMPAIGNS * CYCLES / 5


@pytest.mark.parametrize(
    ("aof", "command", "victim"),
    [("always", service_with("early"), "replica"), ("no", SMALL_SEGMENTS, "redis")],
    ids=["answers-too-early", "no-append-only-file"],
)
async def test_a_service_or_a_redis_that_promises_too_much_is_found_out(
    services: Services,
    tmp_path: Path,
    aof: Literal["no", "always"],
    command: tuple[str, ...],
    victim: Literal["redis", "replica"],
) -> None:
    with RedisServer(tmp_path / "redis", aof=aof) as server:
        campaign = Campaign(services, tmp_path, server, 7, command)
        await campaign.start()
        await campaign.cycle(victim, 0)
        assert any(fault.startswith("lost") for fault in campaign.faults)
        await campaign.stop()
