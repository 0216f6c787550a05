"""What a search shows: the text of a page, the record or row around a matching line, a table's header."""

import html
import re
from collections.abc import Iterable, Iterator

from content.formats.format import Passage
from content.formats.hidden_parts import hidden_spans
from content.formats.json import JsonFormat
from content.formats.markup import END_OF_CELL, TAGS_BETWEEN, WHOLE_TAG
from content.formats.sheets import CELL_KEY, CELL_LINE, CELL_OBJECT
from content.grep import Surroundings
from content.source_text import SourceText

MOST_BYTES = 8 << 20
"""The most bytes of data for which a view is made. Larger data is searched as stored."""

RECORD_CHARS = 400
"""The most bytes of a record that is shown in place of its line."""

_ROW_CHARS = 800
_MOST_LINES = 60
_BLOCK = 64 << 10

_ENTITY = re.compile(rb"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,31});")
_LINK = re.compile(
    rb"<(?:(a)\b[^<>]{0,1000}?\bhref\s*=\s*(?:\"(?!#|javascript:)([^\"\s<>]{1,300})\"|'(?!#|javascript:)([^'\s<>]{1,300})')"
    rb"|/a\s*>)",
    re.IGNORECASE,
)
_SPACES = re.compile(rb"[ \t]{2,}")
_INDENTS = re.compile(rb"[ \t\r]*\n[ \t]*")

_ENDS = (b"}", b")", b"]", b"</", b"end")
_MOST_BLOCK_LINES = 2000

_OPENS, _CLOSES = (b"{", b"[", b"("), (b"}", b"]", b")")

ByteSpan = tuple[int, int]


def page_text(page: bytes, *, has_addresses: bool = False) -> bytes:
    """The page on the same lines without scripts, style sheets and tags; ` | ` between cells of a table.
    `has_addresses`: behind the text of each link stands its address."""
    parts, last = [], 0
    for start, end in hidden_spans(page):
        parts += [page[last:start], b"\n" * page.count(b"\n", start, end)]
        last = end
    text = END_OF_CELL.sub(b" | ", b"".join((*parts, page[last:])))
    text = TAGS_BETWEEN.sub(lambda tags: b"\n" * tags[0].count(b"\n") or b" ", text)
    if has_addresses:
        text = _with_addresses(text)
    text = _ENTITY.sub(_character, WHOLE_TAG.sub(lambda tag: b"\n" * tag[0].count(b"\n"), text))
    return _INDENTS.sub(b"\n", _SPACES.sub(b" ", text)).lstrip(b" \t")


def _with_addresses(text: bytes) -> bytes:
    parts, last, address = [], 0, b""
    for tag in _LINK.finditer(text):
        if tag[1]:
            address = (tag[2] or tag[3] or b"").strip()
        elif address:
            parts += [text[last : tag.start()], b" &lt;", address, b"&gt;"]
            last, address = tag.start(), b""
    return b"".join((*parts, text[last:]))


def _character(entity: re.Match[bytes]) -> bytes:
    return html.unescape(entity[0].decode()).replace("\n", " ").encode("utf-8", "replace")


def surroundings(data: bytes, source: SourceText, lines: Iterable[int]) -> dict[int, Surroundings]:
    """`data` is what was searched: a view of the source, on lines that begin at 1. `lines` are in order."""
    if isinstance(source.format, JsonFormat):
        return dict(_records(data, lines))
    if source.format.is_doubtful and source.is_verbatim and data == source.data:
        return dict(_rows(source, lines))
    return {}


def block_ends(data: bytes, lines: Iterable[int]) -> dict[int, int]:
    """The last lines of the blocks that lines open, by their indents, where that is within 2,000 lines."""
    found = {}
    for number, start in _starts(data, lines):
        indent, last, at = _indent(data, start), 0, _end(data, start) + 1
        for line in range(number + 1, number + _MOST_BLOCK_LINES):
            end = _end(data, at)
            if text := data[at:end].strip():
                if _indent(data, at) > indent:
                    last = line
                else:
                    if last:
                        found[number] = line if text.startswith(_ENDS) else last
                    break
            at = end + 1
            if at >= len(data):
                break
    return found


def headings(source: SourceText) -> list[tuple[int, str]]:
    """The headings of a text or page and the definitions of source code, with the numbers of their lines in
    the stored text."""
    found = list(source.format.headings(source))
    first = source.line(0) if found else 0
    return sorted((row + first, text) for row, text in found)


def _records(data: bytes, lines: Iterable[int]) -> Iterator[tuple[int, Surroundings]]:
    for number, start in _starts(data, lines):
        span = _row_of_cells(data, start) or _record(data, start)
        if span:
            first = number - data.count(b"\n", span[0], start)
            last = first + data.count(b"\n", span[0], span[1])
            yield number, Surroundings(first, last, _on_one_line(data[slice(*span)]))


