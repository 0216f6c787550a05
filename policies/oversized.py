"""What an outcome's text is made of: a result that may not go to the model as it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from domain.decisions import Trigger
from domain.handles import Handle
from domain.results import Measure, ToolResult
from policies.facts import Facts, Policy, has_too_many_rows

_SHARE = 0.9
"""Of a cap in characters or tokens, turned into bytes by the text's own average: its ends may differ."""


class Unit(StrEnum):
    TOKENS = "tokens"
    BYTES = "bytes"
    CHARS = "characters"
    ROWS = "rows"


class Breach(NamedTuple):
    """A size and what it exceeds, both in `unit`."""

    size: int
    allowed: int
    unit: Unit


class Ends(NamedTuple):
    """How many bytes of the beginning and of the end a text is made of, and what else of the beginning it
    says: its structure, its outline."""

    head: int
    tail: int
    structure: bool = False
    outline_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Oversized:
    """`measure` is the whole result's. `shown` is that of the text which was judged: the result as its view
    caps leave it, the same where there are none; `head` and `tail` are that text's, perhaps cut within a
    character. `handle` names the whole where it is kept, and `path` its file where the agent can read it.
    `structure` and `outline` are those of content/outline where they were asked for: they take too long for a
    rule. A cap in tokens becomes bytes by the text's average; `squeeze` is the share of them that is used.
    """

    result: ToolResult
    measure: Measure
    shown: Measure
    head: bytes
    tail: bytes
    policy: Policy
    breach: Breach
    handle: Handle | None
    structure: Sequence[str] = ()
    outline: str = ""
    path: str | None = None
    squeeze: float = 1.0


def breach_of(trigger: Trigger, facts: Facts, policy: Policy) -> Breach:
    """What decided, in its own unit; of several size caps the one in rows, then tokens, then bytes."""
    measure, budget = facts.measure, facts.budget
    if trigger is Trigger.RESERVE_FAILED:
        return Breach(measure.tokens, budget.remaining_tokens, Unit.TOKENS)
    if trigger is Trigger.TOKEN_BUDGET:
        return Breach(measure.tokens, max(0, budget.limit_tokens - budget.used_tokens), Unit.TOKENS)
    if has_too_many_rows(facts, policy):
        return Breach(facts.rows, policy.reject_rows, Unit.ROWS)
    if 0 < policy.max_tokens < measure.tokens:
        return Breach(measure.tokens, policy.max_tokens, Unit.TOKENS)
    if 0 < policy.max_bytes < measure.bytes:
        return Breach(measure.bytes, policy.max_bytes, Unit.BYTES)
    return Breach(measure.chars, policy.max_chars, Unit.CHARS)


def called(tool: str, policy: Policy) -> str:
    """What the model knows a tool by."""
    return policy.tool_names.get(tool, tool)


def whereabouts(handle: Handle | None, policy: Policy) -> str:
    """The last lines of every text but the handle message: how to reach what is not shown. "" where nothing
    is kept."""
    if handle is None:
        return ""
    tool = called("tool_output", policy)
    return f'\n\nThe whole result is kept: {tool}(handle = "{handle}", extract = "what to extract").'


def room_bytes(measure: Measure, policy: Policy, squeeze: float = 1.0) -> int:
    """Bytes that satisfy every size cap in force: exact for a cap in bytes, by the text's average for one in
    characters or tokens. 0 if there is no cap."""
    rooms = [policy.max_bytes] if policy.max_bytes else []
    if policy.max_chars:
        uniform = measure.bytes == measure.chars
        rooms.append(policy.max_chars if uniform else _scaled(policy.max_chars, measure.bytes, measure.chars))
    if policy.max_tokens:
        rooms.append(int(squeeze * _scaled(policy.max_tokens, measure.bytes, measure.tokens)))
    return min(rooms, default=0)


def _scaled(most: int, size: int, count: int) -> int:
    return int(most * size / max(count, 1) * _SHARE)
