"""Driver errors of redis-py as StorageError, and OOM as StoreFull (507)."""

import re

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    InvalidResponse,
    NoPermissionError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from domain.errors import StorageError, StoreFull, StoreUnavailable

DRIVER_ERRORS = (RedisError, RedisClusterException, OSError, RuntimeError)
"""What redis-py raises. TimeoutError is an OSError; uvloop raises RuntimeError for a closed connection."""

_ON_THE_WAY = (OSError, RuntimeError, RedisConnectionError, RedisTimeout, RedisClusterException)
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


def is_unreachable(error: BaseException) -> bool:
    """Returns whether no server answered, so that the next operation would wait in vain too."""
    return isinstance(error, _ON_THE_WAY) and not isinstance(error, AuthenticationError | AuthorizationError)


def is_wrong_type(error: Exception) -> bool:
    """Returns whether the key of the command has another type than the command needs."""
    return "WRONGTYPE" in _CODE.findall(str(error))


def translated(error: BaseException) -> StorageError:
    """`error` is one of DRIVER_ERRORS. Never carries its text: that may hold keys and addresses."""
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
    if isinstance(error, (*_ON_THE_WAY, ClusterError, InvalidResponse)):
        return StoreUnavailable("Redis cannot be reached. Try again.")
    return StorageError("Redis refused a command. It has to be Redis or Valkey, 6.2 or newer.")
