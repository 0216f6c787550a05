"""Readiness: checks store and ledger at most once a second, and immediately after a failure."""

import logging
import math
from time import monotonic
from typing import TYPE_CHECKING

from domain.errors import StorageError, StoreFull
from domain.ports import Ledger, LedgerBounds, ResultStore

if TYPE_CHECKING:
    from storage.spool.outage import Outage

FRESH_SECONDS = 1.0
WARNED_FROM, WARNED_UNTIL = 0.9, 0.85
"""The share of a bound at which a warning begins, and below which it ends."""

DEGRADED = "degraded: the local spool keeps what comes, and knows what it was told since."
_NEARLY_FULL = "{} over 90 % of {}. {}"
_RAISE = "Delete results, end sessions, or raise it."

log = logging.getLogger("spillgate.readiness")


class Readiness:
    """A full store or ledger is ready: reads and deletes must reach it. It is a warning, from 90 % on."""

    def __init__(
        self,
        store: ResultStore,
        ledger: Ledger,
        outage: "Outage | None" = None,
        storage_max_bytes: int = 0,
        bounds: LedgerBounds = LedgerBounds(),  # noqa: B008
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._outage = outage
        self._storage_max_bytes = storage_max_bytes
        self._bounds = bounds
        self._checked_at = self._invalidated_at = -math.inf
        self._down_since: float | None = None
        self._down_seconds = 0.0
        self.is_up = {"store": True, "ledger": True}
        """As of the last check."""
        self._fullness: list[str] = []
        self._logged: list[str] = []

    @property
    def is_degraded(self) -> bool:
        """Redis is away, and the spool serves."""
        return self._outage is not None and self._outage.is_on

    @property
    def warnings(self) -> list[str]:
        """The warnings of store and ledger, and what is full or nearly so, as of the last check."""
        standing = list(dict.fromkeys((*self._store.warnings, *self._ledger.warnings, *self._fullness)))
        if self._outage is None or not self._outage.is_on:
            return standing
        return [f"{DEGRADED} {self._outage.why}", *standing]

    @property
    def down_seconds(self) -> float:
        """How long checks of store or ledger have failed since the start, this outage included."""
        now = 0.0 if self._down_since is None else monotonic() - self._down_since
        return self._down_seconds + now

    def invalidate(self) -> None:
        """Something was not kept: what was found before says nothing any more."""
        self._invalidated_at = monotonic()

    async def check(self) -> None:
        """Raises what the store or the ledger raises, but not StoreFull. Logs each warning as it begins and
        as it ends."""
        began = monotonic()
        # Each check syncs the disk, and anyone may ask: once a second is enough.
        if self._checked_at > self._invalidated_at and began - self._checked_at < FRESH_SECONDS:
            return
        full = await self._why_full(began)
        self._fullness = [*full, *await self._nearly_full()]
        # The time of its beginning: a failure during the check is newer than its result. What is full may
        # have room in a moment.
        self._checked_at = -math.inf if full else began
        standing = list(dict.fromkeys((*self._store.warnings, *self._ledger.warnings, *self._fullness)))
        for warning in standing:
            if warning not in self._logged:
                log.warning(warning)
        for warning in self._logged:
            if warning not in standing:
                log.info("No longer: %s", warning)
        self._logged = standing

    async def _why_full(self, began: float) -> list[str]:
        """Checks both, so that the metrics say which one is down."""
        found, failed = [], None
        ports: dict[str, ResultStore | Ledger] = {"store": self._store, "ledger": self._ledger}
        for name, port in ports.items():
            try:
                await port.check()
            except StoreFull as error:
                found.append(error.detail)
            except StorageError as error:
                failed, self.is_up[name] = failed or error, False
                continue
            self.is_up[name] = True
        if failed is not None:
            self._down_since = began if self._down_since is None else self._down_since
            raise failed
        self._down_seconds, self._down_since = self.down_seconds, None
        return found

    async def _nearly_full(self) -> list[str]:
        usage, bounds = await self._ledger.usage(), self._bounds
        stored = await self._store.stored_bytes()
        tenant = "of one tenant take"
        found = [
            ("What is stored takes", "SPILLGATE_STORAGE_MAX_BYTES", stored, self._storage_max_bytes),
            (f"Sessions and accounting {tenant}", "SPILLGATE_LEDGER_MAX_BYTES", usage.bytes, bounds.bytes),
            (f"Open sessions {tenant}", "SPILLGATE_MAX_SESSIONS", usage.sessions, bounds.sessions),
        ]
        texts = [
            (_NEARLY_FULL.format(what, name, _RAISE), used / cap) for what, name, used, cap in found if cap
        ]
        return [
            text for text, share in texts if share >= (WARNED_UNTIL if text in self._logged else WARNED_FROM)
        ]
