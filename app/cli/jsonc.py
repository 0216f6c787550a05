"""Edits of a JSON text, with or without comments, that keep every byte of what others wrote.

What is added is written so that `removed` finds its way back: directly after the opening bracket of a
container that was there, and behind a space or a line break in one that had to be made.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_BLANK = re.compile(r"[ \t\r\n]*")
_BLANK_OR_COMMENT = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
_MAX_DEPTH = 100

Keys = tuple[str, ...]
IsOurs = Callable[[Any], bool]


class Malformed(Exception):
    """The text is not JSON. The message names the line."""


class Misfit(Exception):
    """A container has another type than the edit needs. The message names it."""


class Node(NamedTuple):
    """A value and where it stands. `members` are those of an object or a list; `is_list` tells them apart."""

    start: int
    end: int
    value: Any
    members: "tuple[Member, ...]" = ()
    is_list: bool = False


class Member(NamedTuple):
    """`start` is that of the key, if there is one."""

    start: int
    key: str | None
    node: Node


def parse(text: str, *, has_comments: bool) -> Node:
    """The whole text. With comments, trailing commas are allowed too. Raises Malformed."""
    parser = _Parser(text, has_comments)
    node = parser.value(parser.blank(len(text) - len(text.removeprefix("\ufeff"))), 0)
    if parser.blank(node.end) != len(text):
        raise parser.malformed(node.end)
    return node


class _Parser:
    def __init__(self, text: str, has_comments: bool) -> None:
        self._text = text
        self._blank = _BLANK_OR_COMMENT if has_comments else _BLANK
        self._trailing_comma = has_comments

    def malformed(self, at: int) -> Malformed:
        return Malformed(f"line {self._text.count(chr(10), 0, at) + 1}")

    def blank(self, at: int) -> int:
        found = self._blank.match(self._text, at)
        assert found is not None
        return found.end()

    def value(self, at: int, depth: int) -> Node:
        opening = self._text[at : at + 1]
        if opening and opening in "{[":
            if depth == _MAX_DEPTH:
                raise self.malformed(at)
            return self._container(at, depth, "}" if opening == "{" else "]")
        return self._scalar(at)

    def _scalar(self, at: int) -> Node:
        found = _SCALAR.match(self._text, at)
        try:
            value = json.loads(found[0]) if found else None
        except ValueError:
            found = None
        if found is None:
            raise self.malformed(at)
        return Node(at, found.end(), value)

    def _container(self, start: int, depth: int, closing: str) -> Node:
        text, members = self._text, []
        at = self.blank(start + 1)
        while text[at : at + 1] != closing:
            key, first = None, at
            if closing == "}":
                name = self._scalar(at)
                at = self.blank(name.end)
                if not isinstance(name.value, str) or text[at : at + 1] != ":":
                    raise self.malformed(at)
                key, at = name.value, self.blank(at + 1)
            member = Member(first, key, self.value(at, depth + 1))
            members.append(member)
            at = self.blank(member.node.end)
            if text[at : at + 1] == ",":
                at = self.blank(at + 1)
                if text[at : at + 1] == closing and not self._trailing_comma:
                    raise self.malformed(at)
            elif text[at : at + 1] != closing:
                raise self.malformed(at)
        is_list = closing == "]"
        value: Any = {one.key: one.node.value for one in members}
        if is_list:
            value = [one.node.value for one in members]
        return Node(start, at + 1, value, tuple(members), is_list)


def added(text: str, keys: Keys, entry: Any, *, has_comments: bool) -> str:
    """The text with `entry` at these keys; if it is a list, with its items before those of the list there.
    Raises Malformed, Misfit."""
    at = parse(text, has_comments=has_comments)
    style = _Style.of(text, at)
    outer = keys if isinstance(entry, list) else keys[:-1]
    left = list(outer)
    while left and (found := _member(at, left[0])) is not None:
        at = found.node
        del left[0]
    wanted = isinstance(entry, list) and not left
    if at.is_list != wanted or not isinstance(at.value, list if wanted else dict):
        raise Misfit(".".join(outer[: len(outer) - len(left)]) or "the whole")
    entries = entry if wanted else [entry]
    if not wanted:
        left = left if isinstance(entry, list) else [*left, keys[-1]]
    opening = at.start + 1
    if not at.members:
        made = ", ".join(_nested(left, one, None) for one in entries)
        return text[:opening] + made + text[opening:]
    indent = style.indent_of(text, at)
    if indent is None:
        made = "".join(_nested(left, one, None) + ", " for one in entries)
    else:
        lines = style._replace(indent=indent)
        made = "".join(f"{style.newline}{indent}{_nested(left, one, lines)}," for one in entries)
    return text[:opening] + made + text[opening:]


def removed(text: str, keys: Keys, is_ours: IsOurs | None, *, has_comments: bool) -> str:
    """The text without the member at these keys, or without the items of the list there that are ours. Undoes
    `added`, and removes containers that it made. Raises Malformed."""
    while True:
        path = [parse(text, has_comments=has_comments)]
        for key in keys if is_ours else keys[:-1]:
            found = _member(path[-1], key)
            if found is None:
                return text
            path.append(found.node)
        node = path[-1]
        if is_ours is None:
            chosen = [index for index, one in enumerate(node.members) if one.key == keys[-1]]
        else:
            chosen = [i for i, one in enumerate(node.members) if node.is_list and is_ours(one.node.value)]
        if not chosen:
            return text
        while len(chosen) == len(node.members) and len(path) > 1 and text[node.start + 1].isspace():
            inner = path.pop()
            node = path[-1]
            chosen = [index for index, one in enumerate(node.members) if one.node is inner]
        run = 1
        while run < len(chosen) and chosen[run] == chosen[run - 1] + 1:
            run += 1
        text = _without(text, node, chosen[0], chosen[run - 1])


def _without(text: str, node: Node, first: int, last: int) -> str:
    """Without these members, and the comma and the white space that `added` wrote with them."""
    members, opening = node.members, node.start + 1
    start, end = members[first].start, members[last].node.end
    if last + 1 == len(members):
        if first:
            return text[: members[first - 1].node.end] + text[end:]
        return text[:start] + re.sub(r"\A\s*,", "", text[end:])
    if first == 0 and text[opening:start].isspace() and text[end] == ",":
        return text[:opening] + text[end + 1 :]
    if first == 0 and text.startswith(", ", end):
        return text[:start] + text[end + 2 :]
    return text[:start] + text[members[last + 1].start :]


def _member(node: Node, key: str) -> Member | None:
    """The last one counts, as for any reader of JSON."""
    return next((one for one in reversed(node.members) if one.key == key), None)


class _Style(NamedTuple):
    newline: str
    unit: str
    indent: str = ""

    @classmethod
    def of(cls, text: str, root: Node) -> "_Style":
        unit = _line_indent(text, root.members[0].start) if root.members else None
        return cls("\r\n" if "\r\n" in text else "\n", unit or "  ")

    def indent_of(self, text: str, node: Node) -> str | None:
        """Of the first member, if it begins a line."""
        return _line_indent(text, node.members[0].start)


def _line_indent(text: str, at: int) -> str | None:
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if "\n" in text[:at] and not before.strip(" \t") else None


def _nested(keys: Sequence[str], entry: Any, style: _Style | None) -> str:
    """`entry` within containers for the keys: on one line, or with a line for each member."""
    if not keys:
        return _dumped(entry, style)
    inner = style and style._replace(indent=style.indent + style.unit)
    if len(keys) > 1:
        body, brackets = [_nested(keys[1:], entry, inner)], "{}"
    elif isinstance(entry, list):
        body, brackets = [_dumped(one, inner) for one in entry], "[]"
    else:
        return f"{json.dumps(keys[0])}: {_dumped(entry, style)}"
    if style is None or inner is None:
        made = f" {', '.join(body)} "
    else:
        line = style.newline + inner.indent
        made = line + f",{line}".join(body) + style.newline + style.indent
    return f"{json.dumps(keys[0])}: {brackets[0]}{made}{brackets[1]}"


def _dumped(value: Any, style: _Style | None) -> str:
    if style is None:
        return json.dumps(value)
    return json.dumps(value, indent=style.unit).replace("\n", style.newline + style.indent)
