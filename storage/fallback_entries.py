"""The accounting out of two ledgers: pages merged by time, sums added up."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from domain.accounting import AccountingEntry, EntryFilter, EntryPage, SummaryRow
from domain.errors import InvalidField
from domain.ports import Ledger
from storage import cursors
from storage.outage import Outage

_DONE = "*"


class _Place(NamedTuple):
    """In one ledger: so many entries after what its own cursor names ("" = the start, "*" = its end)."""

    cursor: str = ""
    skipped: int = 0


_END = _Place(_DONE)


class _Part(NamedTuple):
    """What one ledger has next: `end` is its place after all of `entries`."""

    start: _Place
    entries: Sequence[AccountingEntry]
    end: _Place

    def after(self, taken: int) -> _Place:
        return self.end if taken == len(self.entries) else _Place(self.start.cursor, taken)


class FallbackEntries:
    """A cursor names the place in each of the two. What a ledger gets after its end was read is left to the
    next query."""

    def __init__(self, primary: Ledger, spool: Ledger, outage: Outage) -> None:
        self._primary = primary
        self._spool = spool
        self._outage = outage

    async def page(self, wanted: EntryFilter, limit: int, cursor: str | None) -> EntryPage:
        """While Redis is away, of the spool alone."""
        at, spooled_at = _decoded(cursor)

        async def waiting() -> None:
            return None

        kept = await self._outage.first(lambda: _read(self._primary, wanted, limit, at), waiting)
        one, other = kept or _Part(at, [], at), await _read(self._spool, wanted, limit, spooled_at)
        page, taken, spooled_taken = _merged(one.entries, other.entries, limit)
        end, spooled_end = one.after(taken), other.after(spooled_taken)
        is_over = spooled_end == _END and (kept is None or end == _END)
        return EntryPage(page, None if is_over else _encoded(end, spooled_end))


async def _read(ledger: Ledger, wanted: EntryFilter, limit: int, at: _Place) -> _Part:
    cursor: str | None = at.cursor
    if at.skipped:
        cursor = (await ledger.entries(wanted, at.skipped, at.cursor or None)).next_cursor
    if cursor is None or cursor == _DONE:
        return _Part(_END, [], _END)
    page = await ledger.entries(wanted, limit, cursor or None)
    return _Part(_Place(cursor), page.entries, _Place(page.next_cursor or _DONE))


def _merged(
    one: Sequence[AccountingEntry], other: Sequence[AccountingEntry], limit: int
) -> tuple[list[AccountingEntry], int, int]:
    """Oldest first, and how many of each are in it; a line that both have once."""
    page: list[AccountingEntry] = []
    i = j = 0
    while len(page) < limit and (i < len(one) or j < len(other)):
        if j == len(other) or (i < len(one) and one[i].timestamp <= other[j].timestamp):
            j += j < len(other) and one[i].id == other[j].id
            page.append(one[i])
            i += 1
        else:
            page.append(other[j])
            j += 1
    return page, i, j


def _encoded(*places: _Place) -> str:
    return cursors.encode("entries", ".".join(f"{place.cursor}.{place.skipped}" for place in places))


def _decoded(cursor: str | None) -> tuple[_Place, _Place]:
    """Raises InvalidField. The cursors within are checked by whose they are."""
    if cursor is None:
        return _Place(), _Place()
    parts = cursors.decode("entries", cursor).split(".")
    counts = parts[1::2]
    if len(parts) != 4 or not all(count.isascii() and count.isdigit() and len(count) < 5 for count in counts):
        raise InvalidField("cursor is not one of ours. Use next_cursor of the page before, or leave it out.")
    return _Place(parts[0], int(counts[0])), _Place(parts[2], int(counts[1]))


def merged_sums(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """One row a group, most tokens saved first."""
    merged: dict[str | None, SummaryRow] = {}
    for row in rows:
        merged[row.group] = merged[row.group].plus(row) if row.group in merged else row
    return sorted(merged.values(), key=lambda row: (-row.tokens_saved, row.group or ""))
