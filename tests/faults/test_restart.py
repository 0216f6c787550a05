"""Told to stop it finishes or cleanly refuses what is on its way; started again it knows all that it knew."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.service_process import Service, Services, service_with
from tests.faults.uploads import Connections, Upload, drip

pytestmark = pytest.mark.anyio

SECONDS = 30


async def readiness(service: Service) -> int:
    """The status, or 0 if the port is closed."""
    try:
        async with service.client() as client:
            return (await client.get("/readyz")).status_code
    except httpx.TransportError:
        return 0


async def drafts(service: Service, number: int) -> None:
    """Returns once so many uploads are being written to disk."""
    async with asyncio.timeout(SECONDS):
        while len(list((service.state / "drafts").glob("[!p]*"))) < number:
            await asyncio.sleep(0.02)


async def test_uploads_on_their_way_finish_after_sigterm_and_new_ones_are_not_taken(
    services: Services, connections: Connections, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state")
    sizes = (20_000, 300_000, 1_500_000, 4_000_000)
    uploads = [
        Upload(Call("stop", text_of(f"{size}-{is_json}", size)), is_json)
        for size in sizes
        for is_json in (True, False)
    ]
    for upload in uploads:
        await upload.begin(connections, service)
        await upload.send(len(upload.body) // 2)
    await drafts(service, 1)
    assert await readiness(service) == 200
    service.terminate()
    statuses = list[int]()
    async with asyncio.timeout(SECONDS):
        while status := await readiness(service):
            statuses.append(status)
            await asyncio.sleep(0.02)
    assert set(statuses) <= {200, 503}
    assert statuses == sorted(statuses), "it was ready again after it had begun to stop"
    assert service.exit_code is None
    with pytest.raises(ConnectionRefusedError):
        await connections.open(service)
    async with asyncio.TaskGroup() as tasks:
        for upload in uploads:
            tasks.create_task(upload.finish())
    kept = [Kept.of(upload.call, await upload.answer()) for upload in uploads]
    assert await service.ended() == 0
    assert service.failures() == []
    await check_kept(services, service.state, kept)


async def check_kept(services: Services, state: Path, kept: list[Kept]) -> None:
    """After a start: this and nothing else, each with its one entry."""
    service = await services.start(state)
    assert audit.torn(state) == []
    assert audit.strays(state) == []
    assert len(audit.bodies(state)) == len(kept)
    async with service.client() as client:
        for one in kept:
            assert await read_back(client, one) == []
        entries = await audit.tool_entries(client)
        assert len(entries) == len(kept)
        assert audit.misbooked(kept, entries) == []
    assert await service.stop() == 0


async def test_uploads_that_do_not_finish_are_refused_in_time_and_leave_nothing(
    services: Services, connections: Connections, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state", service_with("GRACEFUL_SECONDS=2"))
    uploads = [
        Upload(Call("stop", text_of(f"{number}", size)), bool(number % 2))
        for number, size in enumerate((*[3_000_000] * 4, 30_000, 30_000))
    ]
    for upload in uploads:
        await upload.begin(connections, service)
        await upload.send(min(len(upload.body) - 10_000, 2_500_000))
    half = await connections.open(service)
    half[1].write(b"POST /results HTTP/1.1\r\nHost: local")
    await connections.open(service)
    # The first four go on for ever, the others say no more.
    drips = [asyncio.create_task(drip(upload)) for upload in uploads[:4]]
    await drafts(service, 2)
    reading = [asyncio.create_task(upload.answer()) for upload in uploads]
    await asyncio.sleep(0)
    service.terminate()
    for answer in await asyncio.gather(*reading):
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["stored"]) == (503, "draining", False)
        assert answer.headers["Content-Type"] == "application/problem+json"
    await asyncio.gather(*drips)
    assert await service.ended() == 0
    # The server logs each request that it gives up on; nothing else failed.
    failed = [line["error"]["type"] for line in service.failures() if "error" in line]
    assert set(failed) <= {"CancelledError"}
    assert audit.bodies(service.state) == []
    assert list((service.state / "drafts").iterdir()) == []
    await check_kept(services, service.state, [])


async def agent_works(client: httpx.AsyncClient) -> tuple[list[Call], list[Kept]]:
    """Two sessions: one with a window that its results fill, one held to size caps alone."""
    window = {"context_window": 12_000, "buffer_tokens": 1000, "max_output_tokens": 1000}
    assert (await client.put("/sessions/held", json=window)).status_code == 200
    report = {"used_tokens": 3000, "turn": 4}
    assert (await client.post("/sessions/held/usage", json=report)).status_code == 200
    calls = [
        Call(session_id, text_of(f"{session_id}-{number}", size), f"call-{number}", bool(number % 2))
        for session_id in ("held", "free")
        for number, size in enumerate((9_000, 11_000, 60_000, 1_200_000, 10_000, 11_500, 12_000))
    ]
    kept = []
    for call in calls:
        answer = await call.send(client)
        if answer.status_code == 201:
            kept.append(Kept.of(call, answer))
        else:
            assert (answer.status_code, answer.json()["outcome"]) == (200, "pass")
    assert (await client.put("/sessions/gone", json={})).status_code == 200
    assert (await client.delete("/sessions/gone")).status_code == 204
    return calls, kept


async def known(client: httpx.AsyncClient) -> dict[str, Any]:
    """All that it says of itself that must outlive it."""
    paths = ("/sessions", "/sessions/held", "/sessions/free", "/sessions/gone", "/tools?session_id=held")
    found: dict[str, Any] = {path: (await client.get(path)).json() for path in paths}
    for group in ("session_id", "trigger", "outcome"):
        found[group] = (await client.get("/accounting/summary", params={"group_by": group})).json()
    found["entries"] = await audit.tool_entries(client)
    found["bytes"] = (await client.get("/healthz")).json()["stored_bytes"]
    return found


async def replies(client: httpx.AsyncClient, calls: list[Call]) -> list[dict[str, Any]]:
    answers = [(await call.send(client)).json() for call in calls]
    return [{name: one[name] for name in one if name != "budget"} for one in answers]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_started_again_it_knows_sessions_reservations_calls_entries_and_handles(
    services: Services, tmp_path: Path, is_killed: bool
) -> None:
    state = tmp_path / "state"
    service = await services.start(state)
    async with service.client() as client:
        calls, kept = await agent_works(client)
        told = await replies(client, calls)
        before = await known(client)
    assert {entry["trigger"] for entry in before["entries"]} >= {None, "size_cap", "reserve_failed"}
    assert before["/sessions/held"]["budget"]["reserved_tokens"] > 0
    assert before["/sessions/gone"]["code"] == "session_ended"
    if is_killed:
        service.kill()
    else:
        assert await service.stop() == 0
    service = await services.start(state)
    async with service.client() as client:
        assert await known(client) == before
        assert await replies(client, calls) == told
        assert await known(client) == before
        for one in kept:
            assert await read_back(client, one) == []
        assert audit.misbooked(kept, await audit.tool_entries(client)) == []
        reused = Call("held", b"something else", "call-0")
        assert (await reused.send(client)).json()["code"] == "idempotency_key_reused"
    assert await service.stop() == 0
    assert service.failures() == []
