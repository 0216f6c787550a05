"""What a Redis server says of itself, as far as keeping what it is given depends on it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domain.results import Durability

_LINE = re.compile(rb"^([a-z_]+):(.*?)\r?$", re.MULTILINE)
_FIRST_WAITAOF = (7, 2)


@dataclass(frozen=True, slots=True)
class Facts:
    """None where the server would not say. `can_wait`: WAITAOF tells when a write is on its disk."""

    has_aof: bool | None
    fsync: str | None
    policy: str | None
    maxmemory: int
    can_wait: bool

    @property
    def syncs_always(self) -> bool:
        """A write is on the disk without being waited for. `everysec` may lose the last second."""
        return bool(self.has_aof) and self.fsync == "always"

    @property
    def durability(self) -> Durability:
        """What a write can promise at best."""
        return Durability.AOF if self.can_wait or self.syncs_always else Durability.MEMORY

    @property
    def may_evict(self) -> bool:
        return self.maxmemory > 0 and self.policy not in (None, "noeviction")

    @property
    def eviction(self) -> str:
        return f"Redis may evict what is stored: its maxmemory-policy is {self.policy}."

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.may_evict:
            found.append(self.eviction)
        elif self.policy is None:
            found.append(
                "Redis does not say whether it evicts: see to it that maxmemory-policy is noeviction."
            )
        if self.durability is Durability.MEMORY:
            found.append(
                "Redis may lose what is stored when it stops. Set appendonly yes and appendfsync always; "
                "everysec does from version 7.2 on."
            )
        return tuple(found)


def facts_of(info: Any, config: Any, waits: bool) -> Facts:
    """Of the replies to INFO and CONFIG GET appendfsync; an error in place of a reply is no answer. `waits`:
    whether it may be waited for."""
    said = dict(_LINE.findall(info)) if isinstance(info, bytes) else {}
    version = tuple(int(part) for part in said.get(b"redis_version", b"").split(b".")[:2] if part.isdigit())
    has_aof = said[b"aof_enabled"] == b"1" if b"aof_enabled" in said else None
    fsync = config[1].decode() if isinstance(config, list) and len(config) > 1 else None
    policy = said[b"maxmemory_policy"].decode() if b"maxmemory_policy" in said else None
    can_wait = waits and bool(has_aof) and fsync != "no" and version >= _FIRST_WAITAOF
    return Facts(has_aof, fsync, policy, int(said.get(b"maxmemory", b"0")), can_wait)


def worst_of(found: Sequence[Facts]) -> Facts:
    """Of the servers of a cluster: what can be said of all of them."""
    careless = [facts for facts in found if facts.may_evict] or [facts for facts in found if not facts.policy]
    weakest = min(found, key=lambda facts: facts.syncs_always)
    loosest = (careless or list(found))[0]
    can_wait = all(facts.can_wait for facts in found)
    return Facts(weakest.has_aof, weakest.fsync, loosest.policy, loosest.maxmemory, can_wait)
