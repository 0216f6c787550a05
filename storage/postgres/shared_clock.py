"""The clock of PostgreSQL, which all replicas use, and the record of an unconfirmed jump."""

from domain.ports import ClockReading
from storage.postgres.connection import PostgresConnection

_READ = (
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, coalesce(jump_ms, 0) FROM spillgate.pulse"
)


class PostgresClock:
    software = "PostgreSQL"

    def __init__(self, connection: PostgresConnection) -> None:
        self._postgres = connection

    async def read(self) -> ClockReading:
        now, jump_ms = await self._postgres.row(_READ)
        return ClockReading({"PostgreSQL": now}, jump_ms)

    async def note_jump(self, ms: int) -> None:
        await self._postgres.value("UPDATE spillgate.pulse SET jump_ms = $1", ms)

    async def confirm(self) -> None:
        await self._postgres.value("UPDATE spillgate.pulse SET jump_ms = NULL")
