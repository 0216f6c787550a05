"""What each tenant uses of its quotas, for readiness, metrics and the routes of operators."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


_SERIES = {
    "storage_max_bytes": ("stored_bytes", "Bytes stored."),
    "ledger_max_bytes": ("ledger_bytes", "Bytes of sessions and accounting."),
    "max_sessions": ("sessions", "Open sessions."),
    "llm_usd_per_day": ("llm_usd_today", "US dollars for model calls since 00:00 UTC."),
}


def tenant_series(uses: Sequence[TenantUse], requests: Mapping[str, int]) -> bytes:
    """In the text format of Prometheus. Written by hand: through prometheus_client, 1,000 tenants would take
    eight times as long. `requests` are counted of each tenant with a quota of requests."""
    shares = [(f'{{tenant="{use.tenant}"}}', tuple(use.shares())) for use in uses]
    text = list[str]()
    for place, (quota, (name, what)) in enumerate(_SERIES.items()):
        # Model spend is summed up for tenants with this quota alone.
        found = [
            (label, each[place]) for label, each in shares if each[place].cap or quota != "llm_usd_per_day"
        ]
        series = f"spillgate_tenant_{name}"
        text += _family(
            f"tenant_{name}", "gauge", what, [f"{series}{label} {one.used}" for label, one in found]
        )
        caps = [f"{series}_cap{label} {one.cap}" for label, one in found]
        text += _family(f"tenant_{name}_cap", "gauge", f"Quota `{quota}`; 0 = none.", caps)
    counts = [f'spillgate_tenant_requests_total{{tenant="{one}"}} {count}' for one, count in requests.items()]
    what = "Requests of a tenant with the quota `requests_per_second`, refused ones too."
    text += _family("tenant_requests_total", "counter", what, counts)
    return "\n".join([*text, ""]).encode()


def _family(name: str, kind: str, what: str, lines: Iterable[str]) -> list[str]:
    return [f"# HELP spillgate_{name} {what}", f"# TYPE spillgate_{name} {kind}", *lines]


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
