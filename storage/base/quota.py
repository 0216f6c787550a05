"""The bytes that a store may hold, of all tenants and of each one; past them StoreFull or TenantFull
(507)."""

import threading
from collections import Counter

from domain.errors import StoreFull, TenantFull
from domain.quotas import QuotaOf, reached, unbounded


class Quota:
    """Counts in this process. Thread-safe. `max_bytes` bounds all tenants together; 0 means no bound."""

    def __init__(self, max_bytes: int, quota_of: QuotaOf = unbounded) -> None:
        self.max_bytes = max_bytes
        self._quota_of = quota_of
        self._used: dict[str, int] = {}
        self.used = 0
        """Bytes of all tenants."""
        self._lock = threading.Lock()

    def take(self, tenant: str, size: int) -> None:
        """Adds `size` bytes. Raises StoreFull, or TenantFull if only this tenant has no room; then nothing is
        added."""
        most = self.most(tenant)
        with self._lock:
            used = self._used.get(tenant, 0)
            if self.max_bytes and self.used + size > self.max_bytes:
                raise self._full(size)
            if most and used + size > most:
                raise reached(TenantFull, "storage_max_bytes", most)
            self._used[tenant] = used + size
            self.used += size

    def give(self, tenant: str, size: int) -> None:
        with self._lock:
            self._set(tenant, self._used.get(tenant, 0) - size)

    def set(self, tenant: str, size: int) -> None:
        """Sets the bytes of the tenant to `size`, which was counted elsewhere."""
        with self._lock:
            self._set(tenant, size)

    def _set(self, tenant: str, size: int) -> None:
        before = self._used.pop(tenant, 0)
        if size > 0:
            self._used[tenant] = size
        self.used += max(0, size) - before

    def most(self, tenant: str) -> int:
        """The quota of the tenant in bytes; 0 means no bound."""
        return self._quota_of(tenant).storage_max_bytes

    def used_by(self, tenant: str) -> int:
        return self._used.get(tenant, 0)

    def usage(self) -> dict[str, int]:
        with self._lock:
            return dict(self._used)

    def check(self) -> None:
        """Raises StoreFull if no tenant can write."""
        if self.max_bytes and self.used >= self.max_bytes:
            raise self._full()

    def _full(self, size: int = 0) -> StoreFull:
        more = f", and {size:,} more were asked for" if size else ""
        return StoreFull(
            "The store holds all that SPILLGATE_STORAGE_MAX_BYTES allows. Delete results or end sessions "
            "that are done with, or raise it, and try again.",
            cause=f"{self.used:,} of {self.max_bytes:,} bytes are used{more}",
        )


class SharedQuota(Quota):
    """The quota of a store that several processes use. The store counts published bytes; this class adds the
    drafts of this process."""

    def __init__(self, max_bytes: int, quota_of: QuotaOf = unbounded) -> None:
        super().__init__(max_bytes, quota_of)
        self._drafted = Counter[str]()

    def take(self, tenant: str, size: int) -> None:
        """Adds bytes of a draft. Raises StoreFull, TenantFull: then nothing is added."""
        super().take(tenant, size)
        with self._lock:
            self._drafted[tenant] += size

    def end_draft(self, tenant: str, size: int, published: int = 0) -> None:
        """A draft of `size` bytes has ended; `published` of them are stored now."""
        with self._lock:
            self._drafted[tenant] -= size
        self.give(tenant, size - published)

    def drafted(self) -> Counter[str]:
        """The bytes of drafts by tenant."""
        with self._lock:
            return +self._drafted
