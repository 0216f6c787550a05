"""What ledgers in SQL share: the conditions of a filter, and how rows become a summary."""

from collections.abc import Sequence

from domain import accounting
from domain.accounting import EntryFilter, Gap, GroupBy, Summary, SummaryRow
from storage.base.summaries import AMOUNTS


def conditions(wanted: EntryFilter) -> list[tuple[str, object]]:
    """Comparisons of the columns of entries, each with its value."""
    compared: dict[str, object] = {
        "tenant =": wanted.tenant,
        "session_id =": wanted.session_id,
        "type =": wanted.type,
        "tool_name =": wanted.tool_name,
        "trigger =": wanted.trigger,
        "outcome =": wanted.outcome,
        "status =": wanted.status,
        "handle =": wanted.handle,
        "stored =": wanted.stored or None,
        '"timestamp" >=': wanted.since,
        '"timestamp" <': wanted.until,
    }
    return [(text, value) for text, value in compared.items() if value is not None]


def of_groups(wanted: EntryFilter) -> EntryFilter:
    """Returns the part of a filter that sums of days answer after their entries were deleted. The sums have
    no sessions, and not all names of tools."""
    return EntryFilter(
        None, type=wanted.type, trigger=wanted.trigger, outcome=wanted.outcome, status=wanted.status
    )


class SummaryRows:
    """Collects the rows of a summary, most tokens saved first."""

    def __init__(self, group_by: Sequence[GroupBy]) -> None:
        self._keys = tuple(map(str, group_by))
        self._rows: list[SummaryRow] = []
        self._rest: SummaryRow | None = None

    def add(self, groups: Sequence[str | None], amounts: Sequence[float], *, is_told: bool) -> None:
        """Adds a row. `amounts` are the columns AMOUNTS. `is_told` is False for the sums of several merged
        groups."""
        sums = dict(zip(AMOUNTS, amounts, strict=True))
        sums["latency_ms_mean"] = sums.pop("latency") / sums["entries"]
        sums["latency_ms_max"] = sums.pop("latency_max")
        if is_told and len(self._rows) < accounting.MOST_GROUPS:
            named = dict(zip(self._keys, groups, strict=True))
            self._rows.append(SummaryRow(groups[0], **sums, groups=named))  # type: ignore[arg-type]
        else:
            row = SummaryRow(None, **sums)  # type: ignore[arg-type]
            self._rest = row if self._rest is None else self._rest.plus(row)

    def summary(self, gaps: dict[Gap, int | None]) -> Summary:
        return Summary(self._rows, self._rest, gaps)
