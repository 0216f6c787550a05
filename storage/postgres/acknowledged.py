"""Entries that PostgreSQL acknowledged and then lost, in a failover or a crash, because it does not wait for
replicas or the disk."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from domain.accounting import AccountingEntry
from domain.handles import SessionKey
from domain.ports import LostWrite
from storage.postgres.connection import PostgresConnection

log = logging.getLogger("spillgate.storage")

_KNOWN_SECONDS = 300
_MOST = 50_000
_MISSING = (
    "SELECT place FROM unnest($1::text[], $2::bigint[], $3::text[])"
    ' WITH ORDINALITY AS a(tenant, "timestamp", id, place)'
    " WHERE NOT EXISTS (SELECT FROM spillgate.entries AS e"
    ' WHERE e.tenant = a.tenant AND e."timestamp" = a."timestamp" AND e.id = a.id)'
    " AND NOT EXISTS (SELECT FROM spillgate.histories AS h"
    ' WHERE h.tenant = a.tenant AND h.deleted >= a."timestamp")'
)


class _Write(NamedTuple):
    key: SessionKey
    at: int
    id: str
    acknowledged_at: float


class RecentlyAcknowledged:
    """The entries of this process that PostgreSQL acknowledged in the last minutes: a failover loses only
    recent ones. After a connection has ended, or when another server answers, they are compared with those in
    the database."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._postgres = connection
        self._writes: deque[_Write] = deque(maxlen=_MOST)
        self._lost: list[LostWrite] = []
        self._seen = (0, "")

    def forget(self, tenant: str) -> None:
        """Forgets the entries of a tenant: they are deleted, and so not lost."""
        self._keep(lambda write: write.key.tenant != tenant)
        self._lost = [one for one in self._lost if one.key.tenant != tenant]

    def note(self, entry: AccountingEntry) -> None:
        key = SessionKey(entry.tenant, entry.session_id)
        self._writes.append(_Write(key, entry.timestamp, entry.id, time.monotonic()))

    async def compare(self) -> None:
        since = time.monotonic() - _KNOWN_SECONDS
        while self._writes and self._writes[0].acknowledged_at < since:
            self._writes.popleft()
        if not self._writes:
            return
        seen = self._postgres.broken, (await self._postgres.learn()).started
        if seen == self._seen:
            return
        writes = list(self._writes)
        columns = [one.key.tenant for one in writes], [one.at for one in writes], [one.id for one in writes]
        rows = await self._postgres.many(f"{_MISSING} ORDER BY place", *columns)
        missing = [writes[place - 1] for (place,) in rows]
        if missing:
            log.warning("PostgreSQL has lost %d entries that it acknowledged.", len(missing))
        # One entry for each tenant stands for its earlier ones, too.
        self._lost += {one.key.tenant: LostWrite(one.key, one.at) for one in missing}.values()
        gone = {one.id for one in missing}
        self._keep(lambda write: write.id not in gone)
        self._seen = seen

    def _keep(self, test: Callable[[_Write], bool]) -> None:
        self._writes = deque(filter(test, self._writes), _MOST)

    def lost(self) -> list[LostWrite]:
        """Returns the entries for which `told` was not called."""
        return list(self._lost)

    def told(self, write: LostWrite) -> None:
        """Records that an entry of the type `lost` reports it."""
        self._lost = [one for one in self._lost if one != write]
