"""What a source file defines, and on which lines."""

from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from content import declared
from content.grammars import GRAMMARS
from content.language import Language
from content.numbering import Numbered, unnumbered
from content.parser import PARSER

_LOOKED_AT = 1024 * 1024
# About 1,700 lines. Grammars read 5 to 10 MB a second, patterns 50.
_PARSED = 64 * 1024
_NAME_CHARS = 120
# A megabyte of source has about 3,000.
_MOST_DECLARED = 10_000


@dataclass(frozen=True, slots=True)
class Definition:
    """`keyword` is the language's own word where it has one. `name` stands so in the source, white space
    aside. `depth` counts the definitions around it; lines count from 1."""

    keyword: str
    name: str
    depth: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.keyword} {self.name} (line {self.start})"


@dataclass(frozen=True, slots=True)
class _Span:
    """`start` is the first byte of the name, `end` that after the definition; rows count from 0."""

    keyword: str
    name: bytes
    start: int
    end: int
    row: int
    last: int


def definitions(
    data: bytes, language: Language | None, most: int = 200, first_line: int = 1
) -> list[Definition]:
    """In the order of their lines; of more than `most` the outermost. Of the data, 1 MiB is looked at; it may
    be cut anywhere, or be anything else than source. Line numbers that a tool put before the lines are taken
    off, and are the ones given; without them the lines count from `first_line`.

    The first 64 KiB go through the language's grammar, in a process apart: call it in a thread, the
    interpreter is free meanwhile. The rest, and what no grammar can read, is read by patterns."""
    source = unnumbered(data[:_LOOKED_AT], first_line)
    found = sorted(_spans(source.text, language), key=attrgetter("start"))
    placed = _placed(found, source)
    outermost = sorted(placed, key=attrgetter("depth"))[:most]
    return sorted(outermost, key=attrgetter("start"))


def _spans(text: bytes, language: Language | None) -> list[_Span]:
    cut = len(text) if len(text) <= _PARSED else text.rfind(b"\n", 0, _PARSED) + 1 or _PARSED
    head = text[:cut]
    parsed = PARSER.definitions(GRAMMARS[language], declared.closed(head)) if language else None
    if parsed is None:
        return _declared(text, 0)
    last = head.count(b"\n")
    spans = [
        _Span(
            at.keyword, head[at.start : at.name_end], at.start, at.end, min(at.row, last), min(at.last, last)
        )
        for at in parsed.found
    ]
    # What begins within a string is that, to a grammar, up to the next quote; what is cut off has no end.
    if parsed.broken or not spans:
        known = {span.row for span in spans}
        return spans + [span for span in _declared(text, 0) if span.row not in known]
    return spans + _declared(text, cut)


def _declared(text: bytes, start: int) -> list[_Span]:
    found = islice(declared.declarations(text, start), _MOST_DECLARED)
    return [_Span(word, name, at, at, row, row) for word, name, at, row in found]


def _placed(found: list[_Span], source: Numbered) -> list[Definition]:
    placed: list[Definition] = []
    around: list[int] = []
    for span in found:
        while around and span.start >= around[-1]:
            around.pop()
        name = _shown(span.name)
        if name:
            start, end = source.line(span.row), source.line(span.last)
            placed.append(Definition(span.keyword, name, len(around), start, end))
            around.append(span.end)
    return placed


def _shown(name: bytes) -> str:
    text = " ".join(name[: 4 * _NAME_CHARS].decode("utf-8", "replace").split())
    return text if len(text) <= _NAME_CHARS else text[: _NAME_CHARS - 1] + "…"
