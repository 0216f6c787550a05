"""Finds the definitions in source code, line by line, with a table of patterns for each language."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from content.formats.languages import TOKENS, Language
from content.formats.syntaxes import SYNTAXES, Nesting, Syntax
from content.text import clip

_LOOKED_AT = 512 * 1024
# A call of the regular expression engine holds the GIL, so it sees at most this much text.
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
# Text that occurs before the first docstring of a whole file, but not before the end of a docstring.
_BEFORE_DOCSTRING = re.compile(
    rb"[:(=,\[\\][ \t]*(?:#[^\n]*)?\Z|^[ \t]*(?:def|class|import|from|@|#)\W?", re.MULTILINE
)
# Indentation counts only before a name: not before a closing bracket or the end of a multi-line string.
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
    """`keyword` is the word of the language, if it has one. `depth` counts the enclosing definitions. `line`
    is 1-based."""

    keyword: str
    name: str
    depth: int
    line: int

    def __str__(self) -> str:
        return f"{self.keyword} {self.name} (line {self.line})"


class _Open(NamedTuple):
    """A definition or a scope that is not closed yet. `level` is the nesting of its first line: the number of
    open brackets, or the indentation."""

    keyword: str
    name: bytes
    level: int
    is_typedef: bool


def definitions(data: bytes, language: Language, most: int = 200) -> list[Definition]:
    """Returns at most `most` definitions in the order of their lines, the outermost if there are more. Reads
    at most 512 KiB and 20,000 lines of any data."""
    entries = islice(scan(data[:_LOOKED_AT], language), _MOST_FOUND)
    outermost = sorted(entries, key=attrgetter("depth"))[:most]
    return sorted(outermost, key=attrgetter("line"))


@cache
def _compiled(rules: bytes) -> re.Pattern[bytes]:
    """Compiled on first use: compiling the rules of every language would add 0.1 s to each start."""
    return re.compile(rules, re.MULTILINE)


def scan(text: bytes, language: Language) -> Iterator[Definition]:
    """Yields the definitions in the order of their lines, on demand."""
    syntax = SYNTAXES[language]
    if language is Language.PYTHON:
        text = _without_docstring_end(text)
    code = _bare(b"\n" + text, TOKENS[language])
    around = _Around(syntax)
    rules = _compiled(syntax.rules)
    groups = rules.groupindex
    row, counted, at = -1, 0, 0
    for match in _windowed(rules, code):
        around.advance(code[at : match.start()], match["indent"])
        at = match.end()
        number = int(str(match.lastgroup)[1:])
        word = match[f"w{number}"].decode("utf-8", "replace").lower() if f"w{number}" in groups else ""
        keyword = syntax.keywords[number] or word
        name = match[f"n{number}"] if f"n{number}" in groups else b""
        if not around.admits(keyword, name, match["indent"]):
            continue
        start = match.start()
        # After a comma: an initializer of a constructor, not a function.
        if syntax.flush and code[max(0, start - 80) : start].rstrip()[-1:] == b",":
            continue
        if name:
            start = match.start(f"n{number}")
            row += code.count(b"\n", counted, start)
            counted = start
            label, depth = word or _SHOWN.get(keyword, keyword), around.depth(keyword)
            yield Definition(label, clip(name, _NAME_CHARS), depth, row + 1)
        if keyword != "closing" and code[at : at + 1] != b";":
            around.enter(keyword, name, is_typedef=b"typedef" in match[0][:80])


class _Around:
    """The definitions and scopes around a line, outermost first."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._open: list[_Open] = []
        self._level = 0

    def advance(self, passed: bytes, indent: bytes) -> None:
        """Updates the nesting with `passed`, the text before a line with this `indent`."""
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
        """True if a definition of this kind is valid here."""
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
        """The number of enclosing definitions, without the one that `closing` ends."""
        around = self._open[:-1] if keyword == "closing" else self._open
        return sum(1 for one in around if one.name)

    def _leave(self, level: int) -> None:
        while self._open and self._open[-1].level >= level:
            self._open.pop()

    def _flush(self) -> None:
        """Closes all but scopes, since brackets in branches of `#if` may not balance."""
        while self._open and self._open[-1].keyword not in _SCOPES:
            self._open.pop()
        self._level = self._open[-1].level + 1 if self._open else 0

    def _directly_inside(self) -> bool:
        return self._syntax.nesting is Nesting.INDENT or self._level == self._open[-1].level + 1

    def _place(self) -> str:
        """The keyword of the directly enclosing definition, "" at the top, "{" within other brackets."""
        if not self._open:
            return "{" if self._level and self._syntax.nesting is not Nesting.INDENT else ""
        return self._open[-1].keyword if self._directly_inside() else "{"


def _columns(indent: bytes) -> int:
    return len(indent.expandtabs())


def _bare(text: bytes, tokens: re.Pattern[bytes]) -> bytes:
    """The text without comments, contents of strings and ends of long lines, with the same number of
    lines."""
    pieces: list[bytes] = []
    at = 0
    for match in islice(_windowed(tokens, text), _MOST_TOKENS):
        pieces += (text[at : match.start()], _husk(match[0]))
        at = match.end()
    if len(pieces) < 2 * _MOST_TOKENS:
        pieces.append(text[at:])
    code = _LONG_LINE.sub(rb"\1", b"".join(pieces))
    lines = code.split(b"\n", _MOST_LINES)
    return code if len(lines) <= _MOST_LINES else code[: -len(lines[-1])]


def _husk(token: bytes) -> bytes:
    """Replaces a string or comment by its line ends, or a string on one line by its text without brackets."""
    lines = token.count(b"\n")
    if token[:1] not in _QUOTES:
        return b"\n" * lines or b" "
    return b"\n" * lines + b'""' if lines else token.translate(None, _IN_STRINGS)


def _without_docstring_end(text: bytes) -> bytes:
    """Removes the end of a docstring at the start of a cut text, since it would invert code and strings."""
    quote = _TRIPLE_QUOTE.search(text)
    if quote is None:
        return text
    line = text[text.rfind(b"\n", 0, quote.start()) + 1 : quote.end() + 1]
    before = text[: quote.start()].rstrip()
    if line.strip() != quote[0] or not before or _BEFORE_DOCSTRING.search(before):
        return text
    return b"\n" * text.count(b"\n", 0, quote.end()) + text[quote.end() :]


def _windowed(pattern: re.Pattern[bytes], text: bytes) -> Iterator[re.Match[bytes]]:
    """Like `finditer`, in windows of 32 KiB. A match that fills its window is searched again in all text."""
    at = 0
    while at < len(text):
        limit = at + _WINDOW
        end = limit + _REACH
        for match in pattern.finditer(text, at, end):
            if match.start() >= limit:
                break
            token = pattern.match(text, match.start()) if match.end() == end else match
            assert token is not None
            at = token.end()
            yield token
            if at >= limit:
                break
        at = max(at, limit)
