"""HTTP headers that repeat parts of an MCP request, as the version without sessions wants them."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from domain.doors import NAMED_BY
from relay.messages import inner, members, text
from relay.streams import Buffer

VERSION = "MCP-Protocol-Version"
_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=$)[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Path = tuple[str, ...]


class RoutingHeaders:
    """Headers that repeat parts of a request of version 2026-07-28, so that proxies can route by them. Knows
    from `tools/list` which arguments of a tool are repeated: those marked `x-mcp-header`."""

    def __init__(self) -> None:
        self._arguments: dict[str, dict[Path, str]] = {}

    def note(self, message: Buffer) -> None:
        """Notes the marked arguments in a response to `tools/list`. Raises NOT_JSON."""
        tools = inner(members(message), "result").get("tools")
        for tool in json.loads(bytes(tools)) if tools is not None else ():
            if isinstance(tool, dict):
                self._arguments[str(tool.get("name"))] = dict(_marked(tool.get("inputSchema"), ()))

    def of(self, method: str, params: dict[str, Raw]) -> dict[str, str]:
        """The headers of a request; none for one of another version. Raises NOT_JSON."""
        version = text(inner(params, "_meta").get(_META_VERSION))
        if version is None:
            return {}
        headers = {VERSION: version, "Mcp-Method": method}
        name = text(params.get(NAMED_BY.get(method, "")))
        if name is not None:
            headers["Mcp-Name"] = encoded(name)
        marked = self._arguments.get(name or "") if method == "tools/call" else None
        if marked and "arguments" in params:
            arguments = json.loads(bytes(params["arguments"]))
            for path, token in marked.items():
                found = _at(arguments, path)
                if found is not None:
                    headers[f"Mcp-Param-{token}"] = encoded(found)
        return headers


def _marked(schema: Any, path: Path) -> Iterator[tuple[Path, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inside in properties.items() if isinstance(properties, dict) else ():
        token = inside.get("x-mcp-header") if isinstance(inside, dict) else None
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            yield (*path, name), token
        yield from _marked(inside, (*path, name))


def _at(found: Any, path: Path) -> str | None:
    """The argument as text; None if it is absent, or no string, number or boolean."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) else None


def encoded(value: str) -> str:
    """The value of a header for any text, as the protocol wants it."""
    if _PLAIN.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="
