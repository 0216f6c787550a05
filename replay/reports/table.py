"""The tables on a terminal, at most 100 columns wide."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from replay.advice import policy_file
from replay.bill import Offer
from replay.figures import FAILED, PASSED, Outcomes
from replay.plans import IN_FORCE, preview_of
from replay.reports.summary import (
    BILL_COLUMNS,
    BILL_LEGENDS,
    CAVEAT,
    RECORDED,
    TOOL_LEGEND,
    USE_COLUMNS,
    USE_LEGENDS,
    Summary,
    billed_line,
    cap_text,
    faults,
    heads,
    plural,
    to_do,
)

WIDTH = 100
_LABEL = 24
_MOST_TOOLS = 15


def text(summary: Summary) -> str:
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Summary) -> Iterator[str]:
    for line in heads(summary):
        yield from wrap(line, WIDTH)
    yield ""
    yield from _uses(summary)
    yield ""
    yield from _bills(summary)
    if ends := [end for end in (PASSED, FAILED) if end in summary.figures.by_end]:
        yield ""
        yield from _by_end(summary, ends)
    if line := billed_line(summary):
        yield ""
        yield from wrap(line, WIDTH)
    yield ""
    yield from _tools(summary)
    if lines := faults(summary.notes):
        yield ""
    for line in lines:
        yield from wrap(line, WIDTH, break_long_words=True)
    if summary.shows:
        yield ""
        yield from _literals(summary)


def _rows(rows: Sequence[tuple[str, Sequence[str]]], least: Sequence[int]) -> Iterator[str]:
    """The rows with a space at least between cells. `least` are the narrowest columns."""
    columns = zip(*(cells for _, cells in rows), strict=True)
    widths = [
        max(width, *(len(cell) + 1 for cell in column)) for width, column in zip(least, columns, strict=True)
    ]
    for label, cells in rows:
        yield _row(label, cells, widths)


def _row(label: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{_cut(label, _LABEL - 1).ljust(_LABEL)}{padded}".rstrip()


def _cut(name: str, width: int) -> str:
    clean = "".join(char if char.isprintable() else "?" for char in name)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


_USES = (10, 10, 9, 9, 8, 9, 13)


def _uses(summary: Summary) -> Iterator[str]:
    total = summary.total
    rows: list[tuple[str, Sequence[str]]] = [
        ("where uses were found", USE_COLUMNS),
        (RECORDED, ("0", f"{total.uses:,}", "0", "0", "0", "0", "0")),
    ]
    for label in summary.rows:
        one = total.policies[label]
        numbers = (
            *(
                one.replaced,
                one.visible,
                one.one_call,
                one.findable,
                one.lost,
                one.quotes_broken,
                one.follow_ups,
            ),
        )
        rows.append((label, [f"{number:,}" for number in numbers]))
    yield from _rows(rows, _USES)
    yield CAVEAT
    for legend in USE_LEGENDS:
        yield from wrap(legend, WIDTH)


_BILLS = (10, 9, 6) * 3


def _bills(summary: Summary) -> Iterator[str]:
    total = summary.total
    rows: list[tuple[str, Sequence[str]]] = [
        ("", [cell for offer in Offer for cell in (str(offer), "", "")]),
        ("tools offered", BILL_COLUMNS * len(Offer)),
    ]
    for label in summary.rows:
        one = total.policies[label]
        cells = []
        for offer in Offer:
            money = one.bills[offer]
            cells += [
                summary.money(money),
                summary.saved(money, total.recorded),
                summary.dearer(label, offer),
            ]
        rows.append((label, cells))
    yield from _rows(rows, _BILLS)
    yield CAVEAT
    for legend in BILL_LEGENDS:
        yield from wrap(legend, WIDTH)


_ENDS = (8, 10, 8, 12)


def _by_end(summary: Summary, ends: Sequence[str]) -> Iterator[str]:
    rows: list[tuple[str, Sequence[str]]] = [
        ("", [cell for end in ends for cell in (end, "", "", "")]),
        ("tools late", [cell for _ in ends for cell in ("runs", "saved", "lost", "follow-ups")]),
    ]
    for label in summary.rows:
        cells: list[str] = []
        for end in ends:
            outcomes: Outcomes = summary.figures.by_end[end]
            one = outcomes.policies[label]
            saved = summary.saved(one.bills[Offer.LATE], outcomes.recorded)
            cells += [f"{outcomes.runs:,}", saved, f"{one.lost:,}", f"{one.follow_ups:,}"]
        rows.append((label, cells))
    yield from _rows(rows, _ENDS * len(ends))
    yield CAVEAT


_TOOLS = (8, 9, 9, 8, 9, 11, 10, 12)


def _tools(summary: Summary) -> Iterator[str]:
    """The tools by bytes, with the cap that would have cost least; then the policy file."""
    sizes = sorted(summary.figures.tools.items(), key=lambda one: -one[1].bytes)
    best = {one.tool: one for one in summary.advised}
    names = ("results", "KB", "largest", "uses", "best cap", "preview", "saved", "follow-ups")
    rows: list[tuple[str, Sequence[str]]] = [("tool", names)]
    for tool, size in sizes[:_MOST_TOOLS]:
        advised = best.get(tool)
        preview, saved, asked = "", "", ""
        if advised is not None and advised.plan is not None:
            preview = preview_of(advised.plan) or "as now"
            saved, asked = summary.money(advised.saved), f"{advised.follow_ups:,}"
        largest = f"{max(size.largest, default=0) / 1000:,.1f}"
        counts = (f"{size.results:,}", f"{size.bytes / 1000:,.0f}", largest, f"{size.uses:,}")
        rows.append((tool, (*counts, cap_text(summary, tool), preview, saved, asked)))
    yield from _rows(rows, _TOOLS)
    if (more := len(sizes) - _MOST_TOOLS) > 0:
        yield f"… and {plural(more, 'tool')} with fewer bytes."
    yield CAVEAT
    yield from wrap(TOOL_LEGEND, WIDTH)
    yield ""
    yield from wrap(to_do(summary), WIDTH)
    if any(one.plan is not None for one in summary.advised):
        yield ""
        yield policy_file(summary.advised)


def _literals(summary: Summary) -> Iterator[str]:
    """What was used and not shown, under the policy in force."""
    yield f"Used and not shown under the {IN_FORCE.label}:"
    for tool, where, literal in summary.figures.literals:
        yield f"  {where.ljust(9)} {_cut(tool, 24).ljust(24)} {_cut(literal, 60)}"
