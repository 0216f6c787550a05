"""The answer to one hook: its result is governed, and a replacement is put into the agent's shape."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import Any

import anyio

from app.api.result_request import MAX_ARGUMENT_BYTES, SentContent
from app.doors.hooks.agents import DIALECTS, INNER_JSON
from app.doors.hooks.call import Call
from app.edge.large_json import BUILT_BYTES, Document, read_document
from app.governing.governor import govern
from app.operations.logs import log_hook_passed
from app.runtime import Runtime
from domain.errors import IdempotencyKeyReused
from domain.handles import SessionKey
from domain.results import ToolResult
from policies.doors import DOORS

PASS = b"{}"


async def hook_answer(
    client: str, body: bytes | bytearray, tenant: str, rt: Runtime, hold: Callable[[int], None]
) -> bytes:
    """The agent's JSON. `{}` if the result passes, if it is Spillgate's own, or if its shape is not known.
    `hold`: see `RequestBody.hold`. Raises SpillgateError."""
    document = await read_document(body, rt.parsing)
    payload, content = document.value, document
    inner = INNER_JSON.get(client)
    if inner is not None and isinstance(payload, dict) and isinstance(payload.get(inner), str):
        content = await _inner(document, payload[inner], rt, hold)
        payload = {**payload, inner: content.value}
    call = DIALECTS[client](payload)
    if call is None:
        log_hook_passed(client, "the payload has a shape that this hook does not replace")
        return PASS
    if not call.is_governable:
        return PASS
    if call.spilled is not None:
        # The service opens no file that a request names. `spillgate hook` does.
        log_hook_passed(client, "the agent keeps the whole output in a file, and shows a part of it")
        return PASS
    named = ToolResult(
        key=SessionKey(tenant, call.session_id),
        tool_name=call.tool,
        call_id=call.call_id,
        tool_arguments=_arguments(call.arguments, document),
        is_error=call.is_error,
        door=DOORS[client],
    )
    outcome = None
    if call.call_id is not None:
        # Some agents, or their models, count calls from 0 again and again.
        with suppress(IdempotencyKeyReused):
            outcome = (await govern(named, _chunks(content, call.texts, rt), rt)).outcome
    if outcome is None:
        digested = replace(named, call_id=await _digest(call, content, len(body) > BUILT_BYTES))
        outcome = (await govern(digested, _chunks(content, call.texts, rt), rt)).outcome
    return PASS if outcome.text is None else content.encoded(call.answer(outcome.text))


def _chunks(document: Document, texts: list[str], rt: Runtime) -> AsyncIterator[str]:
    if document.skeleton is None:
        return SentContent("\n".join(texts)).chunks()
    return SentContent(document.content(texts), turns=rt.parsing).chunks()


async def _inner(outer: Document, text: str, rt: Runtime, hold: Callable[[int], None]) -> Document:
    """The JSON that a string of the payload holds."""
    body = bytearray()
    async for chunk in _chunks(outer, [text], rt):
        encoded = chunk.encode()
        hold(len(encoded))
        body += encoded
    return await read_document(body, rt.parsing)


async def _digest(call: Call, document: Document, is_large: bool) -> str:
    """The id of a call that its agent does not name: the same call with the same result has the same id."""
    parts: Iterable[bytes | memoryview] = chain(
        (call.tool.encode(), document.encoded(call.arguments)), map(document.literal, call.texts)
    )
    # In a thread, the loop goes on while a large part is hashed.
    return await anyio.to_thread.run_sync(_hashed, parts) if is_large else _hashed(parts)


def _hashed(parts: Iterable[bytes | memoryview]) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _arguments(arguments: Any, document: Document) -> str | None:
    """The arguments as JSON, a string as it is. None if they are of another type, or too large."""
    if not isinstance(arguments, dict | str):
        return None
    data = document.encoded(arguments)
    if len(data) > MAX_ARGUMENT_BYTES:
        return None
    try:
        return document.text(arguments) if isinstance(arguments, str) else data.decode()
    except UnicodeDecodeError:
        return None
