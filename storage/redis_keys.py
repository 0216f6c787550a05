"""Where a result stands in Redis. What is between braces decides the slot of a cluster.

spillgate:result:{tenant/session}:<file>           hash: segments by number, what is known of it; expires
spillgate:result:{tenant/session}:<file>:deleted   hash: a body that was deleted, for who has begun to read
                                                   it, and by which deletion; gone in a minute
spillgate:result:{tenant/session}:<file>:<draft>   in a cluster: a draft on its way to where it is found
spillgate:results:{tenant/session}                 sorted set: file ids by last use (ms); expires
spillgate:draft:{<draft>}                          hash: segments of a body on its way; expires
spillgate:count:{results}:due · sizes              what the store holds: sorted set by expiry (ms), hash of
                                                   bytes by name, and their total
"""

from dataclasses import dataclass

from domain.errors import InvalidField, ResultNotFound
from domain.handles import Handle, SessionKey, is_name, parse_handle

DUE_KEY = "spillgate:count:{results}:due"
SIZES_KEY = "spillgate:count:{results}:sizes"


@dataclass(frozen=True, slots=True)
class ResultKeys:
    """Those of one result. `count_name` is its name among what is counted."""

    file_id: str
    result: str
    index: str
    grave: str
    count_name: str


def result_keys(tenant: str, handle: Handle) -> ResultKeys:
    """Raises InvalidField for names that are not safe in a key. Whoever parsed them checked already; a key
    is worth checking twice."""
    try:
        safe = parse_handle(str(handle)) == handle
    except ResultNotFound:
        safe = False
    if not safe:
        raise _unsafe()
    key = SessionKey(tenant, handle.session_id)
    result = f"spillgate:result:{_tag(key)}:{handle.file_id}"
    name = f"{tenant}/{handle.session_id}/{handle.file_id}"
    return ResultKeys(handle.file_id, result, index_key(key), f"{result}:deleted", name)


def index_key(key: SessionKey) -> str:
    """Raises InvalidField."""
    return f"spillgate:results:{_tag(key)}"


def draft_key(draft: str) -> str:
    return f"spillgate:draft:{{{draft}}}"


def keys_of_count(name: str) -> ResultKeys | None:
    """None for the name of a draft."""
    tenant, slash, rest = name.partition("/")
    session, _, file = rest.partition("/")
    return result_keys(tenant, Handle(session, file)) if slash else None


def is_safe(key: SessionKey) -> bool:
    return is_name(key.tenant) and is_name(key.session_id)


def _tag(key: SessionKey) -> str:
    if not is_safe(key):
        raise _unsafe()
    return f"{{{key.tenant}/{key.session_id}}}"


def _unsafe() -> InvalidField:
    return InvalidField("The tenant or handle is not safe as a key. Use names that Spillgate gave out.")
