"""Edits of a JSON text, with or without comments, that keep every byte of what others wrote.

What is added is written so that `removed` can undo it: directly after the opening bracket of a
container that was there, and behind a space or a line break in one that had to be made.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# The group is what stays.
_STRING_OR_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA_WITHOUT_VALUE = r"[{\[,][ \t\r\n]*,"
_STRING_OR_TRAILING_COMMA = re.compile(
    rf"({_STRING}|{_COMMA_WITHOUT_VALUE})|,(?=[ \t\r\n]*[}}\]])", re.DOTALL
)
_BLANK = re.compile(r"[ \t\r\n]*")

_value_at = json.JSONDecoder().raw_decode

KeyPath = tuple[str, ...]


class Malformed(Exception):
    """The text is not JSON. The message names the line, or the constant that JSON lacks."""


class Misfit(Exception):
    """A container has another type than the edit needs. The message names it."""


class Node(NamedTuple):
    """A value and where it stands."""

    start: int
    end: int
    value: Any


class Member(NamedTuple):
    """A member of an object or a list. `start` is that of the key, if there is one."""

    start: int
    key: str | None
    node: Node


def parse(text: str, *, has_comments: bool) -> Any:
    """The value of the whole text. With comments, trailing commas are allowed too. Raises Malformed."""
    return _root(_plain(text, has_comments)).value


def _plain(text: str, has_comments: bool) -> str:
    """The same JSON with spaces in place of a byte order mark, comments and trailing commas."""
    plain = re.sub(r"\A\ufeff", " ", text)
    if has_comments:
        plain = _STRING_OR_COMMENT.sub(_blanked, plain)
        plain = _STRING_OR_TRAILING_COMMA.sub(_blanked, plain)
    return plain


def _blanked(match: re.Match[str]) -> str:
    return match[1] or re.sub(r"[^\n]", " ", match[0])


def _root(plain: str) -> Node:
    """Raises Malformed."""
    try:
        return Node(_after_blank(plain, 0), len(plain), json.loads(plain, parse_constant=_refused))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"line {getattr(error, 'lineno', 1)}") from None


def _refused(constant: str) -> NoReturn:
    """Python reads NaN and the infinities, others do not."""
    raise Malformed(f"`{constant}`")


def _after_blank(plain: str, at: int) -> int:
    blank = _BLANK.match(plain, at)
    assert blank is not None
    return blank.end()


def _members(plain: str, node: Node) -> list[Member]:
    """Those of an object or a list; none of any other value."""
    members: list[Member] = []
    if not isinstance(node.value, dict | list):
        return members
    at = _after_blank(plain, node.start + 1)
    while plain[at] not in "}]":
        key, start = None, at
        if isinstance(node.value, dict):
            key, colon = _value_at(plain, at)
            at = _after_blank(plain, _after_blank(plain, colon) + 1)
        value, end = _value_at(plain, at)
        members.append(Member(start, key, Node(at, end, value)))
        at = _after_blank(plain, end)
        if plain[at] == ",":
            at = _after_blank(plain, at + 1)
    return members


def _member(plain: str, node: Node, key: str) -> Member | None:
    """The last one counts, as for any reader of JSON."""
    return next((one for one in reversed(_members(plain, node)) if one.key == key), None)


def added(text: str, keys: KeyPath, entry: Any, *, has_comments: bool) -> str:
    """The text with `entry` at these keys; if it is a list, with its items before those of the list there.
    Raises Malformed, Misfit."""
    plain = _plain(text, has_comments)
    at = root = _root(plain)
    outer = keys if isinstance(entry, list) else keys[:-1]
    left = list(outer)
    while left and (member := _member(plain, at, left[0])) is not None:
        at = member.node
        del left[0]
    has_list = isinstance(entry, list) and not left
    if not isinstance(at.value, list if has_list else dict):
        raise Misfit(".".join(outer[: len(outer) - len(left)]) or "the whole")

    members = _members(plain, at)
    indent = _line_indent(text, members[0].start) if members else None
    newline = "\r\n" if "\r\n" in text else "\n"
    first = _members(plain, root)[:1]
    unit = (_line_indent(text, first[0].start) if first else None) or "  "

    def written(value: Any) -> str:
        lines = json.dumps(value, indent=unit)
        return re.sub(r"\n\s*", " ", lines) if indent is None else lines.replace("\n", newline + indent)

    if has_list:
        parts = [written(item) for item in entry]
    else:
        name, *made = left if isinstance(entry, list) else [*left, keys[-1]]
        for key in reversed(made):
            entry = {key: entry}
        parts = [f"{json.dumps(name)}: {written(entry)}"]
    if not members:
        addition = ", ".join(parts)
    elif indent is None:
        addition = "".join(f"{part}, " for part in parts)
    else:
        addition = "".join(f"{newline}{indent}{part}," for part in parts)
    opening = at.start + 1
    return text[:opening] + addition + text[opening:]


def _line_indent(text: str, at: int) -> str | None:
    """The white space before what begins a line; None for what does not begin one."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if "\n" in text[:at] and not before.strip(" \t") else None


def removed(text: str, keys: KeyPath, is_ours: Callable[[Any], bool] | None, *, has_comments: bool) -> str:
    """The text without the member at these keys, or without Spillgate's items of the list there. Undoes
    `added`, and removes containers that it made. Raises Malformed."""
    while True:
        plain = _plain(text, has_comments)
        path = [_root(plain)]
        for key in keys if is_ours else keys[:-1]:
            member = _member(plain, path[-1], key)
            if member is None:
                return text
            path.append(member.node)
        node = path[-1]
        members = _members(plain, node)
        if is_ours is None:
            chosen = [index for index, one in enumerate(members) if one.key == keys[-1]]
        else:
            is_list = isinstance(node.value, list)
            chosen = [index for index, one in enumerate(members) if is_list and is_ours(one.node.value)]
        if not chosen:
            return text
        while len(chosen) == len(members) and len(path) > 1 and text[node.start + 1].isspace():
            inner = path.pop()
            node = path[-1]
            members = _members(plain, node)
            chosen = [index for index, one in enumerate(members) if one.node == inner]
        text = _without(text, node, members, chosen[0])


def _without(text: str, node: Node, members: list[Member], index: int) -> str:
    """Without this member, and the comma and the white space that `added` wrote with it."""
    opening = node.start + 1
    start, end = members[index].start, members[index].node.end
    if index + 1 == len(members):
        if index:
            return text[: members[index - 1].node.end] + text[end:]
        return text[:start] + re.sub(r"\A\s*,", "", text[end:])
    if index == 0 and text[opening:start].isspace() and text[end] == ",":
        return text[:opening] + text[end + 1 :]
    if index == 0 and text.startswith(", ", end):
        return text[:start] + text[end + 2 :]
    return text[:start] + text[members[index + 1].start :]
