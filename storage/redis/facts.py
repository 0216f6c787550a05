"""What a Redis server says about its durability and its eviction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domain.results import Durability

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
            found.append("Redis does not say whether it evicts. Set maxmemory-policy noeviction.")
        if self.durability is Durability.MEMORY:
            found.append(
                "Redis may lose what is stored when it stops. Set appendonly yes and appendfsync always; "
                "everysec does from version 7.2 on."
            )
        return tuple(found)


def facts_of(info: dict[str, Any], fsync: str | None, waits: bool) -> Facts:
    """`info` is empty and `fsync` None where the server did not say. `waits`: whether a write may wait for
    the append-only file."""
    version = tuple(int(part) for part in str(info.get("redis_version", "")).split(".")[:2] if part.isdigit())
    has_aof = bool(info["aof_enabled"]) if "aof_enabled" in info else None
    can_wait = waits and bool(has_aof) and fsync != "no" and version >= _FIRST_WAITAOF
    return Facts(has_aof, fsync, info.get("maxmemory_policy"), int(info.get("maxmemory", 0)), can_wait)


def worst_of(found: Sequence[Facts]) -> Facts:
    """Of the servers of a cluster: what can be said of all of them."""
    careless = [facts for facts in found if facts.may_evict] or [facts for facts in found if not facts.policy]
    weakest = min(found, key=lambda facts: facts.syncs_always)
    loosest = (careless or list(found))[0]
    can_wait = all(facts.can_wait for facts in found)
    return Facts(weakest.has_aof, weakest.fsync, loosest.policy, loosest.maxmemory, can_wait)
