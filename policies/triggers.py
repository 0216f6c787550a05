"""The triggers: which results do not pass unchanged."""

from domain.decisions import OutcomeKind
from domain.results import Measure
from policies import cap
from policies.facts import Facts, Policy, has_too_many_rows


def size_cap(facts: Facts, policy: Policy) -> bool:
    """The result is larger than a cap in force for this tool, whatever the budget."""
    return exceeds(facts.measure, policy) or has_too_many_rows(facts, policy)


def token_budget(facts: Facts, policy: Policy) -> bool:
    """The result does not fit the session's budget, even without the pending reservations."""
    budget = facts.budget
    return budget.enforced and facts.measure.tokens > max(0, budget.limit_tokens - budget.used_tokens)


def exceeds(measure: Measure, policy: Policy) -> bool:
    return (
        0 < policy.max_bytes < measure.bytes - spared_bytes(policy)
        or 0 < policy.max_chars < measure.chars
        or 0 < policy.max_tokens < measure.tokens
    )


def spared_bytes(policy: Policy) -> int:
    """Bytes that may pass over `max_bytes`, since a cut would save too little."""
    return cap.SPARED_BYTES if policy.on_oversize is OutcomeKind.CAP else 0
