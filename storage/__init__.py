"""Stores of bodies and ledgers: a file or folder for each kind, chosen by the scheme of its URL.

A backend is imported when it is opened."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict, TypeVar, Unpack
from urllib.parse import unquote, urlsplit

from domain.errors import ConfigError, StorageError
from domain.handles import Handle
from domain.ports import Clock, Ledger, ResultStore, SharedClock
from domain.quotas import QuotaOf, unbounded
from storage.base.both_clocks import BothClocks
from storage.base.session_rules import LedgerOptions
from storage.disk.store import DiskStore, Root
from storage.memory import MemoryStore
from storage.sealed.keys import KEY_SETTING, KeyRing
from storage.sqlite.ledger import MemoryLedger, SqliteLedger

if TYPE_CHECKING:
    from storage.postgres.copying import Copied
    from storage.postgres.url import PostgresUrl
    from storage.redis.connection import RedisConnection

Opener = TypeVar("Opener")


class StoreOptions(TypedDict):
    """`max_bytes` is for all tenants together; 0 means no bound."""

    clock: Clock
    retention_seconds: float
    max_bytes: int
    quota_of: NotRequired[QuotaOf]


LedgerOpener = Callable[[str, LedgerOptions], Awaitable[Ledger]]


class StoreBackend(NamedTuple):
    """A kind of store. `ledger_url` derives the URL of the ledger that goes with a store's URL. `body_path`
    returns the file of a stored body, None if the store keeps no plain files."""

    open: Callable[[str, StoreOptions], Awaitable[ResultStore]]
    ledger_url: Callable[[str], str] = lambda url: url
    body_path: Callable[[str, str, Handle], str | None] = lambda url, tenant, handle: None


async def open_store(url: str, **options: Unpack[StoreOptions]) -> ResultStore:
    """Raises ConfigError for a URL or a place that cannot be used."""
    with _naming("SPILLGATE_STORAGE_URL"):
        return await _chosen(STORES, url, "SPILLGATE_STORAGE_URL").open(url, options)


@contextmanager
def _naming(setting: str) -> Iterator[None]:
    """Puts the name of the setting before the text of a backend's ConfigError."""
    try:
        yield
    except ConfigError as error:
        if "SPILLGATE_" in str(error):
            raise
        raise ConfigError(f"{setting}: {error}") from None


def check_urls(store: str, ledger: str) -> None:
    """Raises ConfigError for a URL that no backend accepts. Does not connect."""
    for setting, openers, url in (
        ("SPILLGATE_STORAGE_URL", STORES, store),
        ("SPILLGATE_LEDGER_URL", LEDGERS, ledger),
    ):
        _chosen(dict[str, object](openers), url, setting)
        try:
            with _naming(setting):
                PARSERS[url.partition(":")[0]](url)
        except ValueError:
            raise ConfigError(f"{setting} is not a URL.") from None


def urls_of(backends: Iterable[str]) -> str:
    """How the URLs of stores or ledgers are written, as the reference lists them."""
    *others, last = (f"`{_WRITTEN.get(scheme, f'{scheme}://')}`" for scheme in backends)
    return f"{', '.join(others)} or {last}"


def ledger_url(store_url: str) -> str:
    """The URL of the ledger beside a store. Raises ConfigError for an unknown store."""
    return _chosen(STORES, store_url, "SPILLGATE_STORAGE_URL").ledger_url(store_url)


async def open_ledger(url: str, **options: Unpack[LedgerOptions]) -> Ledger:
    """Raises ConfigError for a URL or a place that cannot be used."""
    with _naming("SPILLGATE_LEDGER_URL"):
        return await _chosen(LEDGERS, url, "SPILLGATE_LEDGER_URL")(url, options)


def check_sealing() -> None:
    """Raises ConfigError without the package that encrypts."""
    install = "needs the package cryptography. Install requirements-extras.lock: see docs/encryption.md."
    with _needing("cryptography", f"{KEY_SETTING} {install}"):
        import storage.sealed.store  # noqa: F401


