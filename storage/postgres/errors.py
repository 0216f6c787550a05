"""Translates what asyncpg raises. No error repeats a text of the server, which may quote values."""

import ssl

import asyncpg

from domain.errors import InvalidField, StorageError, StoreFull, StoreUnavailable
from storage.base.system_errors import system_fact

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    RuntimeError,
    EOFError,
)
"""TimeoutError is an OSError; uvloop raises RuntimeError for a closed connection."""

UNKEEPABLE = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, ValueError, OverflowError)
"""Errors of one change, not of the database: a number past 64 bits, a lone surrogate, a NUL. asyncpg raises a
ValueError for a value that it cannot send."""

CONFLICTS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)

_DENIED = (
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
)
_FOR_NOW = {
    "57P01": "it is shutting down",
    "57P02": "it has crashed and restarts",
    "57P03": "it is starting",
    "57P04": "its database was dropped",
    "25006": "it is a read-only replica",
    "53300": "it has no free connection. Lower max_connections in the URL, or raise its own",
    "53200": "it is out of memory",
    "55P03": "a table is locked",
    "57014": "the statement took too long",
}
_AWAY = ("08", "57P01", "57P02", "57P03", "25006")


def unkeepable() -> InvalidField:
    return InvalidField("A number or a text in it cannot be kept. Use numbers below 2^63 and valid Unicode.")


def is_unreachable(error: BaseException) -> bool:
    """Returns whether no server that accepts writes answered."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_AWAY)
    return isinstance(error, DRIVER_ERRORS)


def translated(error: BaseException, address: str) -> StorageError:
    failure = _translated(error)
    failure.cause = f"{_fact(error)}, {address}"
    return failure


def _translated(error: BaseException) -> StorageError:
    code = (error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""
    if isinstance(error, _DENIED):
        return StoreUnavailable(
            "PostgreSQL rejected the credentials of its URL, or the user lacks a permission. Check the URL "
            "and the grants: see docs/backends.md."
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreUnavailable("The database in the URL of PostgreSQL does not exist. Create it.")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull("The disk of PostgreSQL is full. Free space on it and try again.")
    if isinstance(error, TimeoutError):
        return StoreUnavailable("PostgreSQL did not answer in time; the write may be lost. Try again.")
    if code in _FOR_NOW:
        return StoreUnavailable(f"PostgreSQL cannot do it now: {_FOR_NOW[code]}. Try again.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreUnavailable(
            "The certificate of PostgreSQL is not accepted. Check sslrootcert, the host in the URL, and the "
            "dates of the certificate."
        )
    if is_unreachable(error):
        return StoreUnavailable("PostgreSQL cannot be reached. Try again.")
    return StoreUnavailable(
        "PostgreSQL refused a statement. Look at its log, and at the schema of the ledger."
    )


def _fact(error: BaseException) -> str:
    if isinstance(error, asyncpg.PostgresError):
        return f"{type(error).__name__} {error.sqlstate}"
    if fact := system_fact(error):
        return fact
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__
