"""Leave to write to a session: its tenant has it on its lists, so that nothing written to it can be lost.

A session's entries wait in its own slot, where a charge can write them in one step; the tenant's lists, which
say where to look for them, are in another. So a session is listed before it is written to, in the same round
trip where it can be, and then not again for as long as the lease lasts. The sweep takes off the lists only
what nobody can hold a lease on any more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from domain.handles import SessionKey
from storage.redis_client import Step, command, script
from storage.redis_ledger_keys import TENANTS, tenant_keys

LEASE_SECONDS = 60.0
STALE_MS = int(2 * LEASE_SECONDS * 1000)
"""How long after its listing nobody writes to a session any more, with a minute to spare."""

_MOST = 10_000


@dataclass(slots=True)
class _Lease:
    until: float
    is_booked: bool = False


class Leases:
    """Those of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._leases: dict[SessionKey, _Lease] = {}

    def ahead(self, key: SessionKey) -> list[Step]:
        """What to send ahead of a write: nothing while the lease lasts."""
        lease = self._leases.get(key)
        if lease is not None and lease.until > self._clock():
            return []
        lists = tenant_keys(key.tenant)
        listing = script("session_list", [lists.sessions, lists.listed], [key.session_id])
        return [listing, command("SADD", TENANTS, key.tenant)]

    def now(self) -> float:
        """For `take`: as of before the listing was sent."""
        return self._clock()

    def take(self, key: SessionKey, since: float) -> None:
        self._leases.pop(key, None)
        self._leases[key] = _Lease(since + LEASE_SECONDS)
        while len(self._leases) > _MOST:
            del self._leases[next(iter(self._leases))]

    def book(self, key: SessionKey, number: int) -> bool:
        """An entry went out, with this number in its outbox. False when that outbox is a new one under an
        old lease: Redis has lost the one before, and perhaps the listing too."""
        lease = self._leases.get(key)
        if lease is None or (lease.is_booked and number == 1):
            self._leases.pop(key, None)
            return False
        lease.is_booked = True
        return True


def names_after(tenant: str, after: str, most: int) -> Step:
    """Of the tenant's sessions in their order, those that are gone but still listed too."""
    start = f"({after}" if after else "-"
    return command("ZRANGEBYLEX", tenant_keys(tenant).sessions, start, "+", "LIMIT", 0, most)
