"""Which trigger fires, in the contract's order. reserve_failed is not here: only the ledger can tell."""

from collections.abc import Callable

from domain.decisions import Trigger
from policies import size_cap, token_budget
from policies.facts import Facts, Policy

TRIGGERS: dict[Trigger, Callable[[Facts, Policy], bool]] = {
    Trigger.SIZE_CAP: size_cap.fires,
    Trigger.TOKEN_BUDGET: token_budget.fires,
}


def decide(facts: Facts, policy: Policy) -> Trigger | None:
    """The first trigger that fires, or None; a bypassed tool's results always pass."""
    if policy.bypass:
        return None
    for trigger, fires in TRIGGERS.items():
        if fires(facts, policy):
            return trigger
    return None
