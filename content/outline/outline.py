"""Outlines of texts: `outline` for a preview, `structure` for a recovery section."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from content.kinds import Kind, sniff
from content.outline.definitions import definitions
from content.outline.languages import Language, file_name, language_of
from content.passages.text_sections import HTML_HEADING, TAG, markdown_headings
from content.text import DOUBLE_QUOTED, Numbered, clip, count_of, cut_head, unnumbered

_LOOKED_AT = 1024 * 1024
_MOST = 200
_NO_STRUCTURE = (Kind.TEXT, Kind.BINARY, Kind.GREP)
_MARKDOWN = frozenset(["md", "markdown", "mdx", "qmd", "rmd"])
# Names of settings files: their comments look like headings.
_SETTINGS_WORDS = """
yaml yml toml ini cfg cnf conf config properties env service desktop tf hcl nix cmake mk dockerfile makefile
gnumakefile containerfile justfile procfile gitignore dockerignore gitattributes editorconfig npmrc
"""
_SETTINGS = frozenset(_SETTINGS_WORDS.split())

_FILES = 200
_LISTED = 12
_LOG_END = 4096
_ELEMENTS = 24

_NEWLINE = b"\n"
_QUOTED = re.compile(rb'"[^"]*"')
# A level: a word, a field, in brackets, or the single letter of Android. Each alternative begins with a
# literal, so that the search skips what begins none of them, and none with a space, which is frequent.
_TAG = rb"(?<= .)(?= [\w.$-]{1,60} *:)"
_LEVEL = re.compile(
    rb"T(?<!\wT)RACE\b|D(?:(?<!\wD)EBUG\b|%b)|I(?:(?<!\wI)NFO\b|%b)|N(?<!\wN)OTICE\b"
    rb"|W(?:(?<!\wW)ARN(?:ING)?\b|%b)|E(?:(?<!\wE)RROR\b|%b)|F(?:(?<!\wF)ATAL\b|%b)|V%b"
    rb"|C(?<!\wC)RITICAL\b|level=\"?(\w{1,12})"
    rb"|\[(trace|debug|info|notice|warn|warning|error|crit|alert|emerg)\]" % ((_TAG,) * 6)
)
_LEVEL_STARTS = 80
_LEVEL_ENDS = 160
_LETTERS = {
    b"V": "VERBOSE", b"D": "DEBUG", b"I": "INFO", b"W": "WARN", b"E": "ERROR", b"F": "FATAL"
}  # fmt: skip
_STATUS = re.compile(rb'HTTP/[\d.]{1,3}" (\d{3}) ')
_STAMP = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d"
)
# A part of every stamp, and how much of a stamp may stand before it: a pattern that begins with a literal is
# looked for ten times as fast.
_CLOCK, _BEFORE_CLOCK = re.compile(rb":\d\d"), 13
_FILE = re.compile(rb"^([\w./@+~-]{1,300}?)[:-]\d{1,8}[:-]", re.MULTILINE)
_ELEMENT = re.compile(rb"<([A-Za-z_][\w:.-]{0,100})[\s/>]")


def outline(
    data: bytes, max_bytes: int, total_bytes: int | None = None, path: str | None = None, first_line: int = 1
) -> str:
    """Returns at most `max_bytes` of UTF-8, "" without an outline. `data` may be the beginning of
    `total_bytes`; reads at most 1 MiB. `path` is the path of the file, if known, `first_line` the number of
    the first line in it. Raises nothing, whatever the data. Takes up to 150 ms: call it in a thread."""
    total = len(data) if total_bytes is None else total_bytes
    data = data[:_LOOKED_AT]
    source, kind, language = _identified(path, data, first_line)
    if language is None:
        lines = list(_FORMS.get(kind, paragraphs)(source))
    else:
        found = definitions(data, language, _MOST, first_line)
        lines = [f"{'  ' * definition.depth}{definition}" for definition in found]
    lines = lines or list(paragraphs(source))
    if not lines:
        return ""
    part = f", of its first {len(data)} bytes" if len(data) < total else ""
    text = "\n".join((f"Outline ({language or kind}{part}):", *lines))
    return cut_head(text.encode("utf-8", "replace"), max_bytes).decode()


def structure(path: str | None, data: bytes, first_line: int = 1) -> list[str]:
    """Returns at most 200 lines for a recovery section; none for plain text, search results and binary
    data. For the arguments see `outline`."""
    data = data[:_LOOKED_AT]
    source, kind, language = _identified(path, data, first_line)
    if language is not None:
        return [f"  - {definition}" for definition in definitions(data, language, _MOST, first_line)]
    if kind not in _FORMS or kind in _NO_STRUCTURE:
        return []
    return [re.sub("^ *", r"\g<0>  - ", line) for line in _FORMS[kind](source)][:_MOST]


def _identified(path: str | None, data: bytes, first_line: int) -> tuple[Numbered, Kind, Language | None]:
    """The text without line numbers, its kind and its programming language. The path decides before the text,
    but matches of a search in a source file are not source code."""
    source = unnumbered(data, first_line)
    kind = sniff(source.text)
    if kind in (Kind.BINARY, Kind.GREP):
        return source, kind, None
    name = file_name(path).lower()
    ending = name.rpartition(".")[2]
    if ending in _MARKDOWN:
        return source, Kind.MARKDOWN, None
    if kind is Kind.MARKDOWN and (ending in _SETTINGS or name.partition(".")[0] in _SETTINGS):
        return source, Kind.TEXT, None
    return source, kind, language_of(path, source.text if kind in (Kind.CODE, Kind.TEXT) else b"")


def table(source: Numbered) -> Iterator[str]:
    header, _, rest = source.text.lstrip(b"\r\n").partition(b"\n")
    bare = _QUOTED.sub(b"", header)
    mark = max((b"\t", b",", b";"), key=bare.count)
    yield f"{count_of(bare.count(mark) + 1, 'column')}: {clip(header)}"
    yield f"{sum(map(bool, map(bytes.strip, _QUOTED.sub(b'_', rest).splitlines())))} rows"


def log_span(source: Numbered) -> Iterator[str]:
    data = source.text
    yield f"{data.count(_NEWLINE) + 1} lines"
    statuses = Counter(status.decode() for status in _STATUS.findall(data)).most_common(_LISTED)
    for name, counts in (("levels", log_levels(data)), ("status", statuses)):
        if counts:
            yield f"{name}: " + ", ".join(f"{what} {count}" for what, count in counts)
    if times := log_times(data):
        yield times


def log_levels(data: bytes) -> list[tuple[str, int]]:
    """The most frequent levels, and how often each occurs."""
    found = (_LEVEL.search(line, 0, _LEVEL_ENDS) for line in data.split(b"\n"))
    levels = (match[match.lastindex or 0] for match in found if match and match.start() <= _LEVEL_STARTS)
    names = (_LETTERS.get(level) or level.decode("ascii", "replace").upper() for level in levels)
    return Counter(names).most_common(_LISTED)


def _first_time(data: bytes) -> re.Match[bytes] | None:
    clock = _CLOCK.search(data)
    return clock and _STAMP.search(data, max(0, clock.start() - _BEFORE_CLOCK))


def log_times(data: bytes) -> str:
    """The first time of the first line, and of the last line, that has one, as in `from 10:00:01 to
    10:04:59`; "" if there is none at either end."""
    first = _first_time(data[:_LOG_END])
    ending = reversed(data[-_LOG_END:].split(b"\n")) if first else ()
    last = next(filter(None, map(_first_time, ending)), None)
    return f"from {first[0].decode()} to {last[0].decode()}" if first and last else ""


def hits(source: Numbered) -> Iterator[str]:
    files = Counter(_FILE.findall(source.text))
    if files:
        yield f"{sum(files.values())} lines in {len(files)} files"
    for name, count in files.most_common(_FILES):
        yield f"{clip(name)}: {count}"


def without_comments(xml: bytes) -> bytes:
    """Linear, unlike a pattern, also where no comment ends."""
    first, *rest = xml.split(b"<!--")
    return b"".join((first, *(piece.partition(b"-->")[2] for piece in rest)))


def elements(source: Numbered) -> Iterator[str]:
    """The root element, and the count of each other element."""
    names = _ELEMENT.findall(without_comments(source.text))
    if not names:
        return
    yield f"root element: {names[0].decode()}"
    for name, count in Counter(names[1:]).most_common(_ELEMENTS):
        yield f"  {name.decode()}: {count}"


_ENTRIES = 200

_PARAGRAPH = re.compile(rb"(?:\A\s*+|\n[ \t\r]*+\n[ \t]*+)(\S[^\n]{0,300})")


def headings(source: Numbered) -> Iterator[str]:
    """Headings of Markdown."""
    found = markdown_headings(source.text)
    return _placed(source, ((one.start(), f"{one[1].decode()} {clip(one[2])}") for one in found))


def html_headings(source: Numbered) -> Iterator[str]:
    data = source.text
    return _placed(source, ((m.start(), _html_heading(data, m)) for m in HTML_HEADING.finditer(data)))


def paragraphs(source: Numbered) -> Iterator[str]:
    """The first line of each paragraph."""
    found = ((match.start(1), clip(match[1])) for match in _PARAGRAPH.finditer(source.text))
    return _placed(source, found)


def _placed(source: Numbered, found: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Adds to each text the number of its line."""
    row, done = 0, 0
    for count, (at, text) in enumerate(found):
        if count == _ENTRIES:
            yield "…"
            return
        row += source.text.count(b"\n", done, at)
        done = at
        yield f"{text} (line {source.line(row)})"


