"""Makes the sums of a database that an older version wrote."""

import sqlite3
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from domain.accounting import DAY_MS, AccountingEntry
from storage.base.summaries import AMOUNTS, GROUPED, MERGED, Amounts, Group
from storage.sqlite import sums

_AT_ONCE = 10_000
_decode_entry = msgspec.json.Decoder(AccountingEntry).decode

_ENTRIES = "SELECT seq, entry FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"
_KNOWN = GROUPED[:-2]
"""The fields of the older sums, which have neither key nor client."""

_NAMES = ["observed_tokens_saved" if name == "tokens_saved_observed" else name for name in AMOUNTS]
_ROLLED = f"SELECT tenant, hour, {', '.join((*_KNOWN, *_NAMES))} FROM rolled_sums"  # noqa: S608
_HISTORIES = (
    "INSERT OR REPLACE INTO histories"  # noqa: S608
    f" SELECT tenant, {{deleted}}, (min({{at}}) / {DAY_MS} + 1) * {DAY_MS}"
    " FROM {table} GROUP BY tenant"
)
_OF_ENTRIES = _HISTORIES.format(deleted="min(timestamp) - 1", at="timestamp", table="entries")
_OF_ROLLED = _HISTORIES.format(
    deleted=f"(max(hour) + 1) * {sums.HOUR_MS} - 1", at=f"hour * {sums.HOUR_MS}", table="rolled_sums"
)


def migrate_sums(connection: sqlite3.Connection, *, has_rolled: bool) -> None:
    """Runs within the transaction of the migration. Older versions deleted sums with their entries: of the
    time before the first remaining day, nothing is known. `has_rolled`: there are sums of deleted entries."""
    groups = sums.SumGroups()
    connection.execute(_OF_ENTRIES)
    if has_rolled:
        connection.execute(_OF_ROLLED)
        sums.add(connection.cursor(), groups, dict(map(_rolled, connection.execute(_ROLLED))), lambda: 0)
        connection.execute("DROP TABLE rolled_sums")
    seq = 0
    while rows := connection.execute(_ENTRIES, (seq, _AT_ONCE)).fetchall():
        added: sums.Added = {}
        for _, packed in rows:
            # Damaged entries are left out, as in pages.
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
                sums.collect(added, _decode_entry(packed))
        sums.add(connection.cursor(), groups, added, partial(int, rows[0][0]))
        seq = rows[-1][0]


def _rolled(row: tuple[Any, ...]) -> tuple[tuple[str, int, Group], list[Amounts]]:
    tenant, hour, *rest = row
    known, amounts = rest[: len(_KNOWN)], rest[len(_KNOWN) :]
    group = (*(None if value == b"" else value for value in known), MERGED, MERGED)
    return (tenant, hour, group), [tuple(amounts)]
