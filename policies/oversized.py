"""A result that is to be replaced, and what the texts of all outcomes share."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from content.text import Preview
from domain.doors import Door
from domain.handles import Handle
from domain.outcomes import Trigger
from domain.results import Measure, ToolResult
from domain.structs import frozen_struct
from policies.facts import Facts, has_too_many_rows
from policies.policy import Offer, Policy

_SHARE = 0.9
"""The share that is used of a cap in characters or tokens, after its conversion to bytes by the text's
average."""


_HANDLE_MESSAGE_BYTES = 1000
"""The longest handle message without a preview: that of a session with an id of 128 characters."""


class Unit(StrEnum):
    TOKENS = "tokens"
    BYTES = "bytes"
    CHARS = "characters"
    ROWS = "rows"


class Breach(NamedTuple):
    """A size and the cap that it exceeds, both in `unit`."""

    size: int
    allowed: int
    unit: Unit


class Ends(NamedTuple):
    """The bytes of the beginning and of the end that a text needs, and whether it needs the structure of the
    beginning, or an overview: a sketch or an outline."""

    head: int
    tail: int
    structure: bool = False
    overview: Preview | None = None


@frozen_struct
class Oversized:
    """`measure` is the size of the whole result. `shown`, `head` and `tail` are of the text that was judged:
    the result after its view caps. The ends may be cut within a character. `handle` names the stored result,
    None if nothing is kept; `path` is its file if the agent can read it. `structure` and `overview` come from
    content/describe.py and are filled only if `Ends` asks for them. `squeeze` is the share that is used of a
    cap in tokens, after its conversion to bytes; it is lowered if a text came out too long. Without `can_ask`
    the model has no means to read stored results, and the text must not name any."""

    result: ToolResult
    measure: Measure
    shown: Measure
    head: bytes
    tail: bytes
    policy: Policy
    breach: Breach
    handle: Handle | None
    structure: Sequence[str] = ()
    overview: str = ""
    path: str | None = None
    squeeze: float = 1.0
    can_ask: bool = True


def breach_of(trigger: Trigger, facts: Facts, policy: Policy) -> Breach:
    """What was exceeded, in its unit. Of several size caps: rows first, then tokens, bytes, characters."""
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


def name_for_model(tool: str, policy: Policy) -> str:
    """The name by which the model knows a tool."""
    return policy.tool_names.get(tool, tool)


def reading(handle: Handle, policy: Policy, door: Door | None) -> str:
    """How a model behind the door reads a stored result, as the end of a sentence such as "The whole result
    is kept: …". The handle alone if it is not known which tool the model has."""
    if door is not None and door.call:
        return door.call
    if not names_tool(policy, door):
        return str(handle)
    if not has_tools(policy, door):
        return shell_reading(handle)
    tools = _tools(policy, door)
    if asks_alone(policy):
        return f'{tools[0]}(handle = "{handle}", extract = "what to extract")'
    if Offer.ONE in policy.offer:
        return f'{tools[0]}(handle = "{handle}") reads it by query, pattern, lines or extract'
    named = f"{', '.join(tools[:-1])} and {tools[-1]} read" if tools[1:] else f"{tools[0]} reads"
    return f'{named} it with handle = "{handle}"'


_TOOLS = {
    Offer.QUERY: "tool_output_query",
    Offer.GREP: "tool_output_grep",
    Offer.LINES: "tool_output_lines",
    Offer.ASK: "tool_output",
}
"""The tools, in the order in which a text names them."""


def _tools(policy: Policy, door: Door | None) -> list[str]:
    """Returns the names of the offered tools, as the model knows them."""
    if Offer.ONE in policy.offer:
        return [_named(_TOOLS[Offer.ASK], policy, door)]
    return [_named(tool, policy, door) for offer, tool in _TOOLS.items() if offer in policy.offer]


def _named(tool: str, policy: Policy, door: Door | None) -> str:
    if door is not None and door.tool_name:
        return door.tool_name
    return policy.tool_names.get(tool, f"{door.tool_prefix if door else ''}{tool}")


def asks_alone(policy: Policy) -> bool:
    """True if the only tool is the one that takes nothing but `extract`."""
    return set(policy.offer) == {Offer.ASK}


def names_tool(policy: Policy, door: Door | None) -> bool:
    """True if it is known which tool a model behind the door has for stored results."""
    if door is None or door.knows_tools:
        return True
    return any(tool in policy.tool_names for tool in _TOOLS.values())


def has_tools(policy: Policy, door: Door | None) -> bool:
    """True if a model behind the door gets our tools."""
    return bool(policy.offer) and (door is None or door.has_tools)


def query_name(policy: Policy) -> str:
    """The name of the argument, or of the tool, by which a model sends queries; "" if it has neither."""
    if Offer.ONE in policy.offer or not policy.offer:
        return "query"
    return name_for_model(_TOOLS[Offer.QUERY], policy) if Offer.QUERY in policy.offer else ""


def has_means(policy: Policy, door: Door | None) -> bool:
    """True if a model behind the door gets any means to ask about a stored result."""
    return bool(policy.offer) or (door is not None and bool(door.has_shell or door.call))


def shell_reading(handle: Handle | str) -> str:
    """A command that reads the result; only the query in it is to be filled in."""
    return f'spillgate query {handle} "SELECT …"'


def footer(oversized: Oversized) -> str:
    """The footer of every text except the handle message: how to read the whole result. "" if nothing is
    kept, or the model cannot ask for it."""
    if oversized.handle is None or not oversized.can_ask:
        return ""
    call = reading(oversized.handle, oversized.policy, oversized.result.door)
    return f"\n\nThe whole result is kept: {call}."


def tokens_of_part(share: float, measure: Measure, policy: Policy, message_tokens: int) -> int:
    """Estimates the tokens of this share of a result, and of a footer as long as a usual handle message."""
    below = message_tokens if policy.keep else 0
    return min(measure.tokens, round(measure.tokens * share) + below)


def room_bytes(measure: Measure, policy: Policy, squeeze: float = 1.0) -> int:
    """The most bytes within every size cap: exact for a cap in bytes, by the text's average for a cap in
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


def within_door(policy: Policy, door: Door | None) -> Policy:
    """The policy, with its size cap and preview lowered to what the door's client shows whole. The preview is
    a sketch if it is not known which tool the model has."""
    if not names_tool(policy, door):
        policy = replace(policy, preview=Preview.SKETCH)
    if door is None or not door.most_bytes:
        return policy
    max_bytes = min(policy.max_bytes or door.most_bytes, door.most_bytes)
    preview_bytes = min(policy.preview_bytes, door.most_bytes - _HANDLE_MESSAGE_BYTES)
    return replace(policy, max_bytes=max_bytes, preview_bytes=preview_bytes)
