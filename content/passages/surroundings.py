"""What a passage is shown with: its whole record or row, the sentences around it, the header of its table."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from content.kinds import Kind
from content.passages.splitting import Passage
from content.passages.text_sections import MOST, REACH, TAG
from content.text import DOUBLE_QUOTED, SINGLE_QUOTED, cut_head


class Whole(NamedTuple):
    """Bytes `start` to before `end`, under `path`. `header` is the span of the lines before `start` that name
    the columns of the table; `columns` names them where they are no lines of their own."""

    start: int
    end: int
    path: str
    header: tuple[int, int] | None = None
    columns: str = ""


def whole(data: bytes, passage: Passage, kind: Kind, has_sentences: bool = True) -> Whole:
    """Returns at most REACH bytes, without the sentences around unless `has_sentences`. Reads a few kilobytes
    around the passage, and at most 4 MiB before it for the header of a table."""
    start, end = passage.start, passage.end
    if passage.opened >= 0:
        return _record(data, passage)
    if kind is Kind.HTML:
        start, end = _within(passage, *_table_row(data, start, end))
        if has_sentences:
            start, end = _within(passage, *_sentences(data, start, end, _TAGS_BETWEEN))
        return Whole(start, end, passage.path, columns=_heads_of_cells(data, start))
    if kind in (Kind.JSON, Kind.NDJSON, Kind.XML, Kind.BINARY):
        return Whole(start, end, passage.path)
    start, end = _within(passage, _line_start(data, start), _line_end(data, end - 1))
    start, end = _within(passage, *_cells(data, start, end))
    if has_sentences and kind in (Kind.TEXT, Kind.MARKDOWN):
        start, end = _within(passage, *_sentences(data, start, end, _LINES_BETWEEN))
    is_table = kind in (Kind.TEXT, Kind.MARKDOWN, Kind.CODE)
    return Whole(start, end, passage.path, _header(data, start) if is_table else None)


def _within(passage: Passage, start: int, end: int) -> tuple[int, int]:
    return (start, end) if end - start <= REACH else (passage.start, passage.end)


# JSON and similar data.

_TOKEN = re.compile(rb"%b|%b|[\[\](){}]" % (DOUBLE_QUOTED, SINGLE_QUOTED), re.DOTALL)
_JSON_TOKEN = re.compile(rb"%b|[\[\]{}]" % DOUBLE_QUOTED, re.DOTALL)
_STEP = re.compile(r'(?:\.[\w$-]+|\["[^"]*"\]|\[\d+\])\Z')
_ADDRESS = re.compile(rb'"(?:address|cell|coordinate|ref)"\s*+:\s*+"\$?[A-Z]{1,3}\$?(\d{1,7})"')
_GRID = re.compile(rb'\[\s*+\[((?:\s*+"[^"\\]{1,100}"\s*+,){1,60}\s*+"[^"\\]{1,100}"\s*+)\]')
_HEAD = 4096
_LEAD = 32
_LIST = ord("[")
_COLUMNS_BYTES = 300


class _Container(NamedTuple):
    """A list, tuple or object from its opening bracket to past its closing one. `is_element`: it stands in a
    list."""

    start: int
    end: int
    is_list: bool
    is_element: bool

    @property
    def is_record(self) -> bool:
        return self.is_element or not self.is_list


def _record(data: bytes, passage: Passage) -> Whole:
    """The smallest record around all of the passage, an element of a list if there is one. Otherwise the
    records that begin or end in it are completed."""
    found = list(_containers(data, passage))
    start, end = _completed(passage, found)
    around = [one for one in found if one.start <= start and end <= one.end and one.end - one.start <= REACH]
    if records := [one for one in around if one.is_element] or [one for one in around if one.is_record]:
        smallest = min(records, key=lambda one: one.end - one.start)
        start, end = smallest.start, smallest.end
    start, end = _within(passage, *_row_of_cells(data, start, end, found))
    is_row = data[start : start + _LEAD].lstrip()[:1] == b"["
    # The first row of a list of rows, if it holds text alone.
    grid = _GRID.search(data, 0, _HEAD) if is_row and start > _HEAD else None
    return Whole(start, end, _path(passage, start, found), columns=_clipped(grid[1]) if grid else "")


def _containers(data: bytes, passage: Passage) -> Iterator[_Container]:
    """Those that begin where the passage is opened or later, and end at most REACH bytes after it, in the
    order of their ends."""
    pattern = _JSON_TOKEN if data[:8].find(b"(") < 0 and data[:8].find(b"'") < 0 else _TOKEN
    opened: list[int] = []
    for token in pattern.finditer(data, passage.opened, min(len(data), passage.end + REACH)):
        if token[0] in (b"{", b"[", b"("):
            opened.append(token.start())
        elif token[0] in (b"}", b"]", b")") and opened:
            start = opened.pop()
            is_value = data[max(0, start - _LEAD) : start].rstrip().endswith(b":")
            yield _Container(start, token.end(), data[start] == _LIST, not is_value)


def _completed(passage: Passage, found: list[_Container]) -> tuple[int, int]:
    short = [one for one in found if one.is_record and one.end - one.start <= MOST]
    start = min(
        (one.start for one in short if one.start < passage.start < one.end < passage.end),
        default=passage.start,
    )
    end = max(
        (one.end for one in short if passage.start < one.start < passage.end < one.end), default=passage.end
    )
    return _within(passage, start, end)


def _row_of_cells(data: bytes, start: int, end: int, found: list[_Container]) -> tuple[int, int]:
    """Records of single cells are completed to the cells of their rows."""
    cells = {
        (one.start, one.end): address[1]
        for one in sorted(found)
        if not one.is_list and (address := _ADDRESS.search(data, one.start, min(one.end, one.start + MOST)))
    }
    shown = [row for (at, until), row in cells.items() if start <= at and until <= end]
    if not shown:
        return start, end
    before = [at for (at, until), row in cells.items() if until <= start and row == shown[0]]
    after = [until for (at, until), row in cells.items() if at >= end and row == shown[-1]]
    return min((start, *before)), max((end, *after))


def _path(passage: Passage, start: int, found: list[_Container]) -> str:
    """The path of the record that begins at `start`, from the one of the first member in the passage."""
    inside = [one for one in found if start <= one.start < passage.start < one.end]
    path = passage.path
    for _ in range(len(inside) - (not max(inside).is_list) if inside else 0):
        path = _STEP.sub("", path)
    return path


def _clipped(text: bytes) -> str:
    return " ".join(cut_head(text, _COLUMNS_BYTES).decode("utf-8", "replace").split())


# Lines: whole ones, cells of a spreadsheet, the header of a table.

_CELL = re.compile(rb'[ \t"\'\[(|*-]{0,12}\$?[A-Z]{1,3}\$?(\d{1,7})["\'\])*]{0,3}[ \t]*[:=|\t]')
RULE = re.compile(rb"[ \t]*+\|?[ \t]*+:?[-=+]{2}[-=+:| \t]*+\Z")
_WORDS = re.compile(rb"\S+")
_TABLE_BEFORE = 4 << 20
_ABOVE = 6
_ROWS = 4
_LEAST_COLUMNS = 3
_ALIGNED = 0.7


def _line_start(data: bytes, at: int) -> int:
    """Where the line begins; `at` if that is further than REACH bytes before."""
    newline = data.rfind(b"\n", max(0, at - REACH), at)
    return newline + 1 if newline >= 0 or at <= REACH else at


def _line_end(data: bytes, at: int) -> int:
    newline = data.find(b"\n", at, at + REACH)
    return newline + 1 if newline >= 0 else min(len(data), at + REACH)


def _cells(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Lines of single cells, such as `B7: 12`, are completed to the cells of their rows."""
    first = _CELL.match(data, start, end)
    while first and start > 0:
        before = _line_start(data, start - 1)
        cell = _CELL.match(data, before, start)
        if before == start or cell is None or cell[1] != first[1]:
            break
        start = before
    last = _CELL.match(data, _line_start(data, end - 1), end)
    while last and end < len(data):
        cell = _CELL.match(data, end)
        if cell is None or cell[1] != last[1]:
            break
        end = _line_end(data, end)
    return start, end


