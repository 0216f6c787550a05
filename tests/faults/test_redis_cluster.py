"""A Redis Cluster whose servers fail, move slots and take over: what was acknowledged is there, and only the
sessions of a server that is away are refused."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from redis import Redis

from tests.counts import count, kills
from tests.faults import audit
from tests.faults.calls import Call, insist, text_of
from tests.faults.cluster_load import KilledPrimary, Load, sessions_of_nodes, slot_of
from tests.faults.service_process import Services, service_with
from tests.listening import listening
from tests.redis_server import HOST, PRIMARIES, RedisCluster, RedisServer, is_primary, text_of_reply

pytestmark = pytest.mark.anyio

KILLS = kills(2, 12)
REPLICAS = 2
WRITERS = count(4, 12)
TIMEOUT_MS = count(2000, 3000)
"""After which the others take a node for dead. On a busy machine a node may be still for a second."""

STORED = 13_000
PASSED = 2_000
PASSWORD = "s3cret"
AWAY = "1 of the 3 servers"


@asynccontextmanager
async def load_on(services: Services, place: Path, cluster: RedisCluster, name: str) -> AsyncIterator[Load]:
    command = service_with("small segments")
    started = [services.spawn(place, command, storage_url=cluster.url) for _ in range(REPLICAS)]
    clients = [(await one.listening()).client() for one in started]
    try:
        yield Load(clients, name)
    finally:
        for client in clients:
            await client.aclose()
    assert [one.failures() for one in started] == [[]] * REPLICAS


async def until_more_kept(load: Load, more: int) -> None:
    wanted = len(load.kept) + more
    async with asyncio.timeout(60):
        while len(load.kept) < wanted:
            await asyncio.sleep(0.02)


async def until_taken_over(cluster: RedisCluster, victim: RedisServer) -> None:
    """Until the other one of the victim's shard is a primary."""
    other = cluster.nodes[(cluster.nodes.index(victim) + PRIMARIES) % len(cluster.nodes)]
    async with asyncio.timeout(60):
        while not is_primary(other):
            await asyncio.sleep(0.05)


async def check_all(load: Load, lost: set[str]) -> None:
    """`lost`: what Redis itself has lost."""
    assert set(load.statuses) <= {200, 201, 503}
    missing = await load.missing(load.kept)
    assert set(missing) <= lost
    entries = await audit.tool_entries(load.clients[0])
    gone = {fault.split()[1] for fault in lost}
    assert audit.misbooked([one for one in load.kept if one.handle not in gone], entries) == []


@pytest.mark.repeated
async def test_primaries_and_replicas_are_killed_under_load_and_nothing_acknowledged_is_lost(
    services: Services, tmp_path: Path
) -> None:
    source, lost = random.Random(1), set[str]()
    with RedisCluster(tmp_path / "cluster", replicas=3, timeout_ms=TIMEOUT_MS) as cluster:
        async with load_on(services, tmp_path, cluster, "kills") as load:
            for number in range(KILLS):
                load.start(WRITERS)
                await until_more_kept(load, 10)
                wants_primary = number % 3 != 1
                victim = source.choice([one for one in cluster.nodes if is_primary(one) == wants_primary])
                before = len(load.kept)
                victim.kill()
                killed = KilledPrimary(victim, tmp_path / f"killed-{number}")
                if wants_primary:
                    await until_taken_over(cluster, victim)
                # Also of the sessions of the victim.
                await until_more_kept(load, 2 * WRITERS)
                await asyncio.to_thread(victim.start)
                await asyncio.to_thread(cluster.until_well)
                await load.stop()
                missing = await load.missing(load.kept[max(0, before - 50) :])
                lost |= set(await asyncio.to_thread(killed.has, missing))
                assert set(missing) <= lost
            await check_all(load, lost)
            # Redis acknowledges before its replica has a write; here that is less than a millisecond.
            assert len(lost) < KILLS


