"""Estimates what another policy would have made of earlier results, from their accounting entries alone."""

from dataclasses import dataclass

from domain.accounting import AccountingEntry
from domain.budget import Budget
from domain.outcomes import OutcomeKind, Trigger
from domain.results import Measure
from policies.decide import decide
from policies.facts import Facts, has_too_many_rows
from policies.outcomes import OUTCOMES
from policies.policy import NAME, Policy, PolicyMode

MESSAGE_TOKENS = 90
"""The tokens of a handle message if the entries have none: the message of a plain text has 87."""

_BY_BUDGET = (Trigger.TOKEN_BUDGET, Trigger.RESERVE_FAILED)
_NO_BUDGET = Budget(0, 0, 0, enforced=False)


@dataclass(frozen=True, slots=True)
class WouldBe:
    """`tokens` is what the model would have read: exact if the outcome is the same and shows no part of the
    result, else estimated."""

    outcome: OutcomeKind
    trigger: Trigger | None
    tokens: int


def would_be(entry: AccountingEntry, policy: Policy, message_tokens: int = MESSAGE_TOKENS) -> WouldBe:
    """`entry` is that of a tool's result. A result that a budget refused is assumed to be refused again,
    because entries do not say what remained of the budget. A result that did not pass is assumed to have as
    many characters as bytes."""
    details = entry.details
    passed = entry.outcome is OutcomeKind.PASS
    chars = entry.charactersOut if passed else details.bytes
    measure = Measure(details.bytes, details.lines, chars, details.tokens, False)
    facts = Facts(measure, _NO_BUDGET, details.lines)
    trigger = decide(facts, policy)
    is_kept = entry.trigger in _BY_BUDGET or (entry.trigger is Trigger.REPEAT and policy.repeat is NAME)
    if trigger is None and is_kept and not policy.bypass:
        trigger = entry.trigger
    if trigger is None or policy.mode is PolicyMode.OBSERVE:
        return WouldBe(OutcomeKind.PASS, trigger, details.tokens)
    kind = OutcomeKind.REJECT if has_too_many_rows(facts, policy) else policy.on_oversize
    outcome = OUTCOMES[kind]
    if entry.outcome is kind and not outcome.CUTS:
        return WouldBe(kind, trigger, entry.tokens_out)
    return WouldBe(kind, trigger, outcome.tokens(measure, policy, message_tokens))
