"""The SQLite ledger's file, and what one bad neighbour or a full disk does to the others."""

import asyncio
import itertools
import os
import sqlite3
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from samples import KEY, TENANT, WINDOW, FakeClock, charge, entry

from domain.accounting import EntryFilter
from domain.budget import SessionChange
from domain.errors import ConfigError, StoreFull, StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Call, Ledger
from domain.results import UsageReport
from storage import open_ledger
from storage.sqlite import checkpoints

pytestmark = pytest.mark.anyio


async def open_at(path: Path, clock: FakeClock) -> Ledger:
    return await open_ledger(
        f"sqlite://{path}", clock=clock, session_retention_seconds=60, entry_retention_seconds=600
    )


async def test_many_rows_of_a_transaction_are_kept_in_order(tmp_path: Path, clock: FakeClock) -> None:
    """More than a statement inserts, with and without the columns that few entries have."""
    ledger = await open_at(tmp_path / "ledger.db", clock)
    sent = [entry(tokens_in=n, model="m" if 17 < n < 53 and n % 7 else None) for n in range(70)]
    await asyncio.gather(*map(ledger.append, sent))
    assert (await ledger.entries(EntryFilter(TENANT), 100, None)).entries == sent
    await ledger.close()


async def test_a_session_whose_row_was_lost_is_written_whole_by_its_next_charge(
    tmp_path: Path, clock: FakeClock
) -> None:
    ledger = await open_at(tmp_path / "ledger.db", clock)
    await ledger.put_session(KEY, SessionChange(frozenset({"model"}), model="m"))
    await ledger.settle(charge(1))
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as other, other:
        other.execute("DELETE FROM sessions")
    await ledger.settle(charge(2))
    await ledger.settle(charge(4))
    await ledger.close()
    again = await open_at(tmp_path / "ledger.db", clock)
    session = await again.session(KEY)
    assert session is not None
    assert (session.model, session.reserved_tokens) == ("m", 7)
    await again.close()


async def test_nobody_else_may_read_whatever_the_umask(umask: None, tmp_path: Path, clock: FakeClock) -> None:
    ledger = await open_at(tmp_path / "new" / "ledger.db", clock)
    await ledger.settle(charge(1))
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
    assert set(found.values()) == {0o600}
    assert set(found) == {
        "ledger.db",
        "ledger.db-wal",
        "ledger.db-shm",
        "ledger.db.lock",
        "ledger.db.reserve",
    }
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    await ledger.close()


async def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "shared").mkdir(0o755)
    await (await open_at(tmp_path / "shared" / "ledger.db", clock)).close()
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"not a database, but somebody's notes" * 100)
    with pytest.raises(ConfigError, match="cannot be used as a ledger"):
        await open_at(path, clock)
    assert path.read_bytes().startswith(b"not a database")


async def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used as a ledger"):
        await open_at(tmp_path / "file" / "ledger.db", clock)
    (tmp_path / "directory.db").mkdir()
    with pytest.raises(ConfigError, match=r"cannot be used as a ledger: Is a directory\. Name"):
        await open_at(tmp_path / "directory.db", clock)


@pytest.mark.parametrize(
    "bad",
    [
        lambda ledger: ledger.settle(charge(1 << 63)),
        lambda ledger: ledger.settle(charge(1, "call", text="\ud800")),
        lambda ledger: ledger.settle(charge(1, "\ud800")),
        lambda ledger: ledger.append(entry(tool_name="\udfff")),
        lambda ledger: ledger.enter(Call(KEY, WINDOW, False, "\udfff")),
        lambda ledger: ledger.report(KEY, UsageReport(1 << 64)),
    ],
)
async def test_what_cannot_be_kept_fails_alone(
    tmp_path: Path, clock: FakeClock, bad: Callable[[Ledger], Awaitable[object]]
) -> None:
    ledger = await open_at(tmp_path / "ledger.db", clock)
    good = [ledger.settle(charge(tokens)) for tokens in (1, 2, 3)]
    outcomes = await asyncio.gather(good[0], bad(ledger), *good[1:], return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Receipt", "InvalidField", *["Receipt"] * 2]
    found = await ledger.session(KEY)
    assert found is not None
    assert found.reserved_tokens == 6
    assert len((await ledger.entries(EntryFilter(TENANT), 10, None)).entries) == 3
    await ledger.close()


async def test_a_file_that_two_links_lead_to_is_one_ledger(tmp_path: Path, clock: FakeClock) -> None:
    links = tmp_path / "one.db", tmp_path / "other.db"
    for link in links:
        link.symlink_to(tmp_path / "ledger.db")
    ledger = await open_at(links[0], clock)
    with pytest.raises(ConfigError, match="in use"):
        await open_at(links[1], clock)
    links[0].unlink()
    links[0].symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnavailable, match=r"one\.db was deleted or replaced"):
        await ledger.check()
    await ledger.close()


