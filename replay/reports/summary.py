"""What every report says: the figures with what they are called and rounded to."""

from collections.abc import Sequence
from dataclasses import dataclass

from replay.advice import LEAST_REPLACED, Advice
from replay.bill import Money, OfferTime, Volume
from replay.figures import LEAST_USES, Figures, Outcomes
from replay.in_process import Plan
from replay.plans import IN_FORCE
from replay.prices import prices_of
from replay.runs import Notes
from replay.sources import SINGULAR, printable

CAVEAT = "What it would have shown, not what the model would have done."

RECORDED = "as recorded"


@dataclass(frozen=True, slots=True)
class ReplaySummary:
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
        """Returns the share saved; the amount if there are too few uses for a percentage."""
        before, after = self.amount(recorded), self.amount(money)
        if not self.has_percentages:
            return self.money(Money(recorded.relative - money.relative, recorded.dollars - money.dollars))
        return f"{(before - after) / before:z.1%}" if before else "0.0%"

    def dearer(self, label: str, offer: OfferTime) -> str:
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


def heads(summary: ReplaySummary) -> list[str]:
    """What was read, and what the policy in force would have done, in a few lines."""
    total, figures, notes = summary.total, summary.figures, summary.notes
    formats = ", ".join(name for name, _ in notes.formats.most_common())
    turns = plural(total.turns, "turn of a model", "turns of a model")
    uses, edits = plural(total.uses, "use"), plural(total.quotes, "edit")
    models = ", ".join(f"{name} ({plural(count, 'run')})" for name, count in figures.models.most_common(5))
    more = f", {len(figures.models) - 5} more" if len(figures.models) > 5 else ""
    sentences = [
        f"{plural(total.runs, 'run')} in {plural(notes.files, 'file')} ({formats}): {turns}, "
        f"{plural(total.results, 'result')} of tools, {total.bytes / 1e6:,.1f} MB, {uses} and {edits} of "
        "what they hold.",
        f"Models: {models}{more}.",
        f"Bill as recorded: {summary.money(total.recorded)}, {_UNITS[summary.is_priced]}.",
    ]
    if summary.model and prices_of(summary.model).dollars is None:
        sentences.append(f"No price is known for {summary.model}.")
    if not summary.has_percentages:
        sentences.append(f"Fewer than {LEAST_USES} uses: amounts instead of percentages.")
    for count, one, many in (
        (total.cut_results, f"result was cut{_CUT}", f"results were cut{_CUT}"),
        (figures.runs_with_two_models, "run has more than one model", "runs have more than one model"),
        (figures.runs_without_results, "run has no result of a tool", "runs have no result of a tool"),
    ):
        if count:
            sentences.append(f"{plural(count, one, many)}.")
    return [*sentences, *_verdict(summary)]


_CUT = " by the client before the transcript was written"
_UNITS = {
    True: "by the public prices of the models",
    False: "in tokens of fresh input: a token written to the provider's cache counts 1.25, one read from it "
    "0.1, one of output 5, where no public price of the model is known",
}


def _verdict(summary: ReplaySummary) -> list[str]:
    """What the policy in force would have done, in two sentences."""
    total = summary.total
    if not total.results:
        return []
    one = total.policies[IN_FORCE.label]
    asked = plural(one.follow_ups, "later action would have had", "later actions would have had")
    lost = plural(one.lost, "use would have been lost", "uses would have been lost") if one.lost else ""
    bills = ", ".join(
        f"{_change(summary, one.bills[offer])} {how}"
        for offer, how in (
            (OfferTime.HOOK, "where the agent's shell asks (hook)"),
            (OfferTime.LATE, "with tools offered late"),
            (OfferTime.ALWAYS, "with tools in every request"),
        )
    )
    return [
        f"In short: the policy in force would have replaced {one.replaced:,} of "
        f"{plural(total.results, 'result')}; {asked} to ask for what it no longer saw; "
        f"{lost or 'nothing would have been lost'}. The bill: {bills}."
    ]


def _change(summary: ReplaySummary, money: Money) -> str:
    before, after = summary.amount(summary.total.recorded), summary.amount(money)
    if round(before - after, 9) == 0:
        return "the same"
    return (
        f"{summary.saved(money, summary.total.recorded).lstrip('-')} {'less' if after < before else 'more'}"
    )


def to_do(summary: ReplaySummary) -> str:
    """What to do, above the policy file if there is one."""
    if any(one.plan is not None for one in summary.advised):
        return (
            "save this as policy.toml, or add it to the policy file that you have, and start the "
            "service with SPILLGATE_POLICY_FILE=policy.toml. It has the caps that would have cost least."
        )
    if summary.advised:
        return "leave it alone: no cap pays for any tool of these runs."
    return f"nothing yet. There are too few large results (under {LEAST_REPLACED}) of every tool."


def faults(notes: Notes) -> list[str]:
    """Lists what could not be read, and what is not known."""
    sentences = [
        f"{plural(count, SINGULAR[reason], reason)}: {', '.join(map(printable, notes.named[reason]))}"
        f"{', …' * (count > len(notes.named[reason]))}"
        for reason, count in notes.faults.most_common()
    ]
    if notes.unknown:
        sentences.append(
            "Unknown records: "
            + ", ".join(f"{printable(kind)} ({count:,})" for kind, count in notes.unknown.most_common(10))
        )
    return sentences


def billed_line(summary: ReplaySummary) -> str:
    """Returns how far the bill's model is from the billed usage; "" if the transcripts have no usage."""
    shared = summary.figures.billed
    if not shared.runs:
        return ""
    parts = [
        f"{name} {tokens(billed)} (counted {tokens(counted)}, {_off(counted, billed)})"
        for name, counted, billed in _volumes(shared.counted, shared.billed)
        if billed
    ]
    off = _off(shared.counted_bill.relative, shared.billed_bill.relative)
    line = (
        f"What providers billed for {plural(shared.runs, 'run')}, beside what is counted here: "
        f"{', '.join(parts)}. The bill as recorded is off by {off}, with the output as billed: transcripts "
        "lack some of what models think."
    )
    if shared.uncached_runs:
        line += (
            f" {plural(shared.uncached_runs, 'run was', 'runs were')} billed without a cache, and so here."
        )
    return line


def _volumes(counted: Volume, billed: Volume) -> list[tuple[str, int, int]]:
    return [
        ("input written", counted.written, billed.written),
        ("read", counted.read, billed.read),
        ("output", counted.output, billed.output),
    ]


def _off(counted: float, billed: float) -> str:
    return f"{(counted - billed) / billed:+z.0%}" if billed else "none billed"
