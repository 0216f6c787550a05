"""What a stored result is, in one to three lines: kind and shape, title, language."""

import html
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, TypeGuard

import msgspec
from msgspec import Raw

from content.kinds import Kind, opaque, share, sniff
from content.natural_language import language_of_text
from content.outline.definitions import definitions
from content.outline.languages import file_name, language_of
from content.outline.outline import hits, log_levels, log_times, parsed_head, without_comments
from content.passages.surroundings import RULE, columns_over, is_over
from content.passages.text_sections import TAG, markdown_headings
from content.passages.unseen import unseen_spans
from content.text import ABOUT_SAMPLE_BYTES as SAMPLE_BYTES
from content.text import BOM, clip, cut_head, unnumbered
from content.values import first_rows, is_header

MAX_BYTES = 300
"""The contract's bound of `about`, which has one to three lines."""

_LOG_SAMPLE = 4 * 1024
_PROSE = 3 * 1024
_CODE_BYTES = 48 * 1024
_LIKE_SOURCE = (Kind.TEXT, Kind.MARKDOWN, Kind.CSV)
_WRITTEN = (Kind.TEXT, Kind.MARKDOWN, Kind.HTML)
_NAMES_BYTES = 110
_FIRST_LINES = 24
_TABLE_LINES = 8
_LEAST_ROWS = 3
_TITLE_BYTES = 90

_ELEMENTS = {
    b"{": "object", b'"': "string", b"[": "array", b"t": "boolean", b"f": "boolean", b"n": "null"
}  # fmt: skip
_MOST_ELEMENTS = 100
_PAGE_TITLE = re.compile(rb"<(?:title|h[12])\b[^<>]{0,300}>", re.IGNORECASE)
_PDF_TITLE = re.compile(rb"/Title\s*\(([^()\\\x00-\x1f]{1,200})\)")
_ARTICLE = re.compile(r"^an? ")
_ROOT = re.compile(rb"<([A-Za-z_][\w:.-]{0,60})[\s/>]")
# Listings: permissions of `ls -l`, or one path a line.
_TUPLES = re.compile(rb"\s*\[\(")
_PERMISSIONS = re.compile(rb"[-dlbcps][-rwxsStT]{9}[ .+@]")
_CHANGES = re.compile(rb"\s*+(?:diff --git |Index: \S|--- [^\n]{1,300}\n\+\+\+ )")
_PATH = re.compile(
    rb"\s*+[\w@~.+-]{0,100}+(?>(?:[/\\][\w@.+ -]{0,100}+)+)\s*+\Z|[\w@+-]{1,80}+\.\w{1,8}+\s*+\Z"
)


class _Text(NamedTuple):
    """`head` is the beginning of the result, all of it if `is_whole`, without a byte order mark; `lines`
    counts those of the result."""

    head: bytes
    tail: bytes
    is_whole: bool
    lines: int
    path: str | None

    @property
    def records(self) -> int:
        """The lines of the result without the empty one after a final newline."""
        return self.lines - self.tail.endswith(b"\n")

    @property
    def first_lines(self) -> list[bytes]:
        return self.head[:SAMPLE_BYTES].split(b"\n", _FIRST_LINES)[:_FIRST_LINES]

    @property
    def has_blank_lines(self) -> bool:
        return self.head[:1] in b"\r\n" or b"\n\n" in self.head or b"\n\r\n" in self.head


