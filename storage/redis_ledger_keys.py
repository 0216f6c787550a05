"""Where the ledger's records stand in Redis. What is between braces decides the slot of a cluster.

spillgate:session:{tenant/session}            msgpack map; lives for its retention after its last use
  …:findings                                  hash: texts by epoch and name; expires with the session
  …:call:<call id>                            msgpack map: receipts by life and epoch; session retention
  …:said:<entry or operation>                 msgpack: what was answered, for whoever asks again; a minute
  …:outbox                                    hash: entries by number that are not listed yet; entry retention
spillgate:sessions:{tenant}                   sorted set: ids of sessions, all with score 0
  …:listed                                    sorted set: those whose outbox may hold something, by when (ms)
spillgate:entries:{tenant}                    stream: the entries in their order; entry retention
  …:handles                                   sorted set: handles by when they were stored (ms)
  …:days                                      hash: sums of whole days, by their number
  …:waited                                    how far behind its time an entry was ever listed (ms)
  …:span:<session>                            hash: its first and last place, and how far its outbox was read
spillgate:tenants                             set
"""

from dataclasses import dataclass
from functools import lru_cache

from domain.errors import InvalidField
from domain.handles import SessionKey, is_name

TENANTS = "spillgate:tenants"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    session: str
    findings: str
    outbox: str

    def call(self, call_id: str) -> str:
        return f"{self.session}:call:{call_id}"

    def said(self, operation: str) -> str:
        return f"{self.session}:said:{operation}"


@dataclass(frozen=True, slots=True)
class TenantKeys:
    sessions: str
    listed: str
    entries: str
    handles: str
    days: str
    waited: str

    def span(self, session_id: str) -> str:
        return f"{self.entries}:span:{session_id}"


@lru_cache(4096)
def session_keys(key: SessionKey) -> SessionKeys:
    """Raises InvalidField for names that are not safe in a key."""
    _check(*key)
    session = f"spillgate:session:{{{key.tenant}/{key.session_id}}}"
    return SessionKeys(session, f"{session}:findings", f"{session}:outbox")


@lru_cache(256)
def tenant_keys(tenant: str) -> TenantKeys:
    """Raises InvalidField for a name that is not safe in a key."""
    _check(tenant)
    sessions, entries = f"spillgate:sessions:{{{tenant}}}", f"spillgate:entries:{{{tenant}}}"
    return TenantKeys(
        sessions, f"{sessions}:listed", entries, f"{entries}:handles", f"{entries}:days", f"{entries}:waited"
    )


def _check(*names: str) -> None:
    if not all(is_name(name) for name in names):
        raise InvalidField("The tenant or session_id is not safe as a key. Use letters, digits and ._:@=+~-.")