async def test_slots_move_while_results_are_stored_read_and_deleted(
    services: Services, tmp_path: Path
) -> None:
    with RedisCluster(tmp_path / "cluster") as cluster:
        async with load_on(services, tmp_path, cluster, "moves") as load:
            load.start(WRITERS)
            await until_more_kept(load, WRITERS)
            slots = sorted({slot_of(f"moves-{number}") for number in range(WRITERS)})
            for number, slot in enumerate(slots):
                await asyncio.to_thread(move, cluster, slot, number % 3)
                ended = Call(f"ended-{number}", text_of(f"ended-{number}", STORED))
                answer = await insist(partial(ended.send, load.clients[0]))
                assert answer.status_code == 201
                end = partial(load.clients[1].delete, f"/sessions/{ended.session_id}")
                assert (await insist(end)).status_code == 204
                assert await load.missing(load.kept[-3:]) == []
            await load.stop()
            await check_all(load, set())
            assert load.statuses[201] > load.statuses[503]


def move(cluster: RedisCluster, slot: int, target: int) -> None:
    """As `redis-cli --cluster reshard` does, one key at a time."""
    nodes = cluster.nodes
    owned = nodes[0].ask("CLUSTER", "NODES").decode()
    ids = [text_of_reply(node.ask("CLUSTER", "MYID")) for node in nodes]
    source = next(n for n in range(3) if owns(owned, ids[n], slot))
    if source == target:
        return
    setslot = ("CLUSTER", "SETSLOT", str(slot))
    assert nodes[target].ask(*setslot, "IMPORTING", ids[source]) == b"+OK\r\n"
    assert nodes[source].ask(*setslot, "MIGRATING", ids[target]) == b"+OK\r\n"
    port = str(nodes[target].port)
    while keys := nodes[source].ask("CLUSTER", "GETKEYSINSLOT", str(slot), "1").decode().split("\r\n")[2:3]:
        reply = nodes[source].ask("MIGRATE", HOST, port, "", "0", "60000", "KEYS", keys[0])
        assert reply in (b"+OK\r\n", b"+NOKEY\r\n"), reply
    for number in (target, source, 3 - source - target):
        assert nodes[number].ask(*setslot, "NODE", ids[target]) == b"+OK\r\n"


def owns(nodes: str, node_id: str, slot: int) -> bool:
    line = next(line for line in nodes.splitlines() if line.startswith(node_id))
    ranges = [part.split("-") for part in line.split()[8:] if part[0].isdigit()]
    return any(int(one[0]) <= slot <= int(one[-1]) for one in ranges)


async def test_a_primary_that_was_cut_off_comes_back_as_a_replica_and_nothing_is_lost(
    services: Services, tmp_path: Path
) -> None:
    with RedisCluster(tmp_path / "cluster", replicas=3, timeout_ms=TIMEOUT_MS) as cluster:
        async with load_on(services, tmp_path, cluster, "cut") as load:
            load.start(WRITERS)
            await until_more_kept(load, WRITERS)
            cluster.nodes[1].pause()
            await until_taken_over(cluster, cluster.nodes[1])
            await until_more_kept(load, WRITERS)
            cluster.nodes[1].resume()
            await asyncio.to_thread(cluster.until_well)
            assert not is_primary(cluster.nodes[1])
            await until_more_kept(load, WRITERS)
            await load.stop()
            await check_all(load, set())


