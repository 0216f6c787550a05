"""Splits data into passages: text by its sections, JSON and literals of Python between members."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from content.kinds import Kind, sniff
from content.passages import text_sections
from content.passages.text_sections import AIM, LEAST, MOST, REACH, Place, cut_between
from content.text import DOUBLE_QUOTED, SINGLE_QUOTED

_LITERAL = re.compile(rb"\s*(?:[\[({]\s*[\[({]*\s*['\"]|[\[(]\s*[\[(]\s*-?\d)")
_HEAD = 256
_DEEPEST = 64
_LONGEST_KEY = 200
_LONGEST_PATH = 200

# More brackets would take too long; such data is mostly noise or numbers, which need no paths.
_MOST_OPENINGS = 300_000

# The text before a bracket, 1,000 strings at a time: a call of `re` holds the interpreter.
_JSON_RUN = re.compile(rb'(?>(?:[^"{}\[\]]++|%b){0,2000})([{}\[\]]?+)' % DOUBLE_QUOTED, re.DOTALL)
_LITERAL_RUN = re.compile(
    rb"(?>(?:[^\"'{}\[\]()]++|%b|%b){0,2000})([{}\[\]()]?+)" % (DOUBLE_QUOTED, SINGLE_QUOTED), re.DOTALL
)
_STRING = re.compile(rb"%b|%b" % (DOUBLE_QUOTED, SINGLE_QUOTED), re.DOTALL)

# This many members without brackets, with their commas.
_MEMBERS = rb"(?:[^%b,]*+(?>(?:(?:%b)[^%b,]*+)*),){%d}"
_STEPS = (64, 8, 1)
_WHOLE_DOUBLE = rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
_WHOLE_EITHER = _WHOLE_DOUBLE + rb"|'[^'\\]*+(?>(?:\\.[^'\\]*+)*)'"
_FEW_JSON, _FEW_LITERAL = (
    [(step, re.compile(_MEMBERS % (quotes, string, quotes, step), re.DOTALL)) for step in _STEPS]
    for quotes, string in ((b'"', _WHOLE_DOUBLE), (b"\"'", _WHOLE_EITHER))
)
_LINE_END = re.compile(rb"[ \t]*\r?\n")
_PLAIN_KEY = re.compile(r"[\w$][\w$-]*\Z")

# The member that names an object, behind others that are short. An id is the last choice.
_NAME_BYTES = 512
_VALUE = rb"""(?:%b|%b|[^"'{}\[\],]++|\[[^{}\[\]]*+\]|\{[^{}\[\]]*+\})""" % (DOUBLE_QUOTED, SINGLE_QUOTED)
_NAMED = [
    re.compile(
        rb"""\s*+\{\s*+(?:["'][^"'\\\\]{1,40}["']\s*+:\s*+%b\s*+,\s*+)*?["'](?:%b)["']\s*+:\s*+["']([^"'\\]{1,60})["']"""
        % (_VALUE, keys),
        re.DOTALL,
    )
    for keys in (rb"name|key|path|title", rb"id")
]
_OPENING = (b"{", b"[", b"(")
_COMMA_SIGN = ord(",")


@dataclass(frozen=True, slots=True)
class Passage:
    """Bytes `start` to before `end`, on lines `line` to `last_line` (1-based). `path` is the place in the
    structure, or "". `opened` is a place from which its brackets can be matched, -1 if unknown."""

    start: int
    end: int
    line: int
    last_line: int
    path: str
    opened: int = -1


def split(data: bytes, tool_name: str = "") -> Iterator[Passage]:
    """Yields passages in order. Every byte is in exactly one passage, and no valid character is cut. Linear
    in the size of any data."""
    line = 1
    for place, following in pairwise(chain(_places(data, tool_name), (Place(len(data), ""),))):
        if place.at < following.at:
            breaks = data.count(b"\n", place.at, following.at - 1)
            yield Passage(place.at, following.at, line, line + breaks, place.path, place.opened)
            line += breaks + data.endswith(b"\n", place.at, following.at)


def _places(data: bytes, tool_name: str) -> Iterator[Place]:
    kind = sniff(data, tool_name)
    if _is_literal(data, kind):
        return _json_places(data)
    return text_sections.places(data, kind)


def _is_literal(data: bytes, kind: Kind) -> bool:
    """True if the data is JSON or similar, and not too dense."""
    if kind not in (Kind.JSON, Kind.NDJSON) and not (kind is Kind.TEXT and _LITERAL.match(data[:_HEAD])):
        return False
    return sum(map(data.count, _OPENING)) <= _MOST_OPENINGS


def _json_places(data: bytes) -> Iterator[Place]:
    """Yields the outermost places between LEAST and MOST bytes apart; without any, cuts as in text."""
    place = Place(0, "", 0)
    walk = _Walk(data)
    for found in walk.members():
        while found.at - place.at > MOST:
            yield place
            place = walk.next(place)
            walk.earliest = place.at + LEAST
        if found.at >= walk.earliest:
            walk.pending.append(found)
    while len(data) - place.at > MOST:
        yield place
        place = walk.next(place)
    yield place


@dataclass(slots=True, eq=False)
class _Open:
    """An open list or object that begins at byte `at`. `member` is its index in the parent, or the place of
    its key."""

    parent: "_Open | None"
    at: int
    member: int | tuple[int, int]
    is_list: bool
    index: int = 0
    path: str | None = None


class _Member(NamedTuple):
    """A member that begins at byte `at`, `depth` levels deep, in `around`. `number` is its index in a
    list."""

    at: int
    depth: int
    around: _Open
    number: int


class _Walk:
    """Walks from bracket to bracket. Places before `earliest` are too near to the start of the passage."""

    def __init__(self, data: bytes) -> None:
        self.pending: list[_Member] = []
        self.earliest = LEAST
        self._data = data
        self._recent = deque([0])
        head = data[:8]
        is_literal = b"(" in head[:3] or b"'" in head
        self._run = _LITERAL_RUN if is_literal else _JSON_RUN
        self._few = _FEW_LITERAL if is_literal else _FEW_JSON

    def members(self) -> Iterator[_Member]:
        data, deeper, after = self._data, 0, 0
        stack = [_Open(None, 0, 0, is_list=False)]
        for found in self._run.finditer(data):
            if not found[1] and found.end() < len(data):
                continue
            start, end, bracket, after = after, found.start(1), found[1], found.end()
            top, opens = stack[-1], bracket in _OPENING
            if end - start > AIM:
                yield from self._long(start, end, top, len(stack))
            elif start < end:
                at = self._short(start, end, top, opens, len(stack))
                if at >= self.earliest:
                    yield _Member(at, len(stack), top, top.index)
            if opens and len(stack) < _DEEPEST:
                member = top.index if top.is_list else (start, end)
                stack.append(_Open(top, end, member, bracket != b"{"))
            elif opens:
                deeper += 1
            elif deeper:
                deeper -= 1
            elif len(stack) > 1:
                stack.pop()

    def _short(self, start: int, end: int, top: _Open, opens: bool, depth: int) -> int:
        """Where a member begins in the run, 0 if none does: the member that opens after the run, or the one
        after the member that closed before it."""
        data = self._data
        if end - start <= 2 and data[start] == _COMMA_SIGN:
            top.index += 1
            return end
        if opens:
            if top.is_list:
                text = data[start:end]
                top.index += (_STRING.sub(b"", text) if b'"' in text or b"'" in text else text).count(b",")
            comma = data.rfind(b",", start, end)
            if comma >= 0:
                return comma + 1
        if data[start] == _COMMA_SIGN:
            return start + 1
        # One document after another.
        return data.find(b"\n", start, end) + 1 if depth == 1 else 0

    def _long(self, start: int, end: int, top: _Open, depth: int) -> Iterator[_Member]:
        """Yields members of a long run, many small ones at a time."""
        at = start
        while at < end:
            for count, pattern in self._few:
                found = pattern.match(self._data, at, end if count == 1 else min(end, at + AIM))
                if found:
                    break
            else:
                return
            at = found.end()
            top.index += count
            if at >= self.earliest:
                yield _Member(at, depth, top, top.index)

    def next(self, last: Place) -> Place:
        """The place after the `last` one."""
        start = last.at
        inside = [one for one in self.pending if LEAST <= one.at - start <= MOST]
        if inside:
            best = min(inside, key=lambda one: (one.depth, abs(one.at - start - AIM)))
            line_end = _LINE_END.match(self._data, best.at, start + MOST)
            at = line_end.end() if line_end else best.at
            self.pending = [one for one in self.pending if one.at > at]
            return Place(at, self._path(best), self._opened([best], at))
        at = cut_between(self._data, start)
        passed = [one for one in self.pending if one.at <= at]
        self.pending = [one for one in self.pending if one.at > at]
        return Place(at, self._path(passed[-1]) if passed else last.path, self._opened(passed[-1:], at))

    def _opened(self, members: list[_Member], at: int) -> int:
        """The first place that is known to be in no string, at most REACH + MOST bytes before `at`; or -1."""
        recent = self._recent
        recent.extend(member.at for member in members)
        while recent and at - recent[0] > REACH + MOST:
            recent.popleft()
        return recent[0] if recent else -1

    def _path(self, member: _Member) -> str:
        path = self._around(member.around)
        if member.around.is_list:
            path += self._element(member.at, member.number)
        if len(path) > _LONGEST_PATH:
            path = "…" + path[-_LONGEST_PATH:]
        return "$" + path if path else ""

    def _around(self, around: _Open) -> str:
        if around.path is None:
            place = around.member
            step = self._element(around.at, place) if isinstance(place, int) else self._key(*place)
            around.path = self._around(around.parent) + step if around.parent else ""
        return around.path

    def _element(self, at: int, number: int) -> str:
        """The element of a list that begins at byte `at`: by its name if it has one, else by its number."""
        for pattern in _NAMED:
            if named := pattern.match(self._data, at, at + _NAME_BYTES):
                return f'["{" ".join(named[1].decode("utf-8", "replace").split())}"]'
        return f"[{number}]"

    def _key(self, start: int, end: int) -> str:
        """The key before the colon that ends at `end`."""
        tail = self._data[max(start, end - _LONGEST_KEY) : end].rstrip()
        if tail[-1:] != b":":
            return ""
        tail = tail[:-1].rstrip()
        key = " ".join(tail[tail.rfind(tail[-1:], 0, -1) + 1 : -1].decode("utf-8", "replace").split())
        return f".{key}" if _PLAIN_KEY.match(key) else f'["{key}"]'
