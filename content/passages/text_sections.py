"""Passages of text: log events, table rows, sections under headings, definitions, files of a grep."""

import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from content.kinds import Kind
from content.text import clip

LEAST, AIM, MOST = 120, 300, 600
"""Bytes of a passage. MOST is never exceeded; a short section may be below LEAST."""

REACH = 1200
"""Bytes of a record, row or paragraph that is shown whole."""


class Place(NamedTuple):
    """A passage begins at byte `at`. `path` is its place in the structure. `opened` is a place, at most
    REACH + MOST bytes before, from which the brackets of JSON can be matched; -1 if unknown."""

    at: int
    path: str
    opened: int = -1


# A long line is cut after one of these, the best first: escaped lines, records, tags, sentences, words.
_INSIDE_LINE = (b"\\n", b"}, ", b"},", b"><", b". ", b"; ", "。".encode(), b", ", b",", b" ", b"\t")


def cut_between(data: bytes, start: int) -> int:
    """A place to cut after `start`, near AIM: between lines, else within a long line."""
    if len(data) - start <= AIM + LEAST:
        return len(data)
    low, wished, high = start + LEAST, start + AIM, min(start + MOST, len(data))
    newline = data.rfind(b"\n", low, wished) + 1 or data.find(b"\n", wished, high) + 1
    if newline:
        return newline
    for mark in _INSIDE_LINE:
        place = data.rfind(mark, low, wished)
        if place >= 0:
            # Between two tags.
            return place + (1 if mark == b"><" else len(mark))
    return data.find(b" ", wished, high) + 1 or _between_characters(data, high)


def _between_characters(data: bytes, place: int) -> int:
    """The last place up to `place` that splits no character."""
    first = max(0, place - 3)
    while first < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


Cut = Callable[[bytes, int], int]
Mark = tuple[int, int, str]
"""The start of a section: offset, level, title. Only headings have a level above 0, which is shown."""

_SLICE = 1 << 16
_CLIP = 80
_DEEP = 100

# More marks are not headings, and would take too long.
_MOST_MARKS = 100_000

# Lines without a time, such as a stack trace, belong to the event above them.
EVENT = re.compile(
    rb"\n(?=(?!\s)[^\n]{0,60}?(?:\d\d:\d\d|\d{4}[-/]\d\d[-/]\d\d|\b\d{9,})"
    rb"|[^\w\s]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)"
)
_PARAGRAPH = re.compile(rb"\n[ \t\r]{0,200}\n(?=[^\n])")
# Items and indented lines belong to the line above them.
_STANZA = re.compile(rb"\n(?:\n(?=[^\n])|[ \t\r*+-][^\n]{0,300}\n(?=[^\s*+-]))")
_ITEM = re.compile(rb"\n(?=[ \t]{0,40}(?:[-*+]|\d{1,3}[.)]) )|\n[ \t\r]{0,200}\n(?=[^\n])")
_BLOCK_TAG = re.compile(
    rb"(?=<(?:h[1-6]|p|div|section|article|table|tr|ul|ol|li|pre|form|script|style)\b)", re.IGNORECASE
)
_FILE = re.compile(rb"[\w./@+~-]{1,300}?[:-](?=\d{1,8}[:-])|[\w./@+~-]{1,300}:")

_HEADING = re.compile(rb"^(#{1,6}) +(\S[^\n]{0,300})|^(```|~~~)", re.MULTILINE)
HTML_HEADING = re.compile(rb"<(title|h[1-6])\b[^<>]{0,300}>", re.IGNORECASE)
TAG = re.compile(rb"<[^>]{0,300}>")
_DEFINITION = re.compile(
    rb"^([ \t]{0,8})((?>(?:export |default |public |private |protected |static |abstract |async |"
    rb"pub(?:\([a-z]+\))? )*)"
    rb"(?:class|def|function|fn|func|interface|struct|enum|trait|impl|type|module|namespace) [^\n]{1,200})",
    re.MULTILINE,
)


