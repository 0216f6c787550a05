"""Filters and sums of accounting entries, for ledgers that do not leave both to a database."""

from datetime import UTC, datetime

import msgspec

from domain.accounting import PERIOD_MS, AccountingEntry, EntryFilter, EntryStatus, GroupBy, SummaryRow


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
    observed: int
    latency_max: float

    def plus(self, other: "Sums") -> "Sums":
        one, two = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        added = [a + b for a, b in zip(one[:-1], two[:-1], strict=True)]
        return msgspec.convert([*added, max(one[-1], two[-1])], Sums)

    def row(self, group: str | None) -> SummaryRow:
        return SummaryRow(
            group=group,
            entries=self.entries,
            failed=self.failed,
            bytes=self.bytes,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            tokens_saved=self.tokens_saved,
            latency_ms_mean=self.latency / self.entries,
            latency_ms_max=self.latency_max,
            cost_usd=self.cost_usd,
            tokens_saved_observed=self.observed,
        )


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
        entry.latency,
    )


class Summary:
    """Sums by group."""

    def __init__(self) -> None:
        self._groups: dict[str | None, Sums] = {}

    def add(self, group: str | None, sums: Sums) -> None:
        before = self._groups.get(group)
        self._groups[group] = sums if before is None else before.plus(sums)

    def add_entry(self, entry: AccountingEntry, group_by: GroupBy) -> None:
        is_period = group_by in PERIOD_MS
        group = period_of(entry.timestamp, group_by) if is_period else getattr(entry, group_by.value)
        self.add(None if group is None else str(group), sums_of(entry))

    def rows(self) -> list[SummaryRow]:
        """Most tokens saved first."""
        rows = [sums.row(group) for group, sums in self._groups.items()]
        return sorted(rows, key=lambda row: (-row.tokens_saved, row.group or ""))


_PERIODS = {GroupBy.DAY: "%Y-%m-%d", GroupBy.HOUR: "%Y-%m-%dT%H:00Z", GroupBy.MINUTE: "%Y-%m-%dT%H:%MZ"}


def period_of(timestamp: int, group_by: GroupBy) -> str:
    """Returns the UTC day, hour or minute of a time in Unix ms."""
    return datetime.fromtimestamp(timestamp / 1000, UTC).strftime(_PERIODS[group_by])


def matches(entry: AccountingEntry, wanted: EntryFilter) -> bool:
    return (
        entry.tenant == wanted.tenant
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
