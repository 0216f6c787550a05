"""The facts about a result on which the rules decide."""

from domain.budget import Budget
from domain.results import Measure
from domain.structs import frozen_struct
from policies.policy import Policy


@frozen_struct
class Facts:
    """One result and its session's budget. `measure` is that of what the view caps leave, `rows` are the
    lines of the whole result. `is_page`: the call asked for a page of a file, which no rule about size
    rejects."""

    measure: Measure
    budget: Budget
    rows: int = 0
    is_page: bool = False


def has_too_many_rows(facts: Facts, policy: Policy) -> bool:
    """True if the result is rejected for its rows, whatever outcome the policy names."""
    return 0 < policy.reject_rows < facts.rows
