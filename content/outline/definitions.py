"""What a source file defines, and on which lines: a scanner by lines, with a table of patterns."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from content.numbering import Numbered, unnumbered
from content.outline.languages import Language
from content.outline.literals import TOKENS
from content.outline.syntaxes import SYNTAXES, Nesting, Syntax

_LOOKED_AT = 512 * 1024
# One call of the regular expression engine holds the interpreter: it sees no more than this.
_WINDOW = 32 * 1024
# How far a definition that begins in a window may reach beyond it.
_REACH = 4 * 1024
# Half a megabyte of ordinary source has 15,000 lines, 5,000 strings and comments, 1,500 definitions.
_MOST_LINES = 20_000
_MOST_TOKENS = 20_000
_MOST_FOUND = 5_000
_LINE_BYTES = 2048
_DEEPEST = 100
_NAME_CHARS = 120

_LONG_LINE = re.compile(rb"(\n[^\n]{%d})[^\n]++" % _LINE_BYTES)
_TRIPLE_QUOTE = re.compile(rb"\"\"\"|'''")
# What stands before the first docstring of a whole file, and not before the end of one.
_BEFORE_DOCSTRING = re.compile(
    rb"[:(=,\[\\][ \t]*(?:#[^\n]*)?\Z|^[ \t]*(?:def|class|import|from|@|#)\W?", re.MULTILINE
)
# Lines that say how deep they are: a closing bracket does not, nor the end of a string of several lines.
_INDENT = re.compile(rb"\n([ \t]*+)(?=[\w@$\x80-\xff])")
_IN_STRINGS = b"{}()<>;="
_NOT_BRACKETS = {nesting: bytes(set(range(256)) - set(nesting.value)) for nesting in Nesting}
_OPENING = b"{("
_QUOTES = b"\"'`"
_SCOPES = ("namespace", "scope", "extern")
_SHOWN = {"field": "method", "member": "function", "member_type": "type", "closing": "typedef"}
_NEVER_FLUSH = ("define", "closing")


@dataclass(frozen=True, slots=True)
class Definition:
    """`keyword` is the language's own word where it has one; `depth` counts the definitions around it; lines
    count from 1."""

    keyword: str
    name: str
    depth: int
    line: int

    def __str__(self) -> str:
        return f"{self.keyword} {self.name} (line {self.line})"


class _Found(NamedTuple):
    keyword: str
    name: bytes
    depth: int
    row: int


class _Open(NamedTuple):
    """A definition or a scope whose end has not come. `level` is that of its first line: the brackets open
    before it, or its indentation."""

    keyword: str
    name: bytes
    level: int
    is_typedef: bool


def definitions(data: bytes, language: Language, most: int = 200, first_line: int = 1) -> list[Definition]:
    """In the order of their lines; of more than `most` the outermost. At most 512 KiB of `data` and 20,000
    lines are read; the data may be cut anywhere, or be no source at all. Line numbers that a tool put before
    the lines are taken off and used; without them the lines count from `first_line`."""
    source = unnumbered(data[:_LOOKED_AT], first_line)
    found = [_definition(one, source) for one in islice(_scan(source.text, language), _MOST_FOUND)]
    outermost = sorted(found, key=attrgetter("depth"))[:most]
    return sorted(outermost, key=attrgetter("line"))


def _definition(found: _Found, source: Numbered) -> Definition:
    name = " ".join(found.name[: 4 * _NAME_CHARS].decode("utf-8", "replace").split())
    short = name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…"
    return Definition(found.keyword, short, found.depth, source.line(found.row))


def _scan(text: bytes, language: Language) -> Iterator[_Found]:
    syntax = SYNTAXES[language]
    if language is Language.PYTHON:
        text = _without_docstring_end(text)
    code = _bare(b"\n" + text, TOKENS[language])
    around = _Around(syntax)
    groups = syntax.rules.groupindex
    row, counted, done = -1, 0, 0
    for match in _windowed(syntax.rules, code):
        around.advance(code[done : match.start()], match["indent"])
        done = match.end()
        number = int(str(match.lastgroup)[1:])
        word = match[f"w{number}"].decode("utf-8", "replace").lower() if f"w{number}" in groups else ""
        keyword = syntax.keywords[number] or word
        name = match[f"n{number}"] if f"n{number}" in groups else b""
        if not around.admits(keyword, name, match["indent"]) or (syntax.flush and _continues(code, match)):
            continue
        if name:
            start = match.start(f"n{number}")
            row += code.count(b"\n", counted, start)
            counted = start
            yield _Found(word or _SHOWN.get(keyword, keyword), name, around.depth(keyword), row)
        if keyword != "closing" and code[done : done + 1] != b";":
            around.enter(keyword, name, is_typedef=b"typedef" in match[0][:80])


def _continues(code: bytes, match: re.Match[bytes]) -> bool:
    """True for a line after a comma: one more initializer of a constructor, not a function."""
    return code[max(0, match.start() - 80) : match.start()].rstrip()[-1:] == b","


class _Around:
    """The definitions and scopes that a line stands in, outermost first."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._open: list[_Open] = []
        self._level = 0

    def advance(self, passed: bytes, indent: bytes) -> None:
        """Goes over what stands before a line, up to the indentation of that line."""
        nesting = self._syntax.nesting
        if nesting is Nesting.INDENT:
            self._level = _columns(indent)
            self._leave(min(map(_columns, _INDENT.findall(passed)), default=self._level))
        else:
            for bracket in passed.translate(None, _NOT_BRACKETS[nesting]):
                if bracket in _OPENING:
                    self._level += 1
                elif self._level:
                    self._level -= 1
                    self._leave(self._level)
        self._leave(self._level)

    def admits(self, keyword: str, name: bytes, indent: bytes) -> bool:
        """True if a definition that begins like this counts where it stands."""
        if keyword == "skipped" or any(one.keyword == "macro_rules" for one in self._open[-3:]):
            return False
        if keyword == "closing":
            return bool(self._open) and self._open[-1].is_typedef and self._directly_inside()
        if keyword == "constructor":
            return bool(self._open) and name == self._open[-1].name
        if self._syntax.flush and not indent and keyword not in _NEVER_FLUSH:
            self._flush()
        allowed = self._syntax.within.get(keyword)
        return allowed is None or self._place() in allowed

    def enter(self, keyword: str, name: bytes, *, is_typedef: bool) -> None:
        if len(self._open) < _DEEPEST:
            self._open.append(_Open(keyword, name, self._level, is_typedef))

    def depth(self, keyword: str) -> int:
        """How many definitions stand around; the one that `closing` ends is none of them."""
        around = self._open[:-1] if keyword == "closing" else self._open
        return sum(1 for one in around if one.name)

    def _leave(self, level: int) -> None:
        while self._open and self._open[-1].level >= level:
            self._open.pop()

    def _flush(self) -> None:
        """Without indentation nothing but scopes is open: brackets in branches of `#if` do not add up."""
        while self._open and self._open[-1].keyword not in _SCOPES:
            self._open.pop()
        self._level = self._open[-1].level + 1 if self._open else 0

    def _directly_inside(self) -> bool:
        return self._syntax.nesting is Nesting.INDENT or self._level == self._open[-1].level + 1

    def _place(self) -> str:
        """The keyword that the line stands directly in, "" at the top, "{" within other brackets."""
        if not self._open:
            return "{" if self._level and self._syntax.nesting is not Nesting.INDENT else ""
        return self._open[-1].keyword if self._directly_inside() else "{"


