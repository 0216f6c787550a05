"""The tables on a terminal, at most 100 columns wide."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from textwrap import wrap

from replay.advice import policy_file
from replay.plans import IN_FORCE
from replay.reports import tables
from replay.reports.summary import ReplaySummary, billed_line, faults, heads, to_do
from replay.reports.tables import ReportTable
from replay.sources import printable

WIDTH = 100
_MOST_LABEL = 23
_MOST_TOOLS = 15


def text(summary: ReplaySummary) -> str:
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: ReplaySummary) -> Iterator[str]:
    for line in heads(summary):
        yield from wrap(line, WIDTH)
    found = (tables.uses(summary), tables.bills(summary), tables.by_end(summary))
    for table in (*found, tables.tools(summary, _MOST_TOOLS)):
        if table is not None:
            yield ""
            yield from _table(table)
    if line := billed_line(summary):
        yield ""
        yield from wrap(line, WIDTH)
    yield ""
    yield from wrap(f"What to do: {to_do(summary)}", WIDTH)
    if any(one.plan is not None for one in summary.advised):
        yield ""
        yield policy_file(summary.advised)
    if lines := faults(summary.notes):
        yield ""
    for line in lines:
        yield from wrap(line, WIDTH, break_long_words=True)
    if summary.shows:
        yield ""
        yield from _literals(summary)


def _table(table: ReportTable) -> Iterator[str]:
    times = max(1, len(table.groups))
    rows = [(table.title, [*table.columns] * times), *table.rows]
    if table.groups:
        empty = [""] * (len(table.columns) - 1)
        rows.insert(0, ("", [cell for group in table.groups for cell in (group, *empty)]))
    labels = [_cut(label, _MOST_LABEL) for label, _ in rows]
    columns = zip(*(cells for _, cells in rows[bool(table.groups) :]), strict=True)
    widths = [max(map(len, column)) + 2 for column in columns]
    for label, (_, cells) in zip(labels, rows, strict=True):
        yield f"{label.ljust(max(map(len, labels)))}{_padded(cells, widths)}".rstrip()
    for line in table.legend:
        yield from wrap(line, WIDTH)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Right-aligned; a group's name, above its first column, runs on over those that are empty."""
    padded = ""
    for cell, end in zip(cells, accumulate(widths), strict=True):
        padded = padded.ljust(end - len(cell)) + cell if cell else padded
    return padded


def _cut(name: str, width: int) -> str:
    clean = printable(name)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


def _literals(summary: ReplaySummary) -> Iterator[str]:
    """What was used and not shown, under the policy in force."""
    yield f"Used and not shown under the {IN_FORCE.label}:"
    for tool, where, literal in summary.figures.literals:
        yield f"  {where.ljust(9)} {_cut(tool, 24).ljust(24)} {_cut(literal, 60)}"
