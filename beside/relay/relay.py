"""What passes between a client and a server of MCP. All but a few kinds of message pass byte for byte.

The answer to tools/list also has the tools that answer questions about stored results. The relay answers
calls of these tools. It replaces large results of tools/call. If the arguments of a call refer to stored
results, it puts their text there. Where the policy redacts, all other texts for a model have masks. If
anything else fails, the client gets the server's message.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from beside.client import (
    TOOL_SECONDS,
    ServiceError,
    ServiceRequest,
    TextBody,
    govern,
    masked,
    project_here,
    resolved,
    session_in,
    shown_unstored,
)
from beside.relay.messages import (
    INVALID_REQUEST,
    NOT_JSON,
    Id,
    LazyJson,
    client_info,
    failure,
    id_of,
    is_batch,
    method_of,
    parse,
    written,
)
from beside.relay.offering import RELISTED_SECONDS, Offering
from beside.relay.service_calls import GoverningService
from beside.relay.streams import to_stderr
from domain.doors import TOOL_NAMES
from domain.mcp import MCP_META
from domain.references import TOO_DEEP, UNRESOLVED, may_refer, references_in
from machine.descriptors import Buffer

PICTURE_BYTES = 8 << 20
"""A picture or sound up to this size stays as it is: the largest that APIs of models take has 5 MB, which is
6.7 MB of base64."""

SMALL_BYTES = 4096
"""Any other block that is not text, such as a link to a resource, is kept up to this size."""

MOST_NAME = 256
"""Characters of a tool's name and of the id of a call that the service takes."""

NO_TOOLS = "The model has no tools for stored results."

_STORED_ABOVE = "Its text is part of the output above."

_PICTURES = ("image", "audio")

_BYTES = re.compile(r'("(?:data|blob)"\s*:\s*")([A-Za-z0-9+/]{1000,}={0,2})(?=")')
"""Bytes in base64, which are not masked."""

_READ_BY_MODELS = frozenset({"resources/read", "prompts/get"})
"""Methods whose result is shown to a model."""

_ASKS_A_MODEL = "sampling/createMessage"
_OF_THE_RELAY = ("tools/list", "initialize", "server/discover")
"""Methods whose results the relay changes itself."""

_OF_A_RESULT = frozenset({"content", "isError", "resultType"})

_RESULT_CHARS = {"anthropic/maxResultSizeChars": 500_000}
"""Claude Code would put a larger result into a file before the relay's message could say what to do."""

_CALL_ID = "claudecode/toolUseId"
_VERSION = f"{MCP_META}protocolVersion"
_SERVER = f"{MCP_META}serverInfo"
_LISTENS = "toolsListChanged"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_SUBSCRIPTION = f"{MCP_META}subscriptionId"
_MOST_AWAITED = 10_000
_MOST_NAMESPACE = 128
_NOT_IN_A_NAME = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


T = TypeVar("T")


class Judged(NamedTuple):
    """What replaces a text, None if the text passes. `redacts`: the parts of the result beside the text have
    to be masked."""

    replacement: str | None
    redacts: bool


class AwaitedCall(NamedTuple):
    """A call whose result is awaited. `id` names it in the accounting. `arguments` are JSON."""

    tool: str
    id: str
    arguments: str | None = None


class ResultContent(NamedTuple):
    """The content of a result: blocks to govern, the strings in them that hold text (or the blocks), and the
    other blocks."""

    governed: list[LazyJson]
    texts: list[LazyJson]
    others: list[LazyJson]

    @property
    def size(self) -> int:
        return sum(text.size for text in self.texts)

    def parts(self) -> Iterator[str]:
        """Yields the texts, with a newline between two."""
        for number, text in enumerate(self.texts):
            if number:
                yield "\n"
            if text.is_string:
                yield from text.parts()
            else:
                yield text.text


def blocks_of(content: LazyJson | None) -> ResultContent:
    """Raises NOT_JSON."""
    blocks = ResultContent([], [], [])
    for block in [] if content is None else content.elements():
        kind, text = block.inner("type"), block.members.get("text")
        if kind == "text" and text is not None and text.is_string:
            blocks.texts.append(text)
        elif block.size > (PICTURE_BYTES if kind in _PICTURES else SMALL_BYTES):
            inside = block.member("resource", "text")
            blocks.texts.append(inside if inside is not None and inside.is_string else block)
        else:
            blocks.others.append(block)
            continue
        blocks.governed.append(block)
    return blocks


