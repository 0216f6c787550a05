"""The one writer: what a fault of one change does to the others of its transaction."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from storage.sqlite.group_commit import GroupCommit
from storage.sqlite.spare_space import SpareSpace

pytestmark = pytest.mark.anyio


class NoState:
    """No change leaves anything to write."""

    def write(self, cursor: sqlite3.Cursor) -> None:
        pass

    def commit(self) -> None:
        pass

    def reset(self) -> None:
        pass


async def test_a_fault_of_ours_reaches_every_caller_and_the_writer_goes_on(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    writer = GroupCommit(connection, NoState(), lambda: None, SpareSpace(tmp_path / "reserve"))

    def good(writing: sqlite3.Connection) -> int:
        return writing.execute("INSERT INTO t VALUES (1)").rowcount

    def bad(writing: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(
            writer.run(good), writer.run(bad), writer.run(good), return_exceptions=True
        )
        assert any(isinstance(outcome, ZeroDivisionError) for outcome in outcomes)
        assert await writer.run(good) == 1
        kept = await writer.run(lambda reading: reading.execute("SELECT count(*) FROM t").fetchone()[0])
        await writer.close()
    assert kept == 1 + sum(outcome == 1 for outcome in outcomes)
