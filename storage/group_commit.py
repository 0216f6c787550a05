"""Group commit: changes that arrive while a transaction is written go into the next one together."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from domain.errors import InvalidField, SpillgateError, StorageError, StoreFull, StoreUnavailable

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], object]
MOST = 256
# A number past 64 bits, a lone surrogate, a text past 1 GB: the fault of one change alone.
UNKEEPABLE = (OverflowError, UnicodeEncodeError, sqlite3.DataError)


@dataclass(frozen=True, slots=True)
class _Waiting:
    change: Change
    answer: asyncio.Future[object]


class GroupCommit:
    """The one writer of a database: its own thread, its own connection."""

    def __init__(
        self, connection: sqlite3.Connection, committed: Callable[[], None], rolled_back: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._committed = committed
        self._rolled_back = rolled_back
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._waiting: list[_Waiting] = []
        self._is_running = False

    async def run(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Returns when it is committed; a cancelled caller's change is committed all the same. A change
        that raises a SpillgateError must not have written anything before: the others are kept."""
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(change, answer))
        if not self._is_running:
            self._start()
        return cast(T, await answer)

    async def close(self) -> None:
        """Commits what waits, then closes the connection."""
        await self.run(lambda connection: None)
        await asyncio.get_running_loop().run_in_executor(self._executor, self._connection.close)
        self._executor.shutdown()

    def _start(self) -> None:
        batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        self._is_running = True
        changes = [waiting.change for waiting in batch]
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._commit, changes)
        running.add_done_callback(partial(self._finish, batch))

    def _finish(self, batch: list[_Waiting], done: asyncio.Future[list[object]]) -> None:
        self._is_running = False
        if self._waiting:
            self._start()
        error = done.exception()
        outcomes = [error] * len(batch) if error is not None else done.result()
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.answer.done():
                continue
            if isinstance(outcome, BaseException):
                waiting.answer.set_exception(outcome)
            else:
                waiting.answer.set_result(outcome)

    def _commit(self, changes: list[Change]) -> list[object]:
        """What each came to: its value, or the error to raise where it was asked for."""
        try:
            return self._transaction(changes)
        except UNKEEPABLE:
            if len(changes) > 1:
                return [outcome for change in changes for outcome in self._commit([change])]
            return [
                InvalidField("A number or a text in it cannot be kept. Use numbers below 2^63 and Unicode.")
            ]
        except sqlite3.Error as error:
            return [translated(error) for _ in changes]

    def _transaction(self, changes: list[Change]) -> list[object]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [_outcome(change, connection) for change in changes]
            connection.execute("COMMIT")
            self._committed()
        finally:
            self._rolled_back()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes


def _outcome(change: Change, connection: sqlite3.Connection) -> object:
    try:
        return change(connection)
    except SpillgateError as error:
        return error


def unkeepable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers below 2^63 and valid Unicode.")


def translated(error: sqlite3.Error) -> StorageError:
    failure: StorageError
    if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE):
        failure = StoreFull("The ledger's disk is full. Free space on it and try again.")
    else:
        failure = StoreUnavailable("The ledger's database refused. Try again; if it lasts, look at its disk.")
    failure.__cause__ = error
    return failure
