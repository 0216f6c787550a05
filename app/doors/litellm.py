"""LiteLLM's generic guardrail: a request to a model, with its tool results replaced and our tools offered."""

import re
from collections.abc import Mapping
from typing import Any

from app.answering.tool_call import tools_of_session
from app.answering.tool_definitions import ToolFormat, definitions
from app.doors.conversation import Conversation
from app.doors.shapes import door_of, own_tools
from app.operations.logs import describe_request, log_hook_passed
from app.runtime import Runtime
from content.json_text import edited_items, read_listed, text_sha256
from domain.doors import Door
from domain.errors import SpillgateError
from domain.handles import SessionKey
from domain.hooks.call import session_id_of
from domain.hooks.texts import text_in, texts_of

NONE: dict[str, Any] = {"action": "NONE"}
"""The answer that leaves the request unchanged."""

_SESSION_HEADER = "x-session-id"
_LITELLM_SESSION_HEADER = "x-litellm-session-id"
# LiteLLM sends the names of all headers, but the values of only some.
_WITHOUT_VALUE = "[present]"
# LiteLLM generates such a session id for each request whose caller names no session.
_GENERATED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_CLIENT = "litellm"


async def guardrail_answer(
    body: bytes | bytearray, tenant: str, rt: Runtime
) -> tuple[dict[str, Any], SpillgateError | None]:
    """The answer, and why some results were left as they are. Raises SpillgateError.

    Tools are offered while something is stored. What is remembered of messages that were seen before may be
    an hour old: the tools are then offered even if their results were deleted."""
    payload, items = await read_listed(body, "structured_messages", rt.parsing)
    match payload:
        case {"input_type": "request", "structured_messages": [_, *_] as messages}:
            pass
        case {"input_type": "response"}:
            # This is text of the model, and not a tool result.
            return NONE, None
        case _:
            log_hook_passed(_CLIENT, "the request holds no messages")
            return NONE, None
    key = SessionKey(tenant, session_id_of(await _session_of(payload, messages)))
    describe_request(session_id=key.session_id)
    named = payload.get("tools")
    tools = named if isinstance(named, list) else []
    own = own_tools(tools)
    may_offer = bool(tools) and not own and _parameter(payload, "offer_tools") is not False
    door = Door() if may_offer else door_of(own)
    governed = await Conversation(messages, key, lambda call_id: door).governed(rt)
    if not (governed.seen or governed.edits):
        return NONE, governed.error
    is_storing = any(one.is_kept for one in governed.seen)
    offered = await tools_of_session(key, rt, is_storing=is_storing) if may_offer else []
    if not (governed.edits or offered):
        return NONE, governed.error
    shown = edited_items(messages, items, governed.edits)
    # LiteLLM ignores `session_id`; the guardrail class of the Python client asks by it.
    answer: dict[str, Any] = {
        "action": "GUARDRAIL_INTERVENED",
        "structured_messages": shown,
        "session_id": key.session_id,
    }
    if offered:
        answer["tools"] = [*tools, *definitions(offered, rt.modes, ToolFormat.OPENAI)]
    return answer, governed.error


async def _session_of(payload: Mapping[str, Any], messages: list[Any]) -> str:
    """The session that the caller names: in the header that the parameters name, or in `x-session-id`, or as
    LiteLLM's own session. Else one that stays the same while the conversation begins in the same way."""
    received = payload.get("request_headers")
    headers = {name.lower(): value for name, value in received.items()} if isinstance(received, dict) else {}
    for name in (_parameter(payload, "session_header"), _SESSION_HEADER):
        value = text_in(headers, name.lower()) if isinstance(name, str) else None
        if value is not None and value != _WITHOUT_VALUE:
            return value
    trace = text_in(payload, "litellm_trace_id")
    if trace is not None and (_LITELLM_SESSION_HEADER in headers or not _GENERATED.fullmatch(trace)):
        return trace
    user = text_in(payload.get("request_data"), "user_api_key_hash")
    return await _begun_as(messages, user or "")


async def _begun_as(messages: list[Any], user: str) -> str:
    """Derives a session id from the texts of the first message that is not a system instruction."""
    dialogue = (
        message
        for message in messages
        if isinstance(message, dict) and message.get("role") not in ("system", "developer")
    )
    content = next(dialogue, {}).get("content")
    texts = [content] if isinstance(content, str) else [*(texts_of(content) or [])]
    return f"chat-{(await text_sha256(user, texts))[:32]}"


def _parameter(payload: Mapping[str, Any], name: str) -> Any:
    """A member of `additional_provider_specific_params` in LiteLLM's configuration."""
    parameters = payload.get("additional_provider_specific_params")
    return parameters.get(name) if isinstance(parameters, dict) else None
