"""`ledger copy`: copies the ledger of the settings into a PostgreSQL, and compares the sums of both."""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.cli.options import settings_of
from app.files import read_text
from domain.errors import ConfigError, StorageError
from domain.ports import Ledger
from machine.tables import table
from storage import copy_to_postgres, open_ledger

_HEADS = ("tenant", "entries", "in all sums", "sessions", "US dollars", "")


def run(options: argparse.Namespace) -> int:
    """Raises ConfigError."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    settings, url = settings_of(options), _target(options)
    kept = float(settings.ledger_retention_seconds)
    try:
        async with _opened(settings.ledger, kept) as source, _opened(url, kept) as target:
            copied = [one async for one in copy_to_postgres(source, target, _now())]
    except StorageError as error:
        raise ConfigError(error.why) from error
    rows = [
        (
            *(one.tenant, f"{one.entries:,}", f"{one.summed:,}", f"{one.sessions:,}", f"{one.cost_usd:,.4f}"),
            f"differs: {', '.join(one.differing[:3])}" if one.differing else "equal",
        )
        for one in copied
    ]
    print(table(rows, _HEADS, right={1, 2, 3, 4}))
    if any(one.differing for one in copied):
        print(
            "spillgate: the sums differ. Nothing may write to the ledger while it is copied.", file=sys.stderr
        )
        return 1
    return 0


def _target(options: argparse.Namespace) -> str:
    """A URL may hold a password, which other users of the machine would see among the arguments."""
    if options.to_file is not None:
        return read_text(options.to_file, "--to-file", secret=True).strip()
    return str(options.to)


@asynccontextmanager
async def _opened(url: str, kept: float) -> AsyncIterator[Ledger]:
    ledger = await open_ledger(url, clock=_now, session_retention_seconds=kept, entry_retention_seconds=kept)
    try:
        yield ledger
    finally:
        await ledger.close()


def _now() -> int:
    return time.time_ns() // 1_000_000
