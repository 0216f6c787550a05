"""What each tenant uses of its quotas, for readiness, metrics and the routes of operators."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from domain.ports import Ledger, ResultStore
from domain.quotas import LedgerUsage, QuotaOf, TenantQuota

_NOTHING = LedgerUsage(0, 0)


class Share(NamedTuple):
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

    def shares(self) -> Iterator[Share]:
        quota = self.quota
        yield Share("storage_max_bytes", self.stored_bytes, quota.storage_max_bytes)
        yield Share("ledger_max_bytes", self.ledger.bytes, quota.ledger_max_bytes)
        yield Share("max_sessions", self.ledger.sessions, quota.max_sessions)
        yield Share("llm_usd_per_day", self.llm_usd_today, quota.llm_usd_per_day)


async def tenant_uses(
    store: ResultStore, ledger: Ledger, quota_of: QuotaOf, spent: Mapping[str, float]
) -> list[TenantUse]:
    """The tenants that use anything, by name. `spent`: see `TenantUse.llm_usd_today`. Raises StorageError."""
    stored, kept = await store.usage(), await ledger.usage()
    return [
        TenantUse(
            tenant,
            quota_of(tenant),
            stored.get(tenant, 0),
            kept.get(tenant, _NOTHING),
            spent.get(tenant, 0.0),
        )
        for tenant in sorted({*stored, *kept, *spent})
    ]
