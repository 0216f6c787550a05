"""Filters and sums of accounting entries, for ledgers that do not leave both to a database."""

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from domain import accounting
from domain.accounting import (
    DAY_MS,
    OF_ENTRY_ALONE,
    PERIOD_FORMATS,
    PERIOD_MS,
    AccountingEntry,
    EntryFilter,
    EntryStatus,
    GroupBy,
    Summary,
    SummaryRow,
)

Group = tuple[str | None, ...]
"""The values of the keys of a summary, in their order."""


class Sums(msgspec.Struct, array_like=True):
    """Sums over entries; `latency` in ms. `latency_max`, the only field that is not added up, is last."""

    entries: int
    failed: int
    bytes: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int
    latency: float
    cost_usd: float
    tokens_saved_observed: int
    stored: int
    asked_back: int
    found_nothing: int
    costs_more: int
    latency_max: float

    def add(self, other: "Sums") -> None:
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latency_max = max(self.latency_max, other.latency_max)

    def row(self, keys: tuple[GroupBy, ...] = (), group: Group = ()) -> SummaryRow:
        """Without keys, the row has no group."""
        return SummaryRow(
            group=group[0] if group else None,
            latency_ms_mean=self.latency / self.entries,
            latency_ms_max=self.latency_max,
            groups=dict(zip(map(str, keys), group, strict=True)),
            **{name: getattr(self, name) for name in _SHARED},
        )


_ADDED = Sums.__struct_fields__[:-1]
_SHARED = [one.name for one in fields(SummaryRow) if one.name in Sums.__struct_fields__]


def sums_of(entry: AccountingEntry) -> Sums:
    details = entry.details
    return Sums(
        1,
        int(entry.status is EntryStatus.FAILED),
        details.bytes,
        entry.tokens_in,
        entry.tokens_out,
        entry.tokens_saved,
        entry.latency,
        entry.cost_usd,
        details.observed_tokens_saved,
        int(entry.is_stored),
        int(details.first_question),
        int(details.found_nothing),
        int(details.costs_more),
        entry.latency,
    )


class GroupedSums:
    """Collects sums by group: the first MOST_GROUPS groups, and all others in one."""

    def __init__(self, keys: tuple[GroupBy, ...]) -> None:
        self.keys = keys
        self._groups: dict[Group, Sums] = {}
        self._rest: Sums | None = None

    def add(self, group: Group, sums: Sums) -> None:
        """Takes `sums` over."""
        before = self._groups.get(group)
        if before is not None:
            before.add(sums)
        elif len(self._groups) < accounting.MOST_GROUPS:
            self._groups[group] = sums
        elif self._rest is None:
            self._rest = sums
        else:
            self._rest.add(sums)

    def add_entry(self, entry: AccountingEntry) -> None:
        self.add(tuple(_value_of(entry, key) for key in self.keys), sums_of(entry))

    def summary(self, *, is_damaged: bool = False) -> Summary:
        rows = [sums.row(self.keys, group) for group, sums in self._groups.items()]
        rows.sort(
            key=lambda row: (-row.tokens_saved, *((one or "", one is None) for one in row.groups.values()))
        )
        rest = None if self._rest is None else self._rest.row()
        return Summary(rows, rest, is_damaged)


class RolledSums:
    """Sums of entries that are not kept, by hour. Their sessions and handles are not known."""

    def __init__(self) -> None:
        self._sums: dict[AccountingEntry, Sums] = {}

    def add(self, entry: AccountingEntry) -> None:
        group = AccountingEntry(
            id="",
            type=entry.type,
            timestamp=entry.timestamp - entry.timestamp % PERIOD_MS[GroupBy.HOUR],
            tenant=entry.tenant,
            session_id="",
            tool_name=entry.tool_name,
            status=entry.status,
            trigger=entry.trigger,
            outcome=entry.outcome,
            model=entry.model,
            tool_kind=entry.tool_kind,
            strategy=entry.strategy,
        )
        before = self._sums.get(group)
        if before is None:
            self._sums[group] = sums_of(entry)
        else:
            before.add(sums_of(entry))

    def add_to(self, sums: GroupedSums, wanted: EntryFilter) -> None:
        for group, one in self._sums.items():
            if matches(group, wanted):
                key = tuple(_value_of(group, key) or None for key in sums.keys)
                sums.add(key, msgspec.structs.replace(one))

    def forget(self, is_gone: Callable[[AccountingEntry], bool]) -> None:
        self._sums = {group: sums for group, sums in self._sums.items() if not is_gone(group)}


def _value_of(entry: AccountingEntry, key: GroupBy) -> str | None:
    if key in PERIOD_FORMATS:
        return period_of(entry.timestamp, key)
    value = getattr(entry, OF_ENTRY_ALONE.get(key, key.value))
    return None if value is None else str(value)


def period_of(timestamp: int, group_by: GroupBy) -> str:
    """Returns the UTC month, day, hour or minute of a time in Unix ms."""
    length = PERIOD_MS.get(group_by, DAY_MS)
    return _period(timestamp // length * length, group_by)


@lru_cache(maxsize=4096)
def _period(begins: int, group_by: GroupBy) -> str:
    return datetime.fromtimestamp(begins / 1000, UTC).strftime(PERIOD_FORMATS[group_by])


def matches(entry: AccountingEntry, wanted: EntryFilter) -> bool:
    return (
        wanted.tenant in (None, entry.tenant)
        and wanted.session_id in (None, entry.session_id)
        and wanted.type in (None, entry.type)
        and wanted.tool_name in (None, entry.tool_name)
        and wanted.trigger in (None, entry.trigger)
        and wanted.outcome in (None, entry.outcome)
        and wanted.status in (None, entry.status)
        and wanted.handle in (None, entry.details.tool_output_handle)
        and (wanted.since is None or entry.timestamp >= wanted.since)
        and (wanted.until is None or entry.timestamp < wanted.until)
    )
