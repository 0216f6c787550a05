"""Sums of days by group, and summaries, for all ledgers.

A summary of whole days comes from the sums of days, which are written with each entry; everything else comes
from the entries. Entries are deleted by age and at the quota of bytes; sums of days are kept for
HISTORY_DAYS. Each ledger keeps for each tenant the newest time of a deleted entry: all later entries exist.
If a summary needs earlier entries, it reports a gap.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, cast

import msgspec

from domain import accounting
from domain.accounting import (
    DAY_MS,
    FIELD_OF,
    GAPS_OF_TYPES,
    HISTORY_DAYS,
    PERIOD_FORMATS,
    PERIOD_MS,
    AccountingEntry,
    EntryFilter,
    EntryStatus,
    EntryType,
    Gap,
    GroupBy,
    Summary,
    SummaryRow,
)

GROUPED = (
    *("type", "tool_name", "trigger", "outcome", "status"),
    *("model", "strategy", "tool_kind", "key", "client"),
)
"""The fields of an entry by which the sums of days are grouped."""

MERGED: Literal[False] = False
"""The value of a field in the sums of several merged groups."""

FieldValue = str | Literal[False] | None
Group = tuple[FieldValue, ...]
"""The values of GROUPED, or of the keys of a summary, in their order."""

FieldValues = tuple[str | None, ...]
"""Values of which none is MERGED."""

group_of: Callable[[AccountingEntry], Group] = attrgetter(*GROUPED)

_FREE = frozenset(map(GROUPED.index, ("tool_name", "tool_kind", "client")))
_TYPE, _MODEL = GROUPED.index("type"), GROUPED.index("model")
_OF_ENTRIES = {GroupBy.SESSION_ID, GroupBy.HOUR, GroupBy.MINUTE}


def merged(group: Group) -> Group:
    """The group to which sums past MOST_GROUPS_OF_DAY are added. It keeps the key and the called model, by
    which costs are asked for."""
    free = _FREE if group[_TYPE] == EntryType.LLM else _FREE | {_MODEL}
    return tuple(MERGED if place in free else value for place, value in enumerate(group))


def sums_answer(wanted: EntryFilter, group_by: Iterable[GroupBy]) -> bool:
    """Returns whether the sums of days are enough for this summary of whole days."""
    return wanted.session_id is None and wanted.handle is None and _OF_ENTRIES.isdisjoint(group_by)


def gap_of(deleted: int, oldest: int) -> Gap:
    """Why entries up to `deleted` are missing: those up to `oldest` were deleted by age."""
    return Gap.AGE if deleted <= oldest else Gap.BYTES


def first_kept_day(now: int, entry_ms: int) -> int:
    """The number, since 1970, of the first day whose sums are kept. Sums are kept at least as long as
    entries."""
    return min(now // DAY_MS - HISTORY_DAYS, (now - entry_ms) // DAY_MS)


Amounts = tuple[Any, ...]
"""The values of Sums."""


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

    def row(self, keys: tuple[GroupBy, ...] = (), group: FieldValues = ()) -> SummaryRow:
        """Without keys, the row has no group."""
        return SummaryRow(
            group=group[0] if group else None,
            latency_ms_mean=self.latency / self.entries,
            latency_ms_max=self.latency_max,
            groups=dict(zip(map(str, keys), group, strict=True)),
            **{name: getattr(self, name) for name in _SHARED},
        )


def added_up(amounts: Sequence[Amounts]) -> Amounts:
    if len(amounts) == 1:
        return amounts[0]
    *added, latencies = zip(*amounts, strict=True)
    return (*map(sum, added), max(latencies))


AMOUNTS = Sums.__struct_fields__
_ADDED = AMOUNTS[:-1]
_SHARED = [one.name for one in fields(SummaryRow) if one.name in Sums.__struct_fields__]


def amounts_of(entry: AccountingEntry) -> Amounts:
    details = entry.details
    return (
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
        int(entry.is_asked_back),
        int(details.found_nothing),
        int(details.costs_more),
        entry.latency,
    )


class GroupedSums:
    """Collects the sums of a summary by group: the first MOST_GROUPS groups, and all others in one."""

    def __init__(self, wanted: EntryFilter, keys: tuple[GroupBy, ...]) -> None:
        self.wanted = wanted
        self._keys = keys
        self._fields = [FIELD_OF.get(key, key.value) for key in keys]
        self._period_keys = [key for key in keys if key in PERIOD_FORMATS]
        self._groups: dict[FieldValues, Sums] = {}
        self._rest: Sums | None = None
        self._gaps: dict[Gap, int | None] = {}

    def note(self, gap: Gap, until: int | None = None) -> None:
        """`until`: see Summary.gaps."""
        before = self._gaps.get(gap)
        self._gaps[gap] = max(before or 0, until or 0) or None

    def note_deleted(self, groups: Iterable[Group], deleted: int, oldest: int) -> None:
        """Notes that the summary needs entries of a day with these groups, some of which, up to `deleted`,
        are missing: see `gap_of`."""
        for group in groups:
            self.note_type(group[_TYPE])
            if self.may_match(group):
                self.note(gap_of(deleted, oldest), deleted)

    def note_type(self, type: object) -> None:
        """Notes the gap that an entry of this type, of the tenant and the selected time, reports."""
        if (gap := GAPS_OF_TYPES.get(str(type))) is not None:
            self.note(gap)

    def covers(self, day: int) -> bool:
        """Returns whether the filter selects the whole day."""
        since, until = self.wanted.since or 0, self.wanted.until
        return since <= day * DAY_MS and (until is None or (day + 1) * DAY_MS <= until)

    def reaches(self, day: int) -> bool:
        """Returns whether the filter selects a part of the day."""
        since, until = self.wanted.since or 0, self.wanted.until
        return since < (day + 1) * DAY_MS and (until is None or day * DAY_MS < until)

    def add(self, group: Group, sums: Sums) -> None:
        """Adds a group. Takes ownership of `sums`."""
        told = None if MERGED in group else cast(FieldValues, group)
        if told in self._groups:
            self._groups[told].add(sums)
        elif told is not None and len(self._groups) < accounting.MOST_GROUPS:
            self._groups[told] = sums
        elif self._rest is None:
            self._rest = sums
        else:
            self._rest.add(sums)

    def add_entry(self, entry: AccountingEntry) -> None:
        periods = self._periods(entry.timestamp)
        values = (periods.get(name) or getattr(entry, name, None) for name in self._fields)
        self.add(tuple(None if value is None else str(value) for value in values), Sums(*amounts_of(entry)))

    def add_day(self, tenant: str, day: int, group: Group, sums: Sums) -> None:
        """Adds the sums of a group of a whole day, if the filter selects them. Takes ownership of `sums`."""
        self.note_type(group[_TYPE])
        if not self.may_match(group):
            return
        if any(wanted is not None and value is MERGED for wanted, value in self._filtered(group)):
            self.note(Gap.MERGED)
            return
        known = {**dict(zip(GROUPED, group, strict=True)), **self._periods(day * DAY_MS), "tenant": tenant}
        self.add(tuple(known[name] and str(known[name]) for name in self._fields), sums)

    def may_match(self, group: Group) -> bool:
        """Whether the filter may select entries of the group of a day."""
        return all(wanted is None or value in (wanted, MERGED) for wanted, value in self._filtered(group))

    def _filtered(self, group: Group) -> Iterable[tuple[str | None, FieldValue]]:
        """The value that the filter wants of each field, and the value of the group."""
        wanted = self.wanted
        fields = (wanted.type, wanted.tool_name, wanted.trigger, wanted.outcome, wanted.status)
        return zip(fields, group, strict=False)

    def _periods(self, at: int) -> dict[str, str]:
        return {key.value: period_of(at, key) for key in self._period_keys}

    def summary(self) -> Summary:
        rows = [sums.row(self._keys, group) for group, sums in self._groups.items()]
        rows.sort(
            key=lambda row: (-row.tokens_saved, *((one or "", one is None) for one in row.groups.values()))
        )
        rest = None if self._rest is None else self._rest.row()
        return Summary(rows, rest, self._gaps)


def period_of(timestamp: int, group_by: GroupBy) -> str:
    """Returns the UTC month, day, hour or minute of a time in Unix ms."""
    length = PERIOD_MS.get(group_by, DAY_MS)
    return _period(timestamp // length * length, group_by)


@lru_cache(maxsize=4096)
def _period(begins: int, group_by: GroupBy) -> str:
    return datetime.fromtimestamp(begins / 1000, UTC).strftime(PERIOD_FORMATS[group_by])


def matches(entry: AccountingEntry, wanted: EntryFilter) -> bool:
    return (
        is_of_time(entry, wanted)
        and wanted.session_id in (None, entry.session_id)
        and wanted.type in (None, entry.type)
        and wanted.tool_name in (None, entry.tool_name)
        and wanted.trigger in (None, entry.trigger)
        and wanted.outcome in (None, entry.outcome)
        and wanted.status in (None, entry.status)
        and wanted.handle in (None, entry.details.tool_output_handle)
        and (entry.is_stored or not wanted.stored)
    )


def may_tell_of_gap(entry: AccountingEntry, wanted: EntryFilter) -> bool:
    """Whether an entry that reports a gap concerns the sessions and the time of `wanted`. An entry of the
    type `lost` concerns every session."""
    is_of_session = entry.type is EntryType.LOST or wanted.session_id in (None, entry.session_id)
    return is_of_session and is_of_time(entry, wanted)


def is_of_time(entry: AccountingEntry, wanted: EntryFilter) -> bool:
    """Returns whether the entry has the tenant and the time that the filter selects."""
    return (
        wanted.tenant in (None, entry.tenant)
        and (wanted.since is None or entry.timestamp >= wanted.since)
        and (wanted.until is None or entry.timestamp < wanted.until)
    )
