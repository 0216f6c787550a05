"""Connections to PostgreSQL: their number, what each runs, and what the server reports of itself."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar, cast

import asyncpg

from domain import __version__
from domain.errors import ConfigError, StorageError, StoreUnavailable
from domain.ports import Load
from storage.base import bounded
from storage.base.bounded import BoundedServer
from storage.base.damage import Notices
from storage.base.schema import Schema, refusal
from storage.postgres.errors import (
    DRIVER_ERRORS,
    UNKEEPABLE,
    is_unreachable,
    translated,
    unkeepable,
)
from storage.postgres.url import PostgresUrl

T = TypeVar("T")
Operation = Callable[[asyncpg.Connection, bool], Awaitable[T]]
"""Runs on a connection. The flag is True if it runs again, because the connection before ended, after which
it may have been done."""

VERSION = 1
"""The number of the last migration in sql/."""

_FIRST_SERVER = 130_000
LONG_SECONDS = 60.0
"""The bound of long operations: summaries, sweeps, migrations."""
_LONG_AT_ONCE = 2
_OURS = re.compile(r"\bspillgate\.")

log = logging.getLogger("spillgate.storage")


class PostgresServer(BoundedServer):
    """Connections of one kind. Each runs one operation at a time; a broken one is not used again."""

    software = "PostgreSQL"
    driver_errors = DRIVER_ERRORS

    def __init__(
        self, url: PostgresUrl, max_connections: int, seconds: float | None, *, may_take_long: bool = False
    ) -> None:
        super().__init__(max_connections, url.address, seconds, may_take_long=may_take_long)
        self._url = url
        self._idle: list[asyncpg.Connection] = []
        self.broken = 0
        """How many connections ended while they were in use, or between two uses."""

    async def run(self, act: Operation[T], more: float = 0.0) -> T:
        """Raises StorageError, and InvalidField for what cannot be kept."""
        return await self.within(lambda: self._run(act), more)

    async def _run(self, act: Operation[T]) -> T:
        try:
            return await self._on(await self._connected(), act, is_again=False)
        except TimeoutError:
            raise
        except DRIVER_ERRORS as error:
            # The server has restarted, or another server has replaced it.
            if not self._is_unreachable(error) or self._is_away:
                raise
        return await self._on(await self._new(), act, is_again=True)

    async def _on(self, connection: asyncpg.Connection, act: Operation[T], *, is_again: bool) -> T:
        try:
            done = await act(connection, is_again)
        except UNKEEPABLE as error:
            self._give_back(connection)
            raise unkeepable() from error
        except asyncpg.PostgresError as error:
            self._give_back(connection, is_broken=is_unreachable(error))
            raise
        except BaseException:
            # The operation was cancelled, and the server may still run it, or the connection is out of step.
            self._give_back(connection, is_broken=True)
            raise
        self._give_back(connection)
        return done

    async def _connected(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self.broken += 1
        return await self._new()

    async def _new(self) -> asyncpg.Connection:
        seconds = max(bounded.CONNECT_SECONDS, (self._url.timeout or 0.0) / 2)
        return await asyncpg.connect(
            self._url.dsn,
            timeout=seconds,
            statement_cache_size=200 if self._url.is_prepared else 0,
            target_session_attrs="read-write" if self._url.has_several_hosts else "any",
            server_settings={"application_name": "spillgate"},
        )

    def _give_back(self, connection: asyncpg.Connection, *, is_broken: bool = False) -> None:
        if is_broken or connection.is_closed() or connection.is_in_transaction():
            self.broken += 1
            connection.terminate()
        else:
            self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=1.0)

    def _translated(self, error: BaseException) -> StorageError:
        return translated(error, self.named)

    def _is_unreachable(self, error: BaseException) -> bool:
        return is_unreachable(error)


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """`started` changes with each start of the server, and with a failover."""

    version: int
    started: str
    commits: str
    syncs: bool
    waits_for: str

    @property
    def warnings(self) -> tuple[str, ...]:
        warnings = []
        if not self.syncs:
            warnings.append("PostgreSQL may lose the ledger in a power cut: its fsync is off. Set it on.")
        if self.commits == "off":
            warnings.append(
                "PostgreSQL may lose the last entries when it crashes: its synchronous_commit is off. Set it "
                "on."
            )
        return tuple(warnings)


class PostgresConnection:
    """All methods raise StorageError."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._quick = PostgresServer(url, url.max_connections, url.timeout)
        self._long = PostgresServer(
            url, _LONG_AT_ONCE, max(LONG_SECONDS, url.timeout or 0.0), may_take_long=True
        )
        self._is_ready = False
        self._preparing = asyncio.Lock()
        self.facts: PostgresFacts | None = None
        self.has_schema = False
        self.notices = Notices()

    @property
    def load(self) -> Load:
        return Load(self._quick.running, self._url.max_connections, self._quick.waiting)

    @property
    def broken(self) -> int:
        return self._quick.broken + self._long.broken

    def sql(self, text: str) -> str:
        """The text with the schema of the URL in place of `spillgate`."""
        schema = self._url.schema
        return text if schema == "spillgate" else _OURS.sub(f'"{schema}".', text)

    async def fetch(self, query: str, *values: object) -> Sequence[Any]:
        return await self.run(lambda one, _: one.fetch(self.sql(query), *values))

    async def row(self, query: str, *values: object) -> Any:
        return await self.run(lambda one, _: one.fetchrow(self.sql(query), *values))

    async def value(self, query: str, *values: object) -> Any:
        return await self.run(lambda one, _: one.fetchval(self.sql(query), *values))

    async def run(self, act: Operation[T]) -> T:
        if not self._is_ready:
            await self.prepare()
        return await self._quick.run(act)

    async def long(
        self, act: Callable[[asyncpg.Connection], Awaitable[T]], seconds: float = LONG_SECONDS
    ) -> T:
        """Runs a long operation in its own transaction."""
        if not self._is_ready:
            await self.prepare()

        async def act_within(connection: asyncpg.Connection, is_again: bool) -> T:
            async with connection.transaction():
                await connection.execute(
                    f"SET LOCAL statement_timeout = '{int(seconds)}s'; SET LOCAL jit = off"
                )
                return await act(connection)

        return await self._long.run(act_within, seconds - LONG_SECONDS)

    async def many(self, query: str, *values: object) -> Sequence[Any]:
        """Returns the rows of a query that may read much data."""
        return await self.long(lambda one: one.fetch(self.sql(query), *values))

    async def copy_in(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Writes many rows."""

        async def act(connection: asyncpg.Connection) -> None:
            await connection.copy_records_to_table(
                table, schema_name=self._url.schema, columns=columns, records=rows
            )

        await self.long(act)

    async def prepare(self) -> None:
        """Migrates the schema, once. Raises StorageError. `has_schema` is then True if the schema or the
        server's version is the reason, False if the server does not answer."""
        async with self._preparing:
            if not self._is_ready:
                await self._long.run(self._migrated)
                self._is_ready = True

    async def _migrated(self, connection: asyncpg.Connection, is_again: bool) -> None:
        if (version := await _version_of(connection)) < _FIRST_SERVER:
            self.has_schema = True
            raise StoreUnavailable(
                f"PostgreSQL {version // 10_000} is too old for the ledger: it needs 13 or newer."
            )
        before = await self._schema(connection)
        if before.number < VERSION:
            async with connection.transaction():
                # If several processes start at the same time, one of them migrates.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('spillgate ledger'))")
                before = await self._schema(connection)
                if before.number < VERSION:
                    await self._migrate(connection, before.number)
                    return
        refused = refusal("The ledger in PostgreSQL", before, VERSION)
        if refused is not None:
            self.has_schema = True
            raise StoreUnavailable(refused)

    async def _schema(self, connection: asyncpg.Connection) -> Schema:
        """The schema in the database; its number is 0 if there is none."""
        there = await connection.fetchval("SELECT to_regclass($1)", f'"{self._url.schema}".written_by')
        if there is None:
            return Schema(0, "")
        row = await connection.fetchrow(self.sql("SELECT number, version FROM spillgate.written_by"))
        return Schema(*row) if row else Schema(0, "")

    async def _migrate(self, connection: asyncpg.Connection, number: int) -> None:
        if not number:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._url.schema}"')
        else:
            log.info("migrating the ledger in PostgreSQL from schema %d to %d", number, VERSION)
        for step in range(number + 1, VERSION + 1):
            await connection.execute(self.sql(migration(step)))
        await connection.execute(
            self.sql(
                "INSERT INTO spillgate.written_by (number, version) VALUES ($1, $2)"
                " ON CONFLICT (one) DO UPDATE SET number = excluded.number, version = excluded.version"
            ),
            VERSION,
            __version__,
        )

    async def check(self) -> None:
        """Raises StorageError if a write fails."""
        await self.value("UPDATE spillgate.pulse SET beat = beat + 1 RETURNING beat")
        await self.learn()

    async def learn(self) -> PostgresFacts:
        row = await self.row(
            "SELECT current_setting('server_version_num')::integer,"
            " pg_postmaster_start_time()::text,"
            " current_setting('synchronous_commit'), current_setting('fsync') = 'on',"
            " current_setting('synchronous_standby_names')"
        )
        self.facts = PostgresFacts(*row)
        return self.facts

    @property
    def warnings(self) -> tuple[str, ...]:
        return () if self.facts is None else self.facts.warnings

    async def close(self) -> None:
        await self._quick.close()
        await self._long.close()


def migration(number: int) -> str:
    return files("storage.postgres").joinpath("sql", f"{number:04}.sql").read_text(encoding="utf-8")


async def _version_of(connection: asyncpg.Connection) -> int:
    return cast(int, connection.get_server_version().major * 10_000)


async def connected(url: PostgresUrl) -> PostgresConnection:
    """Raises ConfigError for a schema of another version. If PostgreSQL does not answer now, every operation
    raises StoreUnavailable until it does."""
    connection = PostgresConnection(url)
    try:
        await connection.prepare()
    except StorageError as error:
        if connection.has_schema:
            await connection.close()
            raise ConfigError(error.detail) from error
    return connection
