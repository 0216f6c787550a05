"""The structure of a text in a few lines: what a model needs to ask the right question."""

import re
from collections import Counter
from collections.abc import Callable, Iterator

from content import cut
from content.kinds import Kind, sniff
from content.shape import json_shape, records_shape

_LOOKED_AT = 1024 * 1024
_CLIP = 160
_NEWLINE = b"\n"
_ENTRIES = 200

_HEADING = re.compile(rb"^(#{1,6}) +(\S[^\n]{0,300})|^(```|~~~)", re.MULTILINE)
_HTML_HEADING = re.compile(rb"<(title|h[1-6])\b[^<>]{0,300}>", re.IGNORECASE)
_TAG = re.compile(rb"<[^>]{0,300}>")
_DEFINITION = re.compile(
    rb"^[ \t]{0,8}((?:export |default |public |private |protected |static |abstract |async |"
    rb"pub(?:\([a-z]+\))? )*+"
    rb"(?:class|def|function|fn|func|interface|struct|enum|trait|impl|type|module|namespace) [^\n]{1,200})",
    re.MULTILINE,
)
_LEVEL = re.compile(rb"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b")
_STAMP = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|(?:\d\d-\d\d )?\d\d:\d\d:\d\d"
)
_PARAGRAPH = re.compile(rb"(?:\A\s*+|\n[ \t\r]*+\n[ \t]*+)(\S[^\n]{0,300})")
_FILE = re.compile(rb"^([\w./@+~-]{1,300}?)[:-]\d{1,8}[:-]", re.MULTILINE)


def outline(data: bytes, max_bytes: int, total_bytes: int | None = None) -> str:
    """At most `max_bytes` of UTF-8; "" where there is nothing to say. `data` may be a beginning only, of
    `total_bytes`; of that, 1 MiB is looked at. Whatever the data, it raises nothing."""
    total = len(data) if total_bytes is None else total_bytes
    data = data[:_LOOKED_AT]
    kind = sniff(data)
    lines = list(_FORMS.get(kind, _paragraphs)(data)) or list(_paragraphs(data))
    if not lines:
        return ""
    part = f", of its first {len(data)} bytes" if len(data) < total else ""
    text = "\n".join((f"Outline ({kind}{part}):", *lines))
    return cut.head(text.encode("utf-8", "replace"), max_bytes).decode()


def _clip(raw: bytes) -> str:
    text = " ".join(raw[: 4 * _CLIP].decode("utf-8", "ignore").split())
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"


def _numbered(data: bytes, found: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Texts with the numbers of the lines where they are found, in order."""
    line, done = 1, 0
    for count, (at, text) in enumerate(found):
        if count == _ENTRIES:
            yield "…"
            return
        line += data.count(b"\n", done, at)
        done = at
        yield f"{text} (line {line})"


def _headings(data: bytes) -> Iterator[str]:
    return _numbered(data, _outside_fences(data))


def _outside_fences(data: bytes) -> Iterator[tuple[int, str]]:
    fenced = False
    for match in _HEADING.finditer(data):
        if match[3]:
            fenced = not fenced
        elif not fenced:
            yield match.start(), f"{match[1].decode()} {_clip(match[2])}"


def _html(data: bytes) -> Iterator[str]:
    return _numbered(data, ((m.start(), _html_heading(data, m)) for m in _HTML_HEADING.finditer(data)))


def _html_heading(data: bytes, tag: re.Match[bytes]) -> str:
    name = tag[1].lower()
    text = data[tag.end() : tag.end() + 600].partition(b"</" + tag[1])[0]
    return f"{name.decode()}: {_clip(_TAG.sub(b' ', text))}"


def _code(data: bytes) -> Iterator[str]:
    return _numbered(data, ((m.start(), _clip(m[1])) for m in _DEFINITION.finditer(data)))


def _paragraphs(data: bytes) -> Iterator[str]:
    return _numbered(data, ((m.start(1), _clip(m[1])) for m in _PARAGRAPH.finditer(data)))


def _binary(data: bytes) -> Iterator[str]:
    yield "not text"


def _table(data: bytes) -> Iterator[str]:
    header, _, rest = data.partition(b"\n")
    mark = max((b"\t", b",", b";"), key=header.count)
    yield f"{header.count(mark) + 1} columns: {_clip(header)}"
    yield f"{len(rest.splitlines())} rows"


def _log(data: bytes) -> Iterator[str]:
    yield f"{data.count(_NEWLINE) + 1} lines"
    levels = Counter(_LEVEL.findall(data))
    if levels:
        yield "levels: " + ", ".join(f"{level.decode()} {count}" for level, count in levels.most_common())
    first = _STAMP.search(data)
    last = _STAMP.findall(data, max(0, len(data) - 4096))
    if first and last:
        yield f"from {first[0].decode()} to {last[-1].decode()}"


def _hits(data: bytes) -> Iterator[str]:
    files = Counter(_FILE.findall(data))
    if files:
        yield f"{sum(files.values())} lines in {len(files)} files"
    for name, count in files.most_common(_ENTRIES):
        yield f"{_clip(name)}: {count}"


_FORMS: dict[Kind, Callable[[bytes], Iterator[str]]] = {
    Kind.JSON: json_shape,
    Kind.NDJSON: records_shape,
    Kind.CSV: _table,
    Kind.LOG: _log,
    Kind.MARKDOWN: _headings,
    Kind.HTML: _html,
    Kind.CODE: _code,
    Kind.GREP: _hits,
    Kind.BINARY: _binary,
}
