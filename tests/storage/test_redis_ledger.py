"""The ledger in Redis: many replicas, lost replies, sums, expiry, and refusals."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from samples import KEY, START, TENANT, WINDOW, FakeClock, charge, entry, handle, stored_entry

from domain.accounting import AccountingEntry, EntryDetails, EntryFilter, EntryStatus, EntryType, Gap, GroupBy
from domain.budget import SessionChange
from domain.errors import InvalidField, StoreUnavailable
from domain.handles import SessionKey
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Call, Ledger
from domain.results import UsageReport
from storage import open_ledger
from storage.base import cursors
from storage.redis import ledger as redis_ledger
from storage.redis.keys import shard_of
from storage.redis.ledger import RedisLedger
from storage.redis.records import pack
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]
RETENTIONS = {"session_retention_seconds": 60, "entry_retention_seconds": 600}
OPEN = SessionChange(frozenset())
HOUR = 3_600_000


@asynccontextmanager
async def opened(url: str, clock: Callable[[], int] | None = None) -> AsyncIterator[RedisLedger]:
    ledger = await open_ledger(url, clock=clock or FakeClock(), **RETENTIONS)
    assert isinstance(ledger, RedisLedger)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def replicas(url: str, count: int) -> AsyncIterator[list[RedisLedger]]:
    """Each with connections of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url)) for _ in range(count)]


async def listed(ledger: Ledger, **wanted: Any) -> list[AccountingEntry]:
    return (await ledger.entries(EntryFilter(**{"tenant": TENANT, **wanted}), 1_000_000, None)).entries


async def reserved(ledger: Ledger, key: SessionKey = KEY) -> int:
    session = await ledger.session(key)
    return 0 if session is None else session.reserved_tokens


# Answers that are lost on their way.


async def test_many_readers_and_sweeps_at_once_list_each_entry_once_and_in_order(redis_url: str) -> None:
    keys = [SessionKey(TENANT, f"run-{number}") for number in range(5)]
    made: dict[SessionKey, list[AccountingEntry]] = {key: [] for key in keys}

    async def write(ledger: RedisLedger, key: SessionKey) -> None:
        for _ in range(60):
            made[key].append(entry(key))
            await ledger.append(made[key][-1])

    async def read(ledger: RedisLedger) -> None:
        for _ in range(6):
            reading = asyncio.ensure_future(ledger.summary(EntryFilter(TENANT), GroupBy.TYPE))
            await asyncio.sleep(0.01)
            # Given up wherever it is; another goes on from there.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await ledger.sweep()

    async with replicas(redis_url, 4) as ledgers:
        await asyncio.gather(
            *[write(ledgers[number % 4], key) for number, key in enumerate(keys)],
            *[read(ledger) for ledger in ledgers],
        )
        found = await listed(ledgers[0])
        assert {key: [one for one in found if one.session_id == key.session_id] for key in keys} == made
        assert await listed(ledgers[1]) == found


# What a page and a sum look through.


async def test_an_entry_of_a_clock_far_ahead_is_kept_no_longer_than_others(
    redis_url: str, clock: FakeClock
) -> None:
    async with opened(redis_url, clock) as ledger:
        await ledger.append(entry(at=clock() + 10 * 365 * 86_400_000))
        await ledger.append(entry(at=clock()))
        clock.advance(601)
        await ledger.sweep()
        assert await listed(ledger) == []


async def test_a_batch_of_entries_of_the_future_does_not_keep_those_behind_it(
    redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_ledger, "_BATCH", 3)
    async with opened(redis_url, clock) as ledger:
        # All were written in this order: the clock of Redis was ahead, and was set right.
        clock.advance(86_400)
        ahead = [entry(at=clock()) for _ in range(7)]
        for one in ahead:
            await ledger.append(one)
        clock.advance(-86_400)
        await ledger.append(entry(at=clock()))
        clock.advance(601)
        await ledger.append(last := entry(at=clock()))
        await ledger.sweep()
        assert {one.id for one in await listed(ledger)} == {one.id for one in (*ahead, last)}


async def test_a_long_list_is_paged_and_summed_in_pieces(redis_url: str) -> None:
    async with opened(redis_url) as ledger:
        made = [
            entry(SessionKey(TENANT, f"run-{number % 2}"), START + number, tokens_in=1, latency=number / 2)
            for number in range(900)
        ]
        # No more at once than there are connections.
        for start in range(0, 900, 50):
            await asyncio.gather(*[ledger.append(one) for one in made[start : start + 50]])
        wanted = EntryFilter(TENANT, "run-1", since=START + 400)
        assert sorted(await listed(ledger, session_id="run-1", since=START + 400), key=when) == made[401::2]
        (row,) = (await ledger.summary(wanted, GroupBy.TYPE)).rows
        assert (row.entries, row.tokens_in, row.latency_ms_max) == (250, 250, 449.5)
        rows = (await ledger.summary(EntryFilter(TENANT), GroupBy.SESSION_ID)).rows
        assert [(row.group, row.entries) for row in rows] == [("run-0", 450), ("run-1", 450)]


