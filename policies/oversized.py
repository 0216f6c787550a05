"""What an outcome's text is made of: a result that may not go to the model as it is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from domain.decisions import Trigger
from domain.handles import Handle
from domain.results import Measure, ToolResult
from policies.facts import Facts, Policy


class Unit(StrEnum):
    TOKENS = "tokens"
    BYTES = "bytes"
    CHARS = "characters"


class Breach(NamedTuple):
    """A size and what it exceeds, both in `unit`."""

    size: int
    allowed: int
    unit: Unit


class Ends(NamedTuple):
    """How many bytes of the beginning and of the end a text is made of."""

    head: int
    tail: int


@dataclass(frozen=True, slots=True)
class Oversized:
    """`measure` is the whole result's. `shown` is that of the text which was judged: the result as its view
    caps leave it, the same where there are none; `head` and `tail` are that text's, perhaps cut within a
    character. `handle` names the whole where it is kept."""

    result: ToolResult
    measure: Measure
    shown: Measure
    head: bytes
    tail: bytes
    policy: Policy
    breach: Breach
    handle: Handle | None


def breach_of(trigger: Trigger, facts: Facts, policy: Policy) -> Breach:
    """What decided, in its own unit; of several size caps the one in tokens, then bytes."""
    measure, budget = facts.measure, facts.budget
    if trigger is Trigger.RESERVE_FAILED:
        return Breach(measure.tokens, budget.remaining_tokens, Unit.TOKENS)
    if trigger is Trigger.TOKEN_BUDGET:
        return Breach(measure.tokens, max(0, budget.limit_tokens - budget.used_tokens), Unit.TOKENS)
    if 0 < policy.max_tokens < measure.tokens:
        return Breach(measure.tokens, policy.max_tokens, Unit.TOKENS)
    if 0 < policy.max_bytes < measure.bytes:
        return Breach(measure.bytes, policy.max_bytes, Unit.BYTES)
    return Breach(measure.chars, policy.max_chars, Unit.CHARS)


def whereabouts(handle: Handle | None) -> str:
    """How to reach what is not shown: the last lines of every text but the handle message, which says it in
    its own words. Nothing where nothing is kept."""
    if handle is None:
        return ""
    return f'\n\nThe whole result is kept: tool_output(handle = "{handle}", extract = "what to extract").'
