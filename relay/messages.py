"""JSON-RPC messages as texts: a part of a message that the relay does not change keeps its bytes."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from command.jsonc import Malformed, Node, members_of, parse_node

Buffer = bytes | bytearray | memoryview
Id = str | int | float

NOT_JSON = (Malformed, ValueError, RecursionError)


class Json(NamedTuple):
    """A value and its text."""

    value: Any
    text: str

    def inner(self, *names: str) -> Any:
        """The value at these names; None if there is none."""
        found = self.value
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def members(self) -> dict[str, "Json"]:
        """The members of an object. A name that is there twice has its last value, as for any reader."""
        return {one.key: self._at(one.node) for one in self._nodes() if one.key is not None}

    def elements(self) -> list["Json"]:
        """The elements of a list."""
        return [self._at(one.node) for one in self._nodes()]

    def _nodes(self) -> Any:
        start = len(self.text) - len(self.text.lstrip())
        return members_of(self.text, Node(start, len(self.text), self.value))

    def _at(self, node: Node) -> "Json":
        return Json(node.value, self.text[node.start : node.end])

    def replaced(self, changes: Mapping[str, str | None]) -> str:
        """The text of this object with these members, each a JSON text, in place of its own; None leaves a
        member out."""
        texts = {name: one.text for name, one in self.members().items()} | dict(changes)
        return written({name: text for name, text in texts.items() if text is not None})


def parse(message: Buffer) -> Json:
    """A message that is an object. NaN and the infinities, which JSON lacks and servers send, are read. Raises
    NOT_JSON."""
    text = bytes(message).decode()
    found = parse_node(text, refuse_constants=False)
    if not isinstance(found.value, dict):
        raise ValueError("A message is an object.")
    return Json(found.value, text)


def is_batch(message: Buffer) -> bool:
    """True for a list of messages, which MCP no longer has."""
    return bytes(message[:64]).lstrip()[:1] == b"["


def id_of(message: Json) -> Id | None:
    """The id of a request or a response."""
    found = message.inner("id")
    return found if isinstance(found, str | int | float) else None


def method_of(message: Json) -> str | None:
    found = message.inner("method")
    return found if isinstance(found, str) else None


def written(fields: Mapping[str, str]) -> str:
    """A JSON object of members that are JSON texts."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}"


def failure(request: str, code: int, reason: str) -> bytes:
    """The response to a request whose id is this JSON text."""
    error = {"code": code, "message": f"spillgate mcp: {reason}"}
    return f'{{"jsonrpc":"2.0","id":{request},"error":{json.dumps(error)}}}'.encode()


def on_one_line(message: bytes) -> bytes:
    """JSON without line ends. A string in JSON holds none, so all of them are white space."""
    return message.replace(b"\r", b" ").replace(b"\n", b" ")
