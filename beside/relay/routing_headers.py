"""HTTP headers that repeat parts of an MCP request, as the version without sessions requires."""

import base64
import re
from collections.abc import Iterator
from typing import Any

from beside.relay.messages import LazyJson
from domain.mcp import MCP_META, NAMED_BY

VERSION = "MCP-Protocol-Version"
_META_VERSION = f"{MCP_META}protocolVersion"
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=$)[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

ArgumentPath = tuple[str, ...]


class RoutingHeaders:
    """Headers that repeat parts of a request of version 2026-07-28, so that proxies can route by them. Knows
    from `tools/list` which arguments of a tool are repeated: those marked `x-mcp-header`."""

    def __init__(self) -> None:
        self._arguments: dict[str, dict[ArgumentPath, str]] = {}

    def note(self, message: LazyJson) -> None:
        """Notes the marked arguments in a response to `tools/list`. Raises NOT_JSON."""
        tools = message.inner("result", "tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                self._arguments[str(tool.get("name"))] = dict(_marked(tool.get("inputSchema"), ()))

    def of(self, message: LazyJson) -> dict[str, str]:
        """The headers of a request; none for one of another version."""
        method, version = message.inner("method"), message.inner("params", "_meta", _META_VERSION)
        if not isinstance(method, str) or not isinstance(version, str):
            return {}
        headers = {VERSION: version, "Mcp-Method": method}
        name = message.inner("params", NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = encoded(name)
        marked = self._arguments.get(name) if method == "tools/call" and isinstance(name, str) else None
        for path, token in (marked or {}).items():
            argument = _at(message.inner("params", "arguments"), path)
            if argument is not None:
                headers[f"Mcp-Param-{token}"] = encoded(argument)
        return headers


def _marked(schema: Any, path: ArgumentPath) -> Iterator[tuple[ArgumentPath, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inside in properties.items() if isinstance(properties, dict) else ():
        token = inside.get("x-mcp-header") if isinstance(inside, dict) else None
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            yield (*path, name), token
        yield from _marked(inside, (*path, name))


def _at(value: Any, path: ArgumentPath) -> str | None:
    """The argument as text; None if it is absent, or no string, number or boolean."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def encoded(value: str) -> str:
    """The value of a header for any text, as the protocol wants it."""
    if _PLAIN.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="
