"""What each method of the MCP server answers: the model's tools, and stored results as resources."""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from app import __version__
from app.answering.tool_call import call_tool, read_lines
from app.answering.tool_definitions import Tool, ToolFormat, definitions, instructions, offered_tools
from app.doors.mcp.messages import HANDSHAKE, STATELESS, Params, RpcCall, RpcCode, RpcError
from app.operations.tracing import READ, Carrier
from app.runtime import Runtime
from domain.errors import Gone, NotFound, SpillgateError
from domain.handles import DEFAULT_SESSION, SessionKey, session_named_in, split_handles
from domain.mcp import MCP_META

URI_TEMPLATE = "spillgate://{session}/{file}"

_SERVER = {"name": "spillgate", "title": "Spillgate", "version": __version__}
_CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}}
_TEMPLATE = {
    "uriTemplate": URI_TEMPLATE,
    "name": "tool output",
    "title": "Stored tool output",
    "description": (
        "The lines of a stored tool output, numbered, as many as fit an answer. The handle is "
        "{session}/{file}. Add ?offset=N to begin at line N."
    ),
    "mimeType": "text/plain",
}
_URI = re.compile(r"spillgate://([^/?#]{1,400})/([^/?#]{1,100})(?:\?offset=([1-9][0-9]{0,11}))?")

_TRACED = frozenset({"tools/call", "resources/read"})

OnError = Callable[[SpillgateError], None]


class Methods:
    """Answers the requests of one tenant. `refused` is called with each error of the service itself.
    `carrier` names the caller's trace, where the message does not."""

    def __init__(self, rt: Runtime, tenant: str, refused: OnError, carrier: Carrier) -> None:
        self._rt = rt
        self._carrier = carrier
        self._tenant = tenant
        self._refused = refused

    async def answer(self, call: RpcCall) -> dict[str, Any]:
        """The `result` of the response. Raises RpcError."""
        table = _STATELESS if call.is_stateless else _HANDSHAKE
        if call.method not in table:
            raise RpcError(RpcCode.METHOD_NOT_FOUND, f"There is no such method. There is {', '.join(table)}.")
        result = await self._traced(table[call.method], call)
        if call.is_stateless:
            result |= {"resultType": "complete", "_meta": {f"{MCP_META}serverInfo": _SERVER}}
            if call.method != "tools/call":
                result |= {"ttlMs": 0, "cacheScope": "private"}
        return result

    async def _traced(self, method: "Method", call: RpcCall) -> dict[str, Any]:
        if call.method not in _TRACED:
            return await method(self, call)
        observer = self._rt.observer
        with observer.part(READ, _carrier_in(call) or self._carrier, call.method):
            try:
                return await method(self, call)
            except RpcError as error:
                observer.failed(error.code.name.lower())
                raise

    def _offered(self) -> list[Tool]:
        return offered_tools(self._rt.policies.policy("", None))

    def _instructions(self) -> dict[str, str]:
        text = instructions(self._offered())
        return {"instructions": text} if text else {}

    async def initialize(self, call: RpcCall) -> dict[str, Any]:
        version = _text(call.params, "protocolVersion")
        return {
            "protocolVersion": version if version in HANDSHAKE else HANDSHAKE[0],
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER,
            **self._instructions(),
        }

    async def discover(self, call: RpcCall) -> dict[str, Any]:
        return {
            "supportedVersions": [STATELESS],
            "capabilities": _CAPABILITIES,
            **self._instructions(),
        }

    async def ping(self, call: RpcCall) -> dict[str, Any]:
        return {}

    async def list_tools(self, call: RpcCall) -> dict[str, Any]:
        """Returns all tools that the policy offers, even if nothing is stored: many clients ask only once."""
        return {"tools": definitions(self._offered(), self._rt.modes, ToolFormat.MCP)}

    async def call_tool(self, call: RpcCall) -> dict[str, Any]:
        """Calls a tool. The handle names the session, as a request has no session. The model can correct
        wrong arguments."""
        name, arguments = _text(call.params, "name"), call.params.get("arguments")
        handle = arguments.get("handle") if isinstance(arguments, dict) else None
        if isinstance(handle, str | list) and handle:
            handle = split_handles(handle)[0] if isinstance(handle, str) else handle[0]
        key = SessionKey(self._tenant, session_named_in(handle, DEFAULT_SESSION))
        try:
            answer = await call_tool(key, name, arguments, self._rt)
            text, is_error = answer.text, answer.is_error
        except SpillgateError as error:
            self._refused(error)
            text, is_error = error.detail, True
        return {"content": [{"type": "text", "text": text}], "isError": is_error}

    async def list_resources(self, call: RpcCall) -> dict[str, Any]:
        """Returns an empty list: a request has no session, and the results of a tenant are too many for a
        list."""
        return {"resources": []}

    async def list_templates(self, call: RpcCall) -> dict[str, Any]:
        return {"resourceTemplates": [_TEMPLATE]}

    async def read_resource(self, call: RpcCall) -> dict[str, Any]:
        uri = _text(call.params, "uri")
        unknown = RpcCode.INVALID_PARAMS if call.is_stateless else RpcCode.RESOURCE_NOT_FOUND
        match = _URI.fullmatch(uri)
        if match is None:
            raise RpcError(unknown, f"There is no such resource. There is {URI_TEMPLATE}?offset=1.")
        handle = f"{unquote(match[1])}/{unquote(match[2])}"
        key = SessionKey(self._tenant, session_named_in(handle, DEFAULT_SESSION))
        try:
            answer = await read_lines(key, handle, int(match[3] or 1), self._rt)
        except (NotFound, Gone) as error:
            raise RpcError(unknown, error.detail) from None
        except SpillgateError as error:
            self._refused(error)
            raise RpcError(RpcCode.INTERNAL_ERROR, error.detail) from None
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": answer.text}]}


def _carrier_in(call: RpcCall) -> Carrier:
    """What the message says of its caller's trace, as MCP's SDKs write it."""
    meta = call.params.get("_meta")
    named = meta if isinstance(meta, dict) else {}
    return {one: named[one] for one in ("traceparent", "tracestate") if isinstance(named.get(one), str)}


def _text(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RpcError(RpcCode.INVALID_PARAMS, f"`{name}` must be a string.")
    return value


Method = Callable[[Methods, RpcCall], Awaitable[dict[str, Any]]]

_BOTH: dict[str, Method] = {
    "tools/list": Methods.list_tools,
    "tools/call": Methods.call_tool,
    "resources/list": Methods.list_resources,
    "resources/templates/list": Methods.list_templates,
    "resources/read": Methods.read_resource,
}
_STATELESS: dict[str, Method] = {"server/discover": Methods.discover, **_BOTH}
_HANDSHAKE: dict[str, Method] = {"initialize": Methods.initialize, "ping": Methods.ping, **_BOTH}
