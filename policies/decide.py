"""Decides which trigger fires, the table of outcomes, and what another policy would have decided."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from domain.accounting import AccountingEntry
from domain.budget import Budget
from domain.decisions import OutcomeKind, Trigger
from domain.results import Measure
from policies import cap, reject, store, truncate
from policies.facts import Facts, Policy, PolicyMode, has_too_many_rows
from policies.oversized import Ends, Oversized

MESSAGE_TOKENS = 90
"""Of a handle message, where the entries have none: that of a plain text has 87."""

_REJECTION_TOKENS = 40
_BY_BUDGET = (Trigger.TOKEN_BUDGET, Trigger.RESERVE_FAILED)
_NO_BUDGET = Budget(0, 0, 0, enforced=False)


def size_cap(facts: Facts, policy: Policy) -> bool:
    """The result is larger than a cap in force for this tool, whatever the budget."""
    return exceeds(facts.measure, policy) or has_too_many_rows(facts, policy)


def token_budget(facts: Facts, policy: Policy) -> bool:
    """The result does not fit the session's budget, even without the pending reservations."""
    return facts.measure.tokens > _unused_tokens(facts.budget)


def _unused_tokens(budget: Budget) -> float:
    return max(0, budget.limit_tokens - budget.used_tokens) if budget.enforced else math.inf


def passing_tokens(policy: Policy, budget: Budget) -> float:
    """The most tokens of a result that may pass: of a larger one an estimate is enough."""
    return min(policy.max_tokens or math.inf, _unused_tokens(budget))


def exceeds(measure: Measure, policy: Policy) -> bool:
    return (
        0 < policy.max_bytes < measure.bytes - spared_bytes(policy)
        or 0 < policy.max_chars < measure.chars
        or 0 < policy.max_tokens < measure.tokens
    )


def spared_bytes(policy: Policy) -> int:
    """Bytes that may pass over `max_bytes`, since a cut would save too little."""
    return cap.SPARED_BYTES if policy.on_oversize is OutcomeKind.CAP else 0


class Replacement(Protocol):
    """An outcome's module: it writes the text that the model reads instead of the result. `CUTS`: the text
    shows a part of the result, and must be within every size cap."""

    CUTS: bool

    def ends(self, measure: Measure, policy: Policy) -> Ends:
        """How much of the result `text` needs."""
        ...

    def text(self, oversized: Oversized) -> str | None:
        """None if the outcome has nothing to leave out, or no room for its text. `store` never returns
        None."""
        ...


TRIGGERS: dict[Trigger, Callable[[Facts, Policy], bool]] = {
    Trigger.SIZE_CAP: size_cap,
    Trigger.TOKEN_BUDGET: token_budget,
}

OUTCOMES: dict[OutcomeKind, Replacement] = {
    OutcomeKind.STORE: store,
    OutcomeKind.TRUNCATE: truncate,
    OutcomeKind.CAP: cap,
    OutcomeKind.REJECT: reject,
}


def decide(facts: Facts, policy: Policy) -> Trigger | None:
    """Returns the first trigger that fires, in the order of TRIGGERS, or None. With `bypass` always None."""
    if policy.bypass:
        return None
    for trigger, fires in TRIGGERS.items():
        if fires(facts, policy):
            return trigger
    return None


@dataclass(frozen=True, slots=True)
class WouldBe:
    """`tokens` that the model would have read: exact for the same outcome, unless it shows a part."""

    outcome: OutcomeKind
    trigger: Trigger | None
    tokens: int


def would_be(entry: AccountingEntry, policy: Policy, message_tokens: int = MESSAGE_TOKENS) -> WouldBe:
    """`entry` is of a tool's result. A result that a budget refused is taken to be refused again: entries do
    not say what remained of it. The characters of a result that did not pass count as its bytes."""
    details = entry.details
    passed = entry.outcome is OutcomeKind.PASS
    chars = entry.charactersOut if passed else details.bytes
    measure = Measure(details.bytes, details.lines, chars, details.tokens, False)
    facts = Facts(measure, _NO_BUDGET, details.lines)
    trigger = decide(facts, policy)
    if trigger is None and entry.trigger in _BY_BUDGET and not policy.bypass:
        trigger = entry.trigger
    if trigger is None or policy.mode is PolicyMode.OBSERVE:
        return WouldBe(OutcomeKind.PASS, trigger, details.tokens)
    kind = OutcomeKind.REJECT if has_too_many_rows(facts, policy) else policy.on_oversize
    return WouldBe(kind, trigger, _tokens(entry, kind, policy, measure, message_tokens))


def _tokens(
    entry: AccountingEntry, kind: OutcomeKind, policy: Policy, measure: Measure, message_tokens: int
) -> int:
    if kind in (OutcomeKind.REJECT, OutcomeKind.STORE):
        usual = _REJECTION_TOKENS if kind is OutcomeKind.REJECT else message_tokens
        return entry.tokens_out if entry.outcome is kind else usual
    if kind is OutcomeKind.TRUNCATE:
        share = policy.head_chars / max(measure.chars, 1)
    else:
        share = _cap_share(measure, policy)
    return min(measure.tokens, round(measure.tokens * share) + (message_tokens if policy.keep else 0))


def _cap_share(measure: Measure, policy: Policy) -> float:
    """The share of the result that the smallest cap leaves."""
    caps = (
        (policy.max_bytes, measure.bytes),
        (policy.max_chars, measure.chars),
        (policy.max_tokens, measure.tokens),
    )
    return min([1.0, *(cap / max(size, 1) for cap, size in caps if cap)])