def _columns(indent: bytes) -> int:
    return len(indent.expandtabs())


def _bare(text: bytes, tokens: re.Pattern[bytes]) -> bytes:
    """The text without comments and without what strings hold, with as many lines, none of them long."""
    pieces: list[bytes] = []
    done = 0
    for match in islice(_windowed(tokens, text), _MOST_TOKENS):
        pieces += (text[done : match.start()], _husk(match[0]))
        done = match.end()
    if len(pieces) < 2 * _MOST_TOKENS:
        pieces.append(text[done:])
    code = _LONG_LINE.sub(rb"\1", b"".join(pieces))
    lines = code.split(b"\n", _MOST_LINES)
    return code if len(lines) <= _MOST_LINES else code[: -len(lines[-1])]


def _husk(token: bytes) -> bytes:
    """What stands for a string or comment: its line ends; of a string on one line what is no bracket."""
    lines = token.count(b"\n")
    if token[:1] not in _QUOTES:
        return b"\n" * lines or b" "
    return b"\n" * lines + b'""' if lines else token.translate(None, _IN_STRINGS)


def _without_docstring_end(text: bytes) -> bytes:
    """A text that begins within a docstring, without that part of it: else all would be taken for strings."""
    quote = _TRIPLE_QUOTE.search(text)
    if quote is None:
        return text
    line = text[text.rfind(b"\n", 0, quote.start()) + 1 : quote.end() + 1]
    before = text[: quote.start()].rstrip()
    if line.strip() != quote[0] or not before or _BEFORE_DOCSTRING.search(before):
        return text
    return b"\n" * text.count(b"\n", 0, quote.end()) + text[quote.end() :]


def _windowed(pattern: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    """As `finditer`, with windows of 32 KiB. A match that fills its window is looked for again in all."""
    at = 0
    while at < len(text):
        limit = at + _WINDOW
        end = limit + _REACH
        for match in pattern.finditer(text, at, end):
            if match.start() >= limit:
                break
            found = pattern.match(text, match.start()) if match.end() == end else match
            assert found is not None
            at = found.end()
            yield found
            if at >= limit:
                break
        at = max(at, limit)