def _html_heading(data: bytes, tag: re.Match[bytes]) -> str:
    name = tag[1].lower()
    text = data[tag.end() : tag.end() + 600].partition(b"</" + tag[1])[0]
    return f"{name.decode()}: {clip(TAG.sub(b' ', text))}"


_DEPTH = 3
_KEYS = 24
_KEY_CHARS = 60
_RECORDS = 5
_NAMES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}

_LITERAL = re.compile(rb"(%b)" % DOUBLE_QUOTED, re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_CLOSERS = bytes.maketrans(b"{[", b"}]")


def json_shape(data: bytes) -> Iterator[str]:
    """Lines that describe the value; none if it is not JSON."""
    value, whole = parsed_head(data)
    if value is not None:
        yield from _described("" if whole else "(cut off) ", value, 0)


def records_shape(data: bytes) -> Iterator[str]:
    """Describes JSON lines: their number, and the keys of the first records."""
    lines = list(filter(bytes.strip, data.splitlines()))
    yield f"{len(lines)} lines, one record each"
    keys: dict[str, str] = {}
    for line in lines[:_RECORDS]:
        value, _ = parsed_head(line)
        if isinstance(value, dict):
            keys |= {key: _type(item) for key, item in value.items() if key not in keys}
    yield from (f"  {clip(key, _KEY_CHARS)}: {kind}" for key, kind in list(keys.items())[:_KEYS])


def parsed_head(data: bytes, *, is_cut: bool = False) -> tuple[object, bool]:
    """The value or None, and True if the data is complete. `is_cut`: it is known not to be."""
    try:
        if not is_cut:
            return json.loads(data), True
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_closed(data)), False
    except (ValueError, RecursionError):
        return None, False