def _rows(source: SourceText, lines: Iterable[int]) -> Iterator[tuple[int, Surroundings]]:
    data = source.data
    for number, start in _starts(data, lines):
        end = _end(data, start) + 1
        whole = source.format.around(data, Passage(start, end, number, number, ""), has_sentences=False)
        first = number - data.count(b"\n", whole.start, start)
        last = first + data.count(b"\n", whole.start, whole.end - 1)
        text = ""
        if last > first and last - first < _MOST_LINES and CELL_LINE.match(data, start):
            text = " | ".join(data[whole.start : whole.end].decode("utf-8", "replace").split("\n")).strip(
                " |"
            )
        header: tuple[tuple[int, str], ...] = ()
        if whole.header:
            above = first - data.count(b"\n", whole.header[0], whole.start)
            names = data[slice(*whole.header)].decode("utf-8", "replace").rstrip("\n").split("\n")
            header = tuple(enumerate(names, above))
        yield number, Surroundings(first, last, text, header, whole.columns)


def _starts(data: bytes, lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The numbers of lines in order, each with the place where its line begins."""
    at, current = 0, 1
    for number in lines:
        while current < number:
            count = data.count(b"\n", at, at + _BLOCK)
            if at + _BLOCK < len(data) and current + count < number:
                at, current = at + _BLOCK, current + count
                continue
            newline = data.find(b"\n", at)
            if newline < 0:
                return
            at, current = newline + 1, current + 1
        at = data.rfind(b"\n", 0, at) + 1
        yield number, at


def _end(data: bytes, start: int) -> int:
    newline = data.find(b"\n", start)
    return len(data) if newline < 0 else newline


def _indent(data: bytes, start: int) -> int:
    line = data[start : start + 200]
    return len(line) - len(line.lstrip(b" \t"))


def _record(data: bytes, start: int) -> ByteSpan | None:
    """Returns the largest short object or list around a line, at most an element of a list."""
    record = None
    around = _opened(data, start) or _around(data, start)
    while around and _is_short(data, around, RECORD_CHARS):
        record = around
        opening = data[around[0] : _end(data, around[0])].strip()
        if opening in _OPENS:
            break
        around = _around(data, around[0])
    return record


def _opened(data: bytes, start: int) -> ByteSpan | None:
    """From a line that opens brackets to the end of the one that closes them."""
    end = _end(data, start)
    if not data[start:end].rstrip().endswith(_OPENS):
        return None
    indent = _indent(data, start)
    for _ in range(2 * _MOST_LINES):
        if end >= len(data):
            return None
        following, end = end + 1, _end(data, end + 1)
        if _indent(data, following) <= indent:
            return start, end
    return None


def _around(data: bytes, start: int) -> ByteSpan | None:
    """From the line that opens the brackets around a line to the end of the one that closes them."""
    opening = _above(data, start, _indent(data, start) - 1)
    return None if opening is None else _opened(data, opening)


def _above(data: bytes, start: int, indent: int) -> int | None:
    """The nearest of 60 lines above that has at most this indent."""
    for _ in range(_MOST_LINES):
        if start == 0:
            return None
        start = data.rfind(b"\n", 0, start - 1) + 1
        if _indent(data, start) <= indent:
            return start
    return None


def _is_short(data: bytes, span: ByteSpan, most: int) -> bool:
    return span[1] - span[0] <= 8 * most and len(_on_one_line(data[slice(*span)])) <= most


def _row_of_cells(data: bytes, start: int) -> ByteSpan | None:
    """The cells of a spreadsheet in the row of the one on this line."""
    cell: ByteSpan | None = (start, _end(data, start))
    for _ in range(2):
        if cell and (row := _row_of(data, cell)):
            return _whole_row(data, cell, row)
        cell = _around(data, start)
    return None


def _row_of(data: bytes, cell: ByteSpan) -> bytes:
    """The number of the row in the address of a cell, b"" for anything else."""
    address = CELL_KEY.match(data, *cell)
    if address is None and cell[1] - cell[0] <= RECORD_CHARS:
        address = CELL_OBJECT.search(data, *cell)
    return address[1] if address else b""


def _whole_row(data: bytes, cell: ByteSpan, row: bytes) -> ByteSpan:
    begin, end = cell
    while (before := _cell_before(data, begin)) and _row_of(data, before) == row:
        begin = before[0]
    while (after := _cell_after(data, end)) and _row_of(data, after) == row:
        end = after[1]
    return (begin, end) if end - begin <= 2 * _ROW_CHARS else cell


def _cell_before(data: bytes, begin: int) -> ByteSpan | None:
    """Returns the line above; if it closes brackets, all lines of these brackets."""
    if begin == 0:
        return None
    start = data.rfind(b"\n", 0, begin - 1) + 1
    if not data[start:begin].strip().startswith(_CLOSES):
        return start, begin - 1
    opening = _above(data, start, _indent(data, start))
    return None if opening is None else (opening, begin - 1)


def _cell_after(data: bytes, end: int) -> ByteSpan | None:
    """Returns the line below; if it opens brackets, all lines of these brackets."""
    start = end + 1
    if start >= len(data):
        return None
    return _opened(data, start) or (start, _end(data, start))


def _on_one_line(lines: bytes) -> str:
    return " ".join(line.strip() for line in lines.decode("utf-8", "replace").split("\n")).rstrip(", ")
