"""Upgrades: what older versions kept is read; replicas on one Redis, and a process on one disk, are replaced.

Nothing older was released, so this version replaces itself. With OLD_SPILLGATE, the command of an older
version, it replaces that one."""

import asyncio
import itertools
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app import __version__
from tests.deploy.kept import CONTENTS, NOW, PLACE, SESSION, call, restore, restore_disk, seen, serving
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import PATIENT, SERVE, Service, Services
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

OLD = (str(Path(__file__).with_name("older.py")),) if "OLD_SPILLGATE" in os.environ else PATIENT
NEW = PATIENT
WRITERS = 3
LEAST = 4
"""Results acknowledged between one replacement and the next."""

SIZES = (2_000, 13_000, 50_000, 1_100_000)
REMOVED = {"first_question"}
"""Fields that the changelog names as removed."""
VERSIONS = sorted(path.name for path in PLACE.iterdir())


def missing(old: Any, new: Any, path: str = "") -> list[str]:
    """What a client saw of the older version and does not see now. New fields are no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = old.keys() - REMOVED
        return [fault for name in names for fault in missing(old[name], new.get(name), f"{path}.{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [fault for n, one in enumerate(old) for fault in missing(one, new[n], f"{path}[{n}]")]
    return [] if old == new else [f"{path}: {old!r} became {new!r}"]


async def check_reads(client: httpx.AsyncClient, kept: dict[str, Any]) -> None:
    """All is seen as it was, calls that are sent again get their first answer, and the session goes on."""
    now = await seen(client, kept["handles"])
    assert missing({name: value for name, value in kept.items() if name != "handles"}, now) == []
    await check_stored(client, len(kept["handles"]))
    for name, handle in kept["handles"].items():
        again = await client.post("/results", json=call(name, CONTENTS[name]))
        assert (again.status_code, again.json()["handle"]) == (201, handle)
    more = await client.post("/results", json=call("more", "short"))
    assert more.status_code == 200
    before, after = kept["session"]["budget"], (await client.get(f"/sessions/{SESSION}")).json()["budget"]
    charged = more.json()["measure"]["tokens"]
    assert after["reserved_tokens"] == before["reserved_tokens"] + charged > charged
    for name, handle in kept["handles"].items():
        assert (await client.get(f"/results/{handle}/content")).text == CONTENTS[name]


async def check_stored(client: httpx.AsyncClient, stored: int) -> None:
    """Older versions did not count stored results: their entries say it. Sums of days and of entries."""
    since = NOW - 1000
    for group_by in ("tool_name", "day", "type", "session_id", "key", f"hour&since={since}"):
        summary = (await client.get(f"/accounting/summary?group_by={group_by}")).json()
        assert (group_by, summary["total"]["stored"]) == (group_by, stored)


def test_this_version_has_written_what_later_ones_must_read() -> None:
    assert __version__ in VERSIONS, "run: python -m tests.deploy.kept"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_directory_and_a_database_of_an_older_version_are_read(tmp_path: Path, version: str) -> None:
    restore_disk(PLACE / version, tmp_path / "state")
    kept = json.loads((PLACE / version / "seen.json").read_text())["disk"]
    async with serving(storage_url=f"disk://{tmp_path}/state") as client:
        await check_reads(client, kept)


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_redis_of_an_older_version_is_read(
    redis_url: str, redis_server: RedisServer, version: str
) -> None:
    with redis.Redis(port=redis_server.port) as server:
        restore(server, json.loads((PLACE / version / "redis.json").read_text()))
    kept = json.loads((PLACE / version / "seen.json").read_text())["redis"]
    async with serving(storage_url=redis_url) as client:
        await check_reads(client, kept)


class Load:
    """Agents that send results, almost without a pause, to whichever replica takes connections, as a Service
    does, and repeat what was refused for now: a connection that broke, and a 503 that says so."""

    def __init__(self) -> None:
        self.replicas: list[Service] = []
        self.kept: list[Kept] = []
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.repeated = 0
        self._count = itertools.count()
        self._turn = itertools.count()
        self._stopping = asyncio.Event()

    async def write(self) -> None:
        while not self._stopping.is_set():
            number = next(self._count)
            text = text_of(f"call-{number}", SIZES[number % len(SIZES)])
            await self._send(Call(f"upgrade-{number % 3}", text, f"call-{number}", number % 2 > 0))
            await asyncio.sleep(0.02)

    async def _send(self, call: Call) -> None:
        """Until it is acknowledged, or refused for good."""
        while True:
            first = next(self._turn) % len(self.replicas)
            for replica in [*self.replicas[first:], *self.replicas[:first]]:
                try:
                    async with replica.client() as client:
                        answer = await call.send(client)
                except httpx.TransportError:
                    continue
                if answer.status_code == 503 and answer.json()["retryable"]:
                    assert answer.json()["stored"] is False
                    continue
                self._note(call, answer)
                return
            self.repeated += 1
            await asyncio.sleep(0.02)

    def _note(self, call: Call, answer: httpx.Response) -> None:
        if answer.status_code == 200:
            self.passed.append(answer.json()["entry_id"])
        elif answer.status_code == 201:
            self.kept.append(Kept.of(call, answer))
        else:
            self.failed.append(answer.text)

    async def more(self) -> None:
        """Returns when LEAST further results are acknowledged."""
        enough = len(self.kept) + LEAST
        while len(self.kept) < enough:
            assert not self.failed
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()

    async def check(self) -> None:
        """All that was acknowledged is there, whole, and entered once, whichever version took it."""
        assert self.failed == []
        async with self.replicas[-1].client() as client:
            assert [fault for kept in self.kept for fault in await read_back(client, kept)] == []
            entries = await audit.tool_entries(client)
        assert audit.misbooked(self.kept, entries) == []
        booked = [entry["id"] for entry in entries]
        assert len(set(booked)) == len(booked) == len(self.kept) + len(self.passed)
        assert all(replica.failures() == [] for replica in self.replicas)


async def test_replicas_on_one_redis_are_replaced_under_load_and_no_request_fails(
    services: Services, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "redis", aof="always") as server:

        async def started(command: tuple[str, ...]) -> Service:
            return await services.start(tmp_path, command, storage_url=server.url)

        load = Load()
        load.replicas = list(await asyncio.gather(started(OLD), started(OLD)))
        old = list(load.replicas)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(load.write())
            await load.more()
            for leaving in old:
                # The new one beside the old one, on the same sessions; then the old one stops.
                load.replicas.insert(0, await started(NEW))
                await load.more()
                assert await leaving.stop() == 0
                load.replicas.remove(leaving)
                await load.more()
            load.stop()
        await load.check()


async def test_versions_follow_each_other_on_one_disk_under_load_and_lose_nothing(
    services: Services, tmp_path: Path
) -> None:
    load = Load()
    load.replicas = [await services.start(tmp_path / "state", OLD if OLD != PATIENT else SERVE)]
    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(load.write())
        for _ in range(3):
            await load.more()
            assert await load.replicas[0].stop() == 0
            load.replicas = [await services.start(tmp_path / "state")]
        await load.more()
        load.stop()
    await load.check()
    assert load.repeated > 0
