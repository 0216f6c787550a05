"""Tables of lines: cells between separators or bars, or in columns under a header of words."""

import csv
import io
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice, takewhile
from typing import Literal, NamedTuple

from content.formats.cuts import AIM, LEAST, MOST, cut_passage
from content.formats.format import (
    Description,
    Format,
    Part,
    Passage,
    Sample,
    SketchForm,
    Whole,
    clipped_columns,
    group_of,
    lines_around,
)
from content.formats.languages import CODE_LINE
from content.formats.printed import FOOTER, Printed, are_dots, printed_in, printed_tables
from content.kind import Kind
from content.source import Source
from content.tables import (
    BLANKS,
    COUNTED_BYTES,
    HEAD_BYTES,
    SAMPLED,
    Delimited,
    Table,
    TablesAndNotes,
    columns_of,
    lines_table,
    sample_of,
    table_of_cells,
    without_counts,
)
from content.text import clip, count_of
from domain.errors import NotQueryable

_MARKS = (b"\t", b",", b";")
_QUOTED = re.compile(rb'"[^"]*"')
_CODE = re.compile(rb"\s*+(?:%b)" % CODE_LINE)
# Messages of compilers, lines of code and sentences have commas too.
_UNLIKE_A_HEADER = re.compile(rb"[{}=]|:\s|[:.]\Z|\(\d+,|\);")
RULE = re.compile(rb"[ \t]*+\|?[ \t]*+:?[-=+]{2}[-=+:| \t]*+\Z")
_WORDS = re.compile(rb"\S+")
# `1K-blocks` is the name of a column, `12K` is not.
_NO_NAME = re.compile(rb"\d(?!\S*[A-Za-z]{4})")
_ROWS = 8
_LEAST_ROWS = 3
_LEAST_COLUMNS = 3
_ALIGNED = 0.7
_HEAD = 64 << 10
_SNIFFED = 8 << 10
_PRINTED_BYTES = 16 << 10
_MANY = 50
_LONGEST_HEADER = 1 << 20
_HEADER_BYTES = 300
_FIRST_BYTES = 512
# A member of JSON, which does not occur in a header.
_MEMBER = b'":'


class Dialect(NamedTuple):
    """How rows are cells. `mark` separates them; "|" stands around them too, "" is white space under
    `header`. `first` is the number of lines up to the end of the header and its rule. `above` is the number
    of lines before the header that are none of the table. `escape` stands before a quote in a cell."""

    mark: bytes
    first: int = 1
    header: bytes = b""
    above: int = 0
    escape: bytes = b'"'

    @property
    def is_separated(self) -> bool:
        """The cells stand between separators; a bar may be one."""
        return not self.header

    @property
    def name(self) -> str:
        return {b"\t": "TSV", b",": "CSV", b";": "CSV"}.get(self.mark, "table")


@lru_cache(maxsize=8)
def dialect_of(head: bytes) -> Dialect | None:
    """Returns the dialect of a table whose first 8 KiB are these; None if it is not a table."""
    is_cut = len(head) >= _SNIFFED
    if b"\n" not in head:
        # Old programs end lines with a carriage return.
        head = head.replace(b"\r", b"\n")
    every = head.strip(b"\r\n").split(b"\n", 60)[:60]
    if is_cut and len(every) > 2 and len(every) < 60:
        every.pop()
    if b"\r" in head:
        every = [line.rstrip(b"\r") for line in every]
    lines = list(filter(bytes.strip, every))
    if lines and is_cut and len(lines) == 1 and (mark := _wide(lines[0])):
        return Dialect(mark)
    if len(lines) < 2 or _CODE.match(lines[0]) or _MEMBER in lines[0]:
        return None
    if separated := _separated(every, lines):
        return separated
    return _printed(every)


_SEPARATOR_LINE = re.compile(rb"sep=([,;|\t])\s*")
_MOST_ABOVE = 20
_LEAST_BELOW = 6


