"""What goes wrong with Redis, said in our words: the one place where its errors become StorageError."""

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

DRIVER_ERRORS = (RedisError, RedisClusterException, OSError)
"""All that a conversation with Redis may raise; a timeout of asyncio's is an OSError."""

_ON_THE_WAY = (OSError, RedisConnectionError, RedisClusterException, ClusterError, InvalidResponse)
# A script's error names the code of the command that failed: first (Redis 7), or after a dash (before).
_CODE = re.compile(r"(?:^|-)([A-Z]{3,})\b")
# So Redis says of a command that a script may not run for its user: until 7.0, and from 7.2 on.
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


def translated(error: BaseException) -> StorageError:
    """`error` is one of DRIVER_ERRORS. Never carries its text: that may hold keys and addresses."""
    denied = any(words in str(error) for words in _DENIED_IN_SCRIPT)
    if denied or isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return StoreUnavailable(
            "Redis refuses the user or password of its URL, or that user may not run a command. Mend it."
        )
    if isinstance(error, RedisTimeout | TimeoutError):
        return StoreUnavailable("Redis did not answer in time; nothing is certain to be kept. Try again.")
    codes = {error.status_code, *_CODE.findall(str(error))} if isinstance(error, RedisError) else set()
    if "OOM" in codes:
        return StoreFull(
            "Redis holds all that its maxmemory allows. Delete results or end sessions that are done with, "
            "or raise maxmemory, and try again."
        )
    for code, reason in _FOR_NOW.items():
        if code in codes:
            return StoreUnavailable(f"Redis cannot do it now: {reason}. Try again.")
    if isinstance(error, _ON_THE_WAY):
        return StoreUnavailable("Redis cannot be reached. Try again.")
    return StorageError("Redis refused a command. It has to be Redis or Valkey, 6.2 or newer.")
