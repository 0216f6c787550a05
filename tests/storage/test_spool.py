"""The spool before Redis: at each moment at which Redis may go away, and with replies that are lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pytest
from redis_proxy import Proxy
from samples import (
    KEY,
    LIMIT,
    RETENTION,
    TENANT,
    WINDOW,
    FakeClock,
    charge,
    entry,
    joined,
    put,
    stored_result,
)

from domain.accounting import EntryFilter, GroupBy, Missing, Summary
from domain.budget import SessionChange
from domain.errors import ConfigError, IdempotencyKeyReused, SessionEnded, StoreBusy, StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Call, Ledger, ResultStore
from domain.quotas import QuotaOf, TenantQuota, unbounded
from domain.results import Durability
from storage import open_ledger, open_spool, open_store
from storage.spool import outage
from storage.spool.outage import Outage
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio
LARGE = bytes(range(256)) * 10_000
EVERYTHING = EntryFilter(TENANT)


@dataclass
class Pair:
    """Both behind one outage."""

    store: ResultStore
    ledger: Ledger
    outage: Outage
    said: list[str | None]

    async def back(self) -> None:
        async with asyncio.timeout(30):
            while self.outage.why is not None:
                await asyncio.sleep(0.02)

    async def ids(self) -> list[str]:
        return [one.id for one in (await self.ledger.entries(EVERYTHING, 1000, None)).entries]


class Open(Protocol):
    async def __call__(self, url: str, quota_of: QuotaOf = ...) -> Pair: ...


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", aof="always") as server:
        yield server


@pytest.fixture
async def opened(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def open_it(url: str, quota_of: QuotaOf = unbounded) -> Pair:
            said: list[str | None] = []
            spool = open_spool(tmp_path / "spool", said.append)
            of_store = {"clock": clock, "retention_seconds": RETENTION, "max_bytes": 0}
            of_ledger = {
                "clock": clock,
                "session_retention_seconds": RETENTION,
                "entry_retention_seconds": RETENTION,
            }
            store = await open_store(url, spool, **of_store)
            stack.push_async_callback(store.close)
            ledger = await open_ledger(url, spool, quota_of=quota_of, **of_ledger)
            stack.push_async_callback(ledger.close)
            watching = asyncio.create_task(spool.outage.watch())
            stack.callback(watching.cancel)
            return Pair(store, ledger, spool.outage, said)

        yield open_it


async def start_full(redis: RedisServer, pair: Pair) -> None:
    """Returns when the journal waits until Redis has room."""
    options = vars(redis)["_options"]
    options[options.index("--maxmemory") + 1] = "1"
    redis.start()
    async with asyncio.timeout(30):
        while "maxmemory" not in (pair.outage.why or ""):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("written", [0, 100_000, 700_000])
async def test_wherever_redis_dies_under_a_body_the_local_disk_has_all_of_it(
    opened: Open, redis: RedisServer, clock: FakeClock, written: int
) -> None:
    pair = await opened(redis.url)
    body = LARGE[:700_000]
    stored = stored_result(body, clock())
    async with pair.store.draft(TENANT) as draft:
        for start in range(0, len(body), 50_000):
            if start == written:
                redis.kill()
            await draft.write(body[start : start + 50_000])
        if written == len(body):
            redis.kill()
        assert await draft.publish(stored) is Durability.DISK
    assert await joined(pair.store.read(stored, 100_000, 200_000)) == body[100_000:200_000]
    redis.start()
    await pair.back()
    assert await joined(pair.store.read(stored)) == body
    assert await pair.store.count_results([KEY]) == [1]
    assert pair.said[1:] == [None]
    clock.advance(RETENTION)
    await pair.store.sweep()
    assert await pair.store.stored_bytes() == 0


async def test_a_large_body_that_redis_loses_half_way_is_spooled_when_it_is_sent_again(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    pair = await opened(redis.url)
    stored = stored_result(LARGE, clock())

    async def send() -> None:
        async with pair.store.draft(TENANT) as draft:
            await draft.write(LARGE[:2_000_000])
            redis.kill()
            await draft.write(LARGE[2_000_000:])
            await draft.publish(stored)

    with pytest.raises(StoreUnavailable):
        await send()
    with pytest.raises(StoreUnavailable):
        await pair.store.find(TENANT, stored.handle)
    again = await put(pair.store, LARGE, clock(), where=stored.handle)
    assert await joined(pair.store.read(again)) == LARGE


async def test_what_was_entered_while_redis_is_away_is_in_redis_once_when_it_is_back(
    opened: Open, redis: RedisServer
) -> None:
    pair = await opened(redis.url)
    await pair.ledger.put_session(KEY, SessionChange(frozenset({"context_window"}), context_window=500))
    await pair.ledger.settle(charge(100, "before", fingerprint="f"))
    redis.kill()
    assert await pair.ledger.summary(EVERYTHING, GroupBy.TYPE) == Summary(
        [], missing=frozenset({Missing.OUTAGE})
    )
    named, unnamed, appended = charge(20, "during", fingerprint="f"), charge(3), entry()
    for one in (named, unnamed):
        assert (await pair.ledger.settle(one)).degraded
    await pair.ledger.append(appended)
    again = await pair.ledger.settle(charge(20, "during", fingerprint="f"))
    assert (again.entry, again.replayed) == (named.entry, True)
    # Judged by what this instance knows: 123 of the declared 500 are taken.
    assert await pair.ledger.reserve(charge(400)) is None
    # A call that Redis knows, and this instance does not: entered once all the same.
    await pair.ledger.settle(charge(100, "before", fingerprint="f"))
    for question in (
        pair.ledger.entries(EVERYTHING, 10, None),
        pair.ledger.sessions(TENANT, 10, None),
        pair.ledger.end(KEY),
    ):
        with pytest.raises(StoreUnavailable):
            await question
    # The second sending of the first call too: only Redis knows that it had it.
    sums = await pair.ledger.summary(EVERYTHING, GroupBy.TENANT, GroupBy.SESSION_ID)
    assert [(row.groups, row.entries) for row in sums.rows] == [
        ({"tenant": TENANT, "session_id": "run-1"}, 4)
    ]
    assert sums.missing == {Missing.OUTAGE}
    assert (await pair.ledger.summary(EntryFilter("other"), GroupBy.TYPE)).rows == []
    redis.start()
    await pair.back()
    sums = await pair.ledger.summary(EVERYTHING, GroupBy.TYPE)
    assert ([row.entries for row in sums.rows], sums.missing) == ([4], frozenset())
    ids = await pair.ids()
    assert ids[1:] == [named.entry.id, unnamed.entry.id, appended.id]
    session = await pair.ledger.session(KEY)
    assert session is not None
    assert session.reserved_tokens == 123
    with pytest.raises(IdempotencyKeyReused):
        await pair.ledger.settle(charge(20, "during", fingerprint="other"))


async def test_what_redis_did_without_a_reply_before_it_went_away_is_not_entered_again(
    opened: Open, redis: RedisServer
) -> None:
    async with Proxy(redis.port) as proxy:
        pair = await opened(proxy.url)
        await pair.ledger.settle(charge(1))
        proxy.lose(b"EVALSHA", 2)
        made = charge(5)
        assert (await pair.ledger.settle(made)).degraded
        # As after a long outage: Redis has forgotten the replies to what was repeated at once.
        for key in redis.ask("KEYS", "*:once:*").decode().split("\r\n")[2::2]:
            redis.ask("DEL", key)
        await pair.back()
        assert (await pair.ids()).count(made.entry.id) == 1
        session = await pair.ledger.session(KEY)
        assert session is not None
        assert session.reserved_tokens == 6


async def test_a_session_that_this_instance_does_not_know_has_the_budget_of_the_settings(
    opened: Open, redis: RedisServer
) -> None:
    pair = await opened(redis.url)
    redis.kill()
    entered = await pair.ledger.enter(Call(KEY, WINDOW, True))
    assert entered.session.epoch == 0
    assert await pair.ledger.reserve(charge(LIMIT)) is not None
    assert await pair.ledger.reserve(charge(1)) is None


async def test_a_process_that_starts_in_an_outage_judges_by_the_journal_of_the_one_before(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    pair = await opened(redis.url)
    await pair.ledger.put_session(KEY, SessionChange(frozenset()))
    await pair.ledger.end(KEY)
    clock.advance(1)
    # A second life of the session.
    epoch = (await pair.ledger.put_session(KEY, SessionChange(frozenset()))).epoch
    assert epoch > 0
    redis.kill()
    first = await pair.ledger.settle(charge(LIMIT - 10, "call", epoch=epoch))
    await pair.ledger.close()
    await pair.store.close()
    pair = await opened(redis.url)
    assert (await pair.ledger.enter(Call(KEY, WINDOW, True))).session.epoch == epoch
    again = await pair.ledger.settle(charge(LIMIT - 10, "call", epoch=epoch))
    assert (again.entry, again.replayed, again.degraded) == (first.entry, True, True)
    assert await pair.ledger.reserve(charge(11, epoch=epoch)) is None
    assert await pair.ledger.reserve(charge(10, epoch=epoch)) is not None
    redis.start()
    await pair.back()
    session = await pair.ledger.session(KEY)
    assert session is not None
    assert (session.reserved_tokens, len(await pair.ids())) == (LIMIT, 2)


@pytest.mark.parametrize("quota", [TenantQuota(ledger_max_bytes=1), TenantQuota(max_sessions=1)])
async def test_a_tenant_past_its_quota_does_not_keep_the_journal_from_redis(
    opened: Open, redis: RedisServer, quota: TenantQuota
) -> None:
    pair = await opened(redis.url, lambda tenant: quota if tenant == TENANT else TenantQuota())
    await pair.ledger.settle(charge(1))
    redis.kill()
    declared, other = SessionKey(TENANT, "declared"), replace(entry(), tenant="other")
    await pair.ledger.put_session(declared, SessionChange(frozenset({"context_window"}), context_window=500))
    await pair.ledger.append(other)
    redis.start()
    await pair.back()
    session = await pair.ledger.session(declared)
    assert session is not None
    assert session.context_window == 500
    assert (await pair.ledger.entries(EntryFilter("other"), 10, None)).entries == [other]


async def test_a_session_that_another_instance_ended_before_the_replay_is_not_opened_again(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    pair = await opened(redis.url)
    await pair.ledger.settle(charge(1))
    redis.kill()
    for key in (KEY, SessionKey(TENANT, "other")):
        await pair.ledger.put_session(key, SessionChange(frozenset({"model"}), model="m"))
    await pair.ledger.close()
    await pair.store.close()
    redis.start()
    clock.advance(1)
    times = {"session_retention_seconds": RETENTION, "entry_retention_seconds": RETENTION}
    another = await open_ledger(redis.url, clock=clock, **times)
    assert await another.end(KEY) is not None
    await another.close()
    pair = await opened(redis.url)
    await pair.back()
    other = await pair.ledger.session(SessionKey(TENANT, "other"))
    assert other is not None
    assert other.model == "m"
    session = await pair.ledger.session(KEY)
    assert session is not None
    assert session.ended_at is not None


async def test_nothing_overtakes_a_journal_that_waits_until_redis_has_room(
    opened: Open, tmp_path: Path, clock: FakeClock
) -> None:
    options = ["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"]
    other, model = SessionKey(TENANT, "other"), SessionChange(frozenset({"model"}), model="second")
    with RedisServer(tmp_path / "redis", aof="always", options=options) as redis:
        pair = await opened(redis.url)
        stored = await put(pair.store, LARGE, clock())
        await pair.ledger.settle(charge(1))
        await pair.ledger.settle(charge(1, key=other))
        redis.kill()
        await pair.ledger.put_session(KEY, replace(model, model="first"))
        await start_full(redis, pair)
        # What Redis has can be read and deleted, and a session that the journal does not name can be ended.
        assert await joined(pair.store.read(stored)) == LARGE
        assert await pair.store.delete(TENANT, stored.handle)
        clock.advance(1)
        assert await pair.ledger.end(other) is not None
        with pytest.raises(SessionEnded):
            await pair.ledger.settle(charge(1, key=other))
        with pytest.raises(StoreUnavailable):
            await pair.ledger.end(KEY)
        assert (await pair.ledger.put_session(KEY, model)).model == "second"
        epoch = (await pair.ledger.put_session(other, model)).epoch
        await pair.ledger.close()
        await pair.store.close()
        pair = await opened(redis.url)
        assert (await pair.ledger.settle(charge(1, key=other, epoch=epoch))).degraded
        redis.ask("CONFIG", "SET", "maxmemory", "0")
        await pair.back()
        for key in (KEY, other):
            session = await pair.ledger.session(key)
            assert session is not None
            assert (session.model, session.ended_at, session.reserved_tokens) == ("second", None, 1)


async def test_what_the_journal_does_not_take_is_not_judged_by(
    opened: Open, redis: RedisServer, tmp_path: Path
) -> None:
    pair = await opened(redis.url)
    before = await pair.ledger.put_session(KEY, SessionChange(frozenset()))
    redis.kill()
    assert (await pair.ledger.enter(Call(KEY, WINDOW, False))).session == before
    (tmp_path / "spool" / "journal.jsonl").rename(tmp_path / "elsewhere")
    change = SessionChange(frozenset({"context_window"}), context_window=500)
    for refused in (pair.ledger.put_session(KEY, change), pair.ledger.settle(charge(1))):
        with pytest.raises(StoreUnavailable):
            await refused
    assert await pair.ledger.session(KEY) == before


async def test_a_busy_process_is_no_outage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outage, "PAUSE_SECONDS", 0)
    said: list[str | None] = []
    tried = [StoreBusy("busy"), StoreUnavailable("away"), StoreBusy("busy"), None]
    seen = Outage(tmp_path, said.append)
    await seen.open()

    async def step() -> None:
        error = tried.pop(0)
        if error is not None:
            raise error

    async def away() -> str:
        raise StoreUnavailable("Redis is silent.")

    async def local() -> str:
        return "kept"

    with pytest.raises(StoreBusy):
        await seen.first(step, local)
    assert (seen.why, said) == (None, [])
    assert await seen.first(away, local) == "kept"
    seen.checks.append(step)
    watching = asyncio.create_task(seen.watch())
    async with asyncio.timeout(30):
        while seen.why is not None:
            await asyncio.sleep(0)
    watching.cancel()
    assert (tried, said) == ([], ["Redis is silent.", None])
    await seen.journal.close()


async def test_a_file_that_is_no_journal_is_named(opened: Open, redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "spool" / "journal.jsonl").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"journal\.jsonl cannot be used as the journal"):
        await opened(redis.url)


async def test_a_tenant_is_not_deleted_while_the_journal_may_bring_it_back(
    opened: Open, tmp_path: Path
) -> None:
    options = ["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"]
    with RedisServer(tmp_path / "redis", aof="always", options=options) as redis:
        pair = await opened(redis.url)
        await pair.ledger.settle(charge(1))
        redis.kill()
        await pair.ledger.settle(charge(2))
        await start_full(redis, pair)
        # Redis is back, but too full for the journal.
        assert not (await pair.ledger.delete_tenant(TENANT)).is_done
        redis.ask("CONFIG", "SET", "maxmemory", "0")
        entries = 0
        async with asyncio.timeout(30):
            while not (purged := await pair.ledger.delete_tenant(TENANT)).is_done:
                entries += purged.entries
                await asyncio.sleep(0.02)
        assert entries + purged.entries == 1
        assert await pair.ids() == []
