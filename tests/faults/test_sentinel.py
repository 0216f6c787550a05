"""Failovers that sentinels make, planned or not, under load: what was acknowledged is there afterwards."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from tests.counts import FULL, count
from tests.faults.service_process import PATIENCE, Service, Services, service_with
from tests.sentinels import Watched, watched

pytestmark = [pytest.mark.anyio, pytest.mark.repeated, pytest.mark.timeout(600)]

WRITERS = 4
BEFORE, AFTER = count(8, 40), count(6, 40)
"""Acknowledged before and after a failover. Each of the latter waits for a replica that is away."""

LONGEST_SECONDS = 60.0
PAUSE_SECONDS = 0.0 if FULL else 0.2
"""Of a writer between two results: else the load alone keeps the processors busy."""

DEAF = ("ASK_SECONDS=9999", "deaf to sentinels")


class Writers:
    """Store results until told, and remember those that were acknowledged."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.acknowledged: list[str] = []
        self.durabilities = set[str]()
        self.refusals = set[int]()
        self._is_over = False

    async def run(self, writer: int) -> None:
        number = 0
        while not self._is_over:
            number += 1
            body = {"session_id": f"run-{writer}", "tool_name": "t", "tool_call_id": f"call-{number}"}
            body["content"] = f"{writer} {number}\n" * 3500
            answer = await self._client.post("/results", json=body)
            if answer.status_code == 201:
                self.acknowledged.append(answer.json()["handle"])
                self.durabilities.add(answer.json()["durability"])
            else:
                self.refusals.add(answer.status_code)
            await asyncio.sleep(PAUSE_SECONDS if answer.status_code == 201 else max(0.02, PAUSE_SECONDS))

    async def reach(self, most: int) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while len(self.acknowledged) < most:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {most}"
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._is_over = True

    async def statuses(self) -> list[int]:
        """Of the answers to those who read what was acknowledged, in its order."""
        answers = [await self._client.get(f"/results/{handle}/content") for handle in self.acknowledged]
        return [one.status_code for one in answers]

    async def entries(self) -> int:
        found, cursor = 0, None
        while True:
            asked = {"type": "tool", "limit": 1000} | ({"cursor": cursor} if cursor else {})
            page = (await self._client.get("/accounting/entries", params=asked)).json()
            found, cursor = found + len(page["entries"]), page["next_cursor"]
            if cursor is None:
                return found


async def started(services: Services, place: Path, redis: Watched, options: str, *changes: str) -> Service:
    await redis.until_well()
    return await services.start(place, service_with(*PATIENCE, *changes), storage_url=redis.url + options)


async def through(redis: Watched, writers: Writers, *, planned: bool) -> None:
    """Returns when another server is the primary, and the old one follows it if it runs."""
    tasks = [asyncio.create_task(writers.run(number)) for number in range(WRITERS)]
    await writers.reach(len(writers.acknowledged) + BEFORE)
    before = redis.primary
    if planned:
        redis.fail_over()
    else:
        before.kill()
    deadline = time.monotonic() + LONGEST_SECONDS
    while redis.primary is before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await writers.reach(len(writers.acknowledged) + AFTER)
    if planned:
        await redis.until_well()
    writers.stop()
    await asyncio.gather(*tasks)


# Each replica confirms: sentinels may promote one that lacks what only the other has.
KINDS = [(1, "", True), (2, "", True), (1, "", False), (2, "?wait_replicas=2", False)]


@pytest.mark.parametrize(("replicas", "options", "planned"), KINDS)
async def test_a_failover_loses_nothing_that_replicas_have_confirmed(
    services: Services, tmp_path: Path, replicas: int, options: str, planned: bool
) -> None:
    for turn in range(count(1, 10)):
        with watched(tmp_path / f"turn-{turn}", replicas=replicas) as redis:
            service = await started(services, tmp_path, redis, options)
            async with service.client() as client:
                writers = Writers(client)
                await through(redis, writers, planned=planned)
                assert set(await writers.statuses()) == {200}
                assert await writers.entries() >= len(writers.acknowledged)
                assert writers.refusals <= {503}
                assert "replicated" in writers.durabilities
            service.kill()


async def test_what_no_replica_confirms_is_lost_during_a_planned_failover_alone(
    services: Services, tmp_path: Path
) -> None:
    """As docs/backends.md says: of the last answer of the sentinels, and of a second."""
    for turn in range(count(1, 10)):
        with watched(tmp_path / f"turn-{turn}") as redis:
            service = await started(services, tmp_path, redis, "?wait_replicas=0")
            async with service.client() as client:
                writers = Writers(client)
                await through(redis, writers, planned=True)
                statuses = await writers.statuses()
                assert {*statuses[:BEFORE], *statuses[-WRITERS:]} == {200}
                assert set(statuses) <= {200, 404}
                assert writers.refusals <= {503}
                assert "replicated" not in writers.durabilities
            service.kill()


async def test_without_the_word_of_the_sentinels_a_planned_failover_loses_results(
    services: Services, tmp_path: Path
) -> None:
    with watched(tmp_path / "redis") as redis:
        service = await started(services, tmp_path, redis, "?wait_replicas=0", *DEAF)
        async with service.client() as client:
            writers = Writers(client)
            await through(redis, writers, planned=True)
            assert 404 in await writers.statuses()


async def test_with_too_few_replicas_a_write_says_so(services: Services, tmp_path: Path) -> None:
    with watched(tmp_path / "redis") as redis:
        # A sentinel that does not answer counts as slow for so long, then as away.
        service = await started(services, tmp_path, redis, "?wait_replicas=2&timeout=60")
        async with service.client() as client:
            body = {"tool_name": "t", "content": "a line\n" * 5000}
            # It has one: the second would never come, and no failover is under way.
            assert (await client.post("/results", json=body)).json()["durability"] == "aof"
            redis.sentinels[0].pause()
            unsure = await client.post("/results", json=body)
            redis.sentinels[0].resume()
            assert unsure.status_code == 503
            redis.nodes[1].pause()
            refused = await client.post("/results", json=body)
            redis.nodes[1].resume()
            assert refused.status_code in (201, 503)
