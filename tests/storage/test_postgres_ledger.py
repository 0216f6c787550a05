"""The ledger in PostgreSQL, beyond the contract: partitions, lost answers, reports that read its tables."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
from samples import KEY, START, TENANT, FakeClock, charge, entry, handle, race, stored_entry

from domain.accounting import DAY_MS, AccountingEntry, EntryFilter, Gap, GroupBy
from domain.budget import SessionChange
from domain.errors import ConfigError, InvalidField, StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Ledger, LostWrite
from domain.results import UsageReport
from storage import open_ledger
from storage.base import bounded
from storage.postgres import acknowledged, connection
from tests.postgres_server import PASSWORD_IN_URL, PostgresServer
from tests.storage.redis_proxy import Proxy

pytestmark = pytest.mark.anyio

KEPT_DAYS = 30
FIRST = START // DAY_MS
Open = Callable[..., Awaitable[Ledger]]


@pytest.fixture
async def opened(clock: FakeClock, postgres_url: str) -> AsyncIterator[Open]:
    made = []

    async def open_it(url: str = postgres_url) -> Ledger:
        times = {"session_retention_seconds": 86_400.0, "entry_retention_seconds": KEPT_DAYS * 86_400.0}
        made.append(await open_ledger(url, clock=clock, **times))
        return made[-1]

    yield open_it
    for one in made:
        await one.close()


@pytest.mark.parametrize("call_id", ["call", None])
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_charge_whose_answer_is_lost_is_charged_once_and_acknowledged(
    opened: Open, postgres_server: PostgresServer, call_id: str | None, is_known: bool
) -> None:
    async with Proxy(postgres_server.port) as proxy:
        ledger = await opened(postgres_server.url_at(int(proxy.url.split(":")[2].split("/")[0])))
        if is_known:
            await ledger.settle(charge(50))
        one = charge(100, call_id)
        proxy.lose(one.entry.id.encode())
        receipt = await ledger.settle(one)
        assert proxy.lost == 1
        assert (receipt.entry, receipt.is_retry) == (one.entry, False)
        session = await ledger.session(KEY)
        assert session is not None
        assert session.reserved_tokens == 100 + 50 * is_known
        # An entry without a session, too.
        alone = entry(SessionKey(TENANT, "none"))
        proxy.lose(alone.id.encode())
        await ledger.append(alone)
        assert proxy.lost == 2
        entries = (await ledger.entries(EntryFilter(TENANT), 100, None)).entries
        assert len(entries) == 2 + is_known
        assert (await ledger.usage())[TENANT].sessions == 1


async def test_replicas_that_race_for_one_budget_never_exceed_it(opened: Open) -> None:
    ledgers = [await opened() for _ in range(3)]
    await ledgers[0].put_session(KEY, SessionChange(frozenset()))
    raced = await asyncio.gather(
        *[race(ledger, [charge(7, epoch=0) for _ in range(100)]) for ledger in ledgers]
    )
    granted = sum(receipt is not None for receipts in raced for receipt in receipts)
    assert granted == 1000 // 7
    session = await ledgers[1].session(KEY)
    assert session is not None
    assert session.reserved_tokens == granted * 7
    named = await asyncio.gather(*[race(ledger, [charge(1, "same") for _ in range(9)]) for ledger in ledgers])
    receipts = [receipt for some in named for receipt in some if receipt is not None]
    assert (len(receipts), sum(not one.is_retry for one in receipts)) == (27, 1)
    assert len({one.entry.id for one in receipts}) == 1


async def filled(ledger: Ledger, clock: FakeClock, days: int) -> list[AccountingEntry]:
    """Three entries a day."""
    made = []
    for day in range(FIRST, FIRST + days):
        for number in range(3):
            clock.now = day * DAY_MS + number * 3_600_000
            made.append(entry(KEY, clock.now, tool_name=f"tool-{number}", tokens_in=day - FIRST, latency=2.0))
            await ledger.append(made[-1])
    return made


def partitions(server: PostgresServer) -> list[str]:
    text = (
        "SELECT inhrelid::regclass FROM pg_inherits"
        " WHERE inhparent = 'spillgate.entries'::regclass ORDER BY 1"
    )
    return [name for name in server.sql(text).split("\n") if not name.endswith("_other")]


async def test_the_entries_of_a_day_go_with_their_partition_and_their_sums_stay(
    opened: Open, clock: FakeClock, postgres_server: PostgresServer
) -> None:
    ledger = await opened()
    made = await filled(ledger, clock, 5)
    assert len(partitions(postgres_server)) == 5
    before = await ledger.summary(EntryFilter(TENANT), GroupBy.DAY, GroupBy.TOOL_NAME)
    assert before.total.entries == 15
    await ledger.sweep()
    # The days before are closed, and answered from their sums; those that are not are opened in time.
    assert postgres_server.sql("SELECT count(*), sum(entries) FROM spillgate.day_sums") == "12|12"
    assert await ledger.summary(EntryFilter(TENANT), GroupBy.DAY, GroupBy.TOOL_NAME) == before
    assert len(partitions(postgres_server)) == 6
    # A late entry stands in the sums of its day and among the entries.
    late = entry(KEY, FIRST * DAY_MS + 5, tool_name="tool-0", tokens_in=9)
    await ledger.append(late)
    found = await ledger.summary(EntryFilter(TENANT), GroupBy.TOOL_NAME)
    assert (found.total.entries, found.total.tokens_in) == (16, sum(one.tokens_in for one in made) + 9)
    clock.now = (FIRST + KEPT_DAYS + 2) * DAY_MS + 1
    await ledger.sweep()
    # Three partitions with entries, one made a day ahead, and those of today and tomorrow.
    assert len(partitions(postgres_server)) == 6
    listed = (await ledger.entries(EntryFilter(TENANT), 100, None)).entries
    assert listed == made[6:]
    found = await ledger.summary(EntryFilter(TENANT), GroupBy.TOOL_NAME)
    assert (found.total.entries, found.gaps) == (16, {})
    by_hour = await ledger.summary(EntryFilter(TENANT), GroupBy.HOUR)
    assert (by_hour.total.entries, by_hour.gaps) == (9, {Gap.AGE: (FIRST + 2) * DAY_MS - 1})
    later = await ledger.summary(EntryFilter(TENANT, since=(FIRST + 2) * DAY_MS), GroupBy.HOUR)
    assert (later.total.entries, later.gaps) == (9, {})
    # An entry that comes after its partition was dropped is counted once, before and after a sweep.
    await ledger.append(entry(KEY, FIRST * DAY_MS + 7, tool_name="tool-0"))
    for _ in range(2):
        found = await ledger.summary(EntryFilter(TENANT), GroupBy.TOOL_NAME)
        assert (found.total.entries, found.gaps) == (17, {})
        await ledger.sweep()
    assert (await ledger.usage())[TENANT].bytes == int(
        postgres_server.sql("SELECT sum(size) FROM spillgate.entries")
    )
    assert await ledger.entry_count() == 9


async def test_partial_sums_of_a_day_and_its_entries_add_up(
    opened: Open, clock: FakeClock, postgres_server: PostgresServer
) -> None:
    ledger = await opened()
    made = await filled(ledger, clock, 2)
    deleted = "SELECT deleted FROM spillgate.delete_entries('acme', NULL, 1, 500, true)"
    assert postgres_server.sql(deleted) == "1"
    for _ in range(2):
        found = await ledger.summary(EntryFilter(TENANT), GroupBy.DAY)
        assert (found.total.entries, found.total.latency_ms_mean) == (6, 2.0)
        assert found.gaps == {}
        by_session = await ledger.summary(EntryFilter(TENANT), GroupBy.SESSION_ID)
        assert (by_session.total.entries, by_session.gaps) == (5, {Gap.BYTES: made[0].timestamp})
        await ledger.sweep()


async def test_what_readers_outside_see_is_what_a_summary_says(
    opened: Open, clock: FakeClock, postgres_server: PostgresServer
) -> None:
    ledger = await opened()
    await ledger.settle(charge(1, entry=stored_entry(handle())))
    await filled(ledger, clock, 3)
    await ledger.sweep()
    text = "SELECT day, sum(entries), sum(tokens_in) FROM spillgate.report_days GROUP BY day ORDER BY day"
    rows = [line.split("|") for line in postgres_server.sql(text).split("\n")]
    found = await ledger.summary(EntryFilter(None), GroupBy.DAY)
    told = sorted((row.group, row.entries, row.tokens_in) for row in found.rows)
    assert [(day, int(count), int(tokens)) for day, count, tokens in rows] == told
    assert postgres_server.sql("SELECT count(*) FROM spillgate.report_entries") == "10"


async def test_a_text_that_postgresql_cannot_keep_is_refused_and_one_with_a_nul_is_kept_where_texts_are(
    opened: Open,
) -> None:
    ledger = await opened()
    with pytest.raises(InvalidField):
        await ledger.append(entry(tool_name="a\0b"))
    with pytest.raises(InvalidField):
        await ledger.settle(charge(1, "call", text="\ud800"))
    with pytest.raises(InvalidField):
        await ledger.report(KEY, UsageReport(1 << 70))
    kept = entry(error="a\0b")
    await ledger.append(kept)
    await ledger.settle(charge(1, "c" * 9_000, text="a\0b"))
    await ledger.keep_finding(KEY, 0, "n" * 9_000, "a\0b")
    assert (await ledger.settle(charge(1, "c" * 9_000))).text == "a\0b"
    assert await ledger.finding(KEY, 0, "n" * 9_000) == "a\0b"
    assert (await ledger.entries(EntryFilter(TENANT), 10, None)).entries[0] == kept


async def test_several_that_start_at_the_same_time_make_one_schema(
    opened: Open, postgres_server: PostgresServer
) -> None:
    ledgers = await asyncio.gather(*[opened() for _ in range(4)])
    await asyncio.gather(*[ledger.append(entry()) for ledger in ledgers])
    assert postgres_server.sql("SELECT number FROM spillgate.written_by") == str(connection.VERSION)
    assert len((await ledgers[0].entries(EntryFilter(TENANT), 10, None)).entries) == 4


async def test_a_ledger_of_a_newer_version_is_refused(opened: Open, postgres_server: PostgresServer) -> None:
    await opened()
    postgres_server.sql("UPDATE spillgate.written_by SET number = number + 1, version = '99.0.0'")
    with pytest.raises(ConfigError, match=r"written by Spillgate 99.0.0 \(schema"):
        await opened()


async def test_two_schemas_of_one_database_are_two_ledgers(
    opened: Open, postgres_server: PostgresServer
) -> None:
    # A reserved word, too.
    postgres_server.sql('DROP SCHEMA IF EXISTS "user" CASCADE')
    one, other = await opened(), await opened(f"{postgres_server.url}?schema=user")
    await one.append(entry())
    await other.settle(charge(1))
    await other.sweep()
    assert len((await one.entries(EntryFilter(TENANT), 10, None)).entries) == 1
    assert (await other.summary(EntryFilter(TENANT), GroupBy.TYPE)).total.entries == 1
    postgres_server.sql('DROP SCHEMA "user" CASCADE')


async def test_errors_say_what_to_do_and_hold_no_password(
    opened: Open, postgres_server: PostgresServer
) -> None:
    for wrong, said in (
        (postgres_server.url.replace(PASSWORD_IN_URL, "hunter2"), "rejected the credentials"),
        (postgres_server.url.replace("/ledger", "/absent"), "does not exist. Create it"),
        (postgres_server.url_at(1), "cannot be reached"),
    ):
        ledger = await opened(wrong)
        with pytest.raises(StoreUnavailable, match=said) as refused:
            await ledger.check()
        assert "hunter2" not in refused.value.why
        assert PASSWORD_IN_URL not in refused.value.why


async def test_the_clock_is_that_of_the_server_and_a_jump_is_noted_for_all(opened: Open) -> None:
    one, other = (ledger.shared_clock for ledger in (await opened(), await opened()))  # type: ignore[attr-defined]
    before = (await one.read()).times["PostgreSQL"]
    assert (await other.read()).times["PostgreSQL"] >= before
    await one.note_jump(-70_000)
    assert (await other.read()).jump_ms == -70_000
    await other.confirm()
    assert (await one.read()).jump_ms == 0


async def test_what_takes_long_leaves_others_of_its_request_their_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await opened()
    await ledger.append(entry())
    monkeypatch.setattr(bounded, "REQUEST_SECONDS", 0.3)

    async def slow(one: asyncpg.Connection) -> None:
        await one.execute("SELECT pg_sleep(0.4)")

    await ledger._postgres.long(slow)  # type: ignore[attr-defined]
    await ledger.append(entry())
    assert (await ledger.usage())[TENANT].bytes > 0


async def test_a_sweep_waits_for_what_reads_much(
    opened: Open, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await opened()
    await ledger.settle(charge(1))
    waits_too_long = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND clock_timestamp() - query_start > interval '0.6 seconds')"
    )
    locker, watcher = [await asyncpg.connect(postgres_server.url) for _ in range(2)]
    try:
        async with locker.transaction():
            await locker.execute("LOCK spillgate.sessions IN ACCESS EXCLUSIVE MODE")
            # Of the first statement alone: the others have all the time that a busy machine needs.
            with monkeypatch.context() as patched:
                patched.setattr(bounded, "REQUEST_SECONDS", 0.3)
                sweep = asyncio.create_task(ledger.sweep())
                await asyncio.sleep(0)
            async with asyncio.timeout(20):
                while not (sweep.done() or await watcher.fetchval(waits_too_long)):
                    await asyncio.sleep(0.02)
    finally:
        await locker.close()
        await watcher.close()
    assert await sweep == []


async def test_what_was_deleted_with_its_tenant_is_not_lost(opened: Open) -> None:
    ledger = await opened()
    kept = entry(SessionKey("other", "s"))
    await ledger.append(entry())
    await ledger.append(kept)
    while not (await ledger.delete_tenant(TENANT)).is_done:
        pass
    assert await ledger.lost_writes() == []
    await ledger._postgres.many("DELETE FROM spillgate.entries")  # type: ignore[attr-defined]
    ledger._postgres._quick.broken += 1  # type: ignore[attr-defined]
    (lost,) = await ledger.lost_writes()
    assert lost == LostWrite(SessionKey("other", "s"), kept.timestamp)


async def test_entries_that_are_written_while_others_are_compared_take_no_part(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await opened()
    known, server = ledger._sessions.acknowledged, ledger._postgres  # type: ignore[attr-defined]
    monkeypatch.setattr(acknowledged, "_MOST", 3)
    monkeypatch.setattr(known, "_writes", deque(maxlen=3))
    ask = server.many

    async def meanwhile(query: str, *values: object) -> object:
        for _ in range(2):
            known.note(entry())
        return await ask(query, *values)

    for _ in range(3):
        known.note(entry())
    monkeypatch.setattr(server, "many", meanwhile)
    # One of each tenant.
    assert len(await ledger.lost_writes()) == 1
    assert len(known._writes) == 2


async def test_a_user_with_a_database_of_its_own_is_enough_and_reports_read_two_views_alone(
    opened: Open, clock: FakeClock, postgres_server: PostgresServer
) -> None:
    for text in ("DROP DATABASE IF EXISTS own", "DROP ROLE IF EXISTS plain", "DROP ROLE IF EXISTS reports"):
        postgres_server.sql(text, "postgres")
    postgres_server.sql("CREATE ROLE plain LOGIN PASSWORD 'x'", "postgres")
    postgres_server.sql("CREATE DATABASE own OWNER plain", "postgres")
    host = postgres_server.url.rpartition("@")[2].replace("/ledger", "/own")
    ledger = await opened(f"postgresql://plain:x@{host}")
    await filled(ledger, clock, 3)
    clock.now += (KEPT_DAYS + 1) * DAY_MS
    await ledger.sweep()
    await ledger.check()
    assert await ledger.lost_writes() == []
    assert (await ledger.summary(EntryFilter(TENANT), GroupBy.DAY)).total.entries == 9
    for text in (
        "CREATE ROLE reports LOGIN PASSWORD 'x'",
        "GRANT USAGE ON SCHEMA spillgate TO reports",
        "GRANT SELECT ON spillgate.report_entries, spillgate.report_days TO reports",
    ):
        postgres_server.sql(text, "own")
    reader = await asyncpg.connect(f"postgresql://reports:x@{host}")
    assert await reader.fetchval("SELECT sum(entries)::integer FROM spillgate.report_days") == 9
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await reader.fetch("SELECT * FROM spillgate.sessions")
    await reader.close()
    await ledger.close()
    for text in ("DROP DATABASE own", "DROP ROLE plain", "DROP ROLE reports"):
        postgres_server.sql(text, "postgres")
