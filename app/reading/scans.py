"""Reading back: a stored result through a line or pattern scanner, and what that costs in tokens."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

import anyio

from app.reading.entries import entry_about
from app.runtime import Runtime
from content.reading.greppable import Greppable
from domain.accounting import EntryType
from domain.errors import StorageError
from domain.results import StoredResult

log = logging.getLogger(__name__)

_INLINE_BYTES = 1 << 14


class Scanner(Protocol):
    def feed(self, chunk: bytes) -> None: ...


async def scan(rt: Runtime, stored: StoredResult, scanner: Scanner, *, greppable: bool) -> None:
    """Feeds the whole body, or its greppable view, to the scanner; large chunks in a thread."""
    view = Greppable() if greppable else None
    async for chunk in rt.store.read(stored):
        if len(chunk) <= _INLINE_BYTES:
            _feed(scanner, view, chunk)
        else:
            await anyio.to_thread.run_sync(partial(_feed, scanner, view, chunk), limiter=rt.scanning)
    if view is not None:
        scanner.feed(view.finish())


def _feed(scanner: Scanner, view: Greppable | None, chunk: bytes) -> None:
    scanner.feed(chunk if view is None else view.feed(chunk))


async def account_texts(rt: Runtime, stored: StoredResult, texts: Iterable[str]) -> None:
    shown = "".join(texts)
    await account_read(rt, stored, len(shown.encode()), len(shown))


async def account_read(rt: Runtime, stored: StoredResult, size: int, chars: int) -> None:
    """Books what was read back, so that savings are net. Its tokens are its share of the whole's.

    Reads go on while the ledger's disk is full: what cannot be booked is logged instead.
    """
    if size == 0:
        return
    measure = stored.measure
    tokens = -(-size * measure.tokens // max(measure.bytes, 1))
    rt.metrics.spent(tokens)
    entry = entry_about(rt, stored, EntryType.READ, rt.clock())
    read = replace(
        entry,
        charactersOut=chars,
        tokens_out=tokens,
        tokens_saved=-tokens,
        details=replace(entry.details, bytes=size, tokens=tokens),
    )
    try:
        await rt.ledger.append(read)
    except StorageError as error:
        rt.metrics.refused(error.code)
        rt.readiness.doubt()
        fields = {"code": error.code, "handle": str(stored.handle), "tokens": tokens}
        log.warning("A reading back was not accounted.", extra={"fields": fields})
