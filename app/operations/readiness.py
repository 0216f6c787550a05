"""Readiness: checks store and ledger at most once a second, and immediately after a failure."""

import logging
import math
from time import monotonic

from domain.ports import Ledger, ResultStore
from storage.spool.outage import Outage

FRESH_SECONDS = 1.0
DEGRADED = "degraded: the local spool keeps what comes, and knows what it was told since."

log = logging.getLogger("spillgate.readiness")


class Readiness:
    def __init__(self, store: ResultStore, ledger: Ledger, outage: Outage | None = None) -> None:
        self._store = store
        self._ledger = ledger
        self._outage = outage
        self._checked_at = self._invalidated_at = -math.inf
        self._logged: set[str] = set()

    @property
    def is_degraded(self) -> bool:
        """Redis is away, and the spool serves."""
        return self._outage is not None and self._outage.is_on

    @property
    def warnings(self) -> list[str]:
        """The warnings of store and ledger, as of the last check."""
        standing = dict.fromkeys((*self._store.warnings, *self._ledger.warnings))
        if self._outage is None or not self._outage.is_on:
            return list(standing)
        return [f"{DEGRADED} {self._outage.why}", *standing]

    def invalidate(self) -> None:
        """Something was not kept: what was found before says nothing any more."""
        self._invalidated_at = monotonic()

    async def check(self) -> None:
        """Raises what the store or the ledger raises."""
        began = monotonic()
        # Each check syncs the disk, and anyone may ask: once a second is enough.
        if self._checked_at > self._invalidated_at and began - self._checked_at < FRESH_SECONDS:
            return
        await self._store.check()
        await self._ledger.check()
        # The time of its beginning: a failure during the check is newer than its result.
        self._checked_at = began
        for warning in (*self._store.warnings, *self._ledger.warnings):
            if warning not in self._logged:
                self._logged.add(warning)
                log.warning(warning)
