"""Results of tools, governed by a service: what is sent there, and the result that a client gets instead."""

from typing import NamedTuple

from msgspec import Raw

from app.cli.client import Request
from app.relay.backend import Backend
from app.relay.messages import (
    array,
    as_it_came,
    elements,
    encoded,
    inner,
    is_string,
    joined,
    members,
    size_of,
    text,
    value,
    written,
)
from app.relay.streams import Buffer, Pieces

PICTURE_BYTES = 8 << 20
"""A picture or sound up to this size stays as it is: the largest that APIs of models take has 5 MB, which is
6.7 MB of base64."""

SMALL_BYTES = 4096
"""Any other block that is not text, a link to a resource say, stays if it has at most so many bytes."""

MOST_ID = 256
"""Characters of the id of a call that the service takes."""

_ARGUMENT_BYTES = 1 << 20


class ToolCall(NamedTuple):
    """A call whose result is awaited. `id` names it in the accounting. `arguments` are JSON."""

    tool: str
    id: str
    arguments: Raw | None = None


class Blocks(NamedTuple):
    """The content of a result: blocks to govern, their texts as the insides of JSON strings, and blocks that
    stay."""

    governed: list[Raw]
    texts: Pieces
    kept: list[Raw]


def blocks_of(content: Raw | None) -> Blocks:
    """Raises NOT_JSON."""
    found = Blocks([], [], [])
    for block in [] if content is None else elements(content):
        fields = members(block)
        kind, content = text(fields.get("type")), fields.get("text")
        if kind == "text" and content is not None and is_string(content):
            found.texts.append(memoryview(content)[1:-1])
        elif len(memoryview(block)) > (PICTURE_BYTES if kind in ("image", "audio") else SMALL_BYTES):
            found.texts.append(_text_of(fields, block))
        else:
            found.kept.append(block)
            continue
        found.governed.append(block)
    return found


def _text_of(fields: dict[str, Raw], block: Raw) -> Buffer:
    """The text of an embedded resource; of any other block its JSON."""
    content = inner(fields, "resource").get("text")
    if content is not None and is_string(content):
        return memoryview(content)[1:-1]
    return _escaped(block)


class Governor:
    """Asks a service what a client gets instead of a result."""

    def __init__(self, backend: Backend, session: str) -> None:
        self._backend = backend
        self.session = session
        self.namespace: str | None = None
        """The name of the MCP server, once it is known."""

    def replacement(self, result: Raw, call: ToolCall) -> Pieces | None:
        """The result with texts replaced; None if it is to stay as it is. Raises ServiceError, NOT_JSON.

        Some clients show the model nothing but `structuredContent`. It is governed by itself if it is not
        what the text says: if it is more than twice as large."""
        fields = members(result)
        if value(fields.get("resultType")) not in (None, "complete"):
            return None
        blocks = blocks_of(fields.get("content"))
        structured = fields.get("structuredContent")
        is_error = value(fields.get("isError")) is True
        is_other = structured is not None and len(memoryview(structured)) > 2 * size_of(blocks.texts)
        instead = data = None
        if blocks.texts:
            instead = self._governed(_string(blocks.texts), call, is_error)
        if structured is not None and is_other:
            of_data = call._replace(id=f"{call.id[: MOST_ID - 11]}-structured")
            data = self._governed(_string([_escaped(structured)]), of_data, is_error)
        if instead is None and data is None:
            return None
        content = [as_it_came(block) for block in blocks.governed] if instead is None else []
        content += [encoded({"type": "text", "text": one}) for one in (instead, data) if one is not None]
        content += [as_it_came(block) for block in blocks.kept]
        kept = {name: as_it_came(raw) for name, raw in fields.items() if name != "structuredContent"}
        return written(kept | {"content": array(content)})

    def _governed(self, content: Pieces, call: ToolCall, is_error: bool) -> str | None:
        """The text that replaces this content; None if it passes. Raises ServiceError."""
        fields = {
            "session_id": encoded(self.session),
            "tool_name": encoded(call.tool),
            "tool_call_id": encoded(call.id),
            "is_error": encoded(is_error),
            "content": content,
        }
        if self.namespace is not None:
            fields["tool_namespace"] = encoded(self.namespace)
        if call.arguments is not None and len(memoryview(call.arguments)) <= _ARGUMENT_BYTES:
            fields["tool_arguments"] = as_it_came(call.arguments)
        body = joined(written(fields))
        request = Request("POST", "/results", body, {"Prefer": "return=minimal"}, size_of(body))
        return self._backend.request(request).replacement()


def _string(texts: Pieces) -> Pieces:
    """One JSON string of several, a line end between them."""
    pieces: Pieces = []
    for part in texts:
        pieces += [b"\\n" if pieces else b'"', part]
    return [*pieces, b'"']


def _escaped(raw: Raw) -> Buffer:
    """JSON as the inside of a JSON string."""
    plain = bytes(raw).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return plain.replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\t", b"\\t")
