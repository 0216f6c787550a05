"""Which trigger fires, in the contract's order, and what it leads to. reserve_failed is not among them: only
the ledger can tell."""

from collections.abc import Callable
from typing import Protocol

from domain.decisions import OutcomeKind, Trigger
from domain.results import Measure
from policies import cap, reject, size_cap, store, token_budget, truncate
from policies.facts import Facts, Policy
from policies.oversized import Ends, Oversized


class Replacement(Protocol):
    """How an outcome says what the model reads instead of a result."""

    def ends(self, measure: Measure, policy: Policy) -> Ends:
        """How much of the text it looks at."""
        ...

    def text(self, oversized: Oversized) -> str | None:
        """None where it has nothing to leave out, or no room: it gives way to `store`, which always has."""
        ...


TRIGGERS: dict[Trigger, Callable[[Facts, Policy], bool]] = {
    Trigger.SIZE_CAP: size_cap.fires,
    Trigger.TOKEN_BUDGET: token_budget.fires,
}

OUTCOMES: dict[OutcomeKind, Replacement] = {
    OutcomeKind.STORE: store,
    OutcomeKind.TRUNCATE: truncate,
    OutcomeKind.CAP: cap,
    OutcomeKind.REJECT: reject,
}


def decide(facts: Facts, policy: Policy) -> Trigger | None:
    """The first trigger that fires, or None; a bypassed tool's results always pass."""
    if policy.bypass:
        return None
    for trigger, fires in TRIGGERS.items():
        if fires(facts, policy):
            return trigger
    return None
