"""What a Redis server reports: errors (out of memory is 507), durability, eviction, the schema of its
keys."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    InvalidResponse,
    NoPermissionError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from domain import __version__
from domain.errors import StorageError, StoreFull, StoreUnavailable
from domain.results import Durability
from storage.base.schema import Schema, refusal
from storage.base.system_errors import system_fact
from storage.redis.keys import SCHEMA_KEY

_FIRST_WAITAOF = (7, 2)
_WARNED_FROM = 0.9

_NO_REPLY = (ValueError, LookupError, AttributeError, TypeError)
"""What redis-py raises for bytes that it cannot parse, such as those of a server that is not Redis."""

DRIVER_ERRORS = (RedisError, OSError, RuntimeError, *_NO_REPLY)
"""What redis-py raises. TimeoutError is an OSError; uvloop raises RuntimeError for a closed connection."""

_ON_THE_WAY = (OSError, RuntimeError, RedisConnectionError, RedisTimeout)
# The error of a script has the code of the failed command at its start (Redis 7) or after a dash (older).
_CODE = re.compile(r"(?:^|-)([A-Z]{3,})\b")
# Texts of Redis up to 7.0, and from 7.2 on, if a script runs a command that the ACL forbids.
_DENIED_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")
_FOR_NOW = {
    "READONLY": "it is a read-only replica",
    "LOADING": "it is loading its data",
    "MASTERDOWN": "it has lost its primary",
    "NOREPLICAS": "it has too few replicas",
    "CLUSTERDOWN": "its cluster is down",
    "TRYAGAIN": "its cluster is moving keys",
    "BUSY": "it is busy with a script",
    "MISCONF": "it cannot write to its own disk",
    "MOVED": "its cluster has changed",
    "ASK": "its cluster is moving keys",
}

_CODES = {*_FOR_NOW, "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "CROSSSLOT", "ERR"}

SCHEMA = 3
"""The schema of the keys and of their values."""

_READ_TOO = {2}
"""Earlier schemas that this version reads. It writes its own number, which earlier versions then refuse."""

OURS = Schema(SCHEMA)


@dataclass(frozen=True, slots=True)
class RedisFacts:
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
        warnings = []
        if self.memory_share >= _WARNED_FROM:
            warnings.append("Redis uses over 90 % of its maxmemory. Delete results, or give it more.")
        if self.may_evict:
            warnings.append(self.eviction)
        elif self.policy is None:
            warnings.append("Redis does not say whether it evicts. Set maxmemory-policy noeviction.")
        if self.durability is Durability.MEMORY:
            warnings.append(
                "Redis may lose what is stored when it stops. Set appendonly yes and appendfsync always; "
                "everysec does from version 7.2 on."
            )
        return tuple(warnings)


def facts_of(info: dict[str, Any], fsync: str | None, waits: bool) -> RedisFacts:
    """`info` is empty and `fsync` None if the server did not report it. `waits`: writes may wait for the
    append-only file."""
    version = tuple(int(part) for part in str(info.get("redis_version", "")).split(".")[:2] if part.isdigit())
    has_aof = bool(info["aof_enabled"]) if "aof_enabled" in info else None
    can_wait = waits and bool(has_aof) and fsync != "no" and version >= _FIRST_WAITAOF
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    return RedisFacts(
        has_aof, fsync, info.get("maxmemory_policy"), most, can_wait, used / most if most else 0.0
    )


def worst_of(servers: Sequence[RedisFacts]) -> RedisFacts:
    """Returns the facts that hold for every server of a cluster."""
    careless = [facts for facts in servers if facts.may_evict] or [
        facts for facts in servers if not facts.policy
    ]
    weakest = min(servers, key=lambda facts: facts.syncs_always)
    loosest = (careless or list(servers))[0]
    can_wait = all(facts.can_wait for facts in servers)
    fullest = max(facts.memory_share for facts in servers)
    return RedisFacts(weakest.has_aof, weakest.fsync, loosest.policy, loosest.maxmemory, can_wait, fullest)


def is_unreachable(error: BaseException) -> bool:
    """Returns whether no server answered, so that the next operation would wait in vain too."""
    return isinstance(error, _ON_THE_WAY) and not isinstance(error, AuthenticationError | AuthorizationError)


def is_wrong_type(error: Exception) -> bool:
    """Returns whether the key of the command has another type than the command needs."""
    return "WRONGTYPE" in _CODE.findall(str(error))


def translated(error: BaseException, address: str) -> StorageError:
    """`error` is one of DRIVER_ERRORS. Never carries its text: that may hold keys."""
    failure = _translated(error)
    failure.cause = f"{_fact(error)}, {address}"
    return failure


def _fact(error: BaseException) -> str:
    """What failed below the driver, which raises its own errors in place of those of the system."""
    names: list[str] = []
    below: BaseException | None = error
    while below is not None:
        if fact := system_fact(below):
            return fact
        if isinstance(below, RedisTimeout | TimeoutError):
            names.append("timed out")
        # The driver takes the code off the text of an error that it has a class for.
        codes = [getattr(below, "status_code", None), *_CODE.findall(str(below))]
        names += [code for code in codes if code in _CODES]
        below = below.__cause__ or below.__context__
    return names[0] if names else type(error).__name__


def _translated(error: BaseException) -> StorageError:
    denied = any(words in str(error) for words in _DENIED_IN_SCRIPT)
    if denied or isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return StoreUnavailable(
            "Redis rejected the credentials of its URL, or the user lacks a permission. Check the URL and "
            "the ACL."
        )
    if isinstance(error, RedisTimeout | TimeoutError):
        return StoreUnavailable("Redis did not answer in time; the write may be lost. Try again.")
    codes = {error.status_code, *_CODE.findall(str(error))} if isinstance(error, RedisError) else set()
    if "OOM" in codes:
        return StoreFull(
            "Redis holds all that its maxmemory allows. Delete results or end sessions that are done with, "
            "or raise maxmemory, and try again."
        )
    for code, reason in _FOR_NOW.items():
        if code in codes:
            return StoreUnavailable(f"Redis cannot do it now: {reason}. Try again.")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return StoreUnavailable(
            "The certificate of Redis is not accepted. Check ssl_ca_certs, the host in the URL, and the "
            "dates of the certificate."
        )
    if isinstance(error, (*_ON_THE_WAY, *_NO_REPLY, ClusterError, InvalidResponse)):
        return StoreUnavailable("Redis cannot be reached. Try again.")
    return StorageError(
        "Redis refused a command. Check the database and the kind of server in its URL: it has to be Redis "
        "or Valkey, 6.2 or newer."
    )


async def learn_schema(command: Callable[..., Awaitable[Any]]) -> Schema:
    """Reads the schema. Marks a Redis without a schema with the schema of this version. `command` runs a
    command; None means that its key has another type. Raises StorageError."""
    reading = ("HMGET", SCHEMA_KEY, "number", "written_by")
    schema = await command(*reading)
    if schema is not None and schema[0] is None:
        try:
            # Of several versions that start at the same time, one writes the number.
            await command("HSETNX", SCHEMA_KEY, "number", SCHEMA)
            await command("HSETNX", SCHEMA_KEY, "written_by", __version__)
        except StoreFull:
            # No mark, and it cannot be written: this is not the data of a newer version.
            return OURS
        schema = await command(*reading)
    number, written_by = schema or (None, None)
    if number is not None and number.isdigit() and int(number) in _READ_TOO:
        with suppress(StoreFull):
            await command("HSET", SCHEMA_KEY, "number", SCHEMA, "written_by", __version__)
        return OURS
    if number is None or not number.isdigit():
        raise StoreUnavailable(f"The key {SCHEMA_KEY} is damaged. Restore it from a backup.")
    return Schema(int(number), (written_by or b"").decode(errors="replace"))


def check_schema(schema: Schema) -> None:
    """Raises StoreUnavailable for a schema that this version must not use."""
    refused = refusal("Redis", schema, SCHEMA)
    if refused is not None:
        raise StoreUnavailable(refused)
