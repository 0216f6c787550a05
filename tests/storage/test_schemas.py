"""The schema of what is kept: marked once, compared at every start; another one is refused and left alone."""

import hashlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from samples import KEY, FakeClock, charge

from domain import __version__
from domain.accounting import EntryFilter, Gap, GroupBy
from domain.errors import ConfigError, StoreUnavailable
from domain.ports import Ledger, ResultStore
from storage import open_ledger, open_store
from storage.base import bounded
from storage.base.summaries import GROUPED, Sums
from storage.redis import keys
from storage.redis.facts import SCHEMA
from storage.redis.records import CallRecord, DayRecord
from storage.sqlite.database import VERSION
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

OLDER, NEWER = (0, "0.0.9"), (1000, "9.0.0")
KEPT = Path(__file__).resolve().parents[1] / "deploy/kept"
LEDGER_7, LEDGER_9 = KEPT / "0.1.0/ledger.sql", KEPT / "0.2.0/ledger.sql"
HOUR_MS = 3_600_000
TEXTS = ("tool_name", "trigger", "outcome", "model", "strategy", "tool_kind")
REDIS_KEY = "spillgate:schema"


async def opened_store(url: str) -> ResultStore:
    return await open_store(url, clock=FakeClock(), retention_seconds=60, max_bytes=0)


async def opened_ledger(url: str) -> Ledger:
    return await open_ledger(
        url, clock=FakeClock(), session_retention_seconds=60, entry_retention_seconds=600
    )


def mark_disk(root: Path, number: int, version: str) -> None:
    (root / "schema").write_text(json.dumps({"number": number, "written_by": version}))


