"""One call of a tool that a door found in a JSON body: its result is governed as POST /results does it."""

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

from app.api.result_request import MAX_ARGUMENT_BYTES, SentContent
from app.doors.hooks import HookCall
from app.edge.documents import Document
from app.governing.governor import govern
from app.runtime import Runtime
from domain.decisions import Outcome
from domain.doors import Door
from domain.errors import IdempotencyKeyReused
from domain.handles import SessionKey
from domain.results import ToolResult


async def govern_call(
    call: HookCall, arguments: str | None, document: Document, tenant: str, door: Door | None, rt: Runtime
) -> Outcome:
    """The call's texts may be positions in the document. `arguments`: see `arguments_of`. Raises
    SpillgateError."""
    named = ToolResult(
        key=SessionKey(tenant, call.session_id),
        tool_name=call.tool,
        call_id=call.call_id,
        tool_arguments=arguments,
        is_error=call.is_error,
        door=door,
    )
    outcome = None
    if call.call_id is not None:
        # Some agents, or their models, count calls from 0 again and again.
        with suppress(IdempotencyKeyReused):
            outcome = (await govern(named, sent_content(document, call.texts, rt).governed(), rt)).outcome
    if outcome is None:
        digest = await digest_of(document, call.texts, rt, call.tool, arguments or "")
        digested = replace(named, call_id=digest)
        outcome = (await govern(digested, sent_content(document, call.texts, rt).governed(), rt)).outcome
    return outcome


def sent_content(document: Document, texts: list[str], rt: Runtime) -> SentContent:
    """Strings of the document as the content of a result, a newline between two."""
    if document.skeleton is None:
        return SentContent("\n".join(texts))
    return SentContent(document.content(texts), turns=rt.parsing)


async def digest_of(document: Document, texts: list[str], rt: Runtime, *names: str) -> str:
    """SHA-256 of names and strings of the document, in hex: the same however the JSON was written."""
    digest = sha256("".join(names).encode())
    async for chunk in sent_content(document, texts, rt).chunks():
        digest.update(chunk.encode())
    return digest.hexdigest()


def arguments_of(call: HookCall, document: Document) -> str | None:
    """The arguments as JSON, a string as it is. None if they are of another type, or too large."""
    arguments = call.arguments
    if not isinstance(arguments, dict | str):
        return None
    data = bytearray()
    for piece in document.pieces(arguments):
        data += piece
        if len(data) > MAX_ARGUMENT_BYTES:
            return None
    try:
        return document.text(arguments) if isinstance(arguments, str) else data.decode()
    except UnicodeDecodeError:
        return None
