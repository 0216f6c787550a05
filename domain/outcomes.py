"""Triggers, and the outcome of one result."""

from enum import StrEnum

from domain.budget import Budget, ReportWarning
from domain.handles import Handle
from domain.results import Durability, Measure
from domain.structs import frozen_struct


class Trigger(StrEnum):
    SIZE_CAP = "size_cap"
    TOKEN_BUDGET = "token_budget"
    RESERVE_FAILED = "reserve_failed"
    REPEAT = "repeat"


class OutcomeKind(StrEnum):
    PASS = "pass"
    STORE = "store"
    TRUNCATE = "truncate"
    CAP = "cap"
    REJECT = "reject"


@frozen_struct
class Outcome:
    """The outcome of one result. `text` replaces the result; None: it passed unchanged. A result that passed
    with masks has one. `durability` is None if nothing is stored, or the store cannot tell. `is_retry`: the
    call was a retry, and is answered as it was before. `has_no_window`: no budget is enforced, since the
    window of the session's model is not known, and no answer has warned the caller yet. `redacts`: the policy
    redacts what the tool returns, also what is shown beside the text. Not `is_recorded`: it has no accounting
    entry."""

    kind: OutcomeKind
    text: str | None
    trigger: Trigger | None
    handle: Handle | None
    measure: Measure
    budget: Budget
    entry_id: str
    truncated_bytes: int | None = None
    truncated_total: int | None = None
    is_retry: bool = False
    durability: Durability | None = None
    report_warning: ReportWarning | None = None
    has_no_window: bool = False
    redacted: dict[str, int] | None = None
    redacts: bool = False
    is_recorded: bool = True