async def test_what_a_replica_had_not_got_is_all_that_a_failover_loses(
    services: Services, tmp_path: Path
) -> None:
    """As docs/backends.md says: Redis acknowledges before it replicates."""
    with RedisCluster(tmp_path / "cluster", replicas=3, timeout_ms=TIMEOUT_MS) as cluster:
        async with load_on(services, tmp_path, cluster, "lag") as load:
            sessions = sessions_of_nodes("lag")
            for session_id in sessions:
                await load.acknowledged(Call(session_id, text_of(f"{session_id}-a", STORED), "a"))
            primary, replica = cluster.nodes[1], cluster.nodes[4]
            before = len(load.kept)
            replica.pause()
            for session_id in sessions:
                await load.acknowledged(Call(session_id, text_of(f"{session_id}-b", STORED), "b"))
            primary.kill()
            killed = KilledPrimary(primary, tmp_path / "killed")
            replica.resume()
            await load.acknowledged(Call(sessions[1], text_of("after", STORED), "c"))
            missing = await load.missing(load.kept)
            assert len(missing) <= 1
            assert await asyncio.to_thread(killed.has, missing) == missing
            assert await load.missing(load.kept[:before]) == []


async def test_where_a_replica_must_follow_a_primary_without_one_refuses(
    services: Services, tmp_path: Path
) -> None:
    options = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]
    with RedisCluster(tmp_path / "cluster", replicas=3, options=options) as cluster:
        async with load_on(services, tmp_path, cluster, "few") as load:
            sessions = sessions_of_nodes("few")
            cluster.nodes[4].kill()
            refused = Call(sessions[1], text_of("few", STORED), "few")
            async with asyncio.timeout(60):
                while (answer := await refused.send(load.clients[0])).status_code != 503:
                    await asyncio.sleep(0.1)
            while "too few replicas" not in answer.json()["detail"]:
                await asyncio.sleep(0.1)
                answer = await refused.send(load.clients[0])
            for session_id in (sessions[0], sessions[2]):
                await load.acknowledged(Call(session_id, text_of(session_id, STORED), "few"))
            await asyncio.to_thread(cluster.nodes[4].start)
            await load.acknowledged(refused)
            assert await load.missing(load.kept) == []


@contextmanager
def killed(node: RedisServer) -> Iterator[None]:
    node.kill()
    yield
    node.start()


@contextmanager
def silent(node: RedisServer) -> Iterator[None]:
    node.pause()
    yield
    node.resume()


@contextmanager
def with_another_password(node: RedisServer) -> Iterator[None]:
    with Redis(port=node.port) as client:
        # The connection that sets it stays in.
        client.config_set("requirepass", PASSWORD)
        client.client_kill_filter(_type="normal", skipme=True)
    yield
    node.kill()
    node.start()