def _header(data: bytes, start: int) -> tuple[int, int] | None:
    """The header of the table whose rows are from `start` on: the line above a rule, or the first line after
    an empty one if its words stand over the cells."""
    rows = data[start : start + REACH].partition(b"\n\n")[0].split(b"\n")[:_ROWS]
    block = max(data.rfind(b"\n\n", max(0, start - _TABLE_BEFORE), start) + 2, 0)
    if block < 2:
        block = 0 if start <= _TABLE_BEFORE else start
    at, above = block, b""
    for _ in range(_ABOVE):
        until = data.find(b"\n", at, min(start, at + REACH)) + 1
        if not until:
            return None
        line = data[at : until - 1]
        if RULE.match(line) and above.count(b"|") == rows[0].count(b"|") > 1:
            return at - len(above) - 1, until
        if b"  " in line.strip() and all(is_over(line, row) for row in rows):
            return at, until
        at, above = until, line
    return None


def is_over(header: bytes, row: bytes) -> bool:
    """True if most words of the header begin or end where words of the row do, and none is a word of the row
    or begins with a digit."""
    words, cells = list(_WORDS.finditer(header)), list(_WORDS.finditer(row))
    if len(words) < _LEAST_COLUMNS or any(word[0][:1].isdigit() for word in words):
        return False
    starts, ends = {cell.start() for cell in cells}, {cell.end() for cell in cells}
    if {word[0] for word in words} & {cell[0] for cell in cells}:
        return False
    aligned = sum(word.start() in starts or word.end() in ends for word in words)
    return aligned >= _ALIGNED * len(words)