def _closed(data: bytes) -> bytes:
    """The data up to its last comma, with its open brackets closed. A value at the end that is a string, and
    may be cut, is left empty: it may be most of the data."""
    # At even places what is between two string literals.
    parts = _LITERAL.split(data)
    if len(parts) > 1 and not parts[-1] and parts[-3].rstrip().endswith(b":"):
        parts[-2:] = [b'""', b","]
    while len(parts) > 1 and b"," not in parts[-1]:
        del parts[-2:]
    parts[-1] = parts[-1].rpartition(b",")[0]
    still_open = bytearray()
    for bracket in b"".join(parts[::2]).translate(None, _NO_BRACKETS):
        if bracket in b"{[":
            still_open.append(bracket)
        elif still_open:
            still_open.pop()
    still_open.reverse()
    return b"".join(parts) + still_open.translate(_CLOSERS)


def _described(label: str, value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}{label}{_type(value)}"
    if depth == _DEPTH:
        return
    if isinstance(value, dict):
        for key in list(value)[:_KEYS]:
            yield from _described(f"{clip(key, _KEY_CHARS)}: ", value[key], depth + 1)
        if len(value) > _KEYS:
            yield f"{indent}  … {len(value) - _KEYS} more keys"
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        yield from _described("first item: ", value[0], depth + 1)


def _type(value: object) -> str:
    if isinstance(value, dict):
        return f"object with {len(value)} keys"
    if isinstance(value, list):
        return f"array of {len(value)}"
    return _NAMES[type(value)]


_FORMS: dict[Kind, Callable[[Numbered], Iterable[str]]] = {
    Kind.JSON: lambda source: json_shape(source.text),
    Kind.NDJSON: lambda source: records_shape(source.text),
    Kind.CSV: table,
    Kind.LOG: log_span,
    Kind.MARKDOWN: headings,
    Kind.HTML: lambda source: list(html_headings(source)) or elements(source),
    Kind.XML: elements,
    Kind.GREP: hits,
    Kind.BINARY: lambda source: ["not text"],
}