def _separated(every: list[bytes], lines: list[bytes]) -> Dialect | None:
    """A table with separators, which may have lines of another shape above its header."""
    if told := _SEPARATOR_LINE.fullmatch(lines[0]):
        return Dialect(told[1], above=every.index(lines[0]) + 1)
    escape = b"\\" if b'\\"' in b"".join(lines) and b'""' not in b"".join(lines) else b'"'
    if escape == b"\\":
        lines = [line.replace(b'\\"', b"") for line in lines]
    if mark := _separator(lines) or _bar(lines):
        return None if _are_sentences(lines, mark) else Dialect(mark, escape=escape)
    for above in range(1, min(_MOST_ABOVE, len(lines) - _LEAST_BELOW)):
        below = lines[above:]
        if (mark := _separator(below)) and _is_uniform(mark, lines[above - 1], below):
            first = every.index(next(line for line in every[_place(every, above) :] if line.strip()))
            return Dialect(mark, above=first, escape=escape)
    return None


def _are_sentences(lines: list[bytes], mark: bytes) -> bool:
    """True if a space follows each comma, and the first line may not be a header."""
    commas = sum(line.count(b",") for line in lines)
    if (
        mark != b","
        or any(b'"' in line for line in lines)
        or sum(line.count(b", ") for line in lines) < 0.9 * commas
    ):
        return False
    first, *rows = ([cell.decode("utf-8", "replace") for cell in line.split(b",")] for line in lines)
    return is_doubtful_header(first, rows)


def _place(every: list[bytes], filled: int) -> int:
    """Returns the line after which this many lines are filled."""
    seen = 0
    for at, line in enumerate(every):
        if seen == filled:
            return at
        seen += bool(line.strip())
    return len(every)


def _is_uniform(mark: bytes, above: bytes, below: list[bytes]) -> bool:
    """True if all lines have the same number of cells, at least three, and the line above them has fewer."""
    counts = {_QUOTED.sub(b"", line).count(mark) for line in below[:-1]}
    return len(counts) == 1 and 1 < max(counts) > above.count(mark)


def _bar(lines: list[bytes]) -> bytes:
    """Returns a bar as the separator if each line has the same number of bars and begins without one."""
    counts = {line.count(b"|") for line in (lines[:-1] if len(lines) > 2 else lines)}
    if len(counts) > 1 or max(counts) < 2 or len(lines) <= _LEAST_ROWS:
        return b""
    has_outer = any(line.lstrip().startswith(b"|") or RULE.match(line) for line in lines)
    return b"" if has_outer else b"|"


def table_start(data: bytes, dialect: Dialect) -> int:
    """Where the first line of the table begins, below the lines above it."""
    at = len(data) - len(data.lstrip(b"\r\n")) if dialect.above else 0
    for _ in range(dialect.above):
        at = data.find(b"\n", at) + 1
    return at


_MOST_BELOW = 6


def table_end(source: Source, dialect: Dialect) -> int:
    """Where the rows of a table with separators end: lines without one that stand below the last row, such as
    how many rows there are, are none of it. The whole text, where that is not sure."""
    data, mark = source.data, dialect.mark
    if not source.is_whole or data.count(b'"') % 2:
        return len(data)
    end = at = len(data.rstrip(b"\r\n"))
    for _ in range(_MOST_BELOW):
        start = data.rfind(b"\n", 0, at) + 1
        line = data[start:at].strip()
        if not start or mark in line or b'"' in line:
            break
        if line:
            end = start
        at = start - 1
    else:
        return len(data)
    above = data.rfind(b"\n", 0, at)
    is_apart = not data[above + 1 : end].strip() or bool(_BLANK.search(data, max(0, above), end))
    below = data[end:].decode("utf-8", "replace").strip()
    is_footer = all(map(FOOTER.fullmatch, filter(str.strip, below.splitlines())))
    return end if below and (is_apart or is_footer or data.count(mark, above + 1, at) > 1) else len(data)


_BLANK = re.compile(rb"\n[ \t\r]*\n")


def dialect_in(source: Source) -> Dialect:
    """Returns the dialect of a source whose format is a table."""
    dialect = dialect_of(source.head)
    assert dialect is not None
    return dialect


