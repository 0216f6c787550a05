"""The roles of API keys: what a key is for."""

from enum import StrEnum


class KeyRole(StrEnum):
    """What a key is for. `agent`: everything of its tenant. `reveal`: the same, and the secrets that
    stored results have. `metrics`: /metrics alone. `admin`: accounting, sessions and quotas of every tenant,
    and no stored text."""

    AGENT = "agent"
    REVEAL = "reveal"
    METRICS = "metrics"
    ADMIN = "admin"


OF_ONE_TENANT = frozenset({KeyRole.AGENT, KeyRole.REVEAL})
"""Keys that never reach another tenant, and count against its quota of requests."""