def columns_over(header: bytes, rows: list[bytes]) -> list[bytes]:
    """The names of the columns. A single space ends one if each row has a cell under both words, and a space
    between."""
    words = [word.span() for word in _WORDS.finditer(header)]
    names = [header[slice(*words[0])]]
    for (start, end), (following, last) in pairwise(words):
        is_within = following == end + 1 and not all(
            row[start:end].strip() and row[end:following] == b" " and row[following:last].strip()
            for row in rows
        )
        names[-1:] = [names[-1] + header[end:last]] if is_within else [names[-1], header[following:last]]
    return names


# HTML: rows and headers of tables.

_OPENING_ROW, _CLOSING_ROW = re.compile(rb"<tr\b", re.IGNORECASE), re.compile(rb"</tr\s*>", re.IGNORECASE)
_TABLE = re.compile(rb"<(/?)table\b", re.IGNORECASE)
_ROW = re.compile(rb"<tr\b[^<>]{0,300}>", re.IGNORECASE)
_ROW_BYTES = 4000
_END_OF_CELL = re.compile(rb"</t[hd]\s*>", re.IGNORECASE)
_TABLE_BYTES = 256 << 10


def _table_row(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Completes the rows that begin or end in the passage."""
    before = [found.start() for found in _OPENING_ROW.finditer(data, max(0, start - MOST), start)]
    if before and not _CLOSING_ROW.search(data, before[-1], start):
        start = before[-1]
    inside = [found.start() for found in _OPENING_ROW.finditer(data, start, end)]
    if inside and not _CLOSING_ROW.search(data, inside[-1], end):
        closing = _CLOSING_ROW.search(data, end, end + MOST)
        end = closing.end() if closing else end
    return start, end


def _heads_of_cells(data: bytes, start: int) -> str:
    """The first row of the table around `start`, if it holds `th` and ends before."""
    tables = list(_TABLE.finditer(data, max(0, start - _TABLE_BYTES), start))
    if not tables or tables[-1][1]:
        return ""
    row = _ROW.search(data, tables[-1].start(), start)
    closing = row and _CLOSING_ROW.search(data, row.end() + 1, min(start, row.end() + _ROW_BYTES))
    if row is None or closing is None:
        return ""
    cells = data[row.end() : closing.start()]
    if b"<th" not in cells.lower():
        return ""
    return _clipped(TAG.sub(b" ", _END_OF_CELL.sub(b" | ", cells)).strip().removesuffix(b"|"))


# Prose.

_SENTENCE_END = r"(?:[.!?][\"')\]*_]{0,3}\s+(?=[\"'(\[*_]{0,3}[^\W\d_a-z])|[。！？][」』”]?\s*)"
_LINES_BETWEEN = re.compile(rb"\n[ \t\r]*\n|\n(?=[ \t]{0,12}(?:[-*+>|#]|\d{1,3}[.)]) )")
_TAGS_BETWEEN = re.compile(
    rb"</?(?:h[1-6]|p|div|section|article|table|tr|td|th|ul|ol|li|pre|form|br|main|header|nav|body)\b[^<>]{0,300}>",
    re.IGNORECASE,
)
_SENTENCES = re.compile(_SENTENCE_END)
_GOES_ON = re.compile(rb"[ \t]{0,8}[a-z]")
_NEAR = 300


def _sentences(data: bytes, start: int, end: int, between: re.Pattern[bytes]) -> tuple[int, int]:
    """A paragraph that is cut is completed by the rest of a sentence, or by one more."""
    if _is_cut(data, start):
        start = _sentence_start(data, start, between)
    if _is_cut(data, end):
        end = _sentence_end(data, end, between)
    return start, end


def _is_cut(data: bytes, at: int) -> bool:
    """True within a line, and before a line that goes on with a small letter."""
    if not 0 < at < len(data):
        return False
    return data[at - 1 : at] != b"\n" or _GOES_ON.match(data, at) is not None


def _sentence_start(data: bytes, start: int, between: re.Pattern[bytes]) -> int:
    first = max(0, start - _NEAR)
    breaks = [found.end() for found in between.finditer(data, first, min(len(data), start + 1))]
    if start in breaks or start + 1 in breaks:
        return start
    begin = breaks[-1] if breaks else first
    cuts = _ends_of_sentences(data, begin, start)
    if breaks or not first:
        cuts = [begin, *cuts]
    earlier = [cut for cut in cuts if cut < start]
    return earlier[-1] if earlier else start


def _sentence_end(data: bytes, end: int, between: re.Pattern[bytes]) -> int:
    last = min(len(data), end + _NEAR)
    stop = between.search(data, max(0, end - 1), last)
    limit = stop.start() if stop else last
    if limit <= end:
        return end
    cuts = _ends_of_sentences(data, end, limit)
    if stop or last == len(data):
        cuts = [*cuts, limit]
    return cuts[0] if cuts else end


def _ends_of_sentences(data: bytes, start: int, end: int) -> list[int]:
    """The places after the ends of sentences."""
    while start < end and data[start] & 0xC0 == 0x80:
        start += 1
    text = data[start:end].decode("utf-8", "ignore")
    found = (found.end() for found in _SENTENCES.finditer(text))
    return [start + len(text[:at].encode()) for at in found]
