"""token_budget: the result does not fit the session's budget even without the pending reservations."""

from policies.facts import Facts, Policy


def fires(facts: Facts, policy: Policy) -> bool:
    budget = facts.budget
    return budget.enforced and facts.measure.tokens > max(0, budget.limit_tokens - budget.used_tokens)