def mark_sqlite(path: Path, number: int, version: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE written_by SET version = ?", (version,))
        # A file whose number is 0 has no tables yet: the oldest schema is 1.
        connection.execute(f"PRAGMA user_version = {number or 1}")
    connection.close()


def check_text(text: str, place: str, number: int, version: str) -> None:
    assert f"{place} was written by Spillgate {version} (schema {number})" in text
    assert f"This is Spillgate {__version__}" in text
    assert ("Start that version or a newer one" if number > 1 else "It cannot be migrated") in text


def everything_in(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize(("number", "version"), [OLDER, NEWER])
async def test_a_directory_of_another_schema_is_refused_and_left_as_it_is(
    tmp_path: Path, number: int, version: str
) -> None:
    await (await opened_store(f"disk://{tmp_path}")).close()
    assert json.loads((tmp_path / "schema").read_text()) == {"number": 1, "written_by": __version__}
    mark_disk(tmp_path, number, version)
    # A start deletes drafts: not those of another version.
    (tmp_path / "drafts" / "unfinished").write_text("text")
    before = everything_in(tmp_path)
    with pytest.raises(ConfigError) as refused:
        await opened_store(f"disk://{tmp_path}")
    check_text(str(refused.value), str(tmp_path), number, version)
    assert everything_in(tmp_path) == before


async def test_a_directory_without_a_mark_is_marked_and_a_damaged_mark_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        await (await opened_store(f"disk://{tmp_path}")).close()
        mark = (tmp_path / "schema").read_bytes()
        (tmp_path / "schema").unlink()
    (tmp_path / "schema").write_bytes(mark[:-5])
    with pytest.raises(ConfigError, match="damaged"):
        await opened_store(f"disk://{tmp_path}")


@pytest.mark.parametrize(("number", "version"), [OLDER, NEWER])
async def test_a_database_of_another_schema_is_refused_and_left_as_it_is(
    tmp_path: Path, number: int, version: str
) -> None:
    path = tmp_path / "ledger.db"
    await (await opened_ledger(f"sqlite://{path}")).close()
    mark_sqlite(path, number, version)
    before = path.read_bytes()
    with pytest.raises(ConfigError) as refused:
        await opened_ledger(f"sqlite://{path}")
    check_text(str(refused.value), str(path), number or 1, version)
    assert path.read_bytes() == before


async def test_a_database_of_an_older_schema_is_migrated_keeps_its_entries_and_sums_them_up(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(LEDGER_7.read_text())
        tenant, before = connection.execute("SELECT tenant, count(*) FROM entries").fetchone()
    connection.close()
    ledger = await opened_ledger(f"sqlite://{path}")
    entries = (await ledger.entries(EntryFilter(tenant), 10, None)).entries
    assert len(entries) == before > 0
    (row,) = (await ledger.summary(EntryFilter(tenant), GroupBy.TENANT)).rows
    assert (row.entries, row.tokens_in) == (before, sum(entry.tokens_in for entry in entries))
    await ledger.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT version FROM written_by").fetchall() == [(__version__,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        sums = "SELECT length / 3600000, sum(entries) FROM period_sums GROUP BY length"
        assert connection.execute(sums).fetchall() == [(1, before), (24, before)]
    connection.close()


async def test_a_database_of_the_schema_before_keeps_its_sums(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await opened_ledger(f"sqlite://{path}")
    await ledger.settle(charge(7))
    before = await ledger.summary(EntryFilter(KEY.tenant), GroupBy.TYPE)
    await ledger.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE entries ADD COLUMN first_question INTEGER NOT NULL DEFAULT 0")
        connection.execute("PRAGMA user_version = 11")
    ledger = await opened_ledger(f"sqlite://{path}")
    await ledger.settle(charge(7, call_id="later"))
    after = await ledger.summary(EntryFilter(KEY.tenant), GroupBy.TYPE)
    assert (before.total.entries, after.total.entries) == (1, 2)
    await ledger.close()


async def test_entries_that_cannot_be_read_stop_no_migration(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(LEDGER_7.read_text())
        tenant, before = connection.execute("SELECT tenant, count(*) FROM entries").fetchone()
        connection.execute("UPDATE entries SET entry = x'ff' WHERE seq = 1")
    connection.close()
    ledger = await opened_ledger(f"sqlite://{path}")
    assert len((await ledger.entries(EntryFilter(tenant), 10, None)).entries) == before - 1
    assert (await ledger.summary(EntryFilter(tenant), GroupBy.TYPE)).total.entries == before - 1
    await ledger.close()


async def test_sums_that_outlived_their_entries_are_migrated(tmp_path: Path) -> None:
    """As schema 10 kept them: without the keys and clients of their entries."""
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(LEDGER_9.read_text())
        tenant, at, before = connection.execute("SELECT tenant, timestamp, count(*) FROM entries").fetchone()
        connection.execute("CREATE TABLE rolled_sums AS SELECT * FROM hour_sums WHERE FALSE")
        names = [name for _, name, *_ in connection.execute("PRAGMA table_info(rolled_sums)")]
        known = {"tenant": tenant, "type": "tool", "status": "ok", "entries": 2, "tokens_saved": 5}
        for hour in (at // HOUR_MS - 25, at // HOUR_MS - 24):
            values = [{**dict.fromkeys(TEXTS, b""), **known, "hour": hour}.get(name, 0) for name in names]
            connection.execute(f"INSERT INTO rolled_sums VALUES ({', '.join('?' * len(names))})", values)
        connection.execute("PRAGMA user_version = 10")
    connection.close()
    ledger = await opened_ledger(f"sqlite://{path}")
    found = await ledger.summary(EntryFilter(tenant), GroupBy.DAY)
    assert sorted(row.entries for row in found.rows) == sorted([before, 4])
    assert set(found.gaps) == {Gap.HISTORY}
    by_key = await ledger.summary(EntryFilter(tenant), GroupBy.KEY)
    assert by_key.rest is not None
    assert (by_key.rest.entries, by_key.total.entries) == (4, before + 4)
    by_hour = await ledger.summary(EntryFilter(tenant), GroupBy.HOUR)
    assert (by_hour.total.entries, set(by_hour.gaps)) == (before, {Gap.HISTORY, Gap.BYTES})
    await ledger.close()


Open = Callable[[str], Awaitable[ResultStore | Ledger]]
each_port = pytest.mark.parametrize("open_port", [opened_store, opened_ledger])


@each_port
@pytest.mark.parametrize(("number", "version"), [OLDER, NEWER])
async def test_a_redis_of_another_schema_is_refused_and_left_as_it_is(
    redis_url: str, redis_server: RedisServer, open_port: Open, number: int, version: str
) -> None:
    await (await open_port(redis_url)).close()
    assert redis_server.ask("HGET", REDIS_KEY, "written_by").split()[1] == __version__.encode()
    redis_server.ask("HSET", REDIS_KEY, "number", str(number), "written_by", version)
    with pytest.raises(ConfigError) as refused:
        await open_port(redis_url)
    check_text(str(refused.value), "Redis", number, version)
    assert redis_server.ask("HGET", REDIS_KEY, "written_by").split()[1] == version.encode()
    assert redis_server.ask("DBSIZE") == b":1\r\n"


@asynccontextmanager
async def opened_while_away(server: RedisServer) -> AsyncIterator[Ledger]:
    server.stop()
    ledger = await opened_ledger(server.url)
    server.start()
    yield ledger
    await ledger.close()


async def test_a_redis_of_the_schema_before_is_used_and_marked_as_ours(
    redis_url: str, redis_server: RedisServer
) -> None:
    redis_server.ask("HSET", REDIS_KEY, "number", "2", "written_by", "0.1.0")
    await (await opened_ledger(redis_url)).close()
    # The version before refuses it from then on: it would not read what this one writes.
    assert redis_server.ask("HMGET", REDIS_KEY, "number", "written_by").split()[2::2] == [
        str(SCHEMA).encode(),
        __version__.encode(),
    ]


SHAPES = {3: "101115"}
"""The schema of Redis, and the beginning of the digest of what it stands for."""


def test_the_schema_of_redis_changes_with_the_shape_of_what_is_kept() -> None:
    """Records whose fields are told apart by their places, and the keys. Fields with names may be added."""
    records = [one.__struct_fields__ for one in (Sums, DayRecord, CallRecord)]
    named = re.findall(r"^(\S[^ ]*(?: · \S+)*) {2,}(\w+) ", str(keys.__doc__), re.MULTILINE)
    shape = repr((records, GROUPED, keys.SHARDS, named))
    digest = hashlib.sha256(shape.encode()).hexdigest()[:6]
    assert {SCHEMA: digest} == SHAPES, "Raise SCHEMA in storage/redis/facts.py."


@pytest.mark.usefixtures("patient_redis")
async def test_a_redis_that_was_away_at_the_start_is_refused_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Asked again at once, not a second later.
    monkeypatch.setattr(bounded, "AWAY_SECONDS", 0.0)
    with RedisServer(tmp_path, aof="always") as server:
        server.ask("HSET", REDIS_KEY, "number", "1000", "written_by", "9.0.0")
        async with opened_while_away(server) as ledger:
            refused = await refusal_of(lambda: ledger.settle(charge(1)))
            check_text(refused, "Redis", *NEWER)
            assert await refusal_of(ledger.check) == refused
        assert server.ask("DBSIZE") == b":1\r\n"
        server.ask("DEL", REDIS_KEY)
        async with opened_while_away(server) as ledger:
            await settled(ledger)
            # A newer version is rolled out, and migrates, while this one runs.
            server.ask("HSET", REDIS_KEY, "number", "1000", "written_by", "9.0.0")
            for ask in (ledger.check, lambda: ledger.session(KEY)):
                check_text(await refusal_of(ask), "Redis", *NEWER)


async def refusal_of(ask: Callable[[], Awaitable[object]]) -> str:
    """The reason, as soon as it is more than that Redis was not reached."""
    while True:
        with pytest.raises(StoreUnavailable) as refused:
            await ask()
        if not refused.value.detail.startswith("Redis cannot be reached"):
            return refused.value.detail


async def settled(ledger: Ledger) -> None:
    while True:
        try:
            await ledger.settle(charge(1))
        except StoreUnavailable:
            continue
        return


async def test_a_full_redis_without_a_mark_can_be_read(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        ledger = await opened_ledger(server.url)
        await ledger.settle(charge(1))
        await ledger.close()
        server.ask("DEL", REDIS_KEY)
        server.ask("CONFIG", "SET", "maxmemory", "1")
        ledger = await opened_ledger(server.url)
        assert await ledger.session(KEY) is not None
        await ledger.close()