def places(data: bytes, kind: Kind) -> Iterator[Place]:
    cut = _CUTS.get(kind, cut_between)
    marks = _MARKS[kind](data) if kind in _MARKS else iter(())
    at, path = 0, ""
    around: list[tuple[int, str]] = []
    for mark, level, title in chain(marks, ((len(data), 0, ""),)):
        # A section that is too short is joined with the next.
        while at < mark and (mark - at >= LEAST // 2 or mark == len(data)):
            yield Place(at, path)
            at = min(cut(data, at), mark)
        around = [*(outer for outer in around if outer[0] < level), (level, title)]
        path = ("#" * level + " " if level > 0 else "") + " › ".join(name for _, name in around if name)


def _after(pattern: re.Pattern[bytes]) -> Cut:
    """Cuts at the match nearest AIM, or between lines if there is none before MOST."""

    def cut(data: bytes, start: int) -> int:
        best = 0
        for found in pattern.finditer(data, start + LEAST, start + MOST):
            if best and found.end() > start + AIM:
                break
            best = found.end()
        return best or cut_between(data, start)

    return cut


def _row(data: bytes, start: int) -> int:
    """Cuts at a newline outside of quotes."""
    place = data.find(b"\n", start + LEAST, start + MOST) + 1
    while place and data.count(b'"', start, place) % 2:
        place = data.find(b"\n", place, start + MOST) + 1
    return place or cut_between(data, start)


def _same_file(data: bytes, start: int) -> int:
    """Cuts after the matches in one file, or after as many as fit."""
    name = _FILE.match(data, start)
    best, place = 0, data.find(b"\n", start, start + MOST) + 1
    while place and place - start <= AIM:
        best = place
        if name is None or not data.startswith(name[0], place):
            break
        place = data.find(b"\n", place, start + MOST) + 1
    return best or cut_between(data, start)


def found_in_slices(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Like `finditer`, in slices, because each step holds the GIL."""
    start, left = 0, _MOST_MARKS
    while start < len(data) and left > 0:
        end = data.rfind(b"\n", start, start + _SLICE) + 1 or start + _SLICE
        for found in islice(pattern.finditer(data, start, end), left):
            left -= 1
            yield found
        start = end


def markdown_headings(data: bytes) -> Iterator[re.Match[bytes]]:
    """Headings of Markdown outside code fences: the group 1 is the marks, the group 2 the text."""
    fenced = False
    for found in found_in_slices(_HEADING, data):
        if found[3]:
            fenced = not fenced
        elif not fenced:
            yield found


def _headings(data: bytes) -> Iterator[Mark]:
    for found in markdown_headings(data):
        yield found.start(), len(found[1]), clip(found[2].rstrip(b" #\r"), _CLIP)


def _html_headings(data: bytes) -> Iterator[Mark]:
    for found in found_in_slices(HTML_HEADING, data):
        level = 1 if found[1].lower() == b"title" else int(found[1][1:])
        end = data.find(b"</", found.end(), found.end() + 4 * _CLIP)
        if end > 0:
            yield found.start(), level, clip(TAG.sub(b" ", data[found.end() : end]), _CLIP)


def _definitions(data: bytes) -> Iterator[Mark]:
    for found in found_in_slices(_DEFINITION, data):
        yield found.start(), len(found[1].expandtabs(4)) - _DEEP, clip(found[2].rstrip(b" {:(\r"), _CLIP)


_CUTS: dict[Kind, Cut] = {
    Kind.LOG: _after(EVENT),
    Kind.CSV: _row,
    Kind.GREP: _same_file,
    Kind.MARKDOWN: _after(_ITEM),
    Kind.HTML: _after(_BLOCK_TAG),
    Kind.TEXT: _after(_STANZA),
    Kind.CODE: _after(_PARAGRAPH),
}
_MARKS: dict[Kind, Callable[[bytes], Iterator[Mark]]] = {
    Kind.MARKDOWN: _headings,
    Kind.HTML: _html_headings,
    Kind.CODE: _definitions,
}
