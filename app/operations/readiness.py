"""Readiness: checks of store and ledger, at most one a second; and what each tenant uses of its quotas."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from app.operations.clock import ClockWatch, SteadyClock
from domain.errors import StorageError, StoreFull, StoreUnavailable
from domain.ports import Ledger, ResultStore
from domain.quotas import SETTINGS, WHAT_TO_DO, LedgerUsage, QuotaOf, TenantQuota, shown, unbounded

FRESH_SECONDS = 1.0
MANY, REUSED = 100, 20
"""What more than MANY tenants use is read again only after REUSED times as long as reading it took."""

WARNED_FROM, WARNED_UNTIL = 0.9, 0.85
"""The share of a bound at which a warning begins, and below which it ends."""

_RAISE = "Delete results, end sessions, or raise it."
_NEARLY_FULL = f"What is stored takes over 90 % of SPILLGATE_STORAGE_MAX_BYTES. {_RAISE}"
_TENANT_NEARLY_FULL = "Tenant {} uses over 90 % of its quota `{}` of {} ({}). {}; or raise it."
_OTHERS = "Tenants over 90 % of a quota: {}. The log and /metrics name them."

_UNUSED = LedgerUsage(0, 0)

log = logging.getLogger("spillgate.readiness")


class QuotaShare(NamedTuple):
    """What is used of one quota; a `cap` of 0 means none."""

    quota: str
    used: float
    cap: float


@dataclass(frozen=True, slots=True)
class TenantUse:
    """`llm_usd_today`: US dollars for model calls since 00:00 UTC, as far as this instance knows."""

    tenant: str
    quota: TenantQuota
    stored_bytes: int
    ledger: LedgerUsage
    llm_usd_today: float

    def shares(self) -> Iterator[QuotaShare]:
        quota = self.quota
        yield QuotaShare("storage_max_bytes", self.stored_bytes, quota.storage_max_bytes)
        yield QuotaShare("ledger_max_bytes", self.ledger.bytes, quota.ledger_max_bytes)
        yield QuotaShare("max_sessions", self.ledger.sessions, quota.max_sessions)
        yield QuotaShare("llm_usd_per_day", self.llm_usd_today, quota.llm_usd_per_day)


class Readiness:
    """A full store or ledger is ready: reads and deletes must reach it. It is a warning, from 90 % on."""

    def __init__(
        self,
        store: ResultStore,
        ledger: Ledger,
        storage_max_bytes: int = 0,
        quota_of: QuotaOf = unbounded,
        spent: Callable[[], Mapping[str, float]] = dict,
        set_by: Callable[[str, str], str] = lambda tenant, quota: SETTINGS[quota],
        clock: ClockWatch | None = None,
    ) -> None:
        """`set_by` says what sets a quota of a tenant: a setting, or a table of the policy file."""
        self._store = store
        self._ledger = ledger
        self._storage_max_bytes = storage_max_bytes
        self._quota_of = quota_of
        self._spent = spent
        self._set_by = set_by
        self._clock = clock or ClockWatch(SteadyClock())
        self._checked_at = self._invalidated_at = -math.inf
        self._down_since: float | None = None
        self._why_down = set[str]()
        self._down_seconds = 0.0
        self.is_up = {"store": True, "ledger": True}
        """The state at the last check."""
        self._uses: list[TenantUse] = []
        self.ledger_entries = 0
        """Accounting entries of all tenants, counted with what they use."""
        self._uses_until = -math.inf
        self._fullness: list[str] = []
        """Whether store or ledger was full at the last check."""
        self._full_tenants: dict[str, str] = {}
        self._logged: list[str] = []

    @property
    def warnings(self) -> list[str]:
        """The warnings of the clocks, of store and ledger, and whether these are full or nearly so."""
        of_backends = (*self._store.warnings, *self._ledger.warnings)
        return list(dict.fromkeys((*self._clock.warnings, *of_backends, *self._fullness)))

    def tenant_warnings(self, may_know: Callable[[str], bool]) -> list[str]:
        """The tenants near or past a quota, as of the last check. `may_know` says of which tenants the caller
        may learn the names; the others are counted."""
        known = [text for text, tenant in self._full_tenants.items() if may_know(tenant)]
        others = len({tenant for tenant in self._full_tenants.values() if not may_know(tenant)})
        return [*known, _OTHERS.format(others)] if others else known

    async def tenant_uses(self) -> list[TenantUse]:
        """The tenants that use anything, by name. Reuses the answer where it takes long, because Redis has
        many tenants. Raises StorageError."""
        began = monotonic()
        if began >= self._uses_until:
            stored, ledger = await self._store.usage(), await self._ledger.usage()
            spent, quota_of = self._spent(), self._quota_of
            self._uses = [
                TenantUse(
                    one, quota_of(one), stored.get(one, 0), ledger.get(one, _UNUSED), spent.get(one, 0.0)
                )
                for one in sorted({*stored, *ledger, *spent})
            ]
            self.ledger_entries = await self._ledger.entry_count()
            took = monotonic() - began
            self._uses_until = began + REUSED * took if len(self._uses) > MANY else began
        return self._uses

    @property
    def down_seconds(self) -> float:
        """How long checks of store or ledger have failed since the start, including this outage."""
        now = 0.0 if self._down_since is None else monotonic() - self._down_since
        return self._down_seconds + now

    def invalidate(self) -> None:
        """Called when a write has failed: the results of earlier checks are not used again."""
        self._invalidated_at = monotonic()
        self._uses_until = -math.inf

    async def check(self) -> None:
        """Raises what the store or the ledger raises, but not StoreFull. Logs each warning as it begins and
        as it ends."""
        began = monotonic()
        # Each check syncs the disk, and anyone may ask: once a second is enough.
        if self._checked_at > self._invalidated_at and began - self._checked_at < FRESH_SECONDS:
            return
        full = await self._why_full(began)
        uses = await self.tenant_uses()
        stored = sum(use.stored_bytes for use in uses)
        is_near = self._is_near(_NEARLY_FULL, stored, self._storage_max_bytes)
        self._fullness = [*full, _NEARLY_FULL] if is_near else full
        self._full_tenants = {text: use.tenant for use in uses for text in self._near_quotas(use)}
        # The time of its beginning: a failure during the check is newer than its result. What is full may
        # have room in a moment.
        self._checked_at = -math.inf if full else began
        standing = [*self.warnings, *self._full_tenants]
        for warning in standing:
            if warning not in self._logged:
                log.warning(warning)
        for warning in self._logged:
            if warning not in standing:
                log.info("This warning has ended: %s", warning)
        self._logged = standing

    async def _why_full(self, began: float) -> list[str]:
        """Checks both, so that the metrics say which one is down."""
        faults, failed = [], None
        ports: dict[str, ResultStore | Ledger] = {"store": self._store, "ledger": self._ledger}
        for name, port in ports.items():
            try:
                await port.check()
            except StoreFull as error:
                faults.append(error.detail)
            except StorageError as error:
                failed, self.is_up[name] = failed or error, False
                continue
            self.is_up[name] = True
        if failed is None and self._clock.fault:
            failed = StoreUnavailable(self._clock.fault)
        if failed is not None:
            self._down_since = self._down_since or began
            # Each reason is logged once, because two reasons may alternate in one outage.
            if failed.why not in self._why_down:
                self._why_down.add(failed.why)
                log.warning("Not ready.", extra={"fields": {"why": failed.why}})
            raise failed
        if self._down_since is not None:
            log.info("Ready again.")
            self._why_down = set[str]()
        self._down_seconds, self._down_since = self.down_seconds, None
        return faults

    def _near_quotas(self, use: TenantUse) -> Iterator[str]:
        for quota, used, cap in use.shares():
            if quota == "ledger_max_bytes":
                # At this bound the oldest entries go into sums, and the operator need not act.
                continue
            if not 0 < cap * WARNED_UNTIL <= used:
                continue
            text = _TENANT_NEARLY_FULL.format(
                use.tenant, quota, shown(cap), self._set_by(use.tenant, quota), WHAT_TO_DO[quota]
            )
            if self._is_near(text, used, cap):
                yield text

    def _is_near(self, text: str, used: float, cap: float) -> bool:
        return cap > 0 and used / cap >= (WARNED_UNTIL if text in self._logged else WARNED_FROM)
