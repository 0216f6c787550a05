"""Outlines by counting: tables, logs, elements, search results."""

import re
from collections import Counter
from collections.abc import Iterator

from content.outline.headings import clip
from content.text.line_numbers import Numbered

_FILES = 200
_ELEMENTS = 24

_NEWLINE = b"\n"
_QUOTED = re.compile(rb'"[^"]*"')
# The first level near the start of a line: a word, a field, in brackets, or the single letter of Android.
_LEVEL = re.compile(
    rb"^[^\n]{0,80}?(?:\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b"
    rb"|level=\"?(\w{1,12})|\[(trace|debug|info|notice|warn|warning|error|crit|alert|emerg)\]"
    rb"| ([VDIWEF]) [\w.$-]{1,60} *:)",
    re.MULTILINE,
)
_LETTERS = {
    b"V": "VERBOSE", b"D": "DEBUG", b"I": "INFO", b"W": "WARN", b"E": "ERROR", b"F": "FATAL"
}  # fmt: skip
_STATUS = re.compile(rb'HTTP/[\d.]{1,3}" (\d{3}) ')
_STAMP = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|(?:\d\d-\d\d )?\d\d:\d\d:\d\d"
)
_FILE = re.compile(rb"^([\w./@+~-]{1,300}?)[:-]\d{1,8}[:-]", re.MULTILINE)
_ELEMENT = re.compile(rb"<([A-Za-z_][\w:.-]{0,100})[\s/>]")


def table(source: Numbered) -> Iterator[str]:
    header, _, rest = source.text.partition(b"\n")
    bare = _QUOTED.sub(b"", header)
    mark = max((b"\t", b",", b";"), key=bare.count)
    yield f"{bare.count(mark) + 1} columns: {clip(header)}"
    yield f"{sum(map(bool, map(bytes.strip, _QUOTED.sub(b'_', rest).splitlines())))} rows"


def log_span(source: Numbered) -> Iterator[str]:
    data = source.text
    yield f"{data.count(_NEWLINE) + 1} lines"
    for name, counts in (("levels", _levels(data)), ("status", _statuses(data))):
        if counts:
            yield f"{name}: " + ", ".join(f"{what} {count}" for what, count in counts.most_common(12))
    first = _STAMP.search(data)
    last = _STAMP.findall(data, max(0, len(data) - 4096))
    if first and last:
        yield f"from {first[0].decode()} to {last[-1].decode()}"


def _levels(data: bytes) -> Counter[str]:
    found = (next(filter(None, groups)) for groups in _LEVEL.findall(data))
    return Counter(_LETTERS.get(level) or level.decode("ascii", "replace").upper() for level in found)


def _statuses(data: bytes) -> Counter[str]:
    return Counter(status.decode() for status in _STATUS.findall(data))


def hits(source: Numbered) -> Iterator[str]:
    files = Counter(_FILE.findall(source.text))
    if files:
        yield f"{sum(files.values())} lines in {len(files)} files"
    for name, count in files.most_common(_FILES):
        yield f"{clip(name)}: {count}"


def elements(source: Numbered) -> Iterator[str]:
    """The root element, and the count of each other element."""
    pieces = source.text.split(b"<!--")
    names = _ELEMENT.findall(b"".join((pieces[0], *(piece.partition(b"-->")[2] for piece in pieces[1:]))))
    if not names:
        return
    yield f"root element: {names[0].decode()}"
    for name, count in Counter(names[1:]).most_common(_ELEMENTS):
        yield f"  {name.decode()}: {count}"
