"""The rate of requests of each tenant with a quota."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from domain.errors import TooManyRequests
from domain.quotas import QuotaOf, reached


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
    requests: int = 0


class RequestRates:
    """A token bucket at this instance for each tenant with a quota. One that was idle may send the requests
    of one second at once, at least one."""

    def __init__(self, quota_of: QuotaOf, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._quota_of = quota_of
        self._monotonic = monotonic
        self._buckets: dict[str, _Bucket] = {}

    def take(self, tenant: str) -> None:
        """Counts one request. Raises TooManyRequests past the quota."""
        rate = self._quota_of(tenant).requests_per_second
        if not rate:
            return
        now, most = self._monotonic(), max(1.0, rate)
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = _Bucket(most, now)
        tokens = min(most, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        bucket.requests += 1
        if tokens < 1:
            bucket.tokens = tokens
            wait = math.ceil((1 - tokens) / rate)
            raise reached(TooManyRequests, "requests_per_second", rate, wait)
        bucket.tokens = tokens - 1

    def forget(self, tenant: str) -> None:
        self._buckets.pop(tenant, None)

    def counts(self) -> dict[str, int]:
        """The number of requests since the start, for each tenant that has had a quota."""
        return {tenant: bucket.requests for tenant, bucket in self._buckets.items()}
