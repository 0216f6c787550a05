"""Calls of three replicas at once end as in some order, whatever the order of their commands."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from explorer import Client, Explorer, Made, done, is_linear, walked
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from samples import START, TENANT, WINDOW, FakeClock, charge, entry, joined, stored_result

from app.runtime import Runtime
from app.sweeper import sweep
from domain.accounting import EntryDetails, EntryFilter, GroupBy
from domain.budget import SessionChange
from domain.errors import ResultExpired, SpillgateError
from domain.handles import DEFAULT_SESSION, DEFAULT_TENANT, Handle, SessionKey
from domain.ports import Call, Charge, Ledger, ResultStore
from domain.quotas import Purged
from domain.results import StoredResult, UsageReport
from storage.base import bounded, session_rules
from storage.memory import MemoryStore
from storage.redis import connection, draft, keys, store
from storage.redis.connection import RedisConnection
from storage.redis.facts import RedisFacts
from storage.redis.keys import Shard, body_key, file_name, shard_of
from storage.redis.ledger import RedisLedger
from storage.redis.records import decode_call, unseal
from storage.redis.server import RedisNode
from storage.redis.store import GRACE_MS, RedisStore
from storage.redis.url import parse_redis_url
from storage.sqlite.ledger import MemoryLedger
from tests.conftest import served
from tests.counts import FULL, count
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.repeated, pytest.mark.usefixtures("one_shard")]
REPLICAS = 3
LATER = 61
"""Seconds after which what was stored has expired."""
KEY = SessionKey(TENANT, DEFAULT_SESSION)
HANDLES = [Handle(DEFAULT_SESSION, f"0000000{number}-0000-4000-8000-000000000000") for number in range(2)]


@dataclass(frozen=True)
class Act:
    """A call at one of the replicas."""

    replica: int
    name: str
    args: tuple[Any, ...] = ()

    async def on(self, port: Any) -> object:
        try:
            if self.name == "publish":
                return await publish(port, *self.args)
            if self.name == "read":
                return await read(port, *self.args)
            answer = await getattr(port, self.name)(*self.args)
            return None if self.name in ("sweep", "delete_tenant") else answer
        except SpillgateError as error:
            return type(error)


@pytest.fixture
def one_shard(monkeypatch: pytest.MonkeyPatch, patient_redis: None) -> Iterator[None]:
    """Small segments and one shard: no more steps than there are things that may come in between."""
    monkeypatch.setattr(keys, "SHARDS", 1)
    monkeypatch.setattr(bounded, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(connection, "SHARDS_SECONDS", 0.0)
    for module in (draft, store):
        monkeypatch.setattr(module, "SEGMENT", 4)
    shard_of.cache_clear()
    yield
    shard_of.cache_clear()


@pytest.fixture
def server(redis_server: RedisServer, clock: FakeClock, time_of_the_test: None) -> Iterator["Redis"]:
    # On a slow disk redis-py would send a command again after five seconds, and it would run twice.
    with Redis(port=redis_server.port, db=1, socket_timeout=None, retry=Retry(NoBackoff(), 0)) as server:
        for later in (LATER, LATER // 2, 0):
            clock.now = START + later * 1000
            for name in ("session", "sweep", "batch", "publish", "remove", "touch", "find"):
                server.script_load(connection.script_source(name)[0])
        yield server


def connected(explorer: Explorer) -> RedisConnection:
    found = RedisConnection(parse_redis_url("redis://127.0.0.1"))
    found._place = RedisNode(Client(explorer), 64, "redis")  # type: ignore[arg-type]
    found._facts = RedisFacts(False, None, "noeviction", 0, can_wait=False)
    return found


# The ledger.

RETENTIONS = {"session_retention_seconds": 60, "entry_retention_seconds": 600}
LINES = itertools.count()


def some_charge(chosen: random.Random, epoch: int, call_id: str | None, *, is_stored: bool = False) -> Charge:
    details = EntryDetails(str(HANDLES[0])) if is_stored else EntryDetails()
    one = replace(entry(KEY, details=details), id=f"line-{next(LINES)}")
    tokens, text = chosen.choice([300, 700]), chosen.choice([None, "text ü"])
    return charge(
        tokens, call_id, KEY, epoch=epoch, entry=one, fingerprint="f", text="given" if is_stored else text
    )


def ledger_calls(chosen: random.Random, epoch: int) -> list[tuple[str, tuple[Any, ...]]]:
    """One of each kind. Most are about the call `a`, in the life that begins with `epoch`."""
    report = UsageReport(chosen.choice([500, 600]), chosen.choice([1, 2]))
    call_id = chosen.choice(["a", "a", "b"])
    return [
        ("end", (KEY,)),
        ("enter", (Call(KEY, WINDOW, True, call_id),)),
        ("enter", (Call(KEY, WINDOW, True, call_id, report),)),
        ("reserve", (some_charge(chosen, epoch, chosen.choice([None, call_id])),)),
        ("settle", (some_charge(chosen, epoch, call_id),)),
        ("settle", (some_charge(chosen, epoch, None, is_stored=True),)),
        ("append", (replace(entry(KEY), id=f"line-{next(LINES)}"),)),
        ("report", (KEY, report)),
        ("put_session", (KEY, SessionChange(frozenset(["model"]), model=chosen.choice("mn")))),
        ("keep_finding", (KEY, epoch, "n", chosen.choice(["x", "long"]))),
        ("finding", (KEY, epoch, "n")),
        ("session", (KEY,)),
        ("sweep", ()),
        ("delete_tenant", (TENANT,)),
    ]


def scene(chosen: random.Random) -> tuple[list[Act], int]:
    """The default session in its first life or, mostly, in its second, and what replica 1 knows of it."""
    made, epoch = [Act(0, "put_session", (KEY, SessionChange(frozenset()))), Act(1, "session", (KEY,))], 0
    for life in range(chosen.choice([1, 2, 2])):
        if life:
            made.append(Act(0, "end", (KEY,)))
            epoch = START
        made.append(Act(0, "settle", (some_charge(chosen, epoch, "a"),)))
        made.append(Act(0, "keep_finding", (KEY, epoch, "n", "old")))
    if chosen.random() < 0.5:
        made.append(Act(1, "session", (KEY,)))
    return made, epoch


async def state_of(ledger: Ledger, findings: dict[str, str]) -> object:
    entries = (await ledger.entries(EntryFilter(TENANT), 100, None)).entries
    sums = (await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)).rows
    return await ledger.session(KEY), sorted(entries, key=lambda one: one.id), sums, findings


def check_bytes(server: "Redis", shard: Shard) -> dict[str, str]:
    """Compares the counters with what there is. Returns the findings, all of the life that goes on."""
    found = server.hgetall(shard.key("session", KEY.session_id))
    kept = server.hgetall(shard.key("findings", KEY.session_id))
    receipts = {name: packed for name, packed in found.items() if b":" in name}
    size = sum(len(name) + len(text) * 9 // 8 + 100 for name, text in (kept | receipts).items())
    if found:
        session = unseal(KEY, found[b"s"], found[b"r"], found[b"u"])
        size += session_rules.session_usage(session).bytes
        assert all(name.startswith(b"%d:" % session.epoch) for name in kept)
    assert int(server.hget(shard.key("sizes"), KEY.session_id) or 0) == size
    entries = [item[b"e"] for _, item in server.xrange(shard.key("entries"))]
    size += sum(len(one) + 90 + 170 * (b"tool_output_handle" in one) for one in entries)
    assert int(server.hget(shard.key("state"), "bytes") or 0) == size
    return {name.decode().partition(":")[2]: text.decode() for name, text in kept.items()}


class Reference(MemoryLedger):
    async def delete_tenant(self, tenant: str) -> Purged:
        """In one step, as Redis deletes a tenant with little."""
        while not (purged := await super().delete_tenant(tenant)).is_done:
            pass
        return purged


async def walk_ledger(
    server: "Redis",
    clock: FakeClock,
    made: list[Act],
    programs: list[list[Act]],
    seed: int | None = None,
    later: int = 0,
    **how: Any,
) -> None:
    """Runs the programs in many orders, `later` seconds after what was `made`."""

    def end(acts: Sequence[Act]) -> tuple[list[object], object]:
        then = FakeClock()
        ledger = Reference(clock=then, **RETENTIONS)
        for act in made:
            done(act.on(ledger))
        then.advance(later)
        answers = [done(act.on(ledger)) for act in acts]
        findings = dict(ledger._by_key.execute("SELECT name, text FROM findings"))
        state = done(state_of(ledger, findings))
        done(ledger.close())
        return answers, state

    for orders in walked(seed):
        server.flushdb()
        clock.now, explorer = START, Explorer(server, orders, **how)
        ledgers = [RedisLedger(connected(explorer), clock=clock, **RETENTIONS) for _ in range(REPLICAS)]
        for act in made:
            await act.on(ledgers[act.replica])
        clock.advance(later)
        calls = await explorer.explore(programs, ledgers)
        try:
            findings = check_bytes(server, shard_of(KEY))
            assert is_linear(calls, end, await state_of(ledgers[0], findings))
        except AssertionError as error:
            raise AssertionError("\n".join([*map(str, [*made, *calls]), *explorer.log])) from error


async def test_two_calls_of_one_session_end_as_one_after_the_other(server: "Redis", clock: FakeClock) -> None:
    chosen = random.Random(3)
    for first, second in itertools.combinations(range(14), 2):
        made, epoch = scene(chosen)
        calls = ledger_calls(chosen, epoch)
        if FULL or "end" in {calls[first][0], calls[second][0]}:
            programs = [[Act(1, *calls[second])], [Act(2, *calls[first])]]
            await walk_ledger(server, clock, made, programs)


async def test_calls_of_one_session_end_as_one_after_another(server: "Redis", clock: FakeClock) -> None:
    for seed in range(count(10, 500)):
        chosen = random.Random(seed)
        made, epoch = scene(chosen)
        shares = chosen.random() < 0.4
        programs: list[list[Act]] = []
        for replica in range(chosen.choice([2, 3])):
            some = chosen.sample(ledger_calls(chosen, epoch), chosen.choice([1, 2]))
            programs.append([Act(1 if shares else replica, *call) for call in some])
        later, faults = chosen.choice([0, 0, LATER]), chosen.choice([0, 0, 1, 2])
        await walk_ledger(server, clock, made, programs, seed, later, faults=faults, is_slow=shares)


# The results.

BODIES = (b"abcdef", b"xy")
"""Of two segments, and of one."""


def results() -> list[StoredResult]:
    """The first of the life before epoch 1, the other of that life."""
    return [stored_result(body, START, HANDLES[n], epoch=n) for n, body in enumerate(BODIES)]


async def publish(port: ResultStore, stored: StoredResult) -> None:
    clock: Any = getattr(port, "clock", None) or getattr(port, "_clock", None)
    async with port.draft(TENANT) as one:
        await one.write(BODIES[stored.epoch])
        await one.publish(replace(stored, stored_at=clock()))


async def read(port: ResultStore, handle: Handle) -> bytes | None:
    found = await port.find(TENANT, handle)
    try:
        return None if found is None else await joined(port.read(found))
    except ResultExpired:
        return None


def store_calls() -> list[tuple[str, tuple[Any, ...]]]:
    calls: list[tuple[str, tuple[Any, ...]]] = [("delete_session", (KEY, 1)), ("delete_session", (KEY, 2))]
    for stored in RESULTS:
        calls += [("publish", (stored,)), ("delete", (TENANT, stored.handle)), ("touch", (stored,))]
        calls += [("find", (TENANT, stored.handle)), ("read", (stored.handle,))]
    return [*calls, ("sweep", ()), ("delete_tenant", (TENANT,))]


async def shown(port: ResultStore) -> object:
    found = [await port.find(TENANT, handle) for handle in HANDLES]
    return found, [await read(port, handle) for handle in HANDLES], await port.count_results([KEY])


def check_results(server: "Redis", shard: Shard, *, is_whole: bool = True) -> set[str]:
    """Compares the parts of all results with each other. Returns their handles. With `is_whole` each body
    belongs to a result, or goes in a minute."""
    names = {name.decode() for name in server.zrange(shard.key("results", KEY.session_id), 0, -1)}
    found = {
        name: server.hgetall(shard.key("result", file_name(Handle(KEY.session_id, name)))) for name in names
    }
    assert len(server.keys(shard.key("result", "*"))) == len(names)
    rows = set(server.zrange(shard.key("due"), 0, -1))
    assert rows == {one[b"member"] for one in found.values()}
    assert int(server.get(shard.key("held")) or 0) == sum(int(row.split(b" ")[1]) for row in rows)
    bodies = {body_key(one[b"body"].decode()) for one in found.values() if one[b"body"]}
    left = {name.decode(): server.pttl(name) for name in server.keys("spillgate:body:*")}
    assert not is_whole or bodies == {name for name, ms in left.items() if ms > GRACE_MS}
    return {str(Handle(KEY.session_id, name)) for name in names}


async def walk_store(
    server: "Redis",
    clock: FakeClock,
    made: list[Act],
    programs: list[list[Act]],
    seed: int | None = None,
    later: int = 0,
    **how: Any,
) -> None:
    options: Any = {"retention_seconds": 60, "max_bytes": 0}

    def end(acts: Sequence[Act]) -> tuple[list[object], object]:
        then = FakeClock()
        port = MemoryStore(clock=then, **options)
        for act in made:
            done(act.on(port))
        then.advance(later)
        return [done(act.on(port)) for act in acts], done(shown(port))

    for orders in walked(seed):
        server.flushdb()
        clock.now, explorer = START, Explorer(server, orders, **how)
        ports = [RedisStore(connected(explorer), clock=clock, **options) for _ in range(REPLICAS)]
        for act in made:
            await act.on(ports[act.replica])
        clock.advance(later)
        calls = await explorer.explore(programs, ports)
        faulty = any(line.startswith(("lose", "disconnect", "delay")) for line in explorer.log)
        # To publish and to touch twice is allowed. A reader may find the info and then no body.
        again = [
            Made(one.act, one.began, is_lost=True)
            for one in calls
            if faulty and one.act.name in ("publish", "touch")
        ]
        for one in calls:
            one.is_lost |= one.act.name == "read" and one.outcome in (None, *BODIES)
        try:
            check_results(server, shard_of(KEY), is_whole=not faulty)
            assert not any(port.quota.drafted() for port in ports)
            assert is_linear([*calls, *again], end, await shown(ports[0]))
        except AssertionError as error:
            raise AssertionError("\n".join([*map(str, [*made, *calls]), *explorer.log])) from error


RESULTS = results()


async def test_two_calls_about_results_end_as_one_after_the_other(server: "Redis", clock: FakeClock) -> None:
    calls = store_calls()
    for first, second in itertools.combinations_with_replacement(calls, 2):
        names = {first[0], second[0]}
        if FULL or names & {"publish", "touch"}:
            for kept in (RESULTS, []) if FULL or "delete_tenant" in names else (RESULTS,):
                made = [Act(0, "publish", (stored,)) for stored in kept]
                await walk_store(server, clock, made, [[Act(1, *first)], [Act(2, *second)]])


async def test_calls_about_results_end_as_one_after_another(server: "Redis", clock: FakeClock) -> None:
    for seed in range(count(10, 500)):
        chosen = random.Random(seed)
        made = [Act(0, "publish", (stored,)) for stored in chosen.sample(RESULTS, chosen.randrange(3))]
        shares = chosen.random() < 0.4
        programs = [
            [
                Act(1 if shares else replica, *call)
                for call in chosen.sample(store_calls(), chosen.choice([1, 2]))
            ]
            for replica in range(chosen.choice([2, 3]))
        ]
        later, faults = chosen.choice([0, LATER // 2, LATER]), chosen.choice([0, 0, 1])
        await walk_store(server, clock, made, programs, seed, later, faults=faults, is_slow=shares)


# The service.


@dataclass
class Replica:
    """Its calls return the status of the answer."""

    runtime: Runtime
    client: httpx.AsyncClient

    async def post(self, call_id: str) -> int:
        sent = {
            "tool_name": "t",
            "tool_call_id": call_id,
            "content": "line\n" * 500,
            "policy": {"max_bytes": 99},
        }
        return (await self.client.post("/results", json=sent)).status_code

    async def remove(self, path: str) -> int:
        return (await self.client.delete(path)).status_code

    async def sweep(self) -> None:
        await sweep(self.runtime, True)


def handles_charged(server: "Redis", shard: Shard) -> set[str]:
    """Those of the receipts of the life that goes on."""
    found = server.hgetall(shard.key("session", DEFAULT_SESSION))
    session = unseal(SERVED, found[b"s"], found[b"r"], found[b"u"])
    receipts = [decode_call(text) for name, text in found.items() if name.startswith(b"%d:" % session.epoch)]
    assert session.reserved_tokens == sum(one.entry.tokens_out for one in receipts)
    return {str(one.entry.details.tool_output_handle) for one in receipts}


SERVED = SessionKey(DEFAULT_TENANT, DEFAULT_SESSION)


async def test_what_two_requests_at_once_leave_in_the_store_is_what_the_session_was_charged_for(
    server: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    # A body of two segments.
    for module in (draft, store):
        monkeypatch.setattr(module, "SEGMENT", 2000)

    async def facts(connected: RedisConnection, server: RedisNode) -> RedisFacts:
        return RedisFacts(False, None, "noeviction", 0, can_wait=False)

    clients: list[Client] = []
    monkeypatch.setattr(
        connection, "client_of", lambda url: clients.append(Client(Explorer(server))) or clients[-1]
    )
    monkeypatch.setattr(RedisConnection, "_facts_of", facts)
    settings: dict[str, Any] = {"storage_url": "redis://127.0.0.1", "storage_max_bytes": 0}
    shard, post, end = shard_of(SERVED), Act(0, "post", ("a",)), Act(0, "remove", ("/sessions/default",))
    server.flushdb()
    async with served(**settings) as one, served(**settings) as other:
        replicas = [Replica(*one), Replica(*other)]
        # Random orders alone: what a replica knows of the session differs from run to run.
        for made, meeting, seed in itertools.product(
            ([post, end], [post, end, post]), (end, post), range(count(1, 10))
        ):
            for orders in walked(seed):
                server.flushdb()
                for act in made:
                    await act.on(replicas[act.replica])
                explorer = Explorer(server, orders)
                for client in clients:
                    client.explorer = explorer
                calls = await explorer.explore([[replace(post, replica=1)], [meeting, post]], replicas)
                try:
                    assert {one.outcome for one in calls} <= {200, 201, 204, 409, None}
                    assert check_results(server, shard) == handles_charged(server, shard)
                except AssertionError as error:
                    raise AssertionError("\n".join([*map(str, [*made, *calls]), *explorer.log])) from error
