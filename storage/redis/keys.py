"""The names of Redis keys. What stands between braces decides the slot of a cluster.

Everything of one session is in the slot of its shard, `{tenant:shard}`; a tenant has SHARDS of them, so that it
spreads over a cluster. Bodies of more than one segment stand on their own.

spillgate:shards                            set: the `tenant:shard` that were ever written to
spillgate:body:{<random>}                   hash: zstd segments of a body by number; expires

spillgate:{tenant:shard}:once:<id>          string: the reply to a change, for a client that sends it twice; expires

spillgate:{tenant:shard}:result:<handle>    hash: what is known of a result, its body or the body's key; expires
spillgate:{tenant:shard}:results:<session>  zset: file ids of a session by last use (ms); expires
spillgate:{tenant:shard}:due                zset: `handle size body` of all results by expiry (ms)
spillgate:{tenant:shard}:held               string: bytes of all results

spillgate:{tenant:shard}:session:<session>  hash: `s` the session, `f` bytes of its findings, a receipt for each
                                            `epoch:call`; expires
spillgate:{tenant:shard}:findings:<session> hash: texts by `epoch:name`; expires
spillgate:{tenant:shard}:live · ended       zsets: sessions by name · by the time (ms) of their end
spillgate:{tenant:shard}:sizes              hash: bytes that each session counts for
spillgate:{tenant:shard}:state              hash: `ms`, `n` of the newest entry, `wait` the longest that an entry's
                                            id is later than its time, `bytes`, `trimmed`; expires
spillgate:{tenant:shard}:entries            stream: accounting entries; expires
spillgate:{tenant:shard}:handles            zset: handles by when they were last stored (ms); expires
spillgate:{tenant:shard}:days · day:<day>   zset of the days that have sums · hash: sums by group; expire
"""

import zlib
from dataclasses import dataclass
from functools import lru_cache

from domain.errors import InvalidField
from domain.handles import Handle, SessionKey, is_name

SHARDS = 16
SHARDS_KEY = "spillgate:shards"


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of one tenant's sessions. All of its keys are in one slot."""

    tenant: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.tenant}:{self.number}"

    def key(self, *parts: object) -> str:
        return f"spillgate:{{{self.tenant}:{self.number}}}:{':'.join(map(str, parts))}"


@lru_cache(4096)
def shard_of(key: SessionKey) -> Shard:
    """Raises InvalidField for names that are not safe in a key."""
    if not (is_name(key.tenant) and is_name(key.session_id)):
        raise InvalidField("The tenant or session is not safe in a key. Use names that Spillgate gave out.")
    return Shard(key.tenant, zlib.crc32(key.session_id.encode()) % SHARDS)


def shards_of(tenant: str) -> list[Shard]:
    """Empty for a tenant whose name is not safe in a key."""
    return [Shard(tenant, number) for number in range(SHARDS)] if is_name(tenant) else []


def shard_named(name: bytes) -> Shard:
    tenant, _, number = name.decode().rpartition(":")
    return Shard(tenant, int(number))


def file_name(handle: Handle) -> str:
    return f"{handle.session_id}/{handle.file_id}"


def body_key(body: str) -> str:
    return f"spillgate:body:{{{body}}}"
