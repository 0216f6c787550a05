"""The answer to one hook: its result is governed, and a replacement is put into the agent's shape."""

from collections.abc import Callable, Iterable

from app.doors.govern_call import arguments_of, govern_call, sent_content
from app.doors.hooks.agents import CLIENTS
from app.doors.hooks.call import text_in
from app.edge.documents import Document, read_document
from app.operations.logs import log_hook_passed
from app.runtime import Runtime
from policies.doors import DOORS

PASS: Iterable[memoryview] = [memoryview(b"{}")]


async def hook_answer(
    client: str, body: bytes | bytearray, tenant: str, rt: Runtime, hold: Callable[[int], None]
) -> Iterable[memoryview]:
    """The agent's JSON, in pieces. `{}` if the result passes, if it is Spillgate's own, or if its shape is
    not known. `hold`: see `RequestBody.hold`. Raises SpillgateError."""
    document = await read_document(body, rt.parsing)
    payload, content = document.value, document
    reader = CLIENTS[client]
    inner = reader.inner_json
    if inner and (text := text_in(payload, inner)) is not None:
        content = await _inner(document, text, rt, hold)
        payload = {**payload, inner: content.value}
    call = reader.read(payload)
    if call is None:
        log_hook_passed(client, "the payload has a shape that this hook does not replace")
        return PASS
    if not call.is_governable:
        return PASS
    if call.spilled is not None:
        # The service opens no file that a request names. `spillgate hook` does.
        log_hook_passed(client, "the agent keeps the whole output in a file, and shows a part of it")
        return PASS
    arguments = arguments_of(call, document)
    outcome = await govern_call(call, arguments, content, tenant, DOORS[client], rt)
    return PASS if outcome.text is None else content.pieces(call.answer(outcome.text))


async def _inner(outer: Document, text: str, rt: Runtime, hold: Callable[[int], None]) -> Document:
    """The JSON that a string of the payload holds."""
    body = bytearray()
    async for chunk in sent_content(outer, [text], rt).chunks():
        encoded = chunk.encode()
        hold(len(encoded))
        body += encoded
    return await read_document(body, rt.parsing)