def _replaced_blocks(governed: Iterable[LazyJson], instead: str) -> Iterator[str]:
    """The first block with `instead` as its text. Of the others, embedded resources stay without their
    contents: only they say where a text is from and how it is meant."""
    for number, block in enumerate(governed):
        resource = block.members.get("resource")
        if resource is not None and resource.is_object:
            blob = resource.members.get("blob")
            about = _told_of(resource, blob) if blob is not None and blob.is_string else ""
            text = "\n".join(filter(None, (about, "" if number else instead)))
            changes = {"blob": None, "text": json.dumps(text or _STORED_ABOVE)}
            yield block.replaced({"resource": resource.replaced(changes)})
        elif not number:
            is_text = block.inner("type") == "text"
            yield block.replaced({"text": json.dumps(instead)}) if is_text else _text_block(instead)


def _told_of(resource: LazyJson, blob: LazyJson) -> str:
    kind, base64 = resource.inner("mimeType"), blob.text.strip('"')
    size = len(base64) * 3 // 4 - (len(base64) - len(base64.rstrip("=")))
    name = resource.inner("uri") or "A resource"
    return f"{name}: {kind or 'bytes of an unknown type'}, {size:,} bytes, not text."


def _text_block(text: str) -> str:
    return json.dumps({"type": "text", "text": text})


def _line(message: str) -> bytes:
    return message.encode("utf-8", "surrogatepass") + b"\n" if message else b""


