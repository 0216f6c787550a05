"""What every report says: the figures with what they are called and rounded to."""

from collections.abc import Sequence
from dataclasses import dataclass

from replay.advice import Advice
from replay.bill import Money, Offer, Volume
from replay.figures import LEAST_USES, Figures, Outcomes
from replay.plans import IN_FORCE
from replay.product import Plan
from replay.runs import Notes

CAVEAT = "What it would have shown, not what the model would have done."

RECORDED = "as recorded"


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

    @property
    def is_priced(self) -> bool:
        """True if every run's model has a known price: then bills are in dollars."""
        return self.total.runs > 0 and self.total.priced_runs == self.total.runs

    @property
    def has_percentages(self) -> bool:
        return self.total.uses >= LEAST_USES

    def amount(self, money: Money) -> float:
        return money.dollars if self.is_priced else money.relative

    def money(self, money: Money) -> str:
        """Dollars, or tokens of fresh input."""
        return dollars(money.dollars) if self.is_priced else tokens(money.relative)

    def saved(self, money: Money, recorded: Money) -> str:
        """The share saved; the amount where there are too few uses for a percentage."""
        before, after = self.amount(recorded), self.amount(money)
        if not self.has_percentages:
            return self.money(Money(recorded.relative - money.relative, recorded.dollars - money.dollars))
        return f"{(before - after) / before:.1%}" if before else "0.0%"

    def dearer(self, label: str, offer: Offer, outcomes: Outcomes | None = None) -> str:
        """The share of the runs that cost more."""
        outcomes = outcomes or self.total
        count = outcomes.policies[label].dearer[offer]
        return f"{count / outcomes.runs:.0%}" if self.has_percentages else f"{count}"


def dollars(amount: float) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{2 if abs(amount) >= 1 else 4}f}"


def tokens(amount: float) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if abs(amount) >= unit:
            return f"{amount / unit:,.2f}{name}"
    return f"{amount:,.0f}"


def heads(summary: Summary) -> list[str]:
    """What was read, in a few lines."""
    total, figures, notes = summary.total, summary.figures, summary.notes
    formats = ", ".join(name for name, _ in notes.formats.most_common())
    said = [
        f"{total.runs:,} runs in {notes.files:,} file{'s' * (notes.files != 1)} ({formats}): "
        f"{total.turns:,} turns of a model, "
        f"{total.results:,} results, {total.bytes / 1e6:,.1f} MB, {total.uses:,} uses, "
        f"{total.quotes:,} quotes.",
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
    if not summary.has_percentages:
        said.append(f"Fewer than {LEAST_USES} uses: amounts, no percentages.")
    if total.cut_results:
        said.append(f"{total.cut_results:,} results were cut by the client before they were recorded.")
    if figures.runs_with_two_models:
        said.append(f"{figures.runs_with_two_models:,} runs have more than one model.")
    if figures.runs_without_results:
        said.append(f"{figures.runs_without_results:,} runs have no result of a tool.")
    return said


def faults(notes: Notes) -> list[str]:
    """What could not be read, and what is not known."""
    said = [
        f"{count:,} {reason}: {', '.join(notes.named[reason])}{', …' * (count > len(notes.named[reason]))}"
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
        f"Billed usage of {shared.runs:,} runs: the bill's model counts {', '.join(parts)}; "
        f"in all {_off(shared.counted_bill.relative, shared.billed_bill.relative)}, with the output as "
        "billed: transcripts lack some of what models think."
    )
    if shared.uncached_runs:
        said += f" {shared.uncached_runs:,} of them were billed without a cache, and so are they here."
    return said


def _volumes(counted: Volume, billed: Volume) -> list[tuple[str, int, int]]:
    return [
        ("input written", counted.written, billed.written),
        ("read", counted.read, billed.read),
        ("output", counted.output, billed.output),
    ]


def _off(counted: float, billed: float) -> str:
    return f"{(counted - billed) / billed:+.0%}" if billed else "none billed"


__all__ = ["CAVEAT", "IN_FORCE", "RECORDED", "Summary", "billed_line", "faults", "heads"]
