"""The tables of the report, for the terminal and the page alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from replay.advice import LEAST_REPLACED
from replay.bill import OfferTime
from replay.figures import FAILED, MOST_LARGEST, PASSED
from replay.plans import OURS, cap_of, preview_of
from replay.reports.summary import CAVEAT, RECORDED, ReplaySummary, plural


@dataclass(frozen=True, slots=True)
class ReportTable:
    """`columns` are those after the first, which is called `title`; they repeat below each of `groups`."""

    heading: str
    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    note: str = ""
    groups: Sequence[str] = ()

    @property
    def legend(self) -> Sequence[str]:
        return (CAVEAT, self.note) if self.note else (CAVEAT,)


USE_COLUMNS = ("replaced", "visible", "1 call", "found", "lost", "edits broken", "follow-ups")
_USE_NOTE = (
    "A use is a name, number, path or address in what the model did later, which only one earlier result "
    "held. visible: the text that is shown has it. 1 call: the first answer to a question has it. found: the "
    "stored bytes have it. lost: gone. edits broken: texts to edit that are no longer seen. follow-ups: "
    "actions that would have had to ask first."
)


def uses(summary: ReplaySummary) -> ReportTable:
    total = summary.total
    rows = [(RECORDED, ["0", f"{total.uses:,}", *"00000"])]
    for label in summary.rows:
        one = total.policies[label]
        counts = (one.replaced, one.visible, one.one_call, one.findable, one.lost, one.quotes_broken)
        rows.append((label, [f"{count:,}" for count in (*counts, one.follow_ups)]))
    return ReportTable("Where uses were found", "where uses were found", USE_COLUMNS, rows, _USE_NOTE)


_BILL_NOTE = (
    "always: Spillgate's tools are in every request. late: from the first stored result on. hook: in none, "
    "the agent's shell asks. more: runs that would have cost more than as recorded."
)


def bills(summary: ReplaySummary) -> ReportTable:
    rows = []
    for label in summary.rows:
        cells = list[str]()
        for offer in OfferTime:
            money = summary.total.policies[label].bills[offer]
            cells += [summary.money(money), summary.saved(money, summary.total.recorded)]
            cells.append(summary.dearer(label, offer))
        if not label.startswith(OURS):
            cells[:6] = [""] * 6
        rows.append((label, cells))
    return ReportTable(
        "The bill", "tools offered", ("bill", "saved", "more"), rows, _BILL_NOTE, tuple(OfferTime)
    )


def by_end(summary: ReplaySummary) -> ReportTable | None:
    """None where transcripts do not say which runs passed."""
    ends = [end for end in (PASSED, FAILED) if end in summary.figures.by_end]
    if not ends:
        return None
    rows = []
    for label in summary.rows:
        cells = list[str]()
        for end in ends:
            outcomes = summary.figures.by_end[end]
            one = outcomes.policies[label]
            cells.append(summary.saved(one.bills[OfferTime.LATE], outcomes.recorded))
            cells += [f"{one.lost:,}", f"{one.follow_ups:,}"]
        rows.append((label, cells))
    counts = (f"{plural(summary.figures.by_end[end].runs, 'run')} {end}" for end in ends)
    note = f"With tools offered late; {', '.join(counts)}."
    names = ("saved", "lost", "follow-ups")
    return ReportTable("Runs that passed, runs that failed", "runs that", names, rows, note, ends)


_TOOL_NOTE = (
    "best cap: the one that would have cost least. leave it: no cap pays. -: fewer than "
    f"{LEAST_REPLACED} results that are large enough. passes: whatever its size, for example what the client "
    "reads to edit it."
)


def tools(summary: ReplaySummary, most: int | None = None) -> ReportTable:
    """The tools by bytes, with the cap that would have cost least."""
    best = {one.tool: one for one in summary.advised}
    sizes = sorted(summary.figures.tools.items(), key=lambda one: -one[1].bytes)
    rows = []
    for tool, size in sizes[:most]:
        one, advice = best.get(tool), ["passes" if size.bypassed == size.results else "-", "", "", ""]
        if one is not None:
            advice[0] = "leave it"
        if one is not None and one.plan is not None:
            preview = preview_of(one.plan) or "as now"
            advice = [f"{cap_of(one.plan):,}", preview, summary.money(one.saved), f"{one.follow_ups:,}"]
        counts = (f"{size.results:,}", f"{size.bytes / 1000:,.0f}", f"{max(size.largest) / 1000:,.1f}")
        rows.append((tool, [*counts, f"{size.uses:,}", *advice]))
    if most is not None and len(sizes) > most:
        rows.append((f"{len(sizes) - most:,} more", [""] * 8))
    names = ("results", "KB", "largest KB", "uses", "best cap", "preview", "saved", "follow-ups")
    return ReportTable("Tools", "tool", names, rows, _TOOL_NOTE)


def largest(summary: ReplaySummary) -> ReportTable:
    """The largest results of each tool, in KB."""
    sizes = sorted(summary.figures.tools.items(), key=lambda one: -max(one[1].largest))
    rows = []
    for tool, size in sizes:
        shown = [f"{each / 1000:,.1f}" for each in size.largest]
        rows.append((tool, shown + [""] * (MOST_LARGEST - len(shown))))
    names = [str(place) for place in range(1, MOST_LARGEST + 1)]
    return ReportTable("The largest results", "tool, KB", names, rows)


NOTES = (_USE_NOTE, _BILL_NOTE, _TOOL_NOTE)
