"""Writers of a database. Group commit: changes that arrive during a transaction share the next one."""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar, cast

from domain.errors import InvalidField, SpillgateError, StorageError, StoreFull, StoreUnavailable
from domain.structs import frozen_struct
from storage.base.threads import Batches
from storage.sqlite.checkpoints import Checkpoints
from storage.sqlite.spare_space import SpareSpace

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], object]
MOST = 256
# Errors of one change, not of the database: a number past 64 bits, a lone surrogate, a text past 1 GB.
UNKEEPABLE = (OverflowError, UnicodeEncodeError, sqlite3.DataError)


class State(Protocol):
    """Collects what the changes of a transaction write."""

    def write(self, cursor: sqlite3.Cursor) -> None:
        """Writes what was collected; called before the commit."""
        ...

    def commit(self) -> None:
        """Called after the commit."""
        ...

    def reset(self) -> None:
        """Called after each transaction, committed or rolled back."""
        ...


@frozen_struct
class _Job:
    """`deletes`: the change makes room."""

    change: Change
    deletes: bool


class Writer:
    """The only writer of a database. Commits each change on the caller's thread; for a database in memory,
    whose one connection also reads."""

    def __init__(
        self, connection: sqlite3.Connection, state: State, guard: Callable[[], None] = lambda: None
    ) -> None:
        """`guard` is called before each commit. If it raises a StorageError, nothing is written and every
        caller gets the error."""
        self._connection = connection
        # One cursor for all statements: the connection would make a new one for each.
        self._cursor = connection.cursor()
        (_, _, self._path), *_ = connection.execute("PRAGMA database_list").fetchall()
        self._state = state
        self._guard = guard

    @property
    def pending(self) -> int:
        """The number of changes that are not committed yet."""
        return 0

    def run(self, change: Callable[[sqlite3.Connection], T], *, deletes: bool = False) -> Awaitable[T]:
        """Commits `change` and returns its value; await it at once. It is committed even if the caller is
        cancelled. A change that raises a SpillgateError must not have written anything, because the other
        changes of the transaction are committed. `deletes`: the change makes room, and may use the spare
        space."""
        return self._run(change)

    async def _run(self, change: Callable[[sqlite3.Connection], T]) -> T:
        (outcome,) = self._committed([change])
        if isinstance(outcome, BaseException):
            raise outcome
        return cast(T, outcome)

    async def close(self) -> None:
        """Commits the waiting changes, then closes the connection."""
        self._connection.close()

    def _committed(self, changes: Sequence[Change]) -> list[object]:
        """Returns the value or the error of each change."""
        if not changes:
            return []
        try:
            return self._transaction(changes)
        except UNKEEPABLE:
            if len(changes) > 1:
                return [outcome for change in changes for outcome in self._committed([change])]
            return [unkeepable()]
        except sqlite3.Error as error:
            return [translated(error, self._path) for _ in changes]
        except StorageError as error:
            return [StoreUnavailable(error.detail, cause=error.cause) for _ in changes]

    def _transaction(self, changes: Sequence[Change]) -> list[object]:
        connection, cursor = self._connection, self._cursor
        try:
            cursor.execute("BEGIN IMMEDIATE")
            outcomes = [_outcome(change, connection) for change in changes]
            self._state.write(cursor)
            self._guard()
            cursor.execute("COMMIT")
            self._state.commit()
        finally:
            self._state.reset()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes


class GroupCommit(Writer):
    """Has its own thread and connection. On a full disk changes that delete are written into the spare
    space."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        state: State,
        guard: Callable[[], None],
        spare: SpareSpace,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(connection, state, guard)
        self._spare = spare
        # Kept open to read its size. SQLite cuts the file, but does not replace it while a connection is
        # open.
        self._wal = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._checkpoints = checkpoints
        self._batches: Batches[_Job] = Batches(self._commit, "ledger-write", MOST)

    def run(self, change: Callable[[sqlite3.Connection], T], *, deletes: bool = False) -> Awaitable[T]:
        return cast(Awaitable[T], self._batches.run(_Job(change, deletes)))

    @property
    def pending(self) -> int:
        return self._batches.pending

    async def close(self) -> None:
        await self._batches.close()
        await asyncio.to_thread(self._connection.close)
        if self._checkpoints is not None:
            await asyncio.to_thread(self._checkpoints.close)
        os.close(self._wal)
        self._spare.close()

    def _commit(self, jobs: Sequence[_Job]) -> list[object]:
        """Returns the value or the error of each change."""
        deleting = [job.change for job in jobs if job.deletes]
        # lseek: a `stat` takes six times as many instructions.
        if self._spare.fill(os.lseek(self._wal, 0, os.SEEK_END)):
            outcomes = self._committed([job.change for job in jobs])
            if not deleting or not _is_full(outcomes):
                return outcomes
        outcomes = self._committed(deleting)
        if _is_full(outcomes):
            self._make_room()
            outcomes = self._committed(deleting)
        while _is_full(outcomes) and self._spare.spend():
            outcomes = self._committed(deleting)
        deleted = iter(outcomes)
        return [next(deleted) if job.deletes else _full(f"ENOSPC, {self._path}") for job in jobs]

    def _make_room(self) -> None:
        """Empties the -wal file: its pages go into the database, which grows by at most the spare space."""
        while self._spare.spend():
            pass
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._spare.fill()

    def _transaction(self, changes: Sequence[Change]) -> list[object]:
        outcomes = super()._transaction(changes)
        if self._checkpoints is not None:
            self._checkpoints.committed(self._connection)
        return outcomes


def _outcome(change: Change, connection: sqlite3.Connection) -> object:
    try:
        return change(connection)
    except SpillgateError as error:
        return error


def _is_full(outcomes: Sequence[object]) -> bool:
    """Whether the medium is full. A full quota of a tenant is an error of a single change, and does not
    count."""
    return bool(outcomes) and all(type(one) is StoreFull for one in outcomes)


def _full(cause: str) -> StoreFull:
    return StoreFull("The ledger's disk is full. Free space on it and try again.", cause=cause)


def unkeepable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers below 2^63 and valid Unicode.")


def translated(error: sqlite3.Error, path: str) -> StorageError:
    failure: StorageError
    code = getattr(error, "sqlite_errorcode", 0)
    cause = f"{getattr(error, 'sqlite_errorname', type(error).__name__)}, {path}"
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE):
        failure = _full(cause)
    elif code & 0xFF == sqlite3.SQLITE_CORRUPT:
        failure = StoreUnavailable(
            "The ledger's file is damaged. The operator can restore it from a backup.", cause=cause
        )
    else:
        failure = StoreUnavailable(
            "The ledger's database refused. Try again; if it lasts, look at its disk.", cause=cause
        )
    failure.__cause__ = error
    return failure
