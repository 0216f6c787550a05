"""The names of Redis keys. In a cluster, the text between braces decides the slot.

All keys of a session are in the slot of its shard, `{tenant:shard}`. A tenant has SHARDS shards, so that its
sessions spread over a cluster. A body of several segments has a slot of its own. Times are Unix ms.

spillgate:schema            hash    `number`, `written_by`: the schema, and the version that wrote it
spillgate:clock             hash    `jump_ms`: by how much a server's clock has jumped, until it is confirmed
spillgate:body:{<random>}   hash    zstd segments of a body by number; expires
spillgate:{probe:<random>}:<kind>   what a check writes, a key of each kind; expires

Keys of a shard, after `spillgate:{tenant:shard}:`

once:<id>            string   the reply to a change, for a client that repeats it; expires
result:<handle>      hash     info of a result, and its body or the key of its body; expires
results:<session>    zset     file ids of a session by their last use; expires
due                  zset     `handle size body` of all results by their expiry
held                 string   bytes of all results
session:<session>    hash     `s` checksum and session, `r` its reserved tokens, `u` its last use, `h` if it
                              stored a result, a receipt for each `epoch:call`; expires
findings:<session>   hash     texts by `epoch:name`; expires
live · ended         zset     sessions by name · by the time of their end
sizes                hash     bytes that each session counts for
state                hash     `bytes` of sessions and entries; `wait`, how much later than its time the id of
                              an entry may be; `deleted`: entries up to that time (ms) are not all there
entries              stream   accounting entries, `e` and its time `t`; expires
handles              zset     handles by when they were last stored; expires
wrote:<process>      string   how many entries a process wrote to this shard; expires
days                 zset     days that have sums in this shard; expires
day:<day>            hash     sums of a day's entries by group; expires
earlier              hash     in the first shard of a tenant: packed sums of earlier days, of all of its
                              shards, by day; `forgotten`: sums up to that time (ms) are not all there
"""

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache

from domain.errors import InvalidField
from domain.handles import Handle, SessionKey, is_name

SHARDS = 16
SHARD_KEYS = "spillgate:{*}:[dle]*"
"""A glob of the keys that `shard_in` knows, and of few others."""

_SHARD_KEY = re.compile(rb"spillgate:\{([^{}]+):(\d{1,2})\}:(?:due|live|ended|entries|days|earlier)")
SCHEMA_KEY = "spillgate:schema"
CLOCK_KEY = "spillgate:clock"
_PROBED = ("string", "hash", "zset", "stream")


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the sessions of a tenant. All of its keys are in one slot."""

    tenant: str
    number: int

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


def shard_in(key: bytes) -> Shard | None:
    """The shard of a key of _SHARD_KEY. Every shard that holds anything has one of these. None for other
    keys."""
    match = _SHARD_KEY.fullmatch(key)
    return None if match is None else Shard(match[1].decode(), int(match[2]))


def file_name(handle: Handle) -> str:
    return f"{handle.session_id}/{handle.file_id}"


def body_key(body: str) -> str:
    return f"spillgate:body:{{{body}}}"


def probe_tag(value: str) -> str:
    return f"{{probe:{value}}}"


def probe(value: str, lifetime_ms: int) -> list[tuple[str | int, ...]]:
    """Commands that make every kind of change that a script makes, and read `value`, on keys that expire."""
    text, *others = (f"spillgate:{probe_tag(value)}:{kind}" for kind in _PROBED)
    changes: tuple[tuple[str | int, ...], ...] = (("f", 1), (1, "m"), ("1-1", "f", 1))
    commands: list[tuple[str | int, ...]] = [("SET", text, value)]
    for command, key, what in zip(("HSET", "ZADD", "XADD"), others, changes, strict=True):
        commands.append((command, key, *what))
    commands += [("PEXPIRE", key, lifetime_ms) for key in (text, *others)]
    return [*commands, ("UNLINK", others[-1]), ("GET", text)]
