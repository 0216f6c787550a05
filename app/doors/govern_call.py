"""One call of a tool that a door found in a JSON body: its result is governed as POST /results does it."""

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any

from app.api.result_request import MAX_ARGUMENT_BYTES, SentContent
from app.edge.documents import Document
from app.governing.governor import govern
from app.runtime import Runtime
from domain.decisions import Outcome
from domain.doors import Door
from domain.errors import IdempotencyKeyReused
from domain.handles import SessionKey
from domain.hooks import HookCall
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
    result = _result(call, document)
    outcome = None
    if call.call_id is not None:
        # Some agents, or their models, count calls from 0 again and again.
        with suppress(IdempotencyKeyReused):
            outcome = (await govern(named, sent_content(document, result, rt).governed(), rt)).outcome
    if outcome is None:
        digest = await digest_of(document, result, rt, call.tool, arguments or "")
        digested = replace(named, call_id=digest)
        outcome = (await govern(digested, sent_content(document, result, rt).governed(), rt)).outcome
    return outcome


Result = list[str] | dict[str, Any]
"""Strings of a document, with a newline between two; or an object in it, as its JSON."""


def _result(call: HookCall, document: Document) -> Result:
    """Raises BadRequest for an object that is nested too deeply."""
    if call.structured is None:
        return call.texts
    size = sum(len(document.written(text)) for text in call.texts)
    is_larger = sum(map(len, document.pieces(call.structured))) > 2 * size
    return call.structured if is_larger else call.texts


def sent_content(document: Document, result: Result, rt: Runtime) -> SentContent:
    """The content of a result."""
    return SentContent(document.content(result), turns=None if document.skeleton is None else rt.parsing)


async def digest_of(document: Document, result: Result, rt: Runtime, *names: str) -> str:
    """SHA-256 of names and a result, in hex: the same however the strings in the JSON were written."""
    digest = sha256("".join(names).encode())
    async for chunk in sent_content(document, result, rt).chunks():
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
