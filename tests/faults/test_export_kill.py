"""Killed at any moment: after the next start the export of the accounting has each entry once."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.counts import kills
from tests.faults.service_process import PATIENCE, SERVE, Services, service_with

pytestmark = [pytest.mark.anyio, pytest.mark.repeated]

LIVES = kills(2, 150)
COMMAND = service_with(*PATIENCE, "an export that can be held")


async def load(client: httpx.AsyncClient, name: str) -> None:
    """Results and readings until the service is gone."""
    number = 0
    while True:
        number += 1
        content = f"{name} {number} " + "word " * (5000 if number % 5 == 0 else 1)
        sent = {"tool_name": "grep", "content": content, "session_id": name}
        try:
            answer = await client.post("/results", json=sent)
            if (handle := answer.json()["handle"]) is not None:
                await client.get(f"/results/{handle}/lines?limit=2")
        except httpx.TransportError:
            return


def ids_in(*files: Path) -> list[str]:
    lines = [line for file in files if file.exists() for line in file.read_bytes().splitlines()]
    return [json.loads(line)["id"] for line in lines if line.endswith(b"}}")]


async def ids_of(client: httpx.AsyncClient) -> list[str]:
    lines = await client.get("/accounting/entries", headers={"Accept": "application/x-ndjson"})
    return [json.loads(line)["id"] for line in lines.text.splitlines()]


@pytest.mark.parametrize("place", ["disk", "redis"])
@pytest.mark.parametrize("is_behind", [False, True])
async def test_after_kills_the_export_lacks_nothing_that_the_ledger_has(
    services: Services, tmp_path: Path, request: pytest.FixtureRequest, place: str, is_behind: bool
) -> None:
    dice, target = random.Random(7), tmp_path / "entries.ndjson"
    settings: dict[str, Any] = {"accounting_export": str(target)}
    if place == "redis":
        settings["storage_url"] = request.getfixturevalue("redis_url")
    held = tmp_path / "entries.ndjson.held"
    for life in range(LIVES):
        service = await services.start(tmp_path / "state", COMMAND, **settings)
        async with service.client() as client, asyncio.TaskGroup() as tasks:
            for writer in range(3):
                tasks.create_task(load(client, f"run-{life}-{writer}"))
            while not target.exists() or target.stat().st_size < 2000 * (life + 1):
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.uniform(0, 0.2))
            if is_behind:
                held.touch()
                while set(await ids_of(client)) <= set(ids_in(target)):
                    await asyncio.sleep(0.01)
            service.kill()
            held.unlink(missing_ok=True)
        assert service.failures() == []
    service = await services.start(tmp_path / "state", SERVE, **settings)
    async with service.client() as client, asyncio.timeout(60):
        known = await ids_of(client)
        while len(ids_in(target)) < len(known):
            await asyncio.sleep(0.02)
    assert await service.stop() == 0
    assert sorted(ids_in(target)) == sorted(known)
    # The export has 2,000 bytes for each life, and a line has fewer than 1,000.
    assert len(known) >= 2 * LIVES


async def test_replicas_on_one_redis_append_what_is_missing_each_in_its_own_file(
    services: Services, tmp_path: Path, redis_url: str
) -> None:
    files = [tmp_path / f"{name}.ndjson" for name in ("killed", "other")]
    settings = [{"storage_url": redis_url, "accounting_export": str(file)} for file in files]
    killed, other = [await services.start(tmp_path / "state", COMMAND, **one) for one in settings]
    async with killed.client() as first, other.client() as second:
        held = tmp_path / "killed.ndjson.held"
        held.touch()
        for client in (first, second, first, second):
            sent = {"tool_name": "grep", "content": "x", "session_id": "one"}
            assert (await client.post("/results", json=sent)).status_code == 200
        killed.kill()
        known = await ids_of(second)
        assert ids_in(files[0]) == []
        held.unlink()
        again = await services.start(tmp_path / "state", COMMAND, **settings[0])
        async with asyncio.timeout(60):
            while len(ids_in(*files)) < 4:
                await asyncio.sleep(0.02)
        assert await again.stop() == await other.stop() == 0
    assert sorted(ids_in(*files)) == sorted(known)
    assert [len(ids_in(file)) for file in files] == [2, 2]
