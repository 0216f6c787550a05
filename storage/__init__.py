"""Keeping: one technology a file, chosen by URL scheme."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from domain.errors import ConfigError
from domain.handles import Handle
from domain.ports import Clock, Ledger, LedgerBounds, ResultStore
from storage.base.session_rules import UNBOUNDED
from storage.disk.root import Root
from storage.disk.store import DiskStore
from storage.memory.ledger import MemoryLedger
from storage.memory.store import MemoryStore
from storage.spool.journal import Journal
from storage.spool.ledger import SpoolLedger
from storage.spool.outage import Outage, Supervise
from storage.spool.store import SpoolStore
from storage.sqlite.ledger import SqliteLedger

Opener = TypeVar("Opener")
SPOOL_BOUNDS = LedgerBounds(bytes=1 << 28)
"""What a tenant may have in the memory and the journal of a spool while Redis is away."""


class StoreOpener(Protocol):
    async def __call__(
        self, url: str, *, clock: Clock, retention_seconds: float, max_bytes: int
    ) -> ResultStore: ...


class LedgerOpener(Protocol):
    async def __call__(
        self,
        url: str,
        *,
        clock: Clock,
        session_retention_seconds: float,
        entry_retention_seconds: float,
        bounds: LedgerBounds,
    ) -> Ledger: ...


async def open_store(url: str, *, clock: Clock, retention_seconds: float, max_bytes: int) -> ResultStore:
    """`max_bytes` 0 means no bound. Raises ConfigError for a URL or a place that cannot be used."""
    opener = _chosen(STORES, url, "SPILLGATE_STORAGE_URL")
    return await opener(url, clock=clock, retention_seconds=retention_seconds, max_bytes=max_bytes)


async def open_ledger(
    url: str,
    *,
    clock: Clock,
    session_retention_seconds: float,
    entry_retention_seconds: float,
    bounds: LedgerBounds = UNBOUNDED,
) -> Ledger:
    """Raises ConfigError for a URL or a place that cannot be used."""
    opener = _chosen(LEDGERS, url, "SPILLGATE_LEDGER_URL")
    return await opener(
        url,
        clock=clock,
        session_retention_seconds=session_retention_seconds,
        entry_retention_seconds=entry_retention_seconds,
        bounds=bounds,
    )


def open_outage(changed: Callable[[str | None], None], supervise: Supervise) -> Outage:
    """For a store and a ledger in Redis. `changed` gets the reason as an outage begins, None as it ends.
    `supervise` runs a background task, given its name and the task."""
    from storage.redis.connection import renew_patience

    return Outage(changed, renew_patience, supervise)


async def open_spooled_store(
    primary: ResultStore,
    folder: Path,
    outage: Outage,
    *,
    clock: Clock,
    retention_seconds: float,
    max_bytes: int,
) -> ResultStore:
    """Before a store in `folder`, for a `primary` in Redis. Raises ConfigError."""
    root = await asyncio.to_thread(Root, folder, max_bytes)
    return SpoolStore(primary, DiskStore(root, clock=clock, retention_seconds=retention_seconds), outage)


async def open_spooled_ledger(
    primary: Ledger,
    folder: Path,
    outage: Outage,
    *,
    clock: Clock,
    session_retention_seconds: float,
    entry_retention_seconds: float,
) -> Ledger:
    """Before a journal in `folder`, which exists. Raises ConfigError."""
    from storage.redis.ledger import RedisLedger

    def judge() -> MemoryLedger:
        return MemoryLedger(
            clock=clock,
            session_retention_seconds=session_retention_seconds,
            entry_retention_seconds=entry_retention_seconds,
            bounds=SPOOL_BOUNDS,
        )

    assert isinstance(primary, RedisLedger)
    journal = await asyncio.to_thread(Journal, folder / "journal.jsonl")
    ledger = SpoolLedger(primary, judge, journal, outage)
    await ledger.restore()
    return ledger


def body_path(url: str, tenant: str, handle: Handle) -> str | None:
    """The file of a stored body. None for stores that keep no plain files."""
    return str(_path(url) / "tool_output" / tenant / str(handle)) if url.startswith("disk:") else None


async def _open_memory(url: str, *, clock: Clock, retention_seconds: float, max_bytes: int) -> ResultStore:
    return MemoryStore(clock=clock, retention_seconds=retention_seconds, max_bytes=max_bytes)


async def _open_disk(url: str, *, clock: Clock, retention_seconds: float, max_bytes: int) -> ResultStore:
    root = await asyncio.to_thread(Root, _path(url), max_bytes)
    return DiskStore(root, clock=clock, retention_seconds=retention_seconds)


async def _open_redis(url: str, *, clock: Clock, retention_seconds: float, max_bytes: int) -> ResultStore:
    # redis-py is imported only where a URL asks for it.
    from storage.redis.connection import open_redis
    from storage.redis.store import RedisStore

    return RedisStore(open_redis(url), clock=clock, retention_seconds=retention_seconds, max_bytes=max_bytes)


async def _open_memory_ledger(
    url: str,
    *,
    clock: Clock,
    session_retention_seconds: float,
    entry_retention_seconds: float,
    bounds: LedgerBounds,
) -> Ledger:
    return MemoryLedger(
        clock=clock,
        session_retention_seconds=session_retention_seconds,
        entry_retention_seconds=entry_retention_seconds,
        bounds=bounds,
    )


async def _open_sqlite(
    url: str,
    *,
    clock: Clock,
    session_retention_seconds: float,
    entry_retention_seconds: float,
    bounds: LedgerBounds,
) -> Ledger:
    return await asyncio.to_thread(
        SqliteLedger,
        _path(url),
        clock=clock,
        session_retention_seconds=session_retention_seconds,
        entry_retention_seconds=entry_retention_seconds,
        bounds=bounds,
    )


async def _open_redis_ledger(
    url: str,
    *,
    clock: Clock,
    session_retention_seconds: float,
    entry_retention_seconds: float,
    bounds: LedgerBounds,
) -> Ledger:
    from storage.redis.connection import open_redis
    from storage.redis.ledger import RedisLedger

    return RedisLedger(
        open_redis(url),
        clock=clock,
        session_retention_seconds=session_retention_seconds,
        entry_retention_seconds=entry_retention_seconds,
        bounds=bounds,
    )


STORES: dict[str, StoreOpener] = {
    "memory": _open_memory,
    "disk": _open_disk,
    "redis": _open_redis,
    "rediss": _open_redis,
    "redis+sentinel": _open_redis,
    "redis+cluster": _open_redis,
}
LEDGERS: dict[str, LedgerOpener] = {
    "memory": _open_memory_ledger,
    "sqlite": _open_sqlite,
    "redis": _open_redis_ledger,
    "rediss": _open_redis_ledger,
    "redis+sentinel": _open_redis_ledger,
    "redis+cluster": _open_redis_ledger,
}


def _chosen(openers: dict[str, Opener], url: str, setting: str) -> Opener:
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in openers:
        known = ", ".join(f"{name}:" for name in openers)
        raise ConfigError(f"{setting}: unknown scheme. It starts with one of {known}")
    return openers[scheme]


def _path(url: str) -> Path:
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute() or parts.query or parts.fragment:
        raise ConfigError(
            f"{parts.scheme}: needs an absolute path, as in {parts.scheme}:///var/lib/spillgate."
        )
    return path