@contextmanager
def _needing(package: str, message: str) -> Iterator[None]:
    """Raises ConfigError, with the text `message`, if the package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ConfigError(message) from None


def sealed_store(store: ResultStore, ring: KeyRing) -> ResultStore:
    """Encrypts what `store` keeps. Raises ConfigError without the package that encrypts."""
    check_sealing()
    from storage.sealed.store import SealedStore

    return SealedStore(store, ring)


def sealed_ledger(ledger: Ledger, ring: KeyRing) -> Ledger:
    """Encrypts the texts that `ledger` keeps."""
    from storage.sealed.store import SealedLedger

    return SealedLedger(ledger, ring)


def shared_clock_of(*ports: ResultStore | Ledger) -> SharedClock | None:
    """The clock, or clocks, of the servers behind these ports. None if they are all on this machine."""
    clocks = {one.software: one for port in ports if (one := getattr(port, "shared_clock", None))}
    if len(clocks) > 1:
        return BothClocks(*clocks.values())
    return next(iter(clocks.values()), None)


def body_path(url: str, tenant: str, handle: Handle) -> str | None:
    """The file of a stored body. None for stores that keep no plain files."""
    return _chosen(STORES, url, "SPILLGATE_STORAGE_URL").body_path(url, tenant, handle)


async def _open_memory(url: str, options: StoreOptions) -> ResultStore:
    return MemoryStore(**options)


async def _open_disk(url: str, options: StoreOptions) -> ResultStore:
    open_root = partial(Root, _path(url), options["max_bytes"], quota_of=options.get("quota_of", unbounded))
    root = await asyncio.to_thread(open_root)
    return DiskStore(root, clock=options["clock"], retention_seconds=options["retention_seconds"])


def _ledger_in(url: str) -> str:
    return f"sqlite://{url.removeprefix('disk://')}/ledger.db"


def _body_in(url: str, tenant: str, handle: Handle) -> str:
    return str(_path(url) / "tool_output" / tenant / str(handle))


async def _connected(url: str) -> "RedisConnection":
    """Raises ConfigError if Redis holds data with another schema. If Redis does not answer now, each
    operation raises StoreUnavailable until it does, and after that too if its schema is another one."""
    # redis-py is imported only where a URL asks for it.
    from storage.redis.connection import open_redis

    connection = open_redis(url)
    try:
        await connection.check_schema()
    except StorageError as error:
        if connection.has_schema:
            await connection.close()
            raise ConfigError(error.detail) from error
    return connection


async def _open_redis(url: str, options: StoreOptions) -> ResultStore:
    from storage.redis.store import RedisStore

    return RedisStore(await _connected(url), **options)


def _parse_redis(url: str) -> None:
    from storage.redis.url import parse_redis_url

    parse_redis_url(url)


def _parse_objects(url: str) -> None:
    install = "obstore is not installed. Install requirements-extras.lock: see docs/backends.md."
    with _needing("obstore", f"SPILLGATE_STORAGE_URL names an object store, and {install}"):
        from storage.objects.url import parse_object_url
    parse_object_url(url)


async def _open_objects(url: str, options: StoreOptions) -> ResultStore:
    _parse_objects(url)
    from storage.objects.url import open_objects

    return await open_objects(url, **options)


def _no_ledger(url: str) -> str:
    raise ConfigError(
        "SPILLGATE_LEDGER_URL is not set, and an object store keeps no ledger. For one instance name a file, "
        "as in sqlite:///var/lib/spillgate/ledger.db; for several a PostgreSQL, as in "
        "postgresql://host:5432/spillgate, or a Redis, as in redis://host:6379/0."
    )


async def _open_memory_ledger(url: str, options: LedgerOptions) -> Ledger:
    return MemoryLedger(**options)


async def _open_sqlite(url: str, options: LedgerOptions) -> Ledger:
    return await asyncio.to_thread(SqliteLedger, _path(url), **options)


async def _open_redis_ledger(url: str, options: LedgerOptions) -> Ledger:
    from storage.redis.ledger import RedisLedger

    return RedisLedger(await _connected(url), **options)


async def _open_postgres(url: str, options: LedgerOptions) -> Ledger:
    parsed = _parse_postgres(url)
    from storage.postgres.connection import connected
    from storage.postgres.ledger import PostgresLedger

    return PostgresLedger(await connected(parsed), **options)


async def copy_to_postgres(source: Ledger, target: Ledger, now: int) -> "AsyncIterator[Copied]":
    """Copies a ledger of another kind. Raises ConfigError if the target is not PostgreSQL, or not empty."""
    _parse_postgres("postgresql://host/database")
    from storage.postgres.copying import copy
    from storage.postgres.ledger import PostgresLedger

    if not isinstance(target, PostgresLedger) or isinstance(source, PostgresLedger):
        raise ConfigError(
            "A ledger is copied from SQLite or Redis to PostgreSQL: postgresql://host/database."
        )
    async for copied in copy(source, target, now):
        yield copied


def _parse_postgres(url: str) -> "PostgresUrl":
    install = "asyncpg is not installed. Install requirements-extras.lock: see docs/backends.md."
    with _needing("asyncpg", f"SPILLGATE_LEDGER_URL names a PostgreSQL, and {install}"):
        import asyncpg  # noqa: F401
    from storage.postgres.url import parse_postgres_url

    return parse_postgres_url(url)


POSTGRES_SCHEMES = ("postgresql", "postgres")
REDIS_SCHEMES = ("redis", "rediss", "redis+sentinel", "redis+cluster")
OBJECT_SCHEMES = ("s3", "gs", "az")
STORES: dict[str, StoreBackend] = {
    "memory": StoreBackend(_open_memory),
    "disk": StoreBackend(_open_disk, _ledger_in, _body_in),
    **dict.fromkeys(REDIS_SCHEMES, StoreBackend(_open_redis)),
    **dict.fromkeys(OBJECT_SCHEMES, StoreBackend(_open_objects, _no_ledger)),
}
_WRITTEN = {"memory": "memory:", "disk": "disk:///path", "sqlite": "sqlite:///path"}
"""How the URL of a scheme is written that names no server."""

LEDGERS: dict[str, LedgerOpener] = {
    "memory": _open_memory_ledger,
    "sqlite": _open_sqlite,
    **dict.fromkeys(POSTGRES_SCHEMES, _open_postgres),
    **dict.fromkeys(REDIS_SCHEMES, _open_redis_ledger),
}
PARSERS: dict[str, Callable[[str], object]] = {
    "memory": str,
    "disk": lambda url: _path(url),
    "sqlite": lambda url: _path(url),
    **dict.fromkeys(POSTGRES_SCHEMES, _parse_postgres),
    **dict.fromkeys(REDIS_SCHEMES, _parse_redis),
    **dict.fromkeys(OBJECT_SCHEMES, _parse_objects),
}
"""What checks the URLs of a scheme. Raises ConfigError, or ValueError for a text that is not a URL."""


def _chosen(openers: dict[str, Opener], url: str, setting: str) -> Opener:
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in openers:
        known = ", ".join(f"{name}:" for name in openers)
        raise ConfigError(f"{setting}: unknown scheme. It starts with one of {known}")
    return openers[scheme]


def _path(url: str) -> Path:
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc or not (path.is_absolute() and path.name) or parts.query or parts.fragment:
        file = "/ledger.db" if parts.scheme == "sqlite" else ""
        raise ConfigError(
            f"{parts.scheme}: needs an absolute path, as in {parts.scheme}:///var/lib/spillgate{file}."
        )
    return path