def _text_response(call: LazyJson, text: str, *, is_error: bool) -> str:
    """The response to a call of a tool, in the era of the call."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": is_error}
    if call.inner("params", "_meta", _VERSION) is not None:
        result["resultType"] = "complete"
    id = call.members["id"].text
    return written({"jsonrpc": '"2.0"', "id": id, "result": json.dumps(result)})


def _holds_a_picture(structured: LazyJson, blocks: ResultContent) -> bool:
    """Whether structured content repeats a picture or sound that stays in the content."""
    pictures = (block.members.get("data") for block in blocks.others if block.inner("type") in _PICTURES)
    text = structured.text
    return any(data is not None and data.is_string and data.text in text for data in pictures)


def _holds_more(result: LazyJson) -> bool:
    """Whether a result has something else than texts."""
    return bool(result.members.keys() - _OF_A_RESULT or blocks_of(result.members.get("content")).others)


def _name_in(info: object) -> str | None:
    """The name of a client or a server, if the accounting takes it."""
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) and name.isprintable() and 0 < len(name) <= _MOST_NAMESPACE else None


class ResultReplacer:
    """Asks a service what the client gets instead of a result."""

    def __init__(
        self, service: GoverningService, session: str, offering: Offering, say: Callable[[str], None]
    ) -> None:
        """`say` gets a line about each result that could not be stored."""
        self._service = service
        self._offering = offering
        self.session = session
        self._say = say
        self.has_stored = False
        self.namespace: str | None = None
        """The name of the MCP server, once it is known."""
        self.client: str | None = None
        """The name of the client."""
        self._project = project_here()

    def shown(self, result: LazyJson, call: AwaitedCall) -> str | None:
        """The JSON of the result with texts replaced, and masks in all else that it holds; None if it is to
        stay as it is. Raises NOT_JSON."""
        if result.inner("resultType") not in (None, "complete"):
            return self.with_masks(result.text, call.tool)
        changed, judged = self._replaced(result, call)
        # If nothing was sent, the policy is not known.
        redacts = any(one.redacts for one in judged) if judged else _holds_more(result)
        if redacts:
            return self.with_masks(changed or result.text, call.tool) or changed
        return changed

    def with_masks(self, value: str, tool: str) -> str | None:
        """The JSON of a value with masks; None if it stays as it is."""
        left: list[str] = []
        mark = os.urandom(8).hex()

        def leave_out(found: re.Match[str]) -> str:
            left.append(found[2])
            return f"{found[1]}{mark}.{len(left) - 1}."

        sent = _BYTES.sub(leave_out, value)
        try:
            shown = masked(self._service.request, {"session_id": self.session, "tool_name": tool}, sent)
        except ServiceError as error:
            self._say(f"{error} What is shown beside the text is not masked.")
            return None
        if shown == sent:
            return None
        return re.sub(rf"{mark}\.(\d+)\.", lambda found: left[int(found[1])], shown)

    def _replaced(self, result: LazyJson, call: AwaitedCall) -> tuple[str | None, list[Judged]]:
        """The JSON of the result with texts replaced, None if it is to stay as it is; and what the service
        said of its parts. Raises NOT_JSON.

        Some clients show the model nothing but `structuredContent`. If it is more than twice as large as the
        text, it holds something else, and is governed separately."""
        fields = result.members
        blocks = blocks_of(fields.get("content"))
        structured = fields.get("structuredContent")
        is_error = result.inner("isError") is True
        is_other = structured is not None and structured.size > 2 * blocks.size
        judged = list[Judged]()
        instead = data = None
        if blocks.texts:
            judged.append(self._governed(TextBody(blocks.parts), call, is_error))
            instead = judged[-1].replacement
        is_copy = structured is not None and _holds_a_picture(structured, blocks)
        if structured is not None and is_other and not is_copy:
            of_data = call._replace(id=f"{call.id[: MOST_NAME - 11]}-structured")
            text = structured.text
            judged.append(self._governed(TextBody(lambda: [text]), of_data, is_error))
            data = judged[-1].replacement
        if instead is None and data is None:
            return (result.replaced({"structuredContent": None}) if is_copy else None), judged
        kept = (block.text for block in blocks.governed)
        content = [*(kept if instead is None else _replaced_blocks(blocks.governed, instead))]
        content += [_text_block(data)] if data is not None else []
        content += [block.text for block in blocks.others]
        changes: dict[str, str | None] = {"content": f"[{','.join(content)}]"}
        if is_copy or not (is_other and data is None):
            # Structured content that was governed by itself, and passed, stays: nothing else holds it.
            changes["structuredContent"] = None
        return result.replaced(changes), judged

    def _governed(self, content: TextBody, call: AwaitedCall, is_error: bool) -> Judged:
        """Asks the service. Of a large text that it does not take, the model gets head and tail."""
        fields: dict[str, Any] = {
            "session_id": self.session,
            "tool_name": call.tool,
            "tool_call_id": call.id,
            "is_error": is_error,
            "tool_arguments": call.arguments,
            "tool_namespace": self.namespace,
            "client": self.client,
            "project": self._project,
            "tool_prefix": self._offering.prefix or None,
            "passes_on": "server",
        }
        try:
            return self._sent(content, fields)
        except ServiceError as error:
            cut = shown_unstored(content.text)
            self._say(f"{error} The result {'is cut' if cut else 'passes unchanged'}. It is not stored.")
            return Judged(cut, redacts=False)

    def _sent(self, content: TextBody, fields: dict[str, Any]) -> Judged:
        if self._offering.is_missing:
            raise ServiceError(NO_TOOLS)
        answer = govern(self._service.request, fields, content)
        self.has_stored |= answer.names_handle
        return Judged(answer.replacement(), answer.redacts)


class Relay:
    """One conversation. `from_client` and `from_server` may be called from different threads."""

    def __init__(
        self, service: GoverningService, reply: Callable[[Buffer], None], offering: Offering
    ) -> None:
        """`reply` sends a message to the client that the server did not send."""
        self._service = service
        self._reply = reply
        self._offering = offering
        process = f"{os.getpid()}-{os.urandom(4).hex()}"
        session = os.environ.get("SPILLGATE_SESSION") or f"mcp-{process}"
        self._replacer = ResultReplacer(service, session, offering, self._say)
        self._process = process
        self._requests = 0
        self._awaited: dict[Id, str | AwaitedCall] = {}
        self._answering: dict[Id, threading.Thread] = {}
        self._following: list[threading.Thread] = []
        self._listening: Id | None = None
        self._server_tells = False
        self._server_tools: set[str] = set()
        """Names of such tools that the server has itself: it may be a relay, too."""
        self._last_line = ""

    def from_client(self, message: Buffer) -> Buffer | None:
        """Returns what the server gets; None if it gets nothing."""
        if is_batch(message):
            with suppress(OSError):  # The client may have disconnected.
                self._reply(failure("null", INVALID_REQUEST, "Send one message at a time.") + b"\n")
            return None
        changed = self._read(self._for_server, message, None)
        return message if changed is None else _line(changed) or None

    def from_server(self, message: Buffer) -> Buffer:
        """Returns what the client gets; nothing if the client gets it later."""
        changed = self._read(self._changed, message, None)
        return message if changed is None else _line(changed)

    def wait(self, seconds: float) -> None:
        """Waits for answers that the relay itself still has to give the client."""
        for thread in [*self._answering.values(), *self._following]:
            thread.join(seconds)

    def _for_server(self, message: LazyJson) -> str | None:
        """The message for the server, if it is another one than the client's; "" for none. Notes what has to
        be known when the response comes."""
        method, request = method_of(message), id_of(message)
        if method is not None and request is not None:
            self._replacer.client = _name_in(client_info(message)) or self._replacer.client
            if method == "tools/call":
                return self._called(message, request)
        return None if self._passes_on(message, method, request) else ""

    def _called(self, message: LazyJson, request: Id) -> str | None:
        """A call as the server gets it; "" if it is answered here."""
        call = self._call(message)
        if call.tool in TOOL_NAMES:
            if call.tool in self._server_tools:
                return None
            self._answer(message, request, call)
            return ""
        changed = self._resolved(message, call)
        if changed != "":
            self._await(request, call)
        return changed

    def _resolved(self, message: LazyJson, call: AwaitedCall) -> str | None:
        """A call with stored results in place of what refers to them; None if nothing does; "" if the tool is
        not to run. The client then has the reason as the call's result."""
        if call.arguments is None or not may_refer(call.arguments):
            return None
        try:
            original = json.loads(call.arguments)
            if not references_in(original):
                return None
            arguments, refusal = resolved(self._service.request, self._replacer.session, call.tool, original)
        except ServiceError as error:
            self._say(f"{error} {call.tool!a} did not run.")
            arguments, refusal = None, UNRESOLVED
        except RecursionError:
            arguments, refusal = None, TOO_DEEP
        if refusal is not None:
            with suppress(OSError):  # The client may have disconnected.
                self._reply(_line(_text_response(message, refusal, is_error=True)))
            return ""
        text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        params = message.members["params"].replaced({"arguments": text})
        return message.replaced({"params": params})

    def _passes_on(self, message: LazyJson, method: str | None, request: Id | None) -> bool:
        """Notes what has to be known when the response comes. False for what the server need not know."""
        if method is None:
            return True
        if method == "notifications/cancelled":
            cancelled = message.inner("params", "requestId")
            if cancelled is not None and cancelled == self._listening:
                self._listening = self._offering.listens_as = None
                return self._server_tells
            return (
                not isinstance(cancelled, str | int | float) or self._answering.pop(cancelled, None) is None
            )
        if request is None:
            return True
        if method in _OF_THE_RELAY:
            self._offering.note_client(message)
            self._await(request, method)
        elif method in _READ_BY_MODELS:
            self._await(request, method)
        elif method == "subscriptions/listen" and message.inner("params", "notifications", _LISTENS) is True:
            return self._listens(message, request)
        return True

    def _listens(self, message: LazyJson, request: Id) -> bool:
        """The client asks for notifications of changes. False if the server sends none, and so does not get
        the request."""
        if self._offering.may_relist:
            self._offering.listens_as = message.members["id"].text
            self._listening = request
            if not self._server_tells:
                with suppress(OSError):  # The client may have disconnected.
                    self._reply(_line(self._acknowledgement({_LISTENS: "true"})))
                return False
        return True

    def _acknowledgement(self, notifications: Mapping[str, str]) -> str:
        params = written({"notifications": written(notifications), "_meta": self._subscription()})
        method = json.dumps(_ACKNOWLEDGED)
        return written({"jsonrpc": '"2.0"', "method": method, "params": params})

    def _subscription(self) -> str:
        return written({_SUBSCRIPTION: self._offering.listens_as or "null"})

    def _await(self, request: Id, what: str | AwaitedCall) -> None:
        while len(self._awaited) >= _MOST_AWAITED:
            # Requests that were cancelled may never be answered.
            del self._awaited[next(iter(self._awaited))]
        self._awaited.pop(request, None)
        self._awaited[request] = what

    def _call(self, message: LazyJson) -> AwaitedCall:
        self._requests += 1
        call_id = message.inner("params", "_meta", _CALL_ID)
        if not (isinstance(call_id, str) and call_id):
            call_id = f"{self._process}-{self._requests}"
        name = message.inner("params", "name")
        name = _NOT_IN_A_NAME.sub("_", name)[:MOST_NAME] if isinstance(name, str) else ""
        params = message.members.get("params")
        arguments = params.members.get("arguments") if params is not None else None
        call_id = _NOT_IN_A_NAME.sub("_", call_id)[:MOST_NAME]
        return AwaitedCall(name or "tool", call_id, None if arguments is None else arguments.text)

    def _changed(self, message: LazyJson) -> str | None:
        """The message for the client, if it is another one than the server's."""
        if "method" in message.members:
            if method_of(message) == _ASKS_A_MODEL:
                return self._masked(message, "params", _ASKS_A_MODEL)
            return self._acknowledged(message)
        request = id_of(message)
        awaited = None if request is None else self._awaited.get(request)
        if request is None or awaited is None:
            return None
        if "result" not in message.members:
            tool = awaited.tool if isinstance(awaited, AwaitedCall) else awaited
            return self._masked(message, "error", tool) if tool not in _OF_THE_RELAY else None
        if awaited in _READ_BY_MODELS:
            return self._masked(message, "result", awaited)
        if isinstance(awaited, AwaitedCall):
            # A server may answer twice. Arguments are too large to be kept for that.
            self._awaited[request] = awaited._replace(arguments=None)
            return self._governed(message, awaited)
        if awaited == "tools/list":
            changed = self._listed(message.members["result"])
            if changed is not None and self._offering.is_listed and not self._offering.relisted.is_set():
                # The result that waits for it must be sent after it.
                self._reply(_line(message.replaced({"result": changed})))
                self._offering.relisted.set()
                return ""
        else:
            changed = self._note_server(message)
        return None if changed is None else message.replaced({"result": changed})

    def _masked(self, message: LazyJson, member: str, tool: str) -> str | None:
        """The message with masks in a member, if another one."""
        value = message.members.get(member)
        shown = None if value is None else self._replacer.with_masks(value.text, tool)
        return None if shown is None else message.replaced({member: shown})

    def _governed(self, message: LazyJson, call: AwaitedCall) -> str | None:
        """The response to a call, if another one; "" if it comes later: once the client, told that the tools
        have changed, has asked for them, or has had the time to."""
        changed = self._replacer.shown(message.members["result"], call)
        if changed is None:
            return None
        response = message.replaced({"result": changed})
        if not (self._replacer.has_stored and self._offering.store()):
            return response
        self._offering.relisted.clear()
        changes = {"jsonrpc": '"2.0"', "method": '"notifications/tools/list_changed"'}
        if self._offering.listens_as is not None:
            changes["params"] = written({"_meta": self._subscription()})
        self._reply(_line(written(changes)))

        def follow() -> None:
            self._offering.relisted.wait(RELISTED_SECONDS)
            with suppress(OSError):  # The client may have disconnected.
                self._reply(_line(response))
            self._following.remove(thread)

        self._following.append(thread := threading.Thread(target=follow, daemon=True))
        thread.start()
        return ""

    def _acknowledged(self, message: LazyJson) -> str | None:
        """Changes the server's answer to a client that asks for notifications of changes: the relay notifies
        it of changed tools too."""
        listens = self._offering.listens_as
        if method_of(message) != _ACKNOWLEDGED or listens is None:
            return None
        if message.inner("params", "_meta", _SUBSCRIPTION) != json.loads(listens):
            return None
        params = message.members["params"]
        notifications = params.members["notifications"].replaced({_LISTENS: "true"})
        return message.replaced({"params": params.replaced({"notifications": notifications})})

    def _note_server(self, message: LazyJson) -> str | None:
        """The server's name is the namespace of its tools in the accounting. Returns the result with tools
        that may change, for a client that then asks for them again."""
        info = message.inner("result", "serverInfo") or message.inner("result", "_meta", _SERVER)
        self._replacer.namespace = _name_in(info) or self._replacer.namespace
        result = message.members["result"]
        capabilities = result.members.get("capabilities")
        tools = capabilities and capabilities.members.get("tools")
        self._server_tells = '"listChanged"' in capabilities.text if capabilities else False
        if not (capabilities and tools and tools.is_object and self._offering.may_relist):
            return None
        changing = tools.replaced({"listChanged": "true"})
        return result.replaced({"capabilities": capabilities.replaced({"tools": changing})})

    def _listed(self, result: LazyJson) -> str | None:
        """A page of tools as the client gets it. The last one ends with the tools of the service."""
        if not isinstance(result.inner("tools"), list):
            return None
        tools = []
        for tool in result.members["tools"].elements():
            if not tool.is_object:
                tools.append(tool.text)
                continue
            # Clients check structured content, which a replaced result lacks, against the output schema.
            meta = tool.members.get("_meta")
            chars = {name: json.dumps(value) for name, value in _RESULT_CHARS.items()}
            merged = meta.replaced(chars) if meta and meta.is_object else written(chars)
            tools.append(tool.replaced({"outputSchema": None, "_meta": merged}))
            if isinstance(tool.inner("name"), str) and tool.inner("name") in TOOL_NAMES:
                self._server_tools.add(tool.inner("name"))
        if not result.inner("nextCursor"):
            offers = self._offering.offers()
            offered = (
                [tool for tool in self._tools() if tool["name"] not in self._server_tools] if offers else []
            )
            tools += [json.dumps(tool, ensure_ascii=False) for tool in offered]
            self._offering.is_listed = bool(offered)
        return result.replaced({"tools": f"[{','.join(tools)}]"})

    def _tools(self) -> list[dict[str, Any]]:
        """The tools that the service offers: none if it cannot be asked. A service that starts is waited for:
        many clients ask for tools only once."""
        message = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
        try:
            tools: list[dict[str, Any]] = self._service.request(
                ServiceRequest("POST", "/mcp", message)
            ).json()["result"]["tools"]
            self._offering.is_missing = False
            return [tool for tool in tools if tool["name"] in TOOL_NAMES]
        except (ServiceError, LookupError, TypeError) as error:
            self._offering.is_missing = not self._offering.is_late
            why = str(error) if isinstance(error, ServiceError) else "The service listed no tools."
            self._say(f"{why} {NO_TOOLS}")
            return []

    def _answer(self, message: LazyJson, request: Id, call: AwaitedCall) -> None:
        """Answers a question in a thread of its own: a model may need a minute."""

        def work() -> None:
            answer, is_error = self._answered(call)
            if self._answering.pop(request, None) is None:
                return  # The client has cancelled it.
            with suppress(OSError):  # The client may have disconnected.
                self._reply(_line(_text_response(message, answer, is_error=is_error)))

        self._answering[request] = thread = threading.Thread(target=work, daemon=True)
        thread.start()

    def _answered(self, call: AwaitedCall) -> tuple[str, bool]:
        """The text for the model, and whether it says why there is no answer."""
        arguments = call.arguments or "{}"
        try:
            handle = json.loads(arguments).get("handle")
            session = (session_in(handle) if isinstance(handle, str) else None) or self._replacer.session
            members = {
                "session_id": json.dumps(session),
                "name": json.dumps(call.tool),
                "arguments": arguments,
            }
            body = written(members).encode()
            return self._service.request(
                ServiceRequest("POST", "/tools/call", body, seconds=TOOL_SECONDS)
            ).text()
        except ServiceError as error:
            return str(error), True
        except (AttributeError, *NOT_JSON):
            return f"{call.tool} takes an object with a handle.", True

    def _say(self, line: str) -> None:
        """Writes a line to stderr, unless it equals the last one."""
        if line != self._last_line:
            self._last_line = line
            to_stderr(f"spillgate mcp: {line}\n".encode("utf-8", "replace"))

    def _read(self, read: Callable[[LazyJson], T], message: Buffer, default: T) -> T:
        """What `read` returns; `default` for a message that is no JSON, and if `read` fails.

        Catches any exception: one that ended the thread would stop the conversation. The client is promised
        the message of the server even if this code fails."""
        try:
            with suppress(*NOT_JSON):
                return read(parse(message))
        except Exception as error:  # noqa: BLE001
            self._say(f"A fault of the relay, {type(error).__name__}. The message passes unchanged.")
        return default
