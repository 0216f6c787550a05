"""Quotas: what one tenant may use, what it uses, and the text of an error past a quota."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from domain.errors import SpillgateError
from domain.structs import frozen_struct

E = TypeVar("E", bound=SpillgateError)


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """The most that one tenant may use; 0 means no bound.

    `storage_max_bytes` counts stored bodies and drafts. `ledger_max_bytes` counts approximately what the
    ledger keeps: entries, receipts, findings and all remembered sessions, ended ones too. `max_sessions`
    counts sessions that are not ended. `llm_usd_per_day`: US dollars for model calls in a day of UTC.
    """

    storage_max_bytes: int = 0
    ledger_max_bytes: int = 0
    max_sessions: int = 0
    requests_per_second: float = 0.0
    llm_usd_per_day: float = 0.0


QuotaOf = Callable[[str], TenantQuota]
"""The quota of a tenant, as it is at this moment."""

_NONE = TenantQuota()


def unbounded(tenant: str) -> TenantQuota:
    return _NONE


@frozen_struct
class LedgerUsage:
    """What a tenant has in the ledger, counted as in TenantQuota."""

    sessions: int
    bytes: int


class Purged(NamedTuple):
    """The counts of one step of deleting a tenant. `is_done`: nothing of the tenant is left."""

    sessions: int
    entries: int
    is_done: bool


SETTINGS = {
    "storage_max_bytes": "SPILLGATE_TENANT_STORAGE_MAX_BYTES",
    "ledger_max_bytes": "SPILLGATE_LEDGER_MAX_BYTES",
    "max_sessions": "SPILLGATE_MAX_SESSIONS",
    "requests_per_second": "SPILLGATE_TENANT_REQUESTS_PER_SECOND",
    "llm_usd_per_day": "SPILLGATE_TENANT_LLM_USD_PER_DAY",
}
"""The setting that holds each quota for tenants which the policy file does not name."""

WHAT_TO_DO = {
    "storage_max_bytes": "Delete results, or end sessions that are done with",
    "ledger_max_bytes": "Sessions in use take all of it: end those that are done with",
    "max_sessions": "End sessions that are done with, or wait until one is idle",
    "requests_per_second": "Send fewer requests, and try again after the time in Retry-After",
    "llm_usd_per_day": "Ask with mode `retrieve` or `truncate`, which call no model, or wait until 00:00 UTC",
}


def shown(figure: float) -> str:
    """5 of 5.0, and 1,000,000 of 1000000."""
    return f"{int(figure) if figure == int(figure) else figure:,}"


def reached(kind: type[E], quota: str, figure: float, retry_after: int | None = None) -> E:
    """The error of a tenant past a quota. `retry_after` in seconds."""
    error = kind(
        f"This tenant has reached its quota `{quota}` of {shown(figure)}. {WHAT_TO_DO[quota]}; or let the "
        f"operator raise it: {SETTINGS[quota]}, or `{quota}` under `[tenants.TENANT]` in the policy file."
    )
    error.retry_after = retry_after or error.retry_after
    return error