def when(one: AccountingEntry) -> int:
    return one.timestamp


def over_days(count: int, hours: int) -> list[AccountingEntry]:
    """Each seventh is a latecomer."""
    order = random.Random(2)
    return [
        entry(
            SessionKey(TENANT, order.choice(["run-1", "run-2"])),
            START + (number * 60 * hours - (65 * hours if number % 7 == 0 else 0)) * 60_000,
            type=order.choice(list(EntryType)),
            tool_name=order.choice(["read_file", "grep", "ü\0"]),
            status=order.choice(list(EntryStatus)),
            trigger=order.choice([None, *Trigger]),
            outcome=order.choice([None, *OutcomeKind]),
            model=order.choice([None, "", "m"]),
            latency=order.choice([0.0, 0.5, 12.25]),
            cost_usd=order.choice([0.0, 0.125]),
            tokens_saved=order.randrange(-9, 9),
            details=EntryDetails(
                bytes=order.randrange(9),
                observed_tokens_saved=order.randrange(3),
                found_nothing=order.random() < 0.5,
                costs_more=order.random() < 0.5,
            ),
        )
        for number in range(1, count)
    ]


async def test_a_summary_is_the_same_from_days_that_are_kept(
    redis_url: str, redis_server: RedisServer, clock: FakeClock
) -> None:
    reference = await open_ledger("memory:", clock=clock, **RETENTIONS)
    async with opened(redis_url, clock) as ledger:
        made = over_days(100, hours=4)
        filters: list[dict[str, Any]] = [
            {},
            {"since": START + 40 * HOUR, "until": START + 130 * HOUR},
            {"until": START + 75 * HOUR + 1, "status": EntryStatus.OK},
            {"since": START + 350 * HOUR, "type": EntryType.LLM},
            {"tool_name": "ü\0", "trigger": Trigger.SIZE_CAP},
            {"outcome": OutcomeKind.STORE},
            {"session_id": "run-1"},
        ]

        groupings = [(GroupBy.TENANT, GroupBy.DAY, GroupBy.MODEL), *zip(GroupBy, strict=True)]

        async def compare(turn: int) -> None:
            """In three turns every filter meets every grouping."""
            for number, wanted in enumerate(filters, turn):
                for group_by in groupings[number % 3 :: 3]:
                    for asked in (EntryFilter(TENANT, **wanted), EntryFilter(None, **wanted)):
                        expected = await reference.summary(asked, *group_by)
                        assert await ledger.summary(asked, *group_by) == expected

        for one in made:
            clock.now = one.timestamp
            await ledger.append(one)
            await reference.append(one)
            if one is made[50]:
                await compare(0)
        await compare(1)
        clock.now = START + (100 * 60 - 10) * 60_000 + 600_000
        for swept in (ledger, reference):
            await swept.sweep()
        assert len(await listed(ledger)) == len(await listed(reference)) == 100 - 25
        await compare(2)


async def test_sums_of_another_shape_are_not_added_up_and_not_called_complete(
    redis_url: str, clock: FakeClock
) -> None:
    """As an older replica writes them, until it sees that the schema is a newer one."""
    async with opened(redis_url, clock) as ledger:
        for _ in range(3):
            await ledger.append(entry(at=clock.now))
        shard, day = shard_of(KEY), clock.now // 86_400_000
        older = pack(("tool", "t", *[None] * 6)), pack([1, *[0] * 13])
        await ledger._redis.command("HSET", shard.key("day", day), *older)
        found = await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)
        assert (found.total.entries, found.gaps) == (3, {})
        for _ in range(2):
            clock.advance(2 * 86_400)
            await ledger.sweep()
            found = await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)
            assert (found.total.entries, set(found.gaps)) == (3, {Gap.DAMAGED})


async def test_days_that_two_replicas_pack_are_added_up_once(redis_url: str, clock: FakeClock) -> None:
    async with opened(redis_url, clock) as one, opened(redis_url, clock) as other:
        for number in range(40):
            await one.append(entry(SessionKey(TENANT, f"run-{number}"), clock.now + number * HOUR))
        clock.advance(5 * 86_400)
        reads = asyncio.gather(*[total(one) for _ in range(20)])
        await asyncio.gather(one.sweep(), other.sweep())
        assert set(await reads) == {40}
        assert (await total(one), await total(other)) == (40, 40)
        late = entry(at=START)
        await other.append(late)
        assert await total(one) == 41
        clock.advance(2 * 86_400)
        await asyncio.gather(one.sweep(), other.sweep())
        assert await total(one) == 41


async def total(ledger: Ledger) -> int:
    found = await ledger.summary(EntryFilter(TENANT), GroupBy.TYPE)
    assert found.gaps == {}
    return found.total.entries


