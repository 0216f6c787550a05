"""On a disk that is really full the service refuses, says so, and loses nothing that it had kept."""

import asyncio
import errno
import os
from pathlib import Path

import httpx
import pytest

from storage.sqlite.checkpoints import WAL_BYTES
from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.readings import check_told_in_sums, counted, read_in_every_way, sums_say_that_they_lack_some
from tests.faults.service_process import Service, Services, service_with
from tests.small_disk import SMALL_DISK_BYTES

pytestmark = pytest.mark.anyio

SMALL = b"x" * 2000
NOT_RECORDED = "passed without an accounting entry"


def fill(small_disk: Path) -> Path:
    """Takes whatever room is left, to the last byte."""
    filler = small_disk / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (1 << 16, 4096, 1):
            while _written(fd, size):
                pass
    finally:
        os.close(fd)
    return filler


def _written(fd: int, size: int) -> bool:
    try:
        return os.write(fd, b"\0" * size) > 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return False
        raise


def check_refused(answer: httpx.Response) -> None:
    """507, so that the agent knows that it holds the only copy."""
    problem = answer.json()
    assert answer.status_code == 507, problem
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (problem["status"], problem["code"], problem["stored"]) == (507, "store_full", False)


async def fill_by_service(client: httpx.AsyncClient, size: int, name: str) -> list[Kept]:
    """Results of one size until it refuses, four at a time: sent as JSON and streamed."""
    kept: list[Kept] = []
    number = 0
    while True:
        calls = [
            Call("full", text_of(f"{name}-{number + one}", size), None, is_streamed=bool(one % 2))
            for one in range(4)
        ]
        answers = await asyncio.gather(*[call.send(client) for call in calls])
        for call, answer in zip(calls, answers, strict=True):
            if answer.status_code == 201:
                kept.append(Kept.of(call, answer))
            else:
                check_refused(answer)
        if any(answer.status_code == 507 for answer in answers):
            return kept
        number += 4


async def check_whole(client: httpx.AsyncClient, service: Service, kept: list[Kept]) -> None:
    faults = [fault for one in kept for fault in await read_back(client, one)]
    assert faults == []
    assert audit.torn(service.state) == []
    assert audit.strays(service.state) == []


async def test_filled_through_the_service_it_refuses_with_507_and_keeps_the_rest(
    services: Services, small_disk: Path
) -> None:
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        kept = await fill_by_service(client, 400_000, "large")
        assert len(kept) >= 2
        check_refused(await Call("full", text_of("huge", 2_500_000), None, True).send(client))
        kept += await fill_by_service(client, 20_000, "small")
        assert audit.stored_bytes(service.state) > SMALL_DISK_BYTES // 2
        assert audit.strays(service.state) == []
        assert audit.lost(service.state, kept) == []
        named = Call("full", text_of("named", 300_000), "call-1")
        check_refused(await named.send(client))
        for one in kept[:2]:
            assert (await client.delete(f"/results/{one.handle}")).status_code == 204
        again = Kept.of(named, await named.send(client))
        assert Kept.of(named, await named.send(client)) == again
        kept = [*kept[2:], again]
        await check_whole(client, service, kept)
        assert audit.misbooked(kept, await audit.tool_entries(client)) == []
        # The disk may be full by now with what the ledger wrote: then health is a problem, with no figures.
        metrics = (await client.get("/metrics")).text.splitlines()
        (told,) = [line for line in metrics if line.startswith("spillgate_stored_bytes ")]
        assert float(told.split()[1]) == audit.stored_bytes(service.state)
    assert await service.stop() == 0
    assert service.failures() == []


async def test_with_no_byte_left_small_results_pass_and_large_ones_are_a_clean_problem(
    services: Services, small_disk: Path
) -> None:
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        calls = [Call("full", text_of(f"before-{number}", 100_000), f"c-{number}") for number in range(3)]
        kept = [Kept.of(call, await call.send(client)) for call in calls]
        filler = fill(small_disk)
        small = [await Call("full", SMALL, None, bool(number % 2)).send(client) for number in range(40)]
        for answer in small:
            assert answer.status_code == 200
            assert answer.json()["content"] == SMALL.decode()
        assert NOT_RECORDED in small[-1].json()["warnings"][0]
        check_refused(await Call("full", text_of("after", 13_000), None).send(client))
        assert (await client.get("/livez")).status_code == 200
        ready = await client.get("/readyz")
        assert ready.status_code == 200
        assert any("disk is full" in warning for warning in ready.json()["warnings"])
        for path in ("/sessions/full", "/accounting/summary", "/metrics", f"/results/{kept[0].handle}"):
            assert (await client.get(path)).status_code == 200
        assert Kept.of(calls[0], await calls[0].send(client)) == kept[0]
        assert audit.lost(service.state, kept) == []
        assert audit.strays(service.state) == []
        filler.unlink()
        assert (await Call("full", SMALL).send(client)).json()["warnings"] == []
        assert (await client.get("/readyz")).json()["warnings"] == []
        later = Call("full", text_of("later", 100_000), "later")
        kept.append(Kept.of(later, await later.send(client)))
        await check_whole(client, service, kept)
        assert audit.misbooked(kept, await audit.tool_entries(client)) == []
    assert await service.stop() == 0
    assert service.failures() == []


