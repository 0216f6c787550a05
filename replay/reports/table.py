"""The tables on a terminal, at most 100 columns wide."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from replay.advice import policy_file
from replay.bill import Offer
from replay.figures import FAILED, PASSED, Outcomes
from replay.plans import IN_FORCE, cap_of, preview_of
from replay.reports.summary import CAVEAT, RECORDED, Summary, billed_line, faults, heads

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
    for line in faults(summary.notes):
        yield from wrap(line, WIDTH, break_long_words=True)
    if summary.shows:
        yield ""
        yield from _literals(summary)


def _row(label: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{_cut(label, _LABEL - 1).ljust(_LABEL)}{padded}".rstrip()


def _cut(name: str, width: int) -> str:
    clean = "".join(char if char.isprintable() else "?" for char in name)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


_USES = (10, 10, 9, 9, 8, 9, 13)


def _uses(summary: Summary) -> Iterator[str]:
    total = summary.total
    yield _row(
        "where uses were found",
        ("replaced", "visible", "1 call", "found", "lost", "quotes", "follow-ups"),
        _USES,
    )
    uses = f"{total.uses:,}"
    yield _row(RECORDED, ("0", uses, "0", "0", "0", "0", "0"), _USES)
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
        yield _row(label, [f"{number:,}" for number in numbers], _USES)
    yield CAVEAT
    yield "found: in the stored bytes alone; quotes: texts to edit that are no longer seen."


_BILLS = (10, 8, 6) * 3


def _bills(summary: Summary) -> Iterator[str]:
    total = summary.total
    yield _row("", ("always", "", "", "late", "", "", "hook", "", ""), _BILLS)
    yield _row("tools offered", ("bill", "saved", "more") * 3, _BILLS)
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
        yield _row(label, cells, _BILLS)
    yield f"{CAVEAT} more: runs that cost more."


_ENDS = (8, 10, 8, 12)


def _by_end(summary: Summary, ends: Sequence[str]) -> Iterator[str]:
    yield _row("", [cell for end in ends for cell in (end, "", "", "")], _ENDS * len(ends))
    yield _row(
        "tools late",
        [cell for _ in ends for cell in ("runs", "saved", "lost", "follow-ups")],
        _ENDS * len(ends),
    )
    for label in summary.rows:
        cells: list[str] = []
        for end in ends:
            outcomes: Outcomes = summary.figures.by_end[end]
            one = outcomes.policies[label]
            saved = summary.saved(one.bills[Offer.LATE], outcomes.recorded)
            cells += [f"{outcomes.runs:,}", saved, f"{one.lost:,}", f"{one.follow_ups:,}"]
        yield _row(label, cells, _ENDS * len(ends))
    yield CAVEAT


_TOOLS = (9, 10, 10, 8, 9, 12, 10, 8)


def _tools(summary: Summary) -> Iterator[str]:
    """The tools by bytes, with the cap that would have cost least; then the policy file."""
    sizes = sorted(summary.figures.tools.items(), key=lambda one: -one[1].bytes)
    best = {one.tool: one for one in summary.advised}
    yield _row("tool", ("results", "KB", "largest", "uses", "best cap", "preview", "saved", "asked"), _TOOLS)
    for tool, size in sizes[:_MOST_TOOLS]:
        advised = best.get(tool)
        cap, preview, saved, asked = "-", "", "", ""
        if advised is not None and advised.plan is not None:
            cap, preview = f"{cap_of(advised.plan):,}", preview_of(advised.plan) or "as now"
            saved, asked = summary.money(advised.saved), f"{advised.follow_ups:,}"
        elif advised is not None:
            cap = "none"
        largest = f"{max(size.largest, default=0) / 1000:,.1f}"
        yield _row(
            tool,
            (
                f"{size.results:,}",
                f"{size.bytes / 1000:,.0f}",
                largest,
                f"{size.uses:,}",
                cap,
                preview,
                saved,
                asked,
            ),
            _TOOLS,
        )
    if len(sizes) > _MOST_TOOLS:
        yield f"… and {len(sizes) - _MOST_TOOLS:,} tools with fewer bytes."
    yield f"{CAVEAT} none: leave it alone; -: too small."
    yield ""
    yield from advice_lines(summary)


def advice_lines(summary: Summary) -> Iterator[str]:
    paying = [one for one in summary.advised if one.plan is not None]
    if not paying:
        yield "Leave it alone: no cap pays for any tool of these runs."
        return
    yield "What to do: a policy file with the caps that would have cost least for each tool."
    yield ""
    yield policy_file(summary.advised)


def _literals(summary: Summary) -> Iterator[str]:
    """What was used and not shown, under the policy in force."""
    yield f"Used and not shown under the {IN_FORCE.label}:"
    for tool, where, literal in summary.figures.literals:
        yield f"  {where.ljust(9)} {_cut(tool, 24).ljust(24)} {_cut(literal, 60)}"