def about(
    head: bytes,
    tail: bytes,
    total_bytes: int,
    lines: int,
    tool_name: str = "",
    path: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> str:
    """Returns at most 300 bytes, and at most `max_bytes`, in one to three lines. `head` holds the first bytes
    of the result, of which 256 KiB are of use, `tail` the last 4 KiB. Takes 0.2 ms; of 128 KiB of hostile
    text at most 10 ms."""
    said = "\n".join(_said(head, tail, total_bytes, lines, tool_name, path))
    return cut_head(said.encode(), min(MAX_BYTES, max_bytes)).decode().rstrip()


def _said(
    head: bytes, tail: bytes, total_bytes: int, lines: int, tool_name: str, path: str | None
) -> list[str]:
    if file := opaque(head):
        found = _PDF_TITLE.search(head[:SAMPLE_BYTES] + tail)
        opened = f"binary: {_ARTICLE.sub('', file.name)}; to open it, use {file.opener}"
        return [opened, f"“{clip(found[1])}”"] if found else [opened]
    kind = sniff(head, tool_name)
    if path and kind in _LIKE_SOURCE and language_of(path, b"") and not _is_named(path, head):
        kind = Kind.CODE
    is_whole = len(head) >= total_bytes
    head = (head if is_whole else head[:SAMPLE_BYTES]).removeprefix(BOM)
    text = _Text(head, tail, is_whole, lines, path)
    shape, title = (_changes if _CHANGES.match(head) else _SHAPES.get(kind, _plain))(text)
    said = [_clipped(shape, MAX_BYTES // 2 + 40)]
    if title:
        said.append(_clipped(f"“{title}”", _TITLE_BYTES))
    if language := _language(kind, text.head):
        said.append(f"mostly {language}: ask in {language}")
    return said


def _is_named(path: str, head: bytes) -> bool:
    """True if the first line names the file: then it is what a tool says of it, and not the file itself."""
    first = head[:SAMPLE_BYTES].lstrip().partition(b"\n")[0]
    return file_name(path).encode("utf-8", "replace") in first


_Shape = tuple[str, str]
"""What the text is, and its title or ""."""


def _json(text: _Text) -> _Shape:
    if text.is_whole:
        try:
            raw = msgspec.json.decode(text.head, type=Raw)
            return f"JSON, {_value(raw)}", _title(raw)
        except (msgspec.DecodeError, RecursionError):
            pass
    value, _ = parsed_head(text.head[:SAMPLE_BYTES], is_cut=not text.is_whole)
    if isinstance(value, list):
        return f"JSON, array{_of_objects(value)}", ""
    if isinstance(value, dict):
        more = next(
            (f"; {_name(key)}: array{_of_objects(item)}" for key, item in value.items() if _is_rows(item)), ""
        )
        return f"JSON, object{_with_keys([*value, '…'])}{more}", ""
    return "JSON", ""


def _title(raw: Raw) -> str:
    """The title or name of an object."""
    if bytes(raw)[:1] != b"{":
        return ""
    members = msgspec.json.decode(raw, type=dict[str, Raw])
    named = (bytes(members[name]) for name in ("title", "name") if name in members)
    found = (clip(msgspec.json.decode(one, type=str).encode()) for one in named if one[:1] == b'"')
    return next(filter(None, found), "")


def _of_objects(items: list[Any]) -> str:
    return f" of objects{_with_keys(items[0])}" if _is_rows(items) else ""


def _is_rows(item: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(item, list) and bool(item) and all(isinstance(row, dict) for row in item)


def _value(raw: Raw, deeper: int = 1) -> str:
    """A shape: `248 objects with keys id, name`, `object with keys total, items (248 objects with …)`."""
    data = bytes(raw)
    if data[:1] == b"[":
        items = msgspec.json.decode(data, type=list[Raw])
        elements = {_ELEMENTS.get(bytes(item)[:1], "number") for item in items[:_MOST_ELEMENTS]}
        if len(elements) != 1:
            return f"array of {len(items):,}"
        counted = _count(len(items), *elements)
        if elements == {"object"}:
            return counted + _with_keys(msgspec.json.decode(items[0], type=dict[str, Raw]))
        first = f"; first: {_value(items[0], 0)}" if deeper and elements == {"array"} else ""
        return f"array of {counted}{first}"
    if data[:1] != b"{":
        return "a single value"
    members = msgspec.json.decode(data, type=dict[str, Raw])
    said = f"object{_with_keys(members)}" if members else "empty object"
    largest = max(members, key=lambda name: len(bytes(members[name])), default="")
    if largest and deeper and 2 * len(bytes(members[largest])) > len(data):
        inside = bytes(members[largest])[:1]
        if inside in (b"[", b"{"):
            said += f"; {_name(largest)}: {_value(members[largest], deeper - 1)}"
    return said


def _records(text: _Text) -> _Shape:
    """Records are counted by the brackets that they begin with: other lines may be among them."""
    head = text.head.lstrip()
    value, _ = parsed_head(head[:SAMPLE_BYTES].partition(b"\n")[0])
    keys = _with_keys(value) if isinstance(value, dict) else ""
    records = head.count(b"\n" + head[:1]) + 1
    counted = f", {_count(records, 'record')}" if text.is_whole else ""
    return f"JSON lines{counted}{keys}", ""


def _table(text: _Text) -> _Shape:
    head = unnumbered(text.head[:SAMPLE_BYTES]).text.decode("utf-8", "replace")
    mark, rows = first_rows(head, _TABLE_LINES)
    said = ["TSV" if mark == "\t" else "CSV"]
    if not rows:
        return said[0], ""
    names, *rows = rows
    has_names = is_header(names, rows)
    if b'"' not in text.head and not text.has_blank_lines:
        said.append(_count(text.records - has_names, "row"))
    said.append(_count(len(names), "column"))
    return ", ".join(said) + (f": {_names(names)}" if has_names else " without names"), ""


def _log(text: _Text) -> _Shape:
    data = text.head[:_LOG_SAMPLE] + b"\n" + text.tail[-_LOG_SAMPLE:]
    said = [f"log, {_count(text.records, 'line')}"]
    if levels := log_levels(data):
        said.append(f"levels such as {', '.join(level for level, _ in levels)}")
    if times := log_times(data):
        said.append(times)
    return ", ".join(said), ""


def _page(text: _Text) -> _Shape:
    """The title is that of the page, else its first heading."""
    head = text.head[:SAMPLE_BYTES]
    found = sorted(_PAGE_TITLE.finditer(head), key=lambda tag: tag[0][1:2] not in b"tT")
    ends = ((tag.end(), head.find(b"</", tag.end(), tag.end() + 600)) for tag in found)
    titles = (html.unescape(clip(TAG.sub(b" ", head[start:end]))) for start, end in ends if end > 0)
    return "HTML page", next(filter(None, titles), "")


def _elements(text: _Text) -> _Shape:
    root = _ROOT.search(without_comments(text.head))
    return "XML" + (f", root element {root[1].decode()}" if root else ""), ""


def _markdown(text: _Text) -> _Shape:
    found = [heading[2] for heading in markdown_headings(text.head)]
    count = f", {_count(len(found), 'heading')}" if found and text.is_whole else ""
    return f"Markdown{count}", clip(found[0]) if found else ""


def _matches(text: _Text) -> _Shape:
    counted = next(hits(unnumbered(text.head)), "")
    return f"search output{', ' + counted if counted and text.is_whole else ''}", ""


def _code(text: _Text) -> _Shape:
    language = language_of(text.path, text.head)
    if language is None:
        return _plain(text) if _columns(text.first_lines) else ("source code", "")
    if len(text.head) > _CODE_BYTES:
        return f"{language.title()} source, {_count(text.records, 'line')}", ""
    # Every definition has a byte of its own: all are counted.
    found = definitions(text.head, language, most=_CODE_BYTES)
    classes = sum(1 for one in found if one.keyword in ("class", "struct", "interface", "trait", "enum"))
    said = [_count(classes, "class", "classes")] if classes else []
    if len(found) - classes:
        said.append(_count(len(found) - classes, "other definition" if classes else "definition"))
    return ", ".join((f"{language.title()} source", *said)), ""


def _changes(text: _Text) -> _Shape:
    return f"diff, {_count(text.lines, 'line')}", clip(text.head.lstrip().partition(b"\n")[0])


def _plain(text: _Text) -> _Shape:
    lines = list(filter(bytes.strip, text.first_lines))
    if len(lines) > 3 and share(_PERMISSIONS, lines) > 0.6:
        if not text.is_whole:
            return f"directory listing, {_count(text.lines, 'line')}", ""
        entries = sum(1 for line in text.head.split(b"\n") if _PERMISSIONS.match(line))
        return f"directory listing, {_count(entries, 'entry', 'entries')}", ""
    if len(lines) > 3 and share(_PATH, lines) > 0.8:
        return f"list of paths, {_count(text.records, 'line')}", ""
    if _TUPLES.match(text.head):
        count = f" of {_count(text.head.count(b'), (') + 1, 'tuple')}" if text.is_whole else " of tuples"
        return f"Python list{count}", clip(text.head[:80])
    if columns := _columns(text.first_lines):
        return (
            f"table, {_count(text.records, 'line')}, {_count(len(columns), 'column')}: {_names(columns)}",
            "",
        )
    first = clip(lines[0]) if lines else ""
    return f"plain text, {_count(text.lines, 'line')}", first


def _columns(first: list[bytes]) -> list[str]:
    """The columns of a table with a header of words over its rows, or with `|` between its cells."""
    first = first[:_TABLE_LINES]
    lines = [line for line in first if not RULE.match(line)]
    if len(lines) <= _LEAST_ROWS or not all(lines[1:]):
        return []
    header, *rows = lines
    bars = header.count(b"|")
    # Without a rule, one bar may stand between a program and what it says, two around the text of a dump.
    has_names = len(lines) < len(first) or (bars > 1 and not header[:1].isdigit())
    if bars and has_names and all(row.count(b"|") == bars for row in rows):
        names = header.strip().strip(b"|").split(b"|")
    elif b"  " in header.strip() and all(is_over(header, row) for row in rows):
        names = columns_over(header, rows)
    else:
        return []
    return [clip(name) for name in names]


def _binary(text: _Text) -> _Shape:
    return "mostly binary, with some readable text", ""


_SHAPES: dict[Kind, Callable[[_Text], _Shape]] = {
    Kind.JSON: _json,
    Kind.NDJSON: _records,
    Kind.CSV: _table,
    Kind.LOG: _log,
    Kind.HTML: _page,
    Kind.XML: _elements,
    Kind.MARKDOWN: _markdown,
    Kind.GREP: _matches,
    Kind.CODE: _code,
    Kind.BINARY: _binary,
}


_FEW_WORDS = 40
# Unlike TAG it fails at once where no tag ends.
_MARKUP = re.compile(rb"<[^<>]{0,300}>")
_DECLARED = re.compile(rb"<html\b[^<>]{0,200}?\blang=[\"']?([A-Za-z]{2})\b", re.IGNORECASE)
_CODES = {
    "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese", "it": "Italian", "nl": "Dutch",
    "pl": "Polish", "tr": "Turkish", "sv": "Swedish", "ru": "Russian", "zh": "Chinese", "ja": "Japanese",
    "ko": "Korean", "ar": "Arabic", "he": "Hebrew", "el": "Greek", "hi": "Hindi", "th": "Thai",
}  # fmt: skip


def _language(kind: Kind, head: bytes) -> str:
    """The language of the beginning; of a page that of its text, or the one it declares if it has few words.
    ASCII data and programs are in no language."""
    if kind is Kind.HTML:
        head = head[:SAMPLE_BYTES]
        for start, end in reversed(unseen_spans(head)):
            head = head[:start] + head[end:]
        declared = _DECLARED.search(head)
        head = _MARKUP.sub(b" ", head)
        if declared and len(head.split()) < _FEW_WORDS:
            return _CODES.get(declared[1].lower().decode(), "")
    head = head[:_PROSE]
    if kind is Kind.BINARY or (kind not in _WRITTEN and head.isascii()):
        return ""
    return language_of_text(head.decode("utf-8", "ignore"))


def _with_keys(keys: Collection[str]) -> str:
    return f" with keys {_names(keys)}" if keys else ""


def _names(names: Iterable[str]) -> str:
    """The names that fit, separated by commas; `…` for the rest."""
    said: list[str] = []
    room = _NAMES_BYTES
    for name in map(_name, names):
        room -= len(name.encode()) + 2
        if room < 0 and said:
            return ", ".join((*said, "…"))
        said.append(name)
    return ", ".join(said)


def _name(name: str) -> str:
    return clip(name.encode("utf-8", "replace")[:60])


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _clipped(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= most else cut_head(data, most - 3).decode() + "…"
