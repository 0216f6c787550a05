"""Governs the result of one call that a door found in a JSON body, as POST /results does."""

from contextlib import suppress
from dataclasses import replace

from app.governing.governor import govern
from app.runtime import Runtime
from content.json_text import as_json, governed_text, text_sha256
from domain.doors import Door
from domain.errors import IdempotencyKeyReused
from domain.handles import SessionKey
from domain.hooks.call import HookCall
from domain.outcomes import Outcome
from domain.results import MAX_ARGUMENT_BYTES, ToolResult


async def govern_call(
    call: HookCall, arguments: str | None, tenant: str, door: Door | None, rt: Runtime
) -> Outcome:
    """`arguments`: see `arguments_of`. Raises SpillgateError."""
    named = ToolResult(
        key=SessionKey(tenant, call.session_id),
        tool_name=call.tool,
        call_id=call.call_id,
        tool_arguments=arguments,
        is_error=call.is_error,
        door=None if door is None else door.of_call(call.tool, arguments),
        client=call.client,
        project=call.project,
    )
    texts = _result(call)
    outcome = None
    if call.call_id is not None:
        # Some agents, or their models, restart the ids of calls at 0.
        with suppress(IdempotencyKeyReused):
            outcome = (await govern(named, governed_text(texts), rt)).outcome
    if outcome is None:
        digest = await text_sha256(call.tool + (arguments or ""), texts)
        outcome = (await govern(replace(named, call_id=digest), governed_text(texts), rt)).outcome
    return outcome


def _result(call: HookCall) -> list[str]:
    """Raises BadRequest for an object that is nested too deeply."""
    if call.structured is not None:
        structured = as_json(call.structured)
        if len(structured) > 2 * sum(map(len, call.texts)):
            return [structured.decode()]
    return list(call.texts)


def arguments_of(call: HookCall) -> str | None:
    """Returns the arguments as JSON, and a string unchanged. Returns None if they have another type or are
    too large."""
    arguments = call.arguments
    if isinstance(arguments, dict):
        data = as_json(arguments)
    elif isinstance(arguments, str) and len(arguments) <= MAX_ARGUMENT_BYTES:
        data = arguments.encode()
    else:
        return None
    return data.decode() if len(data) <= MAX_ARGUMENT_BYTES else None