async def full(services: Services, small_disk: Path) -> tuple[Service, list[Kept]]:
    """A service that keeps two results and has no byte left, not even for its accounting."""
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        calls = [Call("full", text_of(f"before-{number}", 100_000)) for number in range(2)]
        kept = [Kept.of(call, await call.send(client)) for call in calls]
        fill(small_disk)
        while not (await Call("full", SMALL).send(client)).json()["warnings"]:
            pass
    return service, kept


async def test_with_no_byte_left_what_was_kept_can_be_read_and_deleting_makes_room(
    services: Services, small_disk: Path
) -> None:
    service, kept = await full(services, small_disk)
    async with service.client() as client:
        await check_whole(client, service, kept)
        for view in ("lines", "grep?pattern=result", "content"):
            assert (await client.get(f"/results/{kept[0].handle}/{view}")).status_code == 200
        assert (await client.delete(f"/results/{kept[0].handle}")).status_code == 204
        assert (await Call("full", SMALL).send(client)).status_code == 200
        await check_whole(client, service, kept[1:])
        assert (await client.delete("/sessions/full")).status_code == 204
        assert audit.bodies(service.state) == []
    assert await service.stop() == 0
    assert service.failures() == []


async def test_on_an_ext4_that_the_service_filled_itself_every_session_can_be_ended(
    services: Services, small_ext4: Path
) -> None:
    """The last one has no bodies that could make room. The room that is left for deleting is as large as the
    -wal file, which may have to be copied behind the end of the database."""
    service = await services.start(small_ext4 / "state")
    async with service.client() as client:
        assert (await client.put("/sessions/empty", json={})).status_code == 200
        sizes, number, refused = (13_000, 2_000), 0, 0
        while refused < 10:
            names = range(number, number := number + 16)
            calls = [
                Call(f"s-{name % 4}", text_of(f"{name}", sizes[refused >= 3]), f"{name}") for name in names
            ]
            answers = await asyncio.gather(*[call.send(client) for call in calls])
            refused += any(answer.status_code == 507 or answer.json()["warnings"] for answer in answers)
        wal = service.state / "ledger.db-wal"
        assert wal.stat().st_size <= WAL_BYTES
        for session in ("empty", "s-0", "s-1", "s-2", "s-3"):
            assert (await client.delete(f"/sessions/{session}")).status_code == 204, session
            assert (await client.get(f"/sessions/{session}")).status_code == 410
        assert audit.bodies(service.state) == []
        again = await Call("after", text_of("after", 100_000)).send(client)
        assert again.status_code == 201
    assert await service.stop() == 0
    assert service.failures() == []


async def test_with_no_byte_left_models_ask_read_and_hand_on_and_it_is_told_once_there_is_room(
    services: Services, small_disk: Path, tmp_path: Path
) -> None:
    export = tmp_path / "entries.ndjson"
    often = service_with("sweeping often")
    service = await services.start(small_disk / "state", often, accounting_export=str(export))
    async with service.client() as client:
        call = Call("full", text_of("before", 100_000))
        kept = Kept.of(call, await call.send(client))
        filler = fill(small_disk)
        while not (await Call("full", SMALL).send(client)).json()["warnings"]:
            pass
        entries = await read_in_every_way(client, kept)
        await client.put("/sessions/reader", json={"model": "gpt-4o"})
        passed = await counted(client, "spillgate_results_unrecorded_total")
        assert await counted(client, "spillgate_readings_unrecorded_total") == sum(entries.values())
        await sums_say_that_they_lack_some(client)
        reserved = (await client.get("/sessions/full")).json()["budget"]["reserved_tokens"]
        filler.unlink()
        await check_told_in_sums(client, export, entries, passed)
        after = (await Call("full", SMALL).send(client)).json()
        assert after["warnings"] == []
        assert after["budget"]["reserved_tokens"] == reserved + after["measure"]["tokens"]
    assert await service.stop() == 0
    assert service.failures() == []
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        reader = (await client.get("/sessions/reader")).json()
        assert (reader["reads"], reader["context_window"], reader["model"]) == (["full"], 100_000, "gpt-4o")
        assert (await client.get("/sessions/full")).json()["turn"] == 7
    assert await service.stop() == 0