@asynccontextmanager
async def answering(node: RedisServer, reply: bytes) -> AsyncIterator[None]:
    """Something else listens at the port of the node."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                writer.write(reply)

    node.kill()
    async with listening(answer, node.port):
        yield
    node.start()


@asynccontextmanager
async def _at_once(act: contextlib.AbstractContextManager[None]) -> AsyncIterator[None]:
    with act:
        yield


Fault = Callable[[RedisServer], contextlib.AbstractAsyncContextManager[None]]
FAULTS: dict[str, Fault] = {
    "killed": lambda node: _at_once(killed(node)),
    "silent": lambda node: _at_once(silent(node)),
    "another password": lambda node: _at_once(with_another_password(node)),
    "noise": lambda node: answering(node, random.Random(1).randbytes(400)),
    "a bad redirection": lambda node: answering(node, b"-MOVED x 127.0.0.1\r\n"),
    "OK": lambda node: answering(node, b"+OK\r\n"),
}


@pytest.fixture(scope="module")
async def apart(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[RedisCluster, list[httpx.AsyncClient]]]:
    """A cluster whose servers answer without each other, and replicas of the service on it."""
    place = tmp_path_factory.mktemp("apart")
    options = ["--cluster-require-full-coverage", "no"]
    with Services(place) as services, RedisCluster(place / "cluster", options=options) as cluster:
        async with load_on(services, place, cluster, "apart") as load:
            yield cluster, load.clients


@pytest.mark.parametrize("name", FAULTS)
async def test_the_sessions_of_a_server_that_is_away_are_refused_alone(
    apart: tuple[RedisCluster, list[httpx.AsyncClient]], name: str
) -> None:
    cluster, clients = apart
    load, sessions = Load(clients, name), sessions_of_nodes(name.replace(" ", "-"))
    for session_id in sessions:
        await load.acknowledged(Call(session_id, text_of(session_id, STORED), "before"))
    await until_ready(clients[0], lambda warnings: AWAY not in warnings)
    async with FAULTS[name](cluster.nodes[1]):
        for number in range(5):
            gone = await Call(sessions[1], text_of(f"{name}-{number}", STORED), f"{number}").send(clients[0])
            assert gone.status_code == 503, gone.text
            for session_id in (sessions[0], sessions[2]):
                content = text_of(f"{session_id}-{number}", (STORED, PASSED)[number % 2])
                await load.acknowledged(Call(session_id, content, f"{number}"))
        assert await load.missing([one for one in load.kept if sessions[1] not in one.handle]) == []
        await until_ready(clients[0], lambda warnings: AWAY in warnings)
    await load.acknowledged(Call(sessions[1], text_of(f"{name}-0", STORED), "0"))
    assert await load.missing(load.kept) == []


async def until_ready(client: httpx.AsyncClient, said: Callable[[str], bool]) -> None:
    """Until it is ready, and its warnings are such."""
    async with asyncio.timeout(60):
        while True:
            answer = await client.get("/healthz")
            if answer.status_code == 200 and said("\n".join(answer.json()["warnings"])):
                return
            await asyncio.sleep(0.1)


async def test_a_server_that_is_full_refuses_what_must_be_stored_there_alone(
    apart: tuple[RedisCluster, list[httpx.AsyncClient]],
) -> None:
    cluster, clients = apart
    load, sessions = Load(clients, "full"), sessions_of_nodes("full")
    await load.acknowledged(Call(sessions[1], text_of("before", STORED), "before"))
    cluster.nodes[1].ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    cluster.nodes[1].ask("CONFIG", "SET", "maxmemory", "1mb")
    full = Call(sessions[1], text_of("full", STORED), "full")
    async with asyncio.timeout(60):
        while (answer := await full.send(clients[0])).status_code == 503:
            await asyncio.sleep(0.05)
    assert (answer.status_code, answer.json()["stored"]) == (507, False)
    small = Call(sessions[1], text_of("small", PASSED), None)
    async with asyncio.timeout(60):
        while (answer := await small.send(clients[0])).status_code == 503:
            await asyncio.sleep(0.05)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "pass")
    for session_id in (sessions[0], sessions[2]):
        await load.acknowledged(Call(session_id, text_of(session_id, STORED), "else"))
    await until_ready(clients[0], lambda warnings: "maxmemory allows" in warnings)
    assert await load.missing(load.kept) == []
    cluster.nodes[1].ask("CONFIG", "SET", "maxmemory", "0")
    await load.acknowledged(full)
    assert load.statuses[507] == 0


async def test_a_cluster_that_is_down_as_a_whole_refuses_and_comes_back(
    services: Services, tmp_path: Path
) -> None:
    # Nothing is lost where a node that is only slow is taken for dead.
    with RedisCluster(tmp_path / "cluster", timeout_ms=1000) as cluster:
        async with load_on(services, tmp_path, cluster, "down") as load:
            sessions = sessions_of_nodes("down")
            for session_id in sessions:
                await load.acknowledged(Call(session_id, text_of(session_id, STORED), "before"))
            cluster.nodes[1].kill()
            call = Call(sessions[0], text_of("down", STORED), "down")
            async with asyncio.timeout(60):
                while (await call.send(load.clients[0])).status_code != 503:
                    await asyncio.sleep(0.2)
                while (await load.clients[0].get("/readyz")).status_code != 503:
                    await asyncio.sleep(0.2)
            await asyncio.to_thread(cluster.nodes[1].start)
            await load.acknowledged(call)
            assert await load.missing(load.kept) == []
