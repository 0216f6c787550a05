"""What passes between a client and a server of MCP. All but three kinds of message pass byte for byte.

tools/list gets the tools that answer questions about stored results. Large results of tools/call are
replaced. Calls of those tools are answered here. Whatever fails, the client gets what the server said.
"""

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw

from app.cli.client import TOOL_SECONDS, Request, ServiceError, session_in
from app.relay.backend import Backend
from app.relay.messages import (
    NOT_JSON,
    Id,
    array,
    as_it_came,
    elements,
    encoded,
    id_of,
    inner,
    is_array,
    is_string,
    joined,
    members,
    repaired,
    size_of,
    text,
    value,
    written,
)
from app.relay.streams import Buffer, Pieces, to_stderr

PICTURE_BYTES = 8 << 20
"""A picture or sound up to this size stays as it is: the largest that APIs of models take has 5 MB, which is
6.7 MB of base64."""

SMALL_BYTES = 4096
"""Any other block that is not text, such as a link to a resource, stays up to this size."""

MOST_ID = 256
"""Characters of the id of a call that the service takes."""

_ARGUMENT_BYTES = 1 << 20

_TOOLS = Path(__file__).with_name("tools.json")
_TOOLS_SECONDS = 1.0
_RESULT_CHARS = {"anthropic/maxResultSizeChars": 500_000}
"""Claude Code would put a larger result into a file before the relay's message could say what to do."""

_CALL_ID = "claudecode/toolUseId"
_VERSION = "io.modelcontextprotocol/protocolVersion"
_SERVER = "io.modelcontextprotocol/serverInfo"
_MOST_AWAITED = 10_000
_MOST_NAMESPACE = 128

Members = dict[str, Raw]


class AwaitedCall(NamedTuple):
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


class ResultReplacer:
    """Asks a service what a client gets instead of a result."""

    def __init__(self, backend: Backend, session: str) -> None:
        self._backend = backend
        self.session = session
        self.namespace: str | None = None
        """The name of the MCP server, once it is known."""

    def replacement(self, result: Raw, call: AwaitedCall) -> Pieces | None:
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
        # Structured content that was governed by itself, and passed, stays: nothing else holds it.
        left_out = None if is_other and data is None else "structuredContent"
        kept = {name: as_it_came(raw) for name, raw in fields.items() if name != left_out}
        return written(kept | {"content": array(content)})

    def _governed(self, content: Pieces, call: AwaitedCall, is_error: bool) -> str | None:
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