def _wide(header: bytes) -> bytes:
    """The separator of a header that is longer than the part that is looked at. b"" if it is no header."""
    first = _QUOTED.sub(b"", header[:_FIRST_BYTES]).partition(b'"')[0]
    if _MEMBER in header or _is_prose(first) or _UNLIKE_A_HEADER.search(first):
        return b""
    bare = _QUOTED.sub(b"", header)
    mark = max(_MARKS, key=bare.count)
    is_names = bare.count(mark) >= _MANY and not _is_prose(bare) and not _UNLIKE_A_HEADER.search(bare)
    return mark if is_names else b""


def _is_prose(bare: bytes) -> bool:
    """Prose and literals of Python have a space after each comma."""
    mark = max(_MARKS, key=bare.count)
    return 5 * bare.count(mark + b" ") > bare.count(mark) or bare[:1] in (b"[", b"(", b"<")


def _separator(lines: list[bytes]) -> bytes:
    """The separator that occurs as often outside quotes in nearly every line; b"" if none does. The last line
    may be cut, and quoted cells may hold newlines."""
    mark, has_open = _agreed(lines)
    return _agreed(_QUOTED.sub(b"", b"\n".join(lines)).split(b"\n"))[0] if has_open and not mark else mark


def _agreed(lines: list[bytes]) -> tuple[bytes, bool]:
    """The separator that most lines have equally often, the most frequent of several; b"" without one. True
    if a quote is open at the end of a line that was read. Ends when too many lines differ."""
    rows = lines[:-1] if len(lines) > 2 else lines
    header = _QUOTED.sub(b"", rows[0])
    has_open = b'"' in header
    least = 1 if len(rows) >= 5 else 2
    counts = {mark: count for mark in _MARKS if (count := header.count(mark)) >= least}
    if not counts or _UNLIKE_A_HEADER.search(header):
        return b"", has_open
    others = dict.fromkeys(counts, 0)
    for row in rows[1:]:
        if b'"' in row:
            row = _QUOTED.sub(b"", row)
            has_open = has_open or b'"' in row
        for mark in others:
            others[mark] += row.count(mark) != counts[mark]
        others = {mark: count for mark, count in others.items() if count <= 0.1 * len(rows)}
        if not others:
            break
    return max(((counts[mark], mark) for mark in others), default=(0, b""))[1], has_open


def _printed(every: list[bytes]) -> Dialect | None:
    """A table with bars or white space between its cells."""
    printed = printed_in([line.decode("utf-8", "replace") for line in every])
    if printed is None:
        return None
    top = printed.first if printed.is_below else 0
    return Dialect(b"|" if printed.has_bars else b"", printed.body - top, every[printed.first], top)


def printed_tables_of(source: Source) -> tuple[list[str], list[Printed], int]:
    """Returns the lines of a text, the tables with bars or white space between their cells that follow each
    other in it, and the first line after them."""
    lines = source.data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if not source.is_whole and len(lines) > _ROWS:
        lines.pop()
    above = dialect_in(source).above
    found, end = printed_tables(lines, _blank_lines(source.data) + above if above else 0)
    if not found:
        raise NotQueryable("The result is no table as a whole. Use `lines` or `pattern`.")
    return lines, found, end


def printed_table(source: Source) -> tuple[list[str], Callable[[], Iterator[list[str]]]]:
    """Returns the names and the rows of the first table."""
    lines, (first, *_), _ = printed_tables_of(source)
    return list(first.names), lambda: first.rows(lines)


def _blank_lines(data: bytes) -> int:
    return data.count(b"\n", 0, len(data) - len(data.lstrip(b"\r\n")))


def is_over(header: bytes, row: bytes) -> bool:
    """True if most words of the header begin or end where words of the row do, and none is a word of the row
    or begins with a digit."""
    words = list(_WORDS.finditer(header))
    if len(words) < _LEAST_COLUMNS or any(_NO_NAME.match(word[0]) for word in words):
        return False
    cells = list(_WORDS.finditer(row))
    starts, ends = {cell.start() for cell in cells}, {cell.end() for cell in cells}
    if {word[0] for word in words} & {cell[0] for cell in cells}:
        return False
    aligned = sum(word.start() in starts or word.end() in ends for word in words)
    return aligned >= _ALIGNED * len(words)


