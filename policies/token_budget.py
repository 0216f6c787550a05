"""token_budget: it would not fit the session's window even if nothing else were pending."""

from policies.facts import Facts, Policy


def fires(facts: Facts, policy: Policy) -> bool:
    budget = facts.budget
    return budget.enforced and facts.measure.tokens > max(0, budget.limit_tokens - budget.used_tokens)
