"""Decides which trigger fires, and which outcomes are tried. Only the ledger decides on `reserve_failed`."""

import math
from collections.abc import Callable, Iterable

from domain.budget import Budget
from domain.outcomes import OutcomeKind, Trigger
from domain.results import Measure
from policies.facts import Facts, has_too_many_rows
from policies.outcomes import OUTCOMES
from policies.policy import Policy


def size_cap(facts: Facts, policy: Policy) -> bool:
    """The result is larger than a cap in force for this tool, whatever the budget."""
    is_rejected = has_too_many_rows(facts, policy)
    if facts.is_page and (is_rejected or policy.on_oversize is OutcomeKind.REJECT):
        # A rejection suggests a page, so POST /check allows one too.
        return False
    return is_rejected or exceeds(facts.measure, policy)


def token_budget(facts: Facts, policy: Policy) -> bool:
    """True if the result does not fit the session's budget, even without the pending reservations."""
    return facts.measure.tokens > _unused_tokens(facts.budget)


def _unused_tokens(budget: Budget) -> float:
    return max(0, budget.limit_tokens - budget.used_tokens) if budget.enforced else math.inf


def passing_tokens(policy: Policy, budget: Budget) -> float:
    """The most tokens with which a result may pass. For a larger result an estimated count is enough."""
    return min(policy.max_tokens or math.inf, _unused_tokens(budget))


def exceeds(measure: Measure, policy: Policy) -> bool:
    return (
        0 < policy.max_bytes < measure.bytes
        or 0 < policy.max_chars < measure.chars
        or 0 < policy.max_tokens < measure.tokens
    )


TRIGGERS: dict[Trigger, Callable[[Facts, Policy], bool]] = {
    Trigger.SIZE_CAP: size_cap,
    Trigger.TOKEN_BUDGET: token_budget,
}


def is_worth(outcome: OutcomeKind, tokens: int, replaced: int) -> bool:
    """False if a text of `tokens` would have at least three quarters of the `replaced` tokens, and the
    outcome has to save tokens: the result then passes."""
    return not OUTCOMES[outcome].MUST_SAVE or 4 * tokens < 3 * replaced


def candidate_outcomes(
    trigger: Trigger | None, policy: Policy, rows: int
) -> list[tuple[OutcomeKind, Trigger | None]]:
    """Returns the outcomes to try for a result of `rows` rows, in order. The last one always succeeds.
    `trigger` is None if only the view caps left something out."""
    fired = trigger or Trigger.RESERVE_FAILED
    is_rejected = trigger is Trigger.SIZE_CAP and 0 < policy.reject_rows < rows
    first = OutcomeKind.REJECT if is_rejected else policy.on_oversize
    named = [(kind, fired) for kind in dict.fromkeys((first, OutcomeKind.STORE))]
    return [(OutcomeKind.CAP, None), *named] if trigger is None else [*named]


def would_pass(texts: Iterable[tuple[OutcomeKind, int]], replaced: int, budget: Budget) -> bool:
    """Returns whether a result of `replaced` tokens passes although a trigger fired. `texts`: the outcomes to
    try, in order, with the tokens of their texts. The last one is used even if it does not fit the budget."""
    passes = True
    for outcome, tokens in texts:
        passes = not is_worth(outcome, tokens, replaced)
        if budget.fits(replaced if passes else tokens):
            break
    return passes


def decide(facts: Facts, policy: Policy) -> Trigger | None:
    """Returns the first trigger that fires, in the order of TRIGGERS, or None. With `bypass` always None."""
    if policy.bypass:
        return None
    for trigger, fires in TRIGGERS.items():
        if fires(facts, policy):
            return trigger
    return None
