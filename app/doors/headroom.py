"""Headroom's protocol: the tool results of a conversation are replaced, and asked about by their hashes.

Guardrails for Headroom and gateways that compress contexts speak it. A result is stored in the session
`headroom`, with its hash as the id of its call: by that the ledger finds it again, in any replica.
"""

import re
from typing import Any

import anyio

from app.answering.extractor import Requirements, extract
from app.doors.conversation import DIGEST_CHARS, Conversation, DoorOf
from app.doors.shapes import door_of, tool_names
from app.runtime import Runtime
from content.json_text import edited_items, read_listed
from domain.doors import Door
from domain.errors import InvalidField, ResultNotFound, SpillgateError
from domain.extraction import Mode, Question
from domain.handles import SessionKey, parse_handle
from domain.hooks.call import MAX_NAME
from domain.hooks.texts import text_in
from domain.ports import Call

SESSION = "headroom"
_TOOL = re.compile(rf"[^\s\x00-\x1f\x7f]{{1,{MAX_NAME}}}")
_HASH = re.compile(rf"[a-f0-9]{{{DIGEST_CHARS}}}")
RETRIEVE = "headroom_retrieve"
_LITELLM = "litellm/"
_ENDS = "its beginning and its end"


async def compress(
    body: bytes | bytearray, tenant: str, user_agent: str, rt: Runtime
) -> tuple[dict[str, Any], SpillgateError | None]:
    """Returns the answer to POST /v1/compress, and why some results were not replaced. The members `tokens_…`
    count tokens of tool results. Raises SpillgateError."""
    document, items = await read_listed(body, "messages", rt.parsing)
    match document:
        case {"messages": list(messages)}:
            tool = _tool_name(document, user_agent)
        case _:
            raise InvalidField("The body must be an object with `messages`, a list.")
    door = _by_hash if tool == RETRIEVE else _door_for(tool)
    key = SessionKey(tenant, SESSION)
    conversation = Conversation(messages, key, door, is_shared=True, own=tool or RETRIEVE)
    governed = await conversation.governed(rt)
    before = sum(seen.tokens for seen in governed.seen)
    after = sum(seen.shown_tokens for seen in governed.seen)
    hashes = list(dict.fromkeys(seen.call_id for seen in governed.seen if seen.is_kept))
    answer: dict[str, Any] = {
        "messages": edited_items(messages, items, governed.edits),
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "compression_ratio": round(after / before, 4) if before else 1.0,
        "transforms_applied": ["spillgate"] if hashes else [],
        "ccr_hashes": hashes,
    }
    return answer, governed.error


async def retrieve(tenant: str, hash: str, query: str | None, rt: Runtime) -> tuple[str, str]:
    """The text for the model, and the name of the tool. Without a query, the beginning and the end of the
    result. Raises ResultNotFound, and as `extract`."""
    key = SessionKey(tenant, SESSION)
    if not _HASH.fullmatch(hash) or await rt.ledger.session(key) is None:
        raise ResultNotFound
    model = await rt.known_models.of_session(None)
    entered = await rt.ledger.enter(Call(key, model.window, model.enforce, hash))
    handle = None if entered.receipt is None else entered.receipt.entry.details.tool_output_handle
    if handle is None:
        raise ResultNotFound
    mode = Mode.AUTO if query else Mode.TRUNCATE
    required = Requirements(anyio.current_time() + rt.settings.extract_deadline_ms / 1000)
    answer = await extract(tenant, Question(parse_handle(handle), query or _ENDS, mode), required, rt)
    return answer.text, answer.tool_name


def _tool_name(document: dict[str, Any], user_agent: str) -> str:
    """The tool by which the model asks: as the request's config says, else the first of its tools that it can
    be. LiteLLM adds Headroom's own tool without saying so. "" if none is known. A configured name with spaces
    is ignored: the texts for the model could not quote it."""
    named = text_in(document.get("config"), "tool_name") or ""
    tools = document.get("tools")
    own = [name for name in tool_names(tools) if name == RETRIEVE or door_of([name]).knows_tools]
    if _TOOL.fullmatch(named):
        return named
    if not named and not own and user_agent.startswith(_LITELLM):
        return RETRIEVE
    return next(iter(own), "")[:MAX_NAME]


def _door_for(tool: str) -> DoorOf:
    """The names of our tools may have a prefix; a tool of any other name takes what `tool_output` takes."""
    door = door_of([tool])
    if tool and not door.knows_tools:
        door = Door(tool_name=tool)
    door = door._replace(keeps_budget=False)
    return lambda hash: door


def _by_hash(hash: str | None) -> Door:
    """Releases of LiteLLM before `ccr_hashes` look for `hash=` in the text."""
    return Door(call=f'{RETRIEVE} with hash={hash} and query="what to extract"', keeps_budget=False)
