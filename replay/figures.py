"""The figures of replayed runs, which are added up."""

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Self

from replay.bill import Money, OfferTime, Volume
from replay.sums import Addable

LEAST_USES = 50
"""The fewest uses for which percentages are shown."""


@dataclass(slots=True)
class ToolFigures(Addable):
    """What one policy did to one tool. `cost` is what the policy adds to the bill, without definitions;
    negative is saved."""

    replaced: int = 0
    follow_ups: int = 0
    quotes_broken: int = 0
    cost: Money = field(default_factory=Money)


@dataclass(slots=True)
class PolicyFigures(Addable):
    """What one policy did. `visible`, `one_call`, `findable` and `lost` are uses, without quotes;
    `quotes_broken` are quotes of files that the model no longer sees; `dearer` are runs that cost more than
    as recorded, counted in tokens and in dollars."""

    replaced: int = 0
    bytes_shown: int = 0
    visible: int = 0
    one_call: int = 0
    findable: int = 0
    lost: int = 0
    quotes_broken: int = 0
    follow_ups: int = 0
    bills: dict[OfferTime, Money] = field(default_factory=dict)
    dearer: dict[OfferTime, Money] = field(default_factory=dict)
    tools: dict[str, ToolFigures] = field(default_factory=dict)


@dataclass(slots=True)
class Outcomes(Addable):
    """The runs with the same end: those that passed, that failed, or whose transcript does not say."""

    runs: int = 0
    priced_runs: int = 0
    turns: int = 0
    results: int = 0
    bytes: int = 0
    tokens: int = 0
    cut_results: int = 0
    uses: int = 0
    quotes: int = 0
    recorded: Money = field(default_factory=Money)
    policies: dict[str, PolicyFigures] = field(default_factory=dict)

    @property
    def is_priced(self) -> bool:
        """True if every run's model has a known price. Then bills are in dollars."""
        return self.runs > 0 and self.priced_runs == self.runs

    def amount(self, money: Money) -> float:
        """Returns the amount in the printed unit: dollars, or tokens of fresh input."""
        return money.dollars if self.is_priced else money.relative


MOST_LARGEST = 5


@dataclass(slots=True)
class ToolSizes(Addable):
    """The results of one tool. `uses` are those of its results, `largest` the bytes of the largest. Of
    `bypassed` results the size does not matter: the policy in force passes them."""

    results: int = 0
    bytes: int = 0
    uses: int = 0
    bypassed: int = 0
    largest: list[int] = field(default_factory=list)

    def __iadd__(self, other: Self) -> Self:
        Addable.__iadd__(self, other)
        self.largest = sorted(self.largest, reverse=True)[:MOST_LARGEST]
        return self


@dataclass(slots=True)
class Shared(Addable):
    """What the bill's model says of runs whose usage was billed, beside what was billed."""

    runs: int = 0
    counted: Volume = field(default_factory=Volume)
    billed: Volume = field(default_factory=Volume)
    counted_bill: Money = field(default_factory=Money)
    billed_bill: Money = field(default_factory=Money)
    uncached_runs: int = 0


MOST_LITERALS = 500


@dataclass(slots=True)
class Figures(Addable):
    """The figures of all runs so far."""

    by_end: dict[str, Outcomes] = field(default_factory=dict)
    tools: dict[str, ToolSizes] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    clients: Counter[str] = field(default_factory=Counter)
    runs_without_results: int = 0
    runs_with_two_models: int = 0
    billed: Shared = field(default_factory=Shared)
    literals: list[tuple[str, str, str]] = field(default_factory=list)
    """With --show: tool, where it was found, literal; of what the policy in force does not show."""

    def __iadd__(self, other: Self) -> Self:
        Addable.__iadd__(self, other)
        del self.literals[MOST_LITERALS:]
        return self

    @property
    def total(self) -> Outcomes:
        whole = Outcomes()
        for one in self.by_end.values():
            whole += deepcopy(one)
        return whole


PASSED, FAILED, UNKNOWN = "passed", "failed", "not known"


def end_of(passed: bool | None) -> str:
    return UNKNOWN if passed is None else PASSED if passed else FAILED
