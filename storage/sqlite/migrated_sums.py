"""Sums of the entries of a database that an older version wrote."""

import sqlite3
from contextlib import suppress

import msgspec

from domain.accounting import DAY_MS, AccountingEntry
from storage.base.summaries import GROUPED
from storage.sqlite import sums

_AT_ONCE = 10_000
_decode_entry = msgspec.json.Decoder(AccountingEntry).decode

_ENTRIES = "SELECT seq, entry FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"
_NAMES = {"tokens_saved_observed": "observed_tokens_saved"}
_KNOWN = GROUPED[:-2]
"""The older sums do not tell keys and clients apart."""

_ROLLED = (
    f"INSERT INTO period_sums SELECT tenant, {DAY_MS}, hour * {sums.HOUR_MS} / {DAY_MS}, {', '.join(_KNOWN)},"  # noqa: S608
    f" x'00', x'00', 0, {', '.join(f'total({_NAMES.get(name, name)})' for name in sums.AMOUNTS[:-1])},"
    " max(latency_max) FROM rolled_sums GROUP BY 1, 3, 4, 5, 6, 7, 8, 9, 10, 11"
)
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
    """Within the transaction of the migration. Older versions deleted sums with their entries: what was
    before the first day that is left is not known. `has_rolled`: there are sums of entries that are not
    kept."""
    connection.execute(_OF_ENTRIES)
    if has_rolled:
        connection.execute(_OF_ROLLED)
        connection.execute(_ROLLED)
        connection.execute("DROP TABLE rolled_sums")
    seq = 0
    while rows := connection.execute(_ENTRIES, (seq, _AT_ONCE)).fetchall():
        added: sums.Added = {}
        for _, packed in rows:
            # What is damaged is left out of pages, too.
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
                sums.collect(added, _decode_entry(packed))
        sums.add(connection, added, rows[0][0])
        seq = rows[-1][0]
