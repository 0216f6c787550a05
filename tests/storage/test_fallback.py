"""Redis first, then the spool: at each moment at which Redis may go away, and with replies that are lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis_proxy import Proxy
from redis_server import RedisServer
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

from domain.accounting import EntryFilter, GroupBy
from domain.budget import SessionChange
from domain.errors import ResultExpired, StoreFull, StoreUnavailable
from domain.ports import Ledger, ResultStore
from domain.results import Durability
from storage import open_ledger, open_store
from storage.fallback_ledger import FallbackLedger
from storage.fallback_store import FallbackStore
from storage.outage import Outage
from storage.redis_patience import PATIENCE_SECONDS, patience_of_caller
from storage.redis_store import DRAFT_SECONDS

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 10_000
EVERYTHING = EntryFilter(TENANT)


@dataclass
class Pair:
    """Both behind one outage, and what each of them stands on."""

    store: ResultStore
    ledger: Ledger
    outage: Outage
    said: list[str | None]
    spool: ResultStore

    async def back(self) -> None:
        async with asyncio.timeout(30):
            while self.outage.is_on:
                await asyncio.sleep(0.02)


Open = Callable[..., Awaitable[Pair]]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", aof="always") as server:
        yield server


@pytest.fixture
async def opened(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Open]:
    pairs: list[Pair] = []

    async def store_at(url: str, max_bytes: int) -> ResultStore:
        return await open_store(url, clock=clock, retention_seconds=RETENTION, max_bytes=max_bytes)

    async def ledger_at(url: str) -> Ledger:
        return await open_ledger(
            url, clock=clock, session_retention_seconds=RETENTION, entry_retention_seconds=RETENTION
        )

    async def open_it(url: str, spool_bytes: int = 0) -> Pair:
        said: list[str | None] = []
        outage = Outage(said.append)
        spool = await store_at(f"disk://{tmp_path}/spool", spool_bytes)
        store = FallbackStore(await store_at(url, 0), spool, outage)
        spool_ledger = await ledger_at(f"sqlite://{tmp_path}/spool/ledger.db")
        ledger = FallbackLedger(await ledger_at(url), spool_ledger, outage)
        pairs.append(Pair(store, ledger, outage, said, spool))
        return pairs[-1]

    yield open_it
    for pair in pairs:
        await pair.ledger.close()
        await pair.store.close()


@pytest.mark.parametrize("written", [0, 100_000, 2_000_000, len(LARGE)])
async def test_wherever_redis_dies_under_a_body_the_spool_has_all_of_it(
    opened: Open, redis: RedisServer, clock: FakeClock, written: int
) -> None:
    pair = await opened(redis.url)
    stored = stored_result(LARGE, clock())
    async with pair.store.draft() as draft:
        for start in range(0, len(LARGE), 50_000):
            if start == written:
                redis.kill()
            await draft.write(LARGE[start : start + 50_000])
        if written == len(LARGE):
            redis.kill()
        assert await joined(draft.read()) == LARGE
        assert await draft.publish(stored) is Durability.DISK
    assert await joined(pair.store.read(stored, 1_000_000, 2_000_000)) == LARGE[1_000_000:2_000_000]
    assert await pair.store.stored_bytes() == len(LARGE)
    assert (len(pair.said), pair.outage.is_on) == (1, True)
    redis.start()
    await pair.back()
    assert await joined(pair.store.read(stored)) == LARGE
    assert await pair.store.holds([KEY]) == [1]
    # What Redis had of it expires there, as any draft does that nobody goes on with.
    clock.advance(DRAFT_SECONDS)
    await pair.store.sweep()
    assert await pair.store.stored_bytes() == 0


async def test_what_was_spooled_expires_and_is_swept_after_the_outage(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    pair = await opened(redis.url)
    redis.kill()
    used, unused = [await put(pair.store, b"body", clock()) for _ in range(2)]
    redis.start()
    await pair.back()
    clock.advance(RETENTION / 2)
    touched = await pair.store.touch(used)
    assert touched.expires_at == clock() + RETENTION * 1000
    clock.advance(RETENTION / 2)
    assert await pair.store.find(TENANT, unused.handle) is None
    assert await pair.store.sweep() == 1
    assert await pair.store.find(TENANT, used.handle) == touched
    assert await pair.store.stored_bytes() == 4
    assert await pair.store.delete_session(KEY, 1) == 1
    assert await pair.store.holds([KEY]) == [0]


async def test_a_draft_that_fails_in_an_outage_leaves_nothing_behind(
    opened: Open, redis: RedisServer
) -> None:
    pair = await opened(redis.url)

    async def fail() -> None:
        async with pair.store.draft() as draft:
            await draft.write(LARGE)
            redis.kill()
            await draft.write(LARGE)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await pair.store.stored_bytes() == 0


async def test_a_full_spool_is_no_matter_while_redis_is_there(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    pair = await opened(redis.url, spool_bytes=1_000_000)
    stored = await put(pair.store, LARGE, clock())
    assert await joined(pair.store.read(stored)) == LARGE
    assert await pair.spool.stored_bytes() == 0
    async with pair.store.draft() as draft:
        await draft.write(LARGE)
        redis.kill()
        # Redis had the only copy of its beginning.
        with pytest.raises(StoreUnavailable):
            await draft.publish(stored_result(LARGE, clock()))
    with pytest.raises(StoreFull):
        await put(pair.store, LARGE, clock())


async def test_a_publishing_whose_outcome_is_unknown_may_leave_two_copies_and_never_none(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    async with Proxy(redis.port) as proxy:
        pair = await opened(proxy.url)
        await pair.store.stored_bytes()
        async with pair.store.draft() as draft:
            await draft.write(b"body")
            stored = stored_result(b"body", clock())
            # The first try and the retry: both ran.
            proxy.lose(b"EVALSHA", 2)
            assert await draft.publish(stored) is Durability.DISK
        assert proxy.lost == 2
        await pair.back()
        assert await joined(pair.store.read(stored)) == b"body"
        assert await pair.store.delete(TENANT, stored.handle)
        assert await pair.store.find(TENANT, stored.handle) is None
        with pytest.raises(ResultExpired):
            await joined(pair.store.read(stored))


async def test_a_charge_whose_outcome_is_unknown_is_shown_once(opened: Open, redis: RedisServer) -> None:
    async with Proxy(redis.port) as proxy:
        pair = await opened(proxy.url)
        await pair.ledger.settle(charge(1))
        proxy.lose(b"EVALSHA", 2)
        one = charge(10, "call")
        receipt = await pair.ledger.settle(one)
        assert (receipt.degraded, receipt.entry) == (True, one.entry)
        await pair.back()
        page = await pair.ledger.entries(EVERYTHING, 100, None)
        assert [line.id for line in page.entries].count(one.entry.id) == 1
        assert (await pair.ledger.enter(KEY, "call", None, WINDOW, True)).receipt is not None


async def test_what_was_declared_is_known_in_the_spool_and_what_was_used_is_not(
    opened: Open, redis: RedisServer
) -> None:
    pair = await opened(redis.url)
    change = SessionChange(frozenset({"context_window", "model"}), context_window=5000, model="gpt-4o")
    await pair.ledger.put_session(KEY, change)
    await pair.ledger.settle(charge(LIMIT))
    redis.kill()
    receipt = await pair.ledger.reserve(charge(100))
    assert receipt is not None
    assert receipt.degraded
    assert receipt.budget.reserved_tokens == 100
    assert receipt.budget.limit_tokens == 5000 - WINDOW.buffer_tokens - WINDOW.max_output_tokens
    redis.start()
    await pair.back()
    session = await pair.ledger.session(KEY)
    assert session is not None
    assert (session.context_window, session.reserved_tokens) == (5000, LIMIT)


async def test_what_is_declared_in_an_outage_holds_after_it(opened: Open, redis: RedisServer) -> None:
    pair = await opened(redis.url)
    redis.kill()
    for window in (4000, 5000):
        change = SessionChange(frozenset({"context_window"}), context_window=window)
        await pair.ledger.put_session(KEY, change)
    await pair.ledger.put_session(KEY, SessionChange(frozenset({"model"}), model="gpt-4o"))
    redis.start()
    await pair.back()
    session = (await pair.ledger.enter(KEY, None, None, WINDOW, False)).session
    assert (session.context_window, session.model) == (5000, "gpt-4o")
    assert session.budget(WINDOW, False).enforced


async def test_a_redis_that_comes_back_full_is_back_and_is_told_later_what_was_declared(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    pair = await opened(redis.url)
    kept = await put(pair.store, LARGE, clock())
    redis.kill()
    change = SessionChange(frozenset({"context_window"}), context_window=5000)
    await pair.ledger.put_session(KEY, change)
    redis.start()
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    await pair.back()
    assert await joined(pair.store.read(kept)) == LARGE
    assert await pair.store.delete(TENANT, kept.handle)
    with pytest.raises(StoreFull):
        await pair.ledger.enter(KEY, None, None, WINDOW, False)
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert (await pair.ledger.enter(KEY, None, None, WINDOW, False)).session.context_window == 5000


async def test_a_call_that_entered_a_later_life_of_its_session_is_settled_in_the_spool(
    opened: Open, redis: RedisServer, clock: FakeClock
) -> None:
    # Before there was a spool: it does not know how often the session was opened.
    before = await open_ledger(
        redis.url, clock=clock, session_retention_seconds=RETENTION, entry_retention_seconds=RETENTION
    )
    for _ in range(2):
        await before.put_session(KEY, SessionChange(frozenset()))
        await before.end(KEY)
    await before.close()
    pair = await opened(redis.url)
    await pair.ledger.put_session(KEY, SessionChange(frozenset()))
    entered = await pair.ledger.enter(KEY, "call", None, WINDOW, True)
    redis.kill()
    assert entered.session.epoch > 1
    one = charge(5, "call", epoch=entered.session.epoch)
    assert (await pair.ledger.settle(one)).degraded
    again = await pair.ledger.enter(KEY, "call", None, WINDOW, True)
    assert again.receipt is not None
    assert again.receipt.entry == one.entry


async def test_sessions_of_both_are_listed_once_in_pages(opened: Open, redis: RedisServer) -> None:
    pair = await opened(redis.url)
    for name in ("a", "c", "e"):
        await pair.ledger.put_session(KEY._replace(session_id=name), SessionChange(frozenset()))
    redis.kill()
    for name in ("b", "c", "f"):
        await pair.ledger.settle(charge(1, key=KEY._replace(session_id=name)))
    redis.start()
    await pair.back()
    found: list[str] = []
    cursor = None
    while True:
        page = await pair.ledger.sessions(TENANT, 2, cursor)
        assert len(page.sessions) <= 2
        found += [session.key.session_id for session in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == ["a", "b", "c", "e", "f"]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_pages_merge_both_by_time_at_every_size(
    opened: Open, redis: RedisServer, clock: FakeClock, limit: int
) -> None:
    pair = await opened(redis.url)
    expected = []
    for outage in range(2):
        for _ in range(7):
            clock.advance(0.1)
            expected.append(entry(at=clock(), tokens_in=2, latency=3.0))
            await pair.ledger.append(expected[-1])
        if outage == 0:
            redis.kill()
    redis.start()
    await pair.back()
    # Both have lines of the same moments, now that the clock stands still.
    for _ in range(5):
        expected.append(entry(at=clock(), tokens_in=2, latency=9.0))
        await pair.ledger.append(expected[-1])
    found = []
    cursor = None
    while True:
        page = await pair.ledger.entries(EVERYTHING, limit, cursor)
        assert 0 < len(page.entries) <= limit
        found += page.entries
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [line.timestamp for line in found] == sorted(line.timestamp for line in expected)
    assert sorted(line.id for line in found) == sorted(line.id for line in expected)
    (row,) = await pair.ledger.summary(EVERYTHING, GroupBy.TYPE)
    assert (row.entries, row.tokens_in, row.latency_ms_max) == (19, 38, 9.0)
    assert row.latency_ms_mean == pytest.approx((14 * 3 + 5 * 9) / 19)


async def test_a_page_that_begins_while_redis_is_there_ends_while_it_is_away(
    opened: Open, redis: RedisServer
) -> None:
    pair = await opened(redis.url)
    kept = [entry() for _ in range(4)]
    for line in kept:
        await pair.ledger.append(line)
    page = await pair.ledger.entries(EVERYTHING, 2, None)
    assert page.entries == kept[:2]
    redis.kill()
    over = await pair.ledger.entries(EVERYTHING, 2, page.next_cursor)
    assert (over.entries, over.next_cursor) == ([], None)
    redis.start()
    await pair.back()
    assert (await pair.ledger.entries(EVERYTHING, 2, page.next_cursor)).entries == kept[2:]


async def test_a_flood_is_no_outage(opened: Open, redis: RedisServer) -> None:
    pair = await opened(f"{redis.url}?max_connections=1")
    await pair.ledger.append(entry())
    redis.pause()
    waiting = asyncio.create_task(pair.ledger.append(entry()))
    await asyncio.sleep(0.1)
    with pytest.raises(StoreUnavailable, match="busy"):
        await pair.ledger.append(entry())
    assert pair.said == []
    redis.resume()
    await waiting
    assert len((await pair.ledger.entries(EVERYTHING, 10, None)).entries) == 2


async def test_an_outage_is_told_once_and_ends_by_itself(opened: Open, redis: RedisServer) -> None:
    pair = await opened(redis.url)
    redis.kill()
    for _ in range(20):
        await pair.ledger.append(entry())
        await pair.store.check()
    redis.start()
    await pair.back()
    assert [why is None for why in pair.said] == [False, True]
    assert pair.said[0] is not None
    assert "Redis" in pair.said[0]


async def test_what_was_waited_for_before_does_not_put_off_the_check_whether_it_is_back() -> None:
    outage = Outage()
    checks = 0

    async def check() -> None:
        nonlocal checks
        patience = patience_of_caller()
        patience.left(0.0)
        patience.waited(0.0, PATIENCE_SECONDS)
        checks += 1
        if checks < 3:
            raise StoreUnavailable("Silent.")

    outage.ends_after(check)
    patience_of_caller().waited(0.0, PATIENCE_SECONDS)
    outage.begin(StoreUnavailable("Silent."))
    async with asyncio.timeout(30):
        while outage.is_on:
            await asyncio.sleep(0.02)
    assert checks == 3
