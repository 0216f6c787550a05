"""Clocks that are wrong or jump, of a replica and of Redis: nothing is lost, nothing expires too early."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.operations.clock import ClockWatch, SteadyClock
from app.operations.clock_file import ClockFile, KeptClock
from tests.counts import FULL
from tests.faults.service_process import PATIENCE, Service, Services, service_with
from tests.moved_clock import MovedClock
from tests.redis_server import RedisCluster, RedisServer

pytestmark = pytest.mark.anyio

HOUR = 3600
RETENTION = HOUR
SOON = (*PATIENCE, "sweeping often", "SETTLED_SECONDS=0.1", "LOOK_SECONDS=0.2")
"""Sweeps at once, and several times a second."""

WAIT_SECONDS = 60.0


async def replica(services: Services, place: Path, server: RedisServer, **options: Any) -> Service:
    settings = {"storage_url": server.url, "retention_seconds": str(RETENTION)}
    return await services.start(place, **{"command": service_with(*SOON), **settings, **options})


async def post(client: httpx.AsyncClient, number: int) -> str:
    body = {"session_id": f"run-{number}", "tool_name": "t", "content": f"line {number}\n" * 4000}
    answer = await client.post("/results", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["handle"])


async def statuses(client: httpx.AsyncClient, handles: list[str]) -> set[int]:
    return {(await client.get(f"/results/{handle}/content")).status_code for handle in handles}


async def entries(client: httpx.AsyncClient) -> int:
    answer = await client.get("/accounting/entries", params={"type": "tool", "limit": 1000})
    return len(answer.json()["entries"])


async def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def swept_twice(client: httpx.AsyncClient) -> None:
    """Waits until the sweeper has run twice from now on, or would have."""
    for _ in range(2):
        await asyncio.sleep(0.15)
        assert (await client.get("/livez")).status_code == 200


def metric(text: str, name: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


@pytest.mark.repeated
@pytest.mark.parametrize("hours", [5, -5, 24 * 8, -24 * 8] if FULL else [5, -24 * 8])
async def test_a_replica_whose_clock_is_wrong_deletes_nothing_and_says_so(
    services: Services, tmp_path: Path, hours: int
) -> None:
    wrong = MovedClock(tmp_path / "clock")
    wrong.move(hours * HOUR)
    with RedisServer(tmp_path / "redis", aof="always") as server:
        right = await replica(services, tmp_path, server, ledger_retention_seconds=str(24 * HOUR))
        other = await replica(
            services, tmp_path, server, clock=wrong, ledger_retention_seconds=str(24 * HOUR)
        )
        async with right.client() as client, other.client() as elsewhere:
            handles = [await post(one, number) for number in range(4) for one in (client, elsewhere)]
            await swept_twice(elsewhere)
            for one in (client, elsewhere):
                assert await statuses(one, handles) == {200}
                assert await entries(one) == len(handles)
            assert (await client.get("/readyz")).json() == {"status": "ok", "warnings": []}
            refused = await elsewhere.get("/readyz")
            assert refused.status_code == 503
            assert "The clock of this machine is" in refused.json()["detail"]
            shown = (await elsewhere.get("/metrics")).text
            assert metric(shown, "spillgate_clock_offset_seconds") == pytest.approx(hours * HOUR, abs=5)
            assert metric(shown, "spillgate_ready") == 0
            assert (await elsewhere.get("/clock")).json()["sweeps"] is False
            assert any(
                "The clock of this machine" in line["why"] for line in await other.logged("Not ready.")
            )
            # Whoever is right: once they agree it is ready.
            wrong.move(0)
            await until(lambda: _is_ready(elsewhere))
            assert await statuses(elsewhere, handles) == {200}


async def _is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def test_a_replica_some_seconds_off_has_a_warning_and_is_ready(
    services: Services, tmp_path: Path
) -> None:
    fast = MovedClock(tmp_path / "clock")
    fast.move(20)
    with RedisServer(tmp_path / "redis", aof="always") as server:
        service = await replica(services, tmp_path, server, clock=fast)
        async with service.client() as client:
            ready = await client.get("/readyz")
            assert ready.status_code == 200
            assert ready.json()["warnings"] == [
                "The clock of this machine is 20 s ahead of that of Redis: set it."
            ]
            await until(lambda: _sweeps(client))
            await until(lambda: _logged(service, "The clock of this machine is 20 s ahead"))


async def _sweeps(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/clock")).json()["sweeps"])


async def _logged(service: Service, text: str) -> bool:
    return any(text in line["event"] for line in service.lines())


@pytest.mark.repeated
@pytest.mark.parametrize("hours", [2, -2, 24] if FULL else [-2, 24])
async def test_a_jump_of_redis_own_clock_deletes_nothing_until_it_is_confirmed(
    services: Services, tmp_path: Path, hours: int
) -> None:
    clock = MovedClock(tmp_path / "clock")
    with RedisServer(tmp_path / "redis", aof="always", clock=clock) as server:
        # Their clocks jump with that of Redis: only what they expected of it tells them.
        first = await replica(services, tmp_path, server, clock=clock)
        async with first.client() as client:
            handles = [await post(client, number) for number in range(3)]
            await until(lambda: _sweeps(client))
            clock.move(hours * HOUR)
            await until(lambda: _jumped(client))
            second = await replica(services, tmp_path, server, clock=clock)
            async with second.client() as other:
                await until(lambda: _jumped(other))
                for one in (client, other):
                    await swept_twice(one)
                    (warning,) = (await one.get("/readyz")).json()["warnings"]
                    assert warning.startswith("The clock of Redis jumped by ")
                    assert "POST /clock/confirm" in warning
                    shown = (await one.get("/metrics")).text
                    assert metric(shown, "spillgate_clock_jump_seconds") == pytest.approx(hours * HOUR, abs=5)
                # It was wrong, and is set right: nothing was lost by it.
                clock.move(0)
                await swept_twice(other)
                assert await statuses(other, handles) == {200}
                assert not (await other.get("/clock")).json()["sweeps"]
                answer = (await other.post("/clock/confirm")).json()
                assert answer["confirmed_jump_ms"] == pytest.approx(hours * HOUR * 1000, abs=5000)
                for one in (client, other):
                    await until(lambda: _shows_the_time(one))  # noqa: B023
                    await until(lambda: _sweeps(one))  # noqa: B023
                assert await statuses(client, handles) == {200}


async def _shows_the_time(client: httpx.AsyncClient) -> bool:
    now = (await client.get("/clock")).json()["now"]
    return bool(abs(now - time.time() * 1000) < HOUR * 500)


async def _jumped(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/clock")).json()["jump_ms"])


async def test_what_has_expired_by_a_confirmed_clock_is_swept(services: Services, tmp_path: Path) -> None:
    clock = MovedClock(tmp_path / "clock")
    with RedisServer(tmp_path / "redis", aof="always", clock=clock) as server:
        service = await replica(services, tmp_path, server, clock=clock)
        async with service.client() as client:
            handles = [await post(client, number) for number in range(3)]
            await until(lambda: _sweeps(client))
            clock.move(2 * HOUR)
            await until(lambda: _jumped(client))
            assert b":result:" in server.ask("KEYS", "*:result:*")
            await client.post("/clock/confirm")
            await until(lambda: _is_gone(server))
            assert await statuses(client, handles) == {410}


async def _is_gone(server: RedisServer) -> bool:
    return server.ask("KEYS", "*:result:*") == b"*0\r\n"


@pytest.mark.parametrize("fault", [(), ("unguarded scripts",)])
async def test_a_sweep_that_comes_before_a_jump_was_seen_deletes_nothing(
    services: Services, tmp_path: Path, fault: tuple[str, ...]
) -> None:
    clock = MovedClock(tmp_path / "clock")
    # It looks at the clock of Redis as it starts, and not again.
    blind = service_with(*SOON, "LOOK_SECONDS=9999", "STALE_SECONDS=9999", *fault)
    with RedisServer(tmp_path / "redis", aof="always", clock=clock) as server:
        service = await replica(services, tmp_path, server, command=blind)
        async with service.client() as client:
            handles = [await post(client, number) for number in range(3)]
            await until(lambda: _sweeps(client))
            clock.move(2 * HOUR)
            await swept_twice(client)
            clock.move(0)
            assert await statuses(client, handles) == {404 if fault else 200}


@pytest.mark.parametrize("fault", [(), ("a blind watch",)])
async def test_a_jump_is_not_followed_before_it_is_confirmed(
    services: Services, tmp_path: Path, fault: tuple[str, ...]
) -> None:
    clock = MovedClock(tmp_path / "clock")
    with RedisServer(tmp_path / "redis", aof="always", clock=clock) as server:
        command = service_with(*SOON, *fault)
        service = await replica(services, tmp_path, server, clock=clock, command=command)
        async with service.client() as client:
            handles = [await post(client, number) for number in range(3)]
            await until(lambda: _sweeps(client))
            clock.move(2 * HOUR)
            await until(lambda: _is_gone(server) if fault else _jumped(client))
            await swept_twice(client)
            clock.move(0)
            # What has expired is gone as soon as it is swept.
            found = await statuses(client, handles)
            assert found <= {404, 410} if fault else found == {200}


@pytest.mark.repeated
# Each jump once, and after each end of the service one ahead and one behind.
@pytest.mark.parametrize(
    ("hours", "is_killed"),
    [(5, True), (-5, False), (24 * 40, False), (-24 * 40, True)]
    + [(-5, True), (5, False), (-24 * 40, False), (24 * 40, True)] * FULL,
)
async def test_a_jump_of_the_machines_clock_deletes_nothing_on_disk_also_after_a_restart(
    services: Services, tmp_path: Path, hours: int, is_killed: bool
) -> None:
    clock = MovedClock(tmp_path / "clock")
    options: dict[str, Any] = {"command": service_with(*SOON), "clock": clock}
    options |= {"retention_seconds": str(RETENTION), "ledger_retention_seconds": str(24 * HOUR)}
    service = await services.start(tmp_path / "state", **options)
    async with service.client() as client:
        handles = [await post(client, number) for number in range(3)]
        named = {"session_id": "run-0", "tool_name": "t", "tool_call_id": "c", "content": "x\n" * 20_000}
        first = (await client.post("/results", json=named)).json()
        await until(lambda: _sweeps(client))
        clock.move(hours * HOUR)
        await until(lambda: _jumped(client))
        await check_all_there(client, handles, named, first)
        handles.append(await post(client, 7))
    service.kill() if is_killed else await service.stop()
    service = await services.start(tmp_path / "state", **options)
    async with service.client() as client:
        assert (await client.get("/clock")).json()["jump_ms"] == pytest.approx(hours * HOUR * 1000, abs=5000)
        await swept_twice(client)
        await check_all_there(client, handles, named, first)
        (warning,) = (await client.get("/readyz")).json()["warnings"]
        assert warning.startswith("The clock of this machine jumped by ")
        # It was wrong, and is set right.
        clock.move(0)
        await until(lambda: _sweeps(client))
        await swept_twice(client)
        await check_all_there(client, handles, named, first)
        assert (await client.get("/readyz")).json()["warnings"] == []
    assert service.failures() == []


async def check_all_there(
    client: httpx.AsyncClient, handles: list[str], named: dict[str, str], first: dict[str, Any]
) -> None:
    """Results, sessions, entries and receipts."""
    await swept_twice(client)
    assert await statuses(client, handles) == {200}
    assert await entries(client) == len(handles) + 1
    assert (await client.get("/sessions/run-1")).status_code == 200
    again = (await client.post("/results", json=named)).json()
    assert (again["handle"], again["entry_id"]) == (first["handle"], first["entry_id"])


async def test_what_has_expired_by_the_confirmed_clock_of_the_machine_is_swept(
    services: Services, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path / "clock")
    options: dict[str, Any] = {"command": service_with(*SOON), "retention_seconds": str(RETENTION)}
    service = await services.start(tmp_path / "state", clock=clock, **options)
    async with service.client() as client:
        handle = await post(client, 1)
        clock.move(2 * HOUR)
        await until(lambda: _jumped(client))
        assert (await client.post("/clock/confirm")).json()["confirmed_jump_ms"] > 0
        await until(lambda: _is_deleted(service, handle))
    await service.stop()
    service = await services.start(tmp_path / "state", clock=clock, **options)
    async with service.client() as client:
        assert (await client.get("/clock")).json()["jump_ms"] == 0


async def _is_deleted(service: Service, handle: str) -> bool:
    return not (service.state / "tool_output" / "default" / handle).exists()


class Kept:
    """A file of an earlier boot of the machine, which ended at `NOW`."""

    def __init__(self, jump: int = 0, boot: str = "another") -> None:
        self.kept = KeptClock(boot, 1, NOW, jump)

    def read(self) -> KeptClock:
        return self.kept

    def write(self, kept: KeptClock) -> None:
        self.kept = kept


NOW = 1_763_712_000_000
DAY_MS = 24 * HOUR * 1000


@pytest.mark.parametrize(
    ("shown", "jump", "seen"),
    [
        (NOW + 5 * DAY_MS, 0, 0),
        (NOW + 30_000, 0, 0),
        (NOW - 30_000, 0, 0),
        (NOW - HOUR * 1000, 0, -HOUR * 1000),
        (NOW + 40 * DAY_MS, 0, 40 * DAY_MS),
        # It had jumped before, which is not confirmed.
        (NOW + 5 * DAY_MS, 4 * DAY_MS, 5 * DAY_MS),
    ],
)
async def test_after_a_restart_of_the_machine_the_last_time_seen_bounds_a_jump(
    shown: int, jump: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file: Any = Kept(jump)
    watch = ClockWatch(SteadyClock(shown), machine=lambda: shown, file=file)
    await watch.look()
    assert watch.jump_ms == pytest.approx(seen, abs=1000)
    assert watch.now == pytest.approx(NOW if seen else shown, abs=1000)
    # It may have been off, or have jumped: the network may tell in a moment.
    assert not watch.may_sweep
    monkeypatch.setattr(watch, "_sweeps_from", 0.0)
    assert watch.may_sweep is (seen == 0)
    assert await watch.confirm() == pytest.approx(seen, abs=1000)
    assert (watch.jump_ms, watch.may_sweep, file.kept.jump) == (0, True, 0)
    assert file.kept.now == pytest.approx(shown, abs=1000)


async def test_a_damaged_file_of_the_clock_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db.clock"
    for damaged in (b"", b"{}", b"\xff" * 512, b'{"boot":"b","uptime":"x","now":1}'):
        path.write_bytes(damaged)
        watch = ClockWatch(SteadyClock(NOW), machine=lambda: NOW, file=ClockFile(path))
        await watch.look()
        assert (watch.jump_ms, watch.may_sweep) == (0, True)
        read = ClockFile(path).read()
        assert read is not None
        assert read.now == pytest.approx(NOW, abs=1000)


async def test_of_a_cluster_the_server_of_a_session_decides_and_a_jump_of_one_stops_all(
    services: Services, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path / "clock")
    clock.move(50)
    with RedisCluster(tmp_path / "cluster", clock=clock) as cluster:
        settings = {"storage_url": cluster.url, "retention_seconds": "40"}
        service = await services.start(tmp_path, service_with(*SOON), **settings)
        async with service.client() as client:
            # A server that is 50 seconds ahead has its own sessions, too: none of them expires early.
            handles = [await post(client, number) for number in range(24)]
            await until(lambda: _sweeps(client))
            await swept_twice(client)
            assert await statuses(client, handles) == {200}
            clock.move(2 * HOUR)
            await until(lambda: _jumped(client))
            assert not await _sweeps(client)
            clock.move(50)
            assert await statuses(client, handles) == {200}
