"""size_cap: too big to be read inline by anyone, whatever the budget."""

from domain.results import Measure
from policies.facts import Facts, Policy


def fires(facts: Facts, policy: Policy) -> bool:
    return exceeds(facts.measure, policy)


def exceeds(measure: Measure, policy: Policy) -> bool:
    return (
        0 < policy.max_bytes < measure.bytes
        or 0 < policy.max_chars < measure.chars
        or 0 < policy.max_tokens < measure.tokens
    )