async def test_a_session_that_none_can_be_called_has_no_entries(redis_url: str) -> None:
    async with opened(redis_url) as ledger:
        await ledger.append(entry())
        for name in ("", "a b", "}{", "\ud800"):
            assert await listed(ledger, session_id=name) == []
            assert (await ledger.summary(EntryFilter(TENANT, name), GroupBy.TYPE)).rows == []


# What is forgotten, and what is not.


async def test_a_call_of_an_earlier_epoch_is_still_known(redis_url: str, clock: FakeClock) -> None:
    async with opened(redis_url, clock) as ledger:
        first = await ledger.settle(charge(5, "call", fingerprint="f"))
        clock.advance(1)
        await ledger.end(KEY)
        opened_again = await ledger.put_session(KEY, OPEN)
        await ledger.settle(charge(7, "call", fingerprint="g", epoch=opened_again.epoch))
        again = await ledger.settle(charge(5, "call", fingerprint="f"))
        assert again.is_retry
        assert again.entry == first.entry


async def test_redis_itself_forgets_an_idle_session_with_all_that_is_its(
    redis_url: str, redis_server: RedisServer
) -> None:
    names = [shard_of(KEY).key(name, KEY.session_id) for name in ("session", "findings")]
    async with opened(redis_url) as ledger:
        await ledger.settle(charge(1, "call"))
        await ledger.keep_finding(KEY, 0, "n", "text")
        for name in names:
            redis_server.ask("EXPIRE", name, "20")
        await ledger.settle(charge(1))
        assert all(int(redis_server.ask("TTL", name)[1:]) > 20 for name in names)
        assert await ledger.finding(KEY, 0, "n") == "text"
        for name in names:
            redis_server.ask("EXPIRE", name, "0")
        assert await ledger.session(KEY) is None
        assert await ledger.finding(KEY, 0, "n") is None
        assert not (await ledger.settle(charge(1, "call"))).is_retry
        assert len(await listed(ledger)) == 3


async def test_no_key_but_the_lists_lives_for_ever(redis_url: str, redis_server: RedisServer) -> None:
    async with opened(redis_url) as ledger:
        await ledger.settle(charge(1, "call"))
        await ledger.append(stored_entry(handle()))
        await ledger.keep_finding(KEY, 0, "n", "text")
        await listed(ledger)
        await ledger.append(entry())
    keys = redis_server.ask("KEYS", "*").decode().split("\r\n")[2::2]
    lasting = {key for key in keys if redis_server.ask("TTL", key) == b":-1\r\n"}
    assert {key.rpartition(":")[2] for key in lasting} == {"schema", "live", "sizes", "state"}


async def test_after_redis_lost_its_data_entries_are_found_again(
    redis_url: str, redis_server: RedisServer
) -> None:
    async with opened(redis_url) as ledger:
        await ledger.settle(charge(1))
        redis_server.ask("FLUSHALL")
        late = charge(1)
        await ledger.settle(late)
        assert await listed(ledger) == [late.entry]


# What cannot be kept.


async def test_what_a_user_may_not_run_is_refused_whole(redis_url: str, redis_server: RedisServer) -> None:
    redis_server.ask("ACL", "SETUSER", "spill", "on", ">secret", "~*", "+@all", "-xadd")
    async with opened(redis_url) as ledger:
        await ledger.settle(charge(5))
        async with opened(redis_url.replace("://", "://spill:secret@")) as restricted:
            for refused in (restricted.settle(charge(1, "call")), restricted.append(entry())):
                with pytest.raises(StoreUnavailable, match="lacks a permission"):
                    await refused
        assert await reserved(ledger) == 5
        assert len(await listed(ledger)) == 1


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger: ledger.settle(charge((1 << 53) + 1)),
        lambda ledger: ledger.settle(charge(1, "\ud800")),
        lambda ledger: ledger.settle(charge(1, "call", text="\ud800")),
        lambda ledger: ledger.append(entry(tool_name="\udfff")),
        lambda ledger: ledger.append(entry(tokens_in=1 << 64)),
        lambda ledger: ledger.enter(Call(KEY, WINDOW, False, "\udfff")),
        lambda ledger: ledger.report(KEY, UsageReport(1 << 64)),
        lambda ledger: ledger.keep_finding(KEY, 0, "n", "\ud800"),
        lambda ledger: ledger.settle(charge(1, key=SessionKey("a}b", "run-1"))),
    ],
)
async def test_what_cannot_be_kept_is_refused(
    redis_url: str, act: Callable[[Ledger], Awaitable[Any]]
) -> None:
    async with opened(redis_url) as ledger:
        with pytest.raises(InvalidField):
            await act(ledger)
        assert await listed(ledger) == []
        assert await ledger.session(KEY) is None


@pytest.mark.parametrize("place", ["5", "1-1", "1.1-", "1.1-2-3", "1.9999999999999999-1", "1.a-b", "1.1-1,"])
async def test_a_place_that_is_none_is_refused(redis_url: str, place: str) -> None:
    async with opened(redis_url) as ledger:
        with pytest.raises(InvalidField):
            await ledger.entries(EntryFilter(TENANT), 5, cursors.encode("entries", place))