async def test_with_no_byte_left_every_session_can_be_ended(services: Services, small_disk: Path) -> None:
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        for number in range(100):
            assert (await client.put(f"/sessions/run-{number}", json={})).status_code == 200
        fill(small_disk)
        while not (await Call("full", SMALL).send(client)).json()["warnings"]:
            pass
        for number in range(100):
            assert (await client.delete(f"/sessions/run-{number}")).status_code == 204
            assert (await client.get(f"/sessions/run-{number}")).status_code == 410
            if number < 3:
                fill(small_disk)
        held = await client.put("/sessions/one-more", json={})
        assert (held.status_code, "holds the change in memory" in held.json()["warnings"][0]) == (200, True)
        assert (await client.delete("/sessions/one-more")).status_code == 204
        assert (await client.get("/sessions/one-more")).status_code == 404
    assert await service.stop() == 0
    assert service.failures() == []


async def test_with_no_byte_left_a_budget_holds_for_what_passes_unrecorded(
    services: Services, small_disk: Path
) -> None:
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        window = {"context_window": 6000, "buffer_tokens": 0, "max_output_tokens": 0}
        assert (await client.put("/sessions/tight", json=window)).status_code == 200
        filler = fill(small_disk)
        while not (await Call("other", SMALL).send(client)).json()["warnings"]:
            pass
        text = text_of("words", 5000)
        report = {"session_id": "tight", "tool_name": "t", "context": {"used_tokens": 10, "turn": 1}}
        sent = [await client.post("/results", json=report | {"content": text.decode()}) for _ in range(6)]
        passed = [answer.json() for answer in sent if answer.status_code == 200]
        assert 1 < len(passed) < 6
        check_refused(sent[-1])
        tokens = passed[0]["measure"]["tokens"]
        assert passed[-1]["budget"]["reserved_tokens"] == len(passed) * tokens
        assert passed[-1]["budget"]["used_tokens"] == 10
        metrics = (await client.get("/metrics")).text
        assert f"spillgate_results_unrecorded_total {len(passed) + 1}.0" in metrics
        filler.unlink()
        # The ledger takes over what it did not know of, in the first call of the same turn.
        after = (await client.post("/results", json=report | {"content": "short"})).json()
        assert after["warnings"] == []
        assert after["budget"]["reserved_tokens"] == len(passed) * tokens + after["measure"]["tokens"]
    assert await service.stop() == 0


@pytest.mark.parametrize("is_killed", [True, False])
async def test_started_again_on_a_full_disk_it_serves_or_says_why_not_and_loses_nothing(
    services: Services, small_disk: Path, is_killed: bool
) -> None:
    service, kept = await full(services, small_disk)
    service.kill() if is_killed else await service.stop()
    filler = fill(small_disk)
    service = services.spawn(small_disk / "state")
    if is_killed:
        await service.listening()
        async with service.client() as client:
            assert (await client.get(f"/results/{kept[0].handle}")).status_code == 200
            # The sweep at the start may have emptied the -wal file, which makes room.
            while (answer := await Call("full", text_of("after", 100_000)).send(client)).status_code == 201:
                kept.append(Kept.of(Call("full", text_of("after", 100_000)), answer))
                fill(small_disk)
            check_refused(answer)
        assert await service.stop() == 0
    elif await started(service):
        assert await service.stop() == 0
    else:
        # A clean stop takes the database's -shm file away, and there is no room for a new one.
        assert service.exit_code == 3
        assert "ledger.db cannot be used as a ledger" in service.tail()
    filler.unlink()
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        await check_whole(client, service, kept)
        after = Call("full", text_of("after", 100_000))
        Kept.of(after, await after.send(client))
        assert audit.misbooked(kept, await audit.tool_entries(client)) == []
    assert await service.stop() == 0
    assert service.failures() == []


async def test_without_the_room_for_deleting_the_bodies_of_a_session_make_room_for_its_end(
    services: Services, small_disk: Path
) -> None:
    service, _ = await full(services, small_disk)
    service.kill()
    (service.state / "ledger.db.reserve").unlink()
    fill(small_disk)
    service = await services.start(small_disk / "state")
    async with service.client() as client:
        fill(small_disk)
        assert (await client.delete("/sessions/full")).status_code == 204
        assert (await client.get("/sessions/full")).status_code == 410
        assert audit.bodies(service.state) == []
    assert await service.stop() == 0
    assert service.failures() == []


async def started(service: Service) -> bool:
    while service.exit_code is None and not any(line["event"] == "listening" for line in service.lines()):
        await asyncio.sleep(0.02)
    return service.exit_code is None