async def test_a_file_with_a_damaged_schema_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger.db"
    await (await open_at(path, clock)).close()
    # SQLite's message quotes it.
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE sessions (", b"CREATE TABLE sessions \xc9"))
    with pytest.raises(ConfigError, match="if it is damaged, restore it"):
        await open_at(path, clock)


async def test_sessions_past_a_thousand_take_no_memory(tmp_path: Path, clock: FakeClock) -> None:
    ledger = await open_at(tmp_path / "ledger.db", clock)

    async def put(first: int, last: int) -> None:
        for start in range(first, last, 100):
            changes = [
                ledger.put_session(
                    SessionKey(TENANT, f"run-{number}"),
                    SessionChange(frozenset({"policy"}), policy=f"{number} " * 1000),
                )
                for number in range(start, start + 100)
            ]
            await asyncio.gather(*changes)

    await put(1000, 2100)
    tracemalloc.start()
    try:
        await put(2100, 3100)
        grown = tracemalloc.get_traced_memory()[0]
        # The thousand that are in memory are others now: as many bytes came as went, and those went untraced.
        await put(3100, 4100)
        assert tracemalloc.get_traced_memory()[0] < 1.1 * grown
    finally:
        tracemalloc.stop()
    await ledger.close()


async def test_a_cancelled_caller_spoils_nothing(tmp_path: Path, clock: FakeClock) -> None:
    ledger = await open_at(tmp_path / "ledger.db", clock)
    tasks = [asyncio.ensure_future(ledger.settle(charge(1))) for _ in range(30)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found = await ledger.session(KEY)
    assert found is not None
    assert found.reserved_tokens == 30
    await ledger.close()


async def test_a_full_disk_refuses_and_keeps_what_it_had(small_disk: Path, clock: FakeClock) -> None:
    ledger = await open_at(small_disk / "ledger.db", clock)
    kept = 0

    async def fill() -> None:
        nonlocal kept
        for number in range(10_000):
            await ledger.settle(charge(1, f"call-{number}", text="x" * 2000))
            kept += 1

    with pytest.raises(StoreFull):
        await fill()
    with pytest.raises(StoreFull):
        await ledger.settle(charge(1, "call-more", text="x" * 20_000))
    assert kept > 10
    found = await ledger.session(KEY)
    assert found is not None
    assert found.reserved_tokens == kept
    assert len((await ledger.entries(EntryFilter(TENANT), 10_000, None)).entries) == kept
    await ledger.close()


async def test_a_database_that_another_program_locks_is_unavailable(tmp_path: Path, clock: FakeClock) -> None:
    ledger = await open_at(tmp_path / "ledger.db", clock)
    await ledger.put_session(KEY, SessionChange(frozenset()))
    intruder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(ledger.append(entry()))
    assert await ledger.session(KEY) is not None
    await asyncio.sleep(0.05)
    assert not waiting.done()
    intruder.execute("ROLLBACK")
    await waiting
    intruder.execute("DROP TABLE pulse")
    intruder.close()
    with pytest.raises(StoreUnavailable):
        await ledger.check()
    await ledger.append(entry(SessionKey(TENANT, "run-2")))
    await ledger.close()


@pytest.mark.parametrize("passes", [checkpoints.MOST_PASSES, 1])
async def test_the_wal_file_is_emptied_beside_commits_that_never_pause(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    """One pass: the checkpoint of a slow disk, which leaves the rest to the writer."""
    monkeypatch.setattr(checkpoints, "MOST_PASSES", passes)
    monkeypatch.setattr(checkpoints, "ROWS", 500)
    monkeypatch.setattr(checkpoints, "MOST_FRAMES", 500)
    monkeypatch.setattr(checkpoints, "MOST_ROWS", 1250)
    path = tmp_path / "ledger.db"
    ledger = await open_at(path, clock)
    text = "x" * 2000

    async def settle(client: int) -> None:
        for number in range(250):
            key = SessionKey("acme", f"run-{client}")
            await ledger.settle(charge(1, f"call-{number}", key=key, text=text))

    await asyncio.gather(*[settle(client) for client in range(8)])
    # All of it would be 33 MB.
    assert (tmp_path / "ledger.db-wal").stat().st_size < 10_000_000
    assert path.stat().st_size > 2_500_000
    await ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2000,)


async def test_commits_do_not_wait_while_a_checkpoint_syncs_the_database(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, ends = threading.Event(), threading.Event()

    def sync(fd: int) -> None:
        assert os.path.samestat(os.fstat(fd), (tmp_path / "ledger.db").stat())
        begins.set()
        ends.wait(60)

    monkeypatch.setattr(checkpoints, "sync_data", sync)
    monkeypatch.setattr(checkpoints, "ROWS", 100)
    ledger = await open_at(tmp_path / "ledger.db", clock)
    for number in itertools.count():
        await asyncio.gather(*[ledger.append(entry(tokens_in=number)) for _ in range(16)])
        if begins.is_set():
            break
    await asyncio.wait_for(ledger.append(entry()), 30)
    assert not ends.is_set()
    ends.set()
    await ledger.close()