# Quotes that open or close a cell for certain. Two in a row are a quote in a cell, or an empty cell.
_CELL_QUOTE = re.compile(
    rb'((?:(?<=[,;\t|\r\n])|(?<=[,;\t|\r\n] ))"(?>(?:"")*)(?![",;\t|\r\n]))'
    rb'|(?<![",;\t|\r\n\\])"(?>(?:"")*)(?=[,;\t|\r\n])'
)
_WINDOW = 4 << 10


def _row_end(data: bytes, low: int, wished: int, high: int) -> int:
    """A newline that is outside quotes, as far as the surrounding text shows."""
    start, end = max(0, low - _WINDOW), min(len(data), high + _WINDOW)
    quotes = []
    if data.find(b'"', start, end) >= 0:
        quotes = [(at.start(), at[1] is not None) for at in _CELL_QUOTE.finditer(data, start, end)]
    if not quotes:
        return 0
    places, at = [], low - 1
    while (at := data.find(b"\n", at, high) + 1) > 0:
        places.append(at)
    doubtful = 0
    for place in sorted(places, key=lambda place: abs(place - wished)):
        after = bisect(quotes, (place,))
        opened = after > 0 and quotes[after - 1][1]
        closes = after < len(quotes) and not quotes[after][1]
        if not opened and not closes:
            return place
        if not doubtful and opened != closes:
            doubtful = place
    return doubtful


class TableFormat(Format):
    kind = Kind.CSV
    is_records = True
    is_doubtful = True
    noun = "a table"
    sketch_form = SketchForm.TABLE
    syntax = "CSV"
    finds = (_row_end,)

    def matches(self, sample: Sample) -> bool:
        return dialect_of(sample.whole_head) is not None

    def shape(self, source: Source) -> Description:
        dialect = dialect_in(source)
        try:
            names, rows = _header(source, dialect)
        except NotQueryable:
            # Its beginning looks like a printed table, but what follows does not.
            return Description("text", ())
        has_names = any(names)
        counts = []
        if dialect.is_separated:
            count = row_count(source, dialect, rows_start(source, dialect))
        else:
            count = sum(1 for _ in printed_table(source)[1]()) if source.is_whole else None
        if count is not None:
            counts.append(count_of(count, "row"))
        if b"\n" in source.data.lstrip(b"\r\n"):
            counts.append(count_of(len(names or next(iter(rows), ())), "column"))
        naming = ": " if has_names else " without names"
        cells = (dict(zip(names, row, strict=False)) for row in rows[1:])
        group = group_of(names, list(cells)) if has_names else "column_1"
        return Description(dialect.name, counts, names if has_names else (), naming, group=group)

    def outline(self, source: Source) -> Iterator[str]:
        shape = self.shape(source)
        if not (shape.counts or shape.names):
            return
        *rows, columns = shape.counts or ("columns",)
        yield f"{columns}{shape.naming}{clip(', '.join(shape.names))}"
        yield from rows

    def next_place(self, data: bytes, start: int) -> int:
        """Finds a newline outside quotes. `start` is the beginning of a row."""
        wished, high = start + AIM, min(start + MOST, len(data))
        best = quotes = 0
        at, place = start, data.find(b"\n", start + LEAST, high) + 1
        while place and not (best and place > wished):
            quotes += data.count(b'"', at, place)
            at = place
            if quotes % 2 == 0 and (not best or abs(place - wished) < abs(best - wished)):
                best = place
            place = data.find(b"\n", place, high) + 1
        is_last = len(data) - start <= AIM + LEAST
        return cut_passage(data, start) if is_last or not best else best

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        start, end = lines_around(data, passage)
        above = header_end(data)
        if not 0 < above <= start:
            return Whole(start, end, passage.path)
        if above > _HEADER_BYTES:
            told = b"\n".join(line for line in data[:above].split(b"\n") if not RULE.match(line))
            return Whole(start, end, passage.path, columns=clipped_columns(told))
        # Without a preamble, because a blank line follows a preamble.
        names = list(takewhile(bytes.strip, reversed(data[:above].splitlines(keepends=True))))
        return Whole(start, end, passage.path, (above - sum(map(len, names)), above))

    is_lines = False

    def value(self, source: Source) -> list["Row"]:
        dialect = dialect_in(source)
        if dialect.is_separated:
            start, end = table_start(source.data, dialect), table_end(source, dialect)
            source.data = source.data[start:end]
        return read_table(source.take_text(), dialect)

    def tables(self, source: Source) -> TablesAndNotes:
        dialect = dialect_in(source)
        return _delimited(source, dialect) if dialect.is_separated else _printed_tables(source)

    def tables_part(self, source: Part) -> Part:
        """DuckDB reads separated cells as they are. Our reader of printed ones takes ten times as long."""
        return source if dialect_in(source).is_separated else source.beginning(_PRINTED_BYTES)

    def row_noun(self, source: Source) -> str:
        return dialect_in(source).name


