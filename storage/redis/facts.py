"""What a Redis server reports about durability and eviction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domain.results import Durability

_FIRST_WAITAOF = (7, 2)
_WARNED_FROM = 0.9


@dataclass(frozen=True, slots=True)
class Facts:
    """None if the server did not report it. `can_wait`: WAITAOF reports when a write is on disk.
    `memory_share` is the share of maxmemory that is in use."""

    has_aof: bool | None
    fsync: str | None
    policy: str | None
    maxmemory: int
    can_wait: bool
    memory_share: float = 0.0

    @property
    def syncs_always(self) -> bool:
        """Whether a write is on disk before its reply. `everysec` may lose the last second."""
        return bool(self.has_aof) and self.fsync == "always"

    @property
    def durability(self) -> Durability:
        """The best durability of a write."""
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
        if self.memory_share >= _WARNED_FROM:
            found.append("Redis uses over 90 % of its maxmemory. Delete results, or give it more.")
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
    """`info` is empty and `fsync` None if the server did not report it. `waits`: writes may wait for the
    append-only file."""
    version = tuple(int(part) for part in str(info.get("redis_version", "")).split(".")[:2] if part.isdigit())
    has_aof = bool(info["aof_enabled"]) if "aof_enabled" in info else None
    can_wait = waits and bool(has_aof) and fsync != "no" and version >= _FIRST_WAITAOF
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    return Facts(has_aof, fsync, info.get("maxmemory_policy"), most, can_wait, used / most if most else 0.0)


def worst_of(found: Sequence[Facts]) -> Facts:
    """Returns the facts that hold for every server of a cluster."""
    careless = [facts for facts in found if facts.may_evict] or [facts for facts in found if not facts.policy]
    weakest = min(found, key=lambda facts: facts.syncs_always)
    loosest = (careless or list(found))[0]
    can_wait = all(facts.can_wait for facts in found)
    fullest = max(facts.memory_share for facts in found)
    return Facts(weakest.has_aof, weakest.fsync, loosest.policy, loosest.maxmemory, can_wait, fullest)
