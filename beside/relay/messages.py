"""JSON-RPC messages as texts: a part of a message that the relay does not change keeps its bytes."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from domain.mcp import MCP_META
from machine.descriptors import Buffer

Id = str | int | float

NOT_JSON = (ValueError, RecursionError)
INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603

_BLANK = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r'[^\s,:\[\]{}"]+')
_QUOTE_OR_BRACKET = re.compile(r'["\[\]{}]')
_PART = re.compile(r'[^"\\]*(?:\\.[^"\\]*){0,4096}', re.DOTALL)
"""A part of a string that ends with no half of an escape. Regular expressions and json.loads take about 100
bytes of memory for each escape."""

_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


class LazyJson:
    """A JSON value within a text, decoded on demand: of a large result only a few members are needed, and
    decoded rows take many times the memory of their text."""

    def __init__(self, source: str, start: int = 0, end: int | None = None) -> None:
        self._source = source
        self._start = start
        self._end = len(source) if end is None else end

    @property
    def text(self) -> str:
        return self._source[self._start : self._end]

    @property
    def size(self) -> int:
        """Characters of the text."""
        return self._end - self._start

    @property
    def is_object(self) -> bool:
        return self._source.startswith("{", self._start)

    @property
    def is_string(self) -> bool:
        return self._source.startswith('"', self._start)

    def parts(self) -> Iterator[str]:
        """The text that a string holds, decoded in parts. Raises NOT_JSON."""
        at, end = self._start + 1, self._end - 1
        while at < end:
            match = _PART.match(self._source, at, end)
            stop = end if match is None else match.end()
            if at + 6 < stop < end and _HALF_OF_A_PAIR.search(self._source, stop - 6, stop):
                stop -= 6
            part: str = json.loads(f'"{self._source[at:stop]}"', strict=False)
            yield part
            at = stop

    @cached_property
    def members(self) -> dict[str, "LazyJson"]:
        """The members of an object; none of any other value. Raises NOT_JSON."""
        members = {}
        for key, value in self._items("{", "}"):
            name = None if key is None else key.value()
            if not isinstance(name, str):
                raise ValueError("The text is not JSON.")
            members[name] = value
        return members

    def elements(self) -> list["LazyJson"]:
        """The elements of a list; none of any other value. Raises NOT_JSON."""
        return [element for _, element in self._items("[", "]")]

    def _items(self, opening: str, closing: str) -> Iterator[tuple["LazyJson | None", "LazyJson"]]:
        """The keys and values of an object, or the elements of a list, whose key is None."""
        text = self._source
        if not text.startswith(opening, self._start):
            return
        at = _after_blank(text, self._start + 1)
        while not text.startswith(closing, at):
            key = None
            if opening == "{":
                key = LazyJson(text, at, _end_of(text, at))
                colon = _after_blank(text, key._end)
                if not text.startswith(":", colon):
                    raise ValueError("The text is not JSON.")
                at = _after_blank(text, colon + 1)
            value = LazyJson(text, at, _end_of(text, at))
            yield key, value
            at = _after_blank(text, value._end)
            if text.startswith(",", at):
                at = _after_blank(text, at + 1)
            elif not text.startswith(closing, at):
                raise ValueError("The text is not JSON.")

    def value(self) -> Any:
        """Decoded. Raises NOT_JSON."""
        return json.loads(self.text)

    def member(self, *names: str) -> "LazyJson | None":
        """Returns the value at these names, undecoded; None if there is none. Raises NOT_JSON."""
        member: LazyJson | None = self
        for name in names:
            member = None if member is None else member.members.get(name)
        return member

    def inner(self, *names: str) -> Any:
        """The value at these names; None if there is none. Raises NOT_JSON."""
        member = self.member(*names)
        return None if member is None else member.value()

    def replaced(self, changes: Mapping[str, str | None]) -> str:
        """Returns the text of this object with these members, each a JSON text, replaced. None removes a
        member."""
        texts = {name: one.text for name, one in self.members.items() if name not in changes}
        return written(texts | {name: text for name, text in changes.items() if text is not None})


def _after_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def _end_of(text: str, at: int) -> int:
    """Returns the end of the value that begins here. Raises ValueError."""
    if text.startswith('"', at):
        return _end_of_string(text, at)
    if not text.startswith(("{", "["), at):
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            raise ValueError("The text is not JSON.")
        return scalar.end()
    depth = 0
    while (token := _QUOTE_OR_BRACKET.search(text, at)) is not None:
        at = token.end()
        if token[0] == '"':
            at = _end_of_string(text, token.start())
            continue
        depth += 1 if token[0] in "{[" else -1
        if depth == 0:
            return at
    raise ValueError("The text is not JSON.")


def _end_of_string(text: str, at: int) -> int:
    at += 1
    while (part := _PART.match(text, at)) is not None and not text.startswith('"', part.end()):
        if part.end() == at:
            raise ValueError("The text is not JSON.")
        at = part.end()
    return part.end() + 1 if part is not None else at


def parse(message: Buffer) -> LazyJson:
    """A message that is an object. NaN, Infinity and bytes that are not UTF-8, which some servers send, are
    read. Raises NOT_JSON."""
    text = str(message, "utf-8", "replace")
    start = _after_blank(text, 0)
    value = LazyJson(text, start, _end_of(text, start))
    if not value.is_object or text[value._end :].strip():
        raise ValueError("A message is an object.")
    return value


def is_batch(message: Buffer) -> bool:
    """True for a list of messages, which MCP no longer has."""
    return bytes(message[:64]).lstrip()[:1] == b"["


def id_of(message: LazyJson) -> Id | None:
    """The id of a request or a response. Raises NOT_JSON."""
    id = message.inner("id")
    return id if isinstance(id, str | int | float) else None


def method_of(message: LazyJson) -> str | None:
    method = message.inner("method")
    return method if isinstance(method, str) else None


def client_info(message: LazyJson) -> Any:
    """Name and version of the client, as a request of either era says them; None if it does not. Raises
    NOT_JSON."""
    named = message.inner("params", "_meta", f"{MCP_META}clientInfo")
    return named or message.inner("params", "clientInfo")


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
