"""Group commit: changes that arrive during a transaction share the next one."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from domain.errors import InvalidField, SpillgateError, StorageError, StoreFull, StoreUnavailable

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], object]
MOST = 256
# A number past 64 bits, a lone surrogate, a text past 1 GB: an error of one change, not of the database.
UNKEEPABLE = (OverflowError, UnicodeEncodeError, sqlite3.DataError)


class State(Protocol):
    """Collects what the changes of a transaction write."""

    def write(self, connection: sqlite3.Connection) -> None:
        """Before the commit."""
        ...

    def commit(self) -> None:
        """After it."""
        ...

    def reset(self) -> None:
        """After each transaction, committed or rolled back."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    change: Change
    answer: asyncio.Future[object]


class GroupCommit:
    """The only writer of a database, with its own thread and connection. `guard` is called before each
    commit; if it raises a StorageError, nothing is written and every caller gets the error."""

    def __init__(self, connection: sqlite3.Connection, state: State, guard: Callable[[], None]) -> None:
        self._connection = connection
        self._state = state
        self._guard = guard
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        # Starts the thread now: if that fails, the service does not start.
        self._executor.submit(_do_nothing)
        self._waiting: list[_Waiting] = []
        self._batch: list[_Waiting] = []
        self._is_running = False
        self.uncommitted = 0
        """The number of changes that wait for the end of a transaction."""

    async def run(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Returns when `change` is committed, even for a cancelled caller. A change that raises a
        SpillgateError must not have written anything: the other changes of its transaction are committed."""
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(change, answer))
        self.uncommitted += 1
        if not self._is_running:
            # After all tasks that are ready now: their changes share the transaction.
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._start)
        return cast(T, await answer)

    async def close(self) -> None:
        """Commits the waiting changes, then closes the connection."""
        # The callers of changes that failed have got the error.
        with suppress(StorageError):
            await self.run(lambda connection: None)
        await asyncio.get_running_loop().run_in_executor(self._executor, self._connection.close)
        self._executor.shutdown()

    def _start(self) -> None:
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._commit_waiting)
        running.add_done_callback(self._finish)

    def _commit_waiting(self) -> list[tuple[_Waiting, object]]:
        # Taken on the writer's thread, because more changes may have arrived before it runs.
        batch = self._waiting[:MOST]
        del self._waiting[: len(batch)]
        self._batch = batch
        return list(zip(batch, self._commit([waiting.change for waiting in batch]), strict=True))

    def _finish(self, done: asyncio.Future[list[tuple[_Waiting, object]]]) -> None:
        batch = self._batch
        self.uncommitted -= len(batch)
        if self._waiting:
            self._start()
        else:
            self._is_running = False
        fault = done.exception()
        # An unexpected error: every caller of the batch gets it, so that none waits forever.
        outcomes = done.result() if fault is None else [(waiting, fault) for waiting in batch]
        for waiting, outcome in outcomes:
            if waiting.answer.done():
                continue
            if isinstance(outcome, BaseException):
                waiting.answer.set_exception(outcome)
            else:
                waiting.answer.set_result(outcome)

    def _commit(self, changes: list[Change]) -> list[object]:
        """Returns the value or the error of each change."""
        try:
            return self._transaction(changes)
        except UNKEEPABLE:
            if len(changes) > 1:
                return [outcome for change in changes for outcome in self._commit([change])]
            return [unkeepable()]
        except sqlite3.Error as error:
            return [translated(error) for _ in changes]
        except StorageError as error:
            return [StoreUnavailable(error.detail) for _ in changes]

    def _transaction(self, changes: list[Change]) -> list[object]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [_outcome(change, connection) for change in changes]
            self._state.write(connection)
            self._guard()
            connection.execute("COMMIT")
            self._state.commit()
        finally:
            self._state.reset()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes


def _do_nothing() -> None:
    pass


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
