"""Which rule fired, what it leads to, and what the caller gets."""

from dataclasses import dataclass
from enum import StrEnum

from domain.budget import Budget, ReportWarning
from domain.handles import Handle
from domain.results import Durability, Measure


class Trigger(StrEnum):
    SIZE_CAP = "size_cap"
    TOKEN_BUDGET = "token_budget"
    RESERVE_FAILED = "reserve_failed"


class OutcomeKind(StrEnum):
    PASS = "pass"
    STORE = "store"
    TRUNCATE = "truncate"
    CAP = "cap"
    REJECT = "reject"


# Not frozen, though nothing changes it: a frozen one takes three times as long to build, for every result.
@dataclass(slots=True, unsafe_hash=True)
class Outcome:
    """What became of one result. `text` is what replaces it; None means that it passed as it came.
    `durability` is None where nothing is stored, or nobody can say any more. `degraded`: it was kept or
    booked in the local spool, since Redis was away."""

    kind: OutcomeKind
    text: str | None
    trigger: Trigger | None
    handle: Handle | None
    measure: Measure
    budget: Budget
    entry_id: str
    truncated_bytes: int | None = None
    truncated_total: int | None = None
    replayed: bool = False
    durability: Durability | None = None
    degraded: bool = False
    report_warning: ReportWarning | None = None
