"""Decides which trigger fires. The ledger alone decides about the trigger reserve_failed."""

from collections.abc import Callable
from typing import Protocol

from domain.decisions import OutcomeKind, Trigger
from domain.results import Measure
from policies import cap, reject, store, triggers, truncate
from policies.facts import Facts, Policy
from policies.oversized import Ends, Oversized


class Replacement(Protocol):
    """An outcome's module: it writes the text that the model reads instead of the result. `CUTS`: the text
    shows a part of the result, and must be within every size cap."""

    CUTS: bool

    def ends(self, measure: Measure, policy: Policy) -> Ends:
        """How much of the result `text` needs."""
        ...

    def text(self, oversized: Oversized) -> str | None:
        """None if the outcome has nothing to leave out, or no room for its text. `store` never returns
        None."""
        ...


TRIGGERS: dict[Trigger, Callable[[Facts, Policy], bool]] = {
    Trigger.SIZE_CAP: triggers.size_cap,
    Trigger.TOKEN_BUDGET: triggers.token_budget,
}

OUTCOMES: dict[OutcomeKind, Replacement] = {
    OutcomeKind.STORE: store,
    OutcomeKind.TRUNCATE: truncate,
    OutcomeKind.CAP: cap,
    OutcomeKind.REJECT: reject,
}


def decide(facts: Facts, policy: Policy) -> Trigger | None:
    """Returns the first trigger that fires, in the order of TRIGGERS, or None. With `bypass` always None."""
    if policy.bypass:
        return None
    for trigger, fires in TRIGGERS.items():
        if fires(facts, policy):
            return trigger
    return None