def header_end(data: bytes) -> int:
    """Returns the end of the lines that name the columns; 0 without a header."""
    dialect = dialect_of(data[:_SNIFFED])
    if dialect is None or not _has_names(data[:_SNIFFED]):
        return 0
    blank = _blank_lines(data)
    above = 0
    for _ in range(dialect.above + dialect.first + blank):
        above = data.find(b"\n", above, _HEAD) + 1
        if not above:
            return 0
    return above


@lru_cache(maxsize=8)
def _has_names(head: bytes) -> bool:
    dialect = dialect_of(head)
    if dialect is None or not dialect.is_separated or b"\n" not in head.lstrip(b"\r\n"):
        return dialect is not None and dialect.first > 0
    rows = _first_rows(head[table_start(head, dialect) :], dialect)
    return bool(rows) and is_header(rows[0], rows[1:])


def _header(source: Source, dialect: Dialect) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, none for a table without a header, and the first rows of a table with
    separators, the header among them."""
    if not dialect.is_separated:
        names, rows_of = printed_table(source)
        return [clip(name.encode()) for name in names], [[], *islice(rows_of(), _ROWS)]
    data = source.data[table_start(source.data, dialect) :] if dialect.above else source.data
    head = data[: max(_HEAD, data.find(b"\n", 0, _LONGEST_HEADER) + 1)]
    rows = _first_rows(head, dialect)
    if not rows:
        return [], []
    names = [" ".join(cell.split()) for cell in rows[0]]
    return (names if is_header(rows[0], rows[1:]) else []), rows


def row_count(source: Source, dialect: Dialect, start: int) -> int | None:
    """Returns the number of rows of a table with separators whose first row below the header begins at
    `start`; None if the number needs the whole text."""
    data = source.data
    if not source.is_whole:
        has_blanks = data[:1] in (b"\r", b"\n") or b"\n\n" in data or b"\n\r\n" in data
        return None if b'"' in data or has_blanks else source.lines - data.count(b"\n", 0, start)
    data = data[start : table_end(source, dialect)]
    if data[:1] != b"\n" and not any(mark in data for mark in (b'"', b"\\", b"\r", b"\n\n")):
        return data.count(b"\n") + (data[-1:] not in (b"\n", b""))
    try:
        return sum(map(bool, split_rows(data.decode("utf-8", "replace"), dialect)))
    except csv.Error:
        return None


def rows_start(source: Source, dialect: Dialect) -> int:
    """Where the first row below the header begins, or the first of all where there is no header: a newline in
    a cell of the header ends no row."""
    start = at = table_start(source.data, dialect)
    first, *rows = _first_rows(source.data[start : start + _HEAD], dialect) or [[]]
    if not first or not is_header(first, rows):
        return start
    data = source.data
    for _ in range(1 + sum(cell.count("\n") for cell in first)):
        while data[at : at + 1] in (b"\n", b"\r"):
            at += 1
        ends = [end for mark in (b"\n", b"\r") if (end := data.find(mark, at)) >= 0]
        at = min(ends, default=len(data)) + 1
    return min(at + (data[at - 1 : at + 1] == b"\r\n"), len(data))


def _first_rows(head: bytes, dialect: Dialect) -> list[list[str]]:
    """Returns the rows before a quote that is not closed."""
    text = head.decode("utf-8", "replace").lstrip("\r\n")
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows += islice(_split(text, dialect, csv.QUOTE_MINIMAL, strict=False), _SAMPLED + 1)
    return rows


Cell = str | int | float | None
Quoting = Literal[0, 3]
Row = dict[str, Cell | list[str]]

MORE = "_more"
"""The key for the values of a row that have no column: cells beyond the header, members that are not
columns."""

_SAMPLED = 60
# Leading zeros belong to codes, not to numbers; a float holds no more than 308 digits.
_NUMBER = re.compile(rf"{BLANKS}-?(?:0|[1-9]\d{{0,300}})(?:\.\d{{1,300}})?(?:[eE][+-]?\d{{1,3}})?{BLANKS}")
_YEAR = re.compile(r"(?:19|20)\d\d")
_GAP = re.compile(r"\s{2,}|\t")


@dataclass(frozen=True, slots=True)
class _Columns:
    """`numbers` are the columns of which every cell is a plain number or empty, and at least one is a number.
    `rows` parses the rows below the header, each time again."""

    names: list[str]
    numbers: set[int]
    rows: Callable[[], Iterator[list[str]]]


def read_table(text: str, dialect: Dialect) -> list[Row]:
    """Parses the text twice, so that memory holds only the rows. Raises NotQueryable for an unclosed quote,
    because the rows after it would be lost in one cell."""
    columns = _columns_of(text, dialect)
    return [_row(columns, cells) for cells in columns.rows()]


def _columns_of(text: str, dialect: Dialect) -> _Columns:
    """Raises NotQueryable."""
    if not dialect.is_separated:
        names, below = printed_table(Source(text.encode()))
        rows = [names, *below()]
        return _typed(lambda: iter(rows), has_header=True)
    split = partial(_split, text, dialect)
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        return _typed(partial(split, csv.QUOTE_MINIMAL))
    except csv.Error:
        if dialect.mark != b"\t":
            raise NotQueryable(
                "The result looks like CSV, but a quote in it is not closed, or text follows one that is. "
                "Use `lines` or `pattern`."
            ) from None
        # Databases print tabs between cells and leave quotes as they are.
        return _typed(partial(split, csv.QUOTE_NONE))


def split_rows(text: str, dialect: Dialect) -> Iterator[list[str]]:
    """The rows of a text with separators. An open quote at its end is closed there."""
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    return _split(text, dialect, csv.QUOTE_MINIMAL, strict=False)


def _split(text: str, dialect: Dialect, quoting: Quoting, *, strict: bool = True) -> Iterator[list[str]]:
    """Rows of cells. Raises csv.Error."""
    lines = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogatepass")), "utf-8", "surrogatepass", "")
    mark = dialect.mark.decode()
    if dialect.escape == b"\\":
        rows = csv.reader(
            lines, delimiter=mark, quoting=quoting, strict=strict, doublequote=False, escapechar="\\"
        )
    else:
        rows = csv.reader(lines, delimiter=mark, quoting=quoting, strict=strict)
    filled = filter(None, rows)
    return ([cell.strip() for cell in row] for row in filled) if mark == "|" else filled


def _typed(read: Callable[[], Iterator[list[str]]], *, has_header: bool | None = None) -> _Columns:
    rows = read()
    first = next(rows, [])
    sample = list(islice(rows, _SAMPLED))
    if has_header is None:
        has_header = is_header(first, sample)
    names = unique_names(first if has_header else [""] * len(first))
    body = chain([] if has_header else [first], sample, rows)
    numbers = _plain_numbers(body, len(first))
    return _Columns(names, numbers, lambda: islice(read(), int(has_header), None))


def cells_of(source: Source) -> tuple[list[str], Callable[[], Iterator[list[str]]]]:
    """Returns the names of the columns and the rows below the header, which are parsed on demand. Raises
    NotQueryable for an unclosed quote."""
    dialect = dialect_in(source)
    if not dialect.is_separated:
        return printed_table(source)
    start, end = table_start(source.data, dialect), table_end(source, dialect)
    text = source.data[start:end].decode("utf-8", "replace")
    split = partial(_split, text, dialect, _quoting(text, dialect))
    rows = split()
    first = next(rows, [])
    has_header = is_header(first, list(islice(rows, _SAMPLED)))
    names = unique_names(first if has_header else [""] * len(first))
    return names, lambda: islice(split(), int(has_header), None)


def _quoting(text: str, dialect: Dialect) -> Quoting:
    """Databases print tabs between cells and leave quotes as they are. Raises NotQueryable."""
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        for _ in _split(text, dialect, csv.QUOTE_MINIMAL):
            pass
    except csv.Error:
        if dialect.mark == b"\t":
            return csv.QUOTE_NONE
        raise NotQueryable(
            "The result looks like CSV, but a quote in it is not closed, or text follows one that is. "
            "Use `lines` or `pattern`."
        ) from None
    return csv.QUOTE_MINIMAL


_DIGIT = re.compile(r"\s*+[-+(]?\s*+[$€£¥]?\s*+[-+]?\.?\d")


def is_doubtful_header(first: Sequence[str], sample: Sequence[Sequence[str]]) -> bool:
    """True if the first row may not be a header: no word stands above cells that begin with digits."""
    words = [column for column, cell in enumerate(first) if cell.strip() and not _DIGIT.match(cell)]
    return not any(_are_digits(cells[column] for cells in sample if column < len(cells)) for column in words)


def _are_digits(cells: Iterable[str]) -> bool:
    filled = list(filter(str.strip, cells))
    return bool(filled) and sum(_DIGIT.match(cell) is not None for cell in filled) >= 0.9 * len(filled)


def is_header(first: Sequence[str], sample: Sequence[Sequence[str]]) -> bool:
    """False if the first row is data: a cell of it stands in its column again, or it has a number, and no
    text above a column of numbers."""
    if any(cell.strip() and _stands_below(cell, column, sample) for column, cell in enumerate(first)):
        return False
    blank = [column for column, cell in enumerate(first) if not cell.strip()]
    if any(_is_blank(column, sample) for column in blank) and is_doubtful_header(first, sample):
        return False
    numbers = [column for column, cell in enumerate(first) if _NUMBER.fullmatch(cell)]
    if all(_is_year_above(first, column, sample) for column in numbers):
        return True
    return any(
        first[column].strip() and not _NUMBER.fullmatch(first[column])
        for column in _plain_numbers(sample, len(first))
    )


def _is_blank(column: int, sample: Sequence[Sequence[str]]) -> bool:
    return bool(sample) and not any(cells[column].strip() for cells in sample if column < len(cells))


def _stands_below(cell: str, column: int, sample: Sequence[Sequence[str]]) -> bool:
    return any(column < len(cells) and cells[column] == cell for cells in sample)


def _is_year_above(first: Sequence[str], column: int, sample: Sequence[Sequence[str]]) -> bool:
    """True if the cell is a year, and a cell below it is not: then the year names the column."""
    below = [cells[column] for cells in sample if column < len(cells)]
    return bool(_YEAR.fullmatch(first[column].strip())) and any(not _YEAR.fullmatch(cell) for cell in below)


def unique_names(header: Sequence[str]) -> list[str]:
    """Returns a name for each column; a repeated one gets the number of its column."""
    taken, names = {MORE}, list[str]()
    for number, cell in enumerate(header, 1):
        name = " ".join(cell.split()) or f"column_{number}"
        while name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        names.append(name)
    return names


def _plain_numbers(rows: Iterable[Sequence[str]], width: int) -> set[int]:
    """The columns of which every cell is a plain number or empty, and at least one is a number."""
    possible, seen = set(range(width)), set[int]()
    for cells in rows:
        for column in tuple(possible):
            if column < len(cells) and (cell := cells[column]):
                if _NUMBER.fullmatch(cell):
                    seen.add(column)
                else:
                    possible.remove(column)
    return possible & seen


def _row(columns: _Columns, cells: Sequence[str]) -> Row:
    names, numeric = columns.names, columns.numbers
    row: Row = {
        name: _number(cell) if column in numeric else cell
        for column, (name, cell) in enumerate(zip(names, cells, strict=False))
    }
    if len(cells) > len(names):
        row[MORE] = list(cells[len(names) :])
    for name in names[len(cells) :]:
        row[name] = None
    return row


def _number(cell: str) -> int | float | None:
    if not cell:
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _delimited(source: Source, dialect: Dialect) -> TablesAndNotes:
    head = source.data if source.is_whole and len(source.data) <= HEAD_BYTES else source.data[:HEAD_BYTES]
    notes: list[str] = []
    start, end = table_start(source.data, dialect), table_end(source, dialect)
    parsed = list(islice(split_rows(head[start:end].decode("utf-8", "replace"), dialect), SAMPLED + 1))
    if not parsed:
        raise ValueError("no rows")
    is_named = is_header(parsed[0], parsed[1:])
    names, first = (parsed[0], parsed[1:]) if is_named else ([""] * len(parsed[0]), parsed)
    if is_named and is_doubtful_header(parsed[0], parsed[1:]):
        notes.append("First row taken as names.")
    notes += _left_out(source.data[:start].decode("utf-8", "replace").split("\n")[:-1], "above the header")
    notes += _left_out(source.data[end:].decode("utf-8", "replace").split("\n"), "below the rows")
    body = rows_start(source, dialect)
    read = Delimited(dialect.mark.decode(), body, end, dialect.escape.decode())
    columns = columns_of(names, first)
    is_counted = source.is_whole and len(source.data) <= COUNTED_BYTES
    count = row_count(source, dialect, body) if is_counted else None
    return (Table("data", columns, count, sample_of(first, columns), is_named, read=read),), tuple(notes)


def _left_out(lines: Sequence[str], where: str) -> list[str]:
    """Returns a note about lines of text that are not rows."""
    if all(map(_TOLD.fullmatch, filter(str.strip, lines))):
        return []
    count = len(lines) if where.startswith("above") else "\n".join(lines).strip().count("\n") + 1
    are = "line {} is" if count == 1 else f"{count:,} lines {{}} are"
    return [f"The {are.format(where)} only in lines."]


_TOLD = re.compile(rf"sep=.\s*|{FOOTER.pattern}", FOOTER.flags)
"""Lines whose statement about the table is already in the answer."""


def _printed_tables(source: Source) -> TablesAndNotes:
    """Tables with bars or white space between their cells: one is `data`, of several each has a name."""
    try:
        lines, found, end = printed_tables_of(source)
    except NotQueryable:
        return (), ("Only the beginning is a table: data has the lines.",)
    if len(found) > 1:
        tables = [
            table_of_cells(f"table{number}", one.names, list(one.rows(lines)))
            for number, one in enumerate(found, 1)
        ]
        return without_counts((lines_table(source)._replace(name="data"), *tables), source), ()
    (made,) = found
    sample = list(islice(made.rows(lines), SAMPLED))
    columns = columns_of(made.names, sample)
    notes = _left_out(lines[: made.first], "above the header") if made.is_below else []
    notes += _left_out(lines[end:], "below the table") if source.is_whole else []
    count = None
    if source.is_whole and len(source.data) <= COUNTED_BYTES:
        are_left_out = [are_dots(cells) for cells in made.every(lines)]
        count = are_left_out.count(False)
        notes += ["The program left out rows."] if count < len(are_left_out) else []
    table = Table("data", columns, count, sample_of(sample, columns), read=lambda: made.rows(lines))
    return (table,), tuple(notes)