class Relay:
    """One conversation. `from_client` and `from_server` may be called from different threads."""

    def __init__(self, backend: Backend, reply: Callable[[Pieces], None]) -> None:
        """`reply` sends a message to the client, when a question has been answered."""
        self._backend = backend
        self._reply = reply
        process = f"{os.getpid()}-{os.urandom(4).hex()}"
        session = os.environ.get("SPILLGATE_SESSION") or f"mcp-{process}"
        self._replacer = ResultReplacer(backend, session)
        self._process = process
        self._requests = 0
        self._awaited: dict[Id, str | AwaitedCall] = {}
        self._answering: dict[Id, threading.Thread] = {}
        self._names = {tool["name"] for tool in _all_tools()}
        self._server_tools: set[str] = set()
        """Names of such tools that the server has itself: it may be a relay, too."""
        self._last_line = ""

    def from_client(self, message: Buffer) -> Pieces | None:
        """What the server gets; None if that is nothing."""
        return self._read(self._upward, message)

    def from_server(self, message: Buffer) -> Pieces:
        """What the client gets."""
        return self._read(self._downward, message) or [message]

    def _upward(self, message: Buffer) -> Pieces | None:
        """Raises NOT_JSON."""
        if not is_array(message):
            return [message] if self._passes_on(members(message)) else None
        parts = elements(message)
        kept = [part for part in parts if self._passes_on(members(part))]
        if len(kept) == len(parts):
            return [message]
        return [*array(as_it_came(part) for part in kept), b"\n"] if kept else None

    def _downward(self, message: Buffer) -> Pieces | None:
        """None for the message as it is. Raises NOT_JSON."""
        if not is_array(message):
            changed = self._changed(members(message))
            return None if changed is None else [*changed, b"\n"]
        parts = elements(message)
        changes = [self._changed(members(part)) for part in parts]
        if not any(changes):
            return None
        both = zip(parts, changes, strict=True)
        return [*array(changed or as_it_came(part) for part, changed in both), b"\n"]

    def wait(self, seconds: float) -> None:
        """Waits for answers that the relay itself owes the client."""
        for thread in list(self._answering.values()):
            thread.join(seconds)

    def _passes_on(self, message: Members) -> bool:
        """Notes what has to be known when the response comes. False for calls that are answered here."""
        method = text(message.get("method"))
        if method is None:
            return True
        params = inner(message, "params")
        if method == "notifications/cancelled":
            cancelled = id_of(params.get("requestId"))
            return cancelled is None or self._answering.pop(cancelled, None) is None
        found = id_of(message.get("id"))
        if found is None:
            return True
        if method == "tools/call":
            call = self._call(params, found)
            if call.tool in self._names - self._server_tools:
                self._answer(message["id"], found, call, inner(params, "_meta"))
                return False
            if call.tool not in self._names:
                self._await(found, call)
        elif method in ("tools/list", "initialize", "server/discover"):
            self._await(found, method)
        return True

    def _await(self, request: Id, what: str | AwaitedCall) -> None:
        while len(self._awaited) >= _MOST_AWAITED:
            # Requests that were cancelled may never be answered.
            del self._awaited[next(iter(self._awaited))]
        self._awaited[request] = what

    def _call(self, params: Members, request: Id) -> AwaitedCall:
        self._requests += 1
        own_id = f"{self._process}-{self._requests}-{request}"
        call_id = text(inner(params, "_meta").get(_CALL_ID)) or own_id
        return AwaitedCall(text(params.get("name")) or "", call_id[:MOST_ID], params.get("arguments"))

    def _changed(self, message: Members) -> Pieces | None:
        """The message for the client, if it is another one than the server's."""
        found = None if "method" in message else id_of(message.get("id"))
        awaited = None if found is None else self._awaited.pop(found, None)
        result = message.get("result")
        if awaited is None or result is None:
            return None
        fields = {name: as_it_came(raw) for name, raw in message.items()}
        if isinstance(awaited, AwaitedCall):
            try:
                replaced = self._replacer.replacement(result, awaited)
            except ServiceError as error:
                self._say(f"{error} The result passes unchanged. It is not stored.")
                return None
            return None if replaced is None else written(fields | {"result": replaced})
        if awaited == "tools/list":
            listed = self._listed(json.loads(bytes(result)))
            return None if listed is None else written(fields | {"result": encoded(listed)})
        self._note_server(members(result))
        return None

    def _note_server(self, result: Members) -> None:
        """The server's name is the namespace of its tools in the accounting."""
        info = inner(result, "serverInfo") or inner(inner(result, "_meta"), _SERVER)
        name = text(info.get("name"))
        if name and name.isprintable() and len(name) <= _MOST_NAMESPACE:
            self._replacer.namespace = name

    def _listed(self, result: Any) -> Any:
        """A page of tools as the client gets it. The last one ends with the tools of the service."""
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return None
        for tool in result["tools"]:
            if isinstance(tool, dict):
                # Clients check structured content, which a replaced result lacks, against this.
                tool.pop("outputSchema", None)
                meta = tool.get("_meta")
                tool["_meta"] = {**(meta if isinstance(meta, dict) else {}), **_RESULT_CHARS}
                name = tool.get("name")
                if isinstance(name, str) and name in self._names:
                    self._server_tools.add(name)
        if not result.get("nextCursor"):
            result["tools"] += [tool for tool in self._tools() if tool["name"] not in self._server_tools]
        return result

    def _tools(self) -> list[dict[str, Any]]:
        """The tools that the service offers; all of them while it starts."""
        if self._backend.is_ready:
            asked = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
            request = Request("POST", "/mcp", asked, seconds=_TOOLS_SECONDS)
            try:
                tools: list[dict[str, Any]] = self._backend.request(request).json()["result"]["tools"]
                return tools
            except (ServiceError, LookupError, TypeError):
                pass
        return _all_tools()

    def _answer(self, raw_id: Raw, request: Id, call: AwaitedCall, meta: Members) -> None:
        """Answers a question in a thread of its own: a model may need a minute."""

        def work() -> None:
            answered, is_error = self._answered(call)
            if self._answering.pop(request, None) is None:
                return  # The client has cancelled it.
            result: dict[str, Any] = {"content": [{"type": "text", "text": answered}], "isError": is_error}
            if _VERSION in meta:
                result["resultType"] = "complete"
            answer = written({"jsonrpc": encoded("2.0"), "id": as_it_came(raw_id), "result": encoded(result)})
            with suppress(OSError):  # The client may be gone.
                self._reply([*answer, b"\n"])

        self._answering[request] = thread = threading.Thread(target=work, daemon=True)
        thread.start()

    def _answered(self, call: AwaitedCall) -> tuple[str, bool]:
        """The text for the model, and whether it says why there is no answer."""
        arguments: Pieces = [b"{}"] if call.arguments is None else as_it_came(call.arguments)
        try:
            handle = text(members(arguments[0]).get("handle")) or ""
            session = session_in(handle) or self._replacer.session
            asked = {"session_id": encoded(session), "name": encoded(call.tool), "arguments": arguments}
            body = b"".join(written(asked))
            return self._backend.request(Request("POST", "/tools/call", body, seconds=TOOL_SECONDS)).text()
        except ServiceError as error:
            return str(error), True
        except NOT_JSON:
            return f"{call.tool} takes an object with a handle.", True

    def _say(self, line: str) -> None:
        """A line on stderr, unless it is the same as the last one."""
        if line != self._last_line:
            self._last_line = line
            to_stderr(f"spillgate mcp: {line}\n".encode("utf-8", "replace"))

    def _read(self, read: Callable[[Buffer], Pieces | None], message: Buffer) -> Pieces | None:
        """What `read` returns; the message itself if `read` fails.

        Any exception is caught. A thread that ends would stop the conversation, and the promise that the
        client then gets what the server said outranks the rule against `except Exception`."""
        try:
            with suppress(*NOT_JSON):
                return read(message)
            found = repaired(message)
            if found is not None:
                with suppress(*NOT_JSON):
                    changed = read(found)
                    return [message] if changed == [found] else changed
        except Exception as error:  # noqa: BLE001
            self._say(f"A fault of the relay, {type(error).__name__}. The message passes unchanged.")
        return [message]


def _all_tools() -> list[dict[str, Any]]:
    """What `app.tools` says, whose import takes a tenth of a second."""
    tools: list[dict[str, Any]] = json.loads(_TOOLS.read_bytes())
    return tools
