"""Headroom's protocol: the tool results of a conversation are replaced, and asked about by their hashes.

LiteLLM's and Portkey's guardrails for Headroom speak it. A result is stored in the session `headroom`, with
its hash as the id of its call: by that the ledger finds it again, in any replica.
"""

import re
from typing import Any

import anyio

from app.doors.conversation import DIGEST_CHARS, Conversation
from app.edge.json_body import read_document
from app.extracting.extractor import Requirements, extract
from app.runtime import Runtime
from domain.doors import Door
from domain.errors import InvalidField, ResultNotFound, SpillgateError
from domain.extraction import Mode, Question
from domain.handles import SessionKey, parse_handle
from domain.ports import Call

SESSION = "headroom"
_HASH = re.compile(rf"[a-f0-9]{{{DIGEST_CHARS}}}")
_ENDS = "its beginning and its end"


async def compress(
    body: bytes | bytearray, tenant: str, rt: Runtime
) -> tuple[dict[str, Any], SpillgateError | None]:
    """The answer to POST /v1/compress, and why some results were left as they are. `tokens_…` are
    those of the tool results. Raises SpillgateError."""
    match await read_document(body, rt.parsing):
        case {"messages": list(messages)}:
            pass
        case _:
            raise InvalidField("The body must be an object with `messages`, a list.")
    conversation = Conversation(messages, SessionKey(tenant, SESSION), by_content=True)
    governed = await conversation.governed(_door, rt)
    hashes: dict[str, None] = {}
    before = after = 0
    tokenizer = rt.known_models.tokenizer(None)
    for _, seen in sorted(governed.seen.items()):
        before += seen.tokens
        after += seen.tokens if seen.text is None else await rt.count(seen.text, tokenizer)
        if seen.is_kept:
            hashes[seen.call_id or ""] = None
    answer: dict[str, Any] = {
        "messages": governed.messages,
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "compression_ratio": round(after / before, 4) if before else 1.0,
        "transforms_applied": ["spillgate"] if hashes else [],
        "ccr_hashes": list(hashes),
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


def _door(hash: str | None) -> Door:
    """Releases of LiteLLM before `ccr_hashes` look for `hash=` in the text."""
    return Door(call=f'headroom_retrieve with hash={hash} and query="what to extract"')
