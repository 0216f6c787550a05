"""What every report says: the figures with what they are called and rounded to."""

from collections.abc import Sequence
from dataclasses import dataclass

from replay.advice import LEAST_REPLACED, Advice
from replay.bill import Money, Offer, Volume
from replay.figures import LEAST_USES, Figures, Outcomes
from replay.plans import cap_of
from replay.prices import prices_of
from replay.product import Plan
from replay.runs import Notes
from replay.sources import SINGULAR

CAVEAT = "What it would have shown, not what the model would have done."

RECORDED = "as recorded"

USE_COLUMNS = ("replaced", "visible", "1 call", "found", "lost", "quotes", "follow-ups")
BILL_COLUMNS = ("bill", "saved", "more")

USE_LEGENDS = (
    "use: a name, number, path or address in an action of the model that only one earlier result held.",
    "1 call: in the first answer to a question; found: in the stored bytes alone; quotes: texts to edit "
    "that are no longer seen; follow-ups: actions that had to ask.",
)
BILL_LEGENDS = (
    "always: tools in every request; late: from the first stored result on; hook: none, the shell asks.",
    "more: runs that cost more.",
)
TOOL_LEGEND = (
    "leave it: no cap pays; "
    f"-: too few large results (under {LEAST_REPLACED}); "
    "passes: whatever its size, for example what the client reads to edit it."
)


@dataclass(frozen=True, slots=True)
class Summary:
    """`rows` are the policies to show in tables, by label; `caps` those of the plot of the bill by cap."""

    figures: Figures
    total: Outcomes
    notes: Notes
    rows: Sequence[str]
    caps: Sequence[Plan]
    advised: Sequence[Advice]
    shows: bool = False
    model: str | None = None

    @property
    def is_priced(self) -> bool:
        return self.total.is_priced

    @property
    def has_percentages(self) -> bool:
        return self.total.uses >= LEAST_USES

    def amount(self, money: Money) -> float:
        return self.total.amount(money)

    def money(self, money: Money) -> str:
        """Dollars, or tokens of fresh input."""
        return dollars(money.dollars) if self.is_priced else tokens(money.relative)

    def saved(self, money: Money, recorded: Money) -> str:
        """The share saved; the amount where there are too few uses for a percentage."""
        before, after = self.amount(recorded), self.amount(money)
        if not self.has_percentages:
            return self.money(Money(recorded.relative - money.relative, recorded.dollars - money.dollars))
        return f"{(before - after) / before:z.1%}" if before else "0.0%"

    def dearer(self, label: str, offer: Offer) -> str:
        """The share of the runs that cost more."""
        count = self.amount(self.total.policies[label].dearer[offer])
        return f"{count / self.total.runs:.0%}" if self.has_percentages else f"{count:.0f}"


def dollars(amount: float) -> str:
    amount = round(amount, 2 if abs(amount) >= 1 else 4)
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{2 if abs(amount) >= 1 else 4}f}"


def tokens(amount: float) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if abs(amount) >= unit:
            return f"{amount / unit:,.2f}{name}"
    return f"{amount:z,.0f}"


def plural(count: int, one: str, many: str = "") -> str:
    """The count with its noun; `many` is `one` with an s unless it is given."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def heads(summary: Summary) -> list[str]:
    """What was read, in a few lines."""
    total, figures, notes = summary.total, summary.figures, summary.notes
    formats = ", ".join(name for name, _ in notes.formats.most_common())
    said = [
        f"{plural(total.runs, 'run')} in {plural(notes.files, 'file')} ({formats}): "
        f"{plural(total.turns, 'turn of a model', 'turns of a model')}, "
        f"{plural(total.results, 'result')}, {total.bytes / 1e6:,.1f} MB, {plural(total.uses, 'use')}, "
        f"{plural(total.quotes, 'quote')}.",
    ]
    models = ", ".join(f"{name} ({count:,})" for name, count in figures.models.most_common(5))
    if len(figures.models) > 5:
        models += f", {len(figures.models) - 5} more"
    said.append(f"Models: {models}.")
    unit = (
        "dollars, by public prices"
        if summary.is_priced
        else ("tokens of fresh input: cache write 1.25, read 0.1, output 5 where no public price is known")
    )
    said.append(f"Bill as recorded: {summary.money(total.recorded)} ({unit}).")
    if summary.model and prices_of(summary.model).dollars is None:
        said.append(f"No price is known for {summary.model}.")
    if not summary.has_percentages:
        said.append(f"Fewer than {LEAST_USES} uses: amounts, no percentages.")
    if total.cut_results:
        cut = plural(total.cut_results, "result was", "results were")
        said.append(f"{cut} cut by the client before being recorded.")
    if figures.runs_with_two_models:
        several = plural(figures.runs_with_two_models, "run has", "runs have")
        said.append(f"{several} more than one model.")
    if figures.runs_without_results:
        none = plural(figures.runs_without_results, "run has", "runs have")
        said.append(f"{none} no result of a tool.")
    return said


def cap_text(summary: Summary, tool: str) -> str:
    """What the table of tools says of the cap of a tool."""
    advised = next((one for one in summary.advised if one.tool == tool), None)
    if advised is not None:
        return "leave it" if advised.plan is None else f"{cap_of(advised.plan):,}"
    size = summary.figures.tools[tool]
    return "passes" if size.bypassed == size.results else "-"


def to_do(summary: Summary) -> str:
    """What to do, above the policy file if there is one."""
    if any(one.plan is not None for one in summary.advised):
        return (
            "What to do: save this as policy.toml, or add it to the policy file that you have, and start the "
            "service with SPILLGATE_POLICY_FILE=policy.toml. It has the caps that would have cost least."
        )
    if summary.advised:
        return "Leave it alone: no cap pays for any tool of these runs."
    return f"No advice: too few large results (under {LEAST_REPLACED}) of every tool."


def faults(notes: Notes) -> list[str]:
    """What could not be read, and what is not known."""
    said = [
        f"{plural(count, SINGULAR[reason], reason)}: {', '.join(notes.named[reason])}"
        f"{', …' * (count > len(notes.named[reason]))}"
        for reason, count in notes.faults.most_common()
    ]
    if notes.unknown:
        said.append(
            "Unknown records: "
            + ", ".join(f"{kind} ({count:,})" for kind, count in notes.unknown.most_common(10))
        )
    return said


def billed_line(summary: Summary) -> str:
    """How far the bill's model is from billed usage; "" where the transcripts have none."""
    shared = summary.figures.billed
    if not shared.runs:
        return ""
    parts = [
        f"{name} {tokens(counted)} of {tokens(billed)} ({_off(counted, billed)})"
        for name, counted, billed in _volumes(shared.counted, shared.billed)
        if billed
    ]
    said = (
        f"Billed usage of {plural(shared.runs, 'run')}: the bill's model counts {', '.join(parts)}; "
        f"in all {_off(shared.counted_bill.relative, shared.billed_bill.relative)}, with the output as "
        "billed: transcripts lack some of what models think."
    )
    if shared.uncached_runs:
        said += f" {plural(shared.uncached_runs, 'run')} billed without a cache: so here, too."
    return said


def _volumes(counted: Volume, billed: Volume) -> list[tuple[str, int, int]]:
    return [
        ("input written", counted.written, billed.written),
        ("read", counted.read, billed.read),
        ("output", counted.output, billed.output),
    ]


def _off(counted: float, billed: float) -> str:
    return f"{(counted - billed) / billed:+z.0%}" if billed else "none billed"
