"""Random histories of two instances with a spool end as in the reference, whatever is lost or killed."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as Disconnected
from samples import KEY, RETENTION, TENANT, WINDOW, FakeClock, charge, entry, joined, put

from domain.accounting import EntryDetails, EntryFilter, GroupBy
from domain.budget import SessionChange
from domain.errors import SessionEnded, StorageError
from domain.handles import Handle
from domain.ports import Call, Ledger, ResultStore
from storage.disk.store import DiskStore, Root
from storage.memory import MemoryLedger, MemoryStore
from storage.redis import connection, keys
from storage.redis.connection import RedisConnection, script_source
from storage.redis.facts import ServerFacts
from storage.redis.keys import shard_of
from storage.redis.ledger import RedisLedger
from storage.redis.store import RedisStore
from storage.redis.url import parse_redis_url
from storage.spool.ledger import LocalLedger, SpoolLedger
from storage.spool.outage import Outage
from storage.spool.store import SpoolStore
from tests.counts import count
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.repeated]
NAMES = "ab"
OF_LEDGER: Any = {"session_retention_seconds": RETENTION, "entry_retention_seconds": RETENTION}
OF_STORE: Any = {"retention_seconds": RETENTION, "max_bytes": 0}


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Wire:
    """Takes the place of redis-py's client. Commands are counted down: the one that makes `lost` 0 runs, and
    its reply is lost; before the one that makes `killed` 0 the process is killed."""

    server: "Redis"
    is_cut: bool = False
    lost: int = 0
    killed: int = 0
    commands: list[Any] = field(default_factory=list)

    async def execute_command(self, *words: Any) -> Any:
        self.killed -= 1
        if self.killed == 0:
            raise Killed
        if self.is_cut:
            raise Disconnected
        self.lost -= 1
        reply = self.server.execute_command(*words)
        if self.lost == 0:
            raise Disconnected
        return reply

    def pipeline(self, transaction: bool) -> "Pipeline":
        return Pipeline(self)

    async def aclose(self) -> None:
        return None


@dataclass
class Pipeline:
    wire: Wire
    commands: list[Any] = field(default_factory=list)

    def execute_command(self, *words: Any) -> None:
        self.commands.append(words)

    async def execute(self, raise_on_error: bool) -> list[Any]:
        return [await self.wire.execute_command(*words) for words in self.commands]


@pytest.fixture
def server(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, patient_redis: None) -> Iterator[Any]:
    async def facts(connected: RedisConnection) -> ServerFacts:
        return ServerFacts(False, None, "noeviction", 0, can_wait=False)

    monkeypatch.setattr(keys, "SHARDS", 1)
    monkeypatch.setattr(connection, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(RedisConnection, "_asked", facts)
    shard_of.cache_clear()
    with Redis(port=redis_server.port, db=1) as server:
        for name in ("session", "sweep", "batch", "publish", "remove", "touch"):
            server.script_load(script_source(name)[0])
        yield server
        server.config_set("maxmemory", 0)
    shard_of.cache_clear()


@dataclass
class Ports:
    """What agents do with a store and a ledger, in the order in which the governor does it."""

    store: ResultStore
    ledger: Ledger
    clock: FakeClock

    async def send(self, line: int, name: str | None) -> object:
        try:
            entered = await self.ledger.enter(Call(KEY, WINDOW, True, name))
            handle = handle_of(name or str(line), entered.session.epoch)
            if entered.receipt is None or await self.store.find(TENANT, handle) is None:
                body = str(handle).encode()
                await put(self.store, body, self.clock(), where=handle, epoch=entered.session.epoch)
            if entered.receipt is None:
                about = {"tool_name": name or f"unnamed {line}", "details": EntryDetails(str(handle))}
                one = replace(entry(at=self.clock(), **about), id=f"line-{line}")
                await self.ledger.settle(charge(3, name, epoch=entered.session.epoch, entry=one))
        except SessionEnded as error:
            return type(error)
        return None

    async def declare(self, line: int) -> object:
        change = SessionChange(frozenset({"model"}), model=f"model-{line}")
        return (await self.ledger.put_session(KEY, change)).model

    async def remove(self, name: str) -> None:
        session = await self.ledger.session(KEY)
        await self.store.delete(TENANT, handle_of(name, 0 if session is None else session.epoch))

    async def end(self) -> None:
        ended = await self.ledger.end(KEY)
        if ended is not None:
            await self.store.delete_session(KEY, ended.first_live_epoch)

    async def left(self, handles: set[Handle]) -> object:
        found = [await self.store.find(TENANT, handle) for handle in sorted(handles)]
        bodies = [one and await joined(self.store.read(one)) for one in found]
        session = await self.ledger.session(KEY)
        of_session = session and (session.epoch, session.ended_at, session.model, session.reserved_tokens)
        entries = (await self.ledger.entries(EntryFilter(TENANT), 1000, None)).entries
        sums = await self.ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)
        counts = await self.store.count_results([KEY])
        return bodies, of_session, Counter(one.tool_name for one in entries), sums, counts


def handle_of(name: str, epoch: int) -> Handle:
    return Handle(KEY.session_id, str(uuid5(NAMESPACE_OID, f"{name} {epoch}")))


class Instance:
    """One with a spool, which is started again when it is killed."""

    def __init__(self, wire: Wire, folder: Path, clock: FakeClock) -> None:
        self.wire, self._folder, self._clock = wire, folder, clock

    async def start(self) -> None:
        connected = [RedisConnection(parse_redis_url("redis://127.0.0.1")) for _ in range(2)]
        for one in connected:
            one._client = self.wire  # type: ignore[assignment]
        self.outage = Outage(self._folder)
        self.disk = DiskStore(Root(self._folder, 0), clock=self._clock, retention_seconds=RETENTION)
        await self.outage.open()
        store = SpoolStore(RedisStore(connected[0], clock=self._clock, **OF_STORE), self.disk, self.outage)
        shared = RedisLedger(connected[1], clock=self._clock, **OF_LEDGER)
        local = LocalLedger(shared, self.outage, clock=self._clock, **OF_LEDGER)
        for line in self.outage.journal.lines:
            await local.take(line)
        self.ports = Ports(store, SpoolLedger(shared, local, self.outage), self._clock)  # type: ignore[arg-type]

    async def stop(self) -> None:
        await self.disk.close()
        await self.outage.journal.close()

    async def end_outage(self) -> None:
        await self.run(lambda: self.outage.try_to_end())

    async def run(self, act: Callable[[], Awaitable[object]]) -> object:
        """Calls again what was refused, when Redis is back, and what a kill ended."""
        while True:
            try:
                return await act()
            except StorageError:
                self.wire.is_cut = False
                self.wire.server.config_set("maxmemory", 0)
                if self.outage.why is not None:
                    await self.end_outage()
            except Killed:
                await self.stop()
                await self.start()


async def test_what_is_left_after_any_history_is_what_the_reference_has(
    server: "Redis", tmp_path: Path
) -> None:
    for seed in range(count(100, 3000)):
        chosen, clock, log = random.Random(seed), FakeClock(), list[str]()
        server.flushdb()
        wire = Wire(server)
        one = Instance(wire, tmp_path / str(seed), clock)
        await one.start()
        other = Instance(Wire(server), tmp_path / f"{seed}-other", clock)
        await other.start()
        expected = Ports(MemoryStore(clock=clock, **OF_STORE), MemoryLedger(clock=clock, **OF_LEDGER), clock)
        handles: set[Handle] = set()
        for line in range(chosen.randrange(4, 16)):
            clock.advance(0.001)
            fault = chosen.choice(["", "", "cut", "lose", "kill", "full", "room", "round", "round"])
            log.append(fault)
            wire.is_cut = fault == "cut" or (wire.is_cut and fault != "round")
            # A body that is stored again, without a charge, is in both places if its reply is lost.
            may_be_lost = fault == "lose" and not any("remove" in each for each in log)
            wire.lost = chosen.randrange(1, 5) if may_be_lost else 0
            session = await expected.ledger.session(KEY)
            epoch = 0 if session is None else session.first_live_epoch
            # A process that starts while Redis is away does not know that the session has ended.
            may_be_killed = fault in ("kill", "round") and epoch == 0 and chosen.random() < 0.5
            wire.killed = chosen.randrange(1, 9) if may_be_killed else 0
            if fault in ("full", "room"):
                server.config_set("maxmemory", int(fault == "full"))
            if fault == "round":
                await one.end_outage()
            name = chosen.choice([None, *NAMES])
            kind = chosen.choice(["send", "send", "send", "declare", "remove", "end", "other"])
            args: tuple[Any, ...] = (line, name) if kind in ("send", "other") else ()
            args = (line,) if kind == "declare" else (chosen.choice(NAMES),) if kind == "remove" else args
            log.append(f"{kind} {args}")
            act = "send" if kind == "other" else kind
            # What is on the disk of one, the other does not know, and would store a second time.
            is_free = one.outage.why is None and await one.disk.count_results([KEY]) == [0]
            at = other if kind == "other" and is_free else one
            found = await at.run(lambda at=at, act=act, args=args: getattr(at.ports, act)(*args))
            handles |= {handle_of(each, epoch) for each in (*NAMES, str(line))}
            assert found == await getattr(expected, act)(*args), (seed, log)
        wire.is_cut, wire.killed, wire.lost = False, 0, 0
        server.config_set("maxmemory", 0)
        await one.end_outage()
        assert one.outage.why is None
        assert await one.ports.left(handles) == await expected.left(handles), (seed, log)
        assert (tmp_path / str(seed) / "journal.jsonl").stat().st_size == 0
        await one.stop()
        await other.stop()
