"""How `query` reads a result: its tables, their columns and their rows, decided once from the bytes."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, starmap
from typing import Any, NamedTuple

import msgspec
from pydantic_core import from_json

from content.formats.blocks import blocks_in
from content.formats.json import JsonFormat, LiteralFormat, RecordsFormat, ends_early, parsed_head
from content.formats.literal import literal_json
from content.formats.markup import HtmlFormat
from content.formats.page_tables import PageTable, first_page_tables, page_tables
from content.formats.printed import FOOTER, are_dots, barred_tables
from content.formats.table import (
    TableFormat,
    dialect_in,
    is_doubtful_header,
    is_header,
    printed_tables_of,
    row_count,
    rows_start,
    split_rows,
    table_end,
    table_start,
)
from content.json_rows import JsonRows, decoded, encoded, tables_in, unpacked
from content.kind import Kind
from content.source_text import SourceText
from content.text import count_of
from domain.errors import NotQueryable

PARSED_BYTES = 32 << 20
"""The most bytes that are parsed in Python, which takes ten times their size in memory."""

TEXT, INTEGER, NUMBER = "VARCHAR", "BIGINT", "DOUBLE"
LINES = "lines"

_SAMPLED = 60
_LEVEL_LINES = 200
_MOST_VALUES, _LEAST_TIMES, _VALUE_CHARS = 5, 3, 24
_HEAD = 64 << 10
_COUNTED = 256 << 10
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"\s*[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?\s*")

CellsOfRow = Sequence[object]
Rows = Callable[[], Iterator[CellsOfRow]]


class Column(NamedTuple):
    """`type` is DuckDB's, as far as the bytes that were seen show it. `values` are all texts of the first
    rows, if they are few; the levels of a log in any case."""

    name: str
    type: str = TEXT
    values: tuple[str, ...] = ()


class Delimited(NamedTuple):
    """Rows between separators, which DuckDB reads: `start` and `end` are the bytes of the data between which
    they stand. `escape` stands before a quote in a cell."""

    mark: str
    start: int
    end: int
    escape: str = '"'


class Documents(NamedTuple):
    """All of the data is JSON records, one a line or after each other."""


class Table(NamedTuple):
    """`rows` is None where they were not counted. `sample` is the first row. `is_named` is False where the
    names are ours. `path` is the place of the rows in JSON. `read` says how the rows are read: None for
    lines."""

    name: str
    columns: tuple[Column, ...]
    rows: int | None = None
    sample: tuple[object, ...] | None = None
    is_named: bool = True
    path: str = ""
    read: "Delimited | JsonRows | Documents | Rows | None" = None


class Layout(NamedTuple):
    """`data` is the first of the tables, `lines` the last. `notes` say what was left out."""

    tables: tuple[Table, ...]
    kind: Kind
    notes: tuple[str, ...] = ()


def layout_of(source: SourceText) -> Layout:
    """Never raises: data that cannot be read as its format is read as lines."""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        tables, notes = _tables(source)
    except (ValueError, RecursionError, NotQueryable, csv.Error):
        if not source.format.is_lines:
            notes = (
                f"This is not well-formed {_NOUNS.get(source.format.kind, 'data')}: data has its lines.",
            )
    lines = _lines(source)
    if not tables:
        tables = (lines._replace(name="data"),)
    return Layout((*tables, lines), source.format.kind, notes)


_NOUNS = {Kind.JSON: "JSON", Kind.NDJSON: "JSON", Kind.CSV: "CSV", Kind.TEXT: "Python"}


def _lines(source: SourceText) -> Table:
    first = source.data[: max(0, source.data.find(b"\n"))][:_COUNTED].decode("utf-8", "replace").rstrip("\r")
    columns = (Column("line", INTEGER), Column("text"))
    return Table(LINES, columns, source.lines, (source.line(0), first))


def _tables(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    text_format = source.format
    if isinstance(text_format, TableFormat):
        return _delimited(source)
    if text_format.of_lines(source):
        return (_read_lines(source),), ()
    if isinstance(text_format, LiteralFormat):
        if source.is_whole:
            return _json(encoded(text_format.value(SourceText(source.data))))
        return _first(_json(encoded(cut_off(literal_json(source.data.decode("utf-8", "ignore"))))))
    if isinstance(text_format, JsonFormat):
        return _json_of(source)
    if isinstance(text_format, HtmlFormat):
        read = page_tables if source.is_whole else first_page_tables
        found = read(source.data.decode("utf-8", "replace"))
        tables = (_lines(source)._replace(name="data"), *starmap(_of_page, enumerate(found, 1)))
        return _known(tables if found else (), source), ()
    if source.format.is_doubtful:
        is_code = source.format.kind is Kind.CODE
        records = _records_in_lines(source) or (None if is_code else _blocks(source))
        return records or _in_text(source) or _below(source)
    return (), ()


TablesAndNotes = tuple[tuple[Table, ...], tuple[str, ...]]


def _known(tables: tuple[Table, ...], source: SourceText) -> tuple[Table, ...]:
    """Removes the numbers of rows if the source is only a beginning."""
    return tables if source.is_whole else tuple(table._replace(rows=None) for table in tables)


def _first(found: TablesAndNotes) -> TablesAndNotes:
    """Returns `data` alone, the only table that the beginning of a value is sure to show."""
    (data, *_), _ = found
    return (data._replace(rows=None, path=""),), ()


def _of_page(number: int, table: PageTable) -> Table:
    columns = tuple(
        Column(name, _type_of(row[at] for row in table.rows[:_SAMPLED]))
        for at, name in enumerate(unique(table.names))
    )
    sample = _sample(table.rows, columns)
    return Table(
        f"table{number}", columns, len(table.rows), sample, table.is_named, read=lambda: iter(table.rows)
    )


# Tables of lines.


def _delimited(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    dialect = dialect_in(source)
    if not dialect.is_separated:
        return _printed(source)
    head = source.data if source.is_whole and len(source.data) <= _HEAD else source.data[:_HEAD]
    notes: list[str] = []
    start, end = table_start(source.data, dialect), table_end(source, dialect)
    parsed = list(islice(split_rows(head[start:end].decode("utf-8", "replace"), dialect), _SAMPLED + 1))
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
    columns = _columns(names, first)
    is_counted = source.is_whole and len(source.data) <= _COUNTED
    count = row_count(source, dialect, body) if is_counted else None
    return (Table("data", columns, count, _sample(first, columns), is_named, read=read),), tuple(notes)


def _left_out(lines: Sequence[str], where: str) -> list[str]:
    """Returns a note about lines of text that are not rows."""
    if all(map(_TOLD.fullmatch, filter(str.strip, lines))):
        return []
    count = len(lines) if where.startswith("above") else "\n".join(lines).strip().count("\n") + 1
    are = "line {} is" if count == 1 else f"{count:,} lines {{}} are"
    return [f"The {are.format(where)} only in lines."]


_TOLD = re.compile(rf"sep=.\s*|{FOOTER.pattern}", FOOTER.flags)
"""Lines whose statement about the table is already in the answer."""


def _sample(rows: Sequence[Sequence[str | None]], columns: Sequence[Column]) -> tuple[object, ...] | None:
    return (
        tuple(_cell(cell, column) for cell, column in zip(rows[0], columns, strict=False)) if rows else None
    )


def _columns(names: Iterable[str], rows: Sequence[Sequence[str | None]]) -> tuple[Column, ...]:
    """`rows` are the first."""
    columns = []
    for at, name in enumerate(unique(names)):
        cells = [cell for row in rows if at < len(row) and (cell := row[at])]
        kind = _type_of(cells)
        columns.append(Column(name, kind, few_values(cells) if kind == TEXT else ()))
    return tuple(columns)


def few_values(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the different texts, if they are few, short and repeated; else nothing."""
    values = tuple(islice(dict.fromkeys(texts), _MOST_VALUES + 1))
    is_few = 1 < len(values) <= _MOST_VALUES and len(texts) >= _LEAST_TIMES * len(values)
    are_words = is_few and all(len(one) <= _VALUE_CHARS and not one[:1].isdigit() for one in values)
    return values if are_words else ()


def _printed(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Tables with bars or white space between their cells: one is `data`, of several each has a name."""
    try:
        lines, found, end = printed_tables_of(source)
    except NotQueryable:
        return (), ("Only the beginning is a table: data has the lines.",)
    if len(found) > 1:
        tables = [
            _of_cells(f"table{number}", one.names, list(one.rows(lines)))
            for number, one in enumerate(found, 1)
        ]
        return _known((_lines(source)._replace(name="data"), *tables), source), ()
    (made,) = found
    sample = list(islice(made.rows(lines), _SAMPLED))
    columns = _columns(made.names, sample)
    notes = _left_out(lines[: made.first], "above the header") if made.is_below else []
    notes += _left_out(lines[end:], "below the table") if source.is_whole else []
    count = None
    if source.is_whole and len(source.data) <= _COUNTED:
        are_left_out = [are_dots(cells) for cells in made.every(lines)]
        count = are_left_out.count(False)
        notes += ["The program left out rows."] if count < len(are_left_out) else []
    table = Table("data", columns, count, _sample(sample, columns), read=lambda: made.rows(lines))
    return (table,), tuple(notes)


def _type_of(cells: Iterable[str | None]) -> str:
    filled = [cell for cell in cells if cell]
    if not filled or not all(map(_NUMBER.fullmatch, filled)):
        return TEXT
    return INTEGER if all(cell.strip().lstrip("+-").isdecimal() for cell in filled) else NUMBER


def _cell(cell: object, column: Column) -> object:
    if column.type == TEXT or not isinstance(cell, str):
        return cell
    return (int(cell) if column.type == INTEGER else float(cell)) if cell.strip() else None


# Lines of which a format reads more than their text.


def _read_lines(source: SourceText) -> Table:
    readers = source.format.of_lines(source)
    columns = (Column("line", INTEGER), Column("text"), *map(Column, readers))
    if level := readers.get("level"):
        found = (level(line) for _, line in islice(numbered_lines(source), _LEVEL_LINES))
        columns = (*columns[:-1], Column("level", values=tuple(dict.fromkeys(filter(None, found)))))
    sample = next(_rows_of_lines(source, readers), None)
    return Table("data", columns, source.lines, sample, read=partial(_rows_of_lines, source, readers))


def _rows_of_lines(
    source: SourceText, readers: Mapping[str, Callable[[bytes], str | None]]
) -> Iterator[tuple[object, ...]]:
    of_line = tuple(readers.values())
    for number, line in numbered_lines(source):
        yield number, line.decode("utf-8", "replace"), *(read(line) for read in of_line)


def numbered_lines(source: SourceText) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of the data, and their numbers in the stored text."""
    data, number, start = source.data, source.line(0), 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield number, data[start:end].removesuffix(b"\r")
        number, start = number + 1, end + 1


# JSON.


def _json_of(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    if isinstance(source.format, RecordsFormat):
        return _records(source)
    if source.is_whole:
        try:
            return _json(source.data)
        except (ValueError, RecursionError):
            return _broken(source.data)
    value, _ = parsed_head(source.data[:_HEAD])
    if value is None:
        return (), ()
    return _first(_json(encoded(value)))


def _json(data: bytes) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    data, inside = unpacked(data)
    found = tables_in(data)
    taken = {"data", "document", LINES}
    tables = [_of_rows("data", found.data)]
    for key, rows in found.others.items():
        name = unique([key], taken)[0]
        taken.add(name.lower())
        tables.append(_of_rows(name, rows))
    if found.document:
        tables.append(_of_rows("document", JsonRows("$", 1, rows=(found.document,))))
    note = f"data is the JSON in the text of {inside}; all around it is only in lines." if inside else ""
    return tuple(tables), (note,) if note else ()


def _broken(data: bytes) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Returns the tables of JSON that is followed by other text, or whose end is missing."""
    if len(data) > PARSED_BYTES:
        raise ValueError("too large to be parsed")
    text = data.decode("utf-8", "replace")
    if ends_early(text):
        tables, _ = _json(encoded(cut_off(text)))
        last = text.rstrip().count("\n") + 1
        # One long line is shown as many lines.
        where = f" in line {last:,}" if last > 1 else ""
        rows = count_of(tables[0].rows or 0, "complete element")
        return tables, (f"The JSON is cut off{where}: data has its {rows}.",)
    values, end = documents(text)
    if not values or not _is_most(text, end):
        raise ValueError("most of it is no JSON")
    tables, _ = _json(encoded(values[0] if len(values) == 1 else values))
    line = text.count("\n", 0, end) + 1
    where = f" in line {line:,}" if "\n" in text.rstrip() else ""
    note = f"What follows the JSON{where} is only in lines." if text[end:].strip() else ""
    return tables, (note,) if note else ()


_RECORD_IN_LINE = re.compile(rb"[^{\n]*(\{.*\})[ \t\r]*")
_RECORDS_SHARE = 0.8


def _records_in_lines(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]] | None:
    """Returns the JSON records that follow other words on most lines; None if most lines have none."""
    first = source.head.splitlines()[:_SAMPLED]
    if len(source.data) > PARSED_BYTES or len([*filter(_RECORD_IN_LINE.fullmatch, first)]) < max(
        3, _RECORDS_SHARE * len(first)
    ):
        return None
    rows: list[dict[str, Any]] = []
    others = 0
    for number, line in numbered_lines(source):
        if not source.is_whole and len(rows) == _SAMPLED:
            break
        record = _record_in(line)
        others += record is None and bool(line.strip())
        if record is not None:
            rows.append(record if "line" in record else {"line": number, **record})
    if len(rows) <= others:
        return None
    table = _of_rows("data", JsonRows("$", len(rows), rows=tuple(rows)))
    note = "data has the JSON records that stand within the lines."
    if not source.is_whole:
        return (table._replace(rows=None),), (note,)
    note += (
        f" {count_of(others, 'line')} without one {'is' if others == 1 else 'are'} only in lines."
        if others
        else ""
    )
    return (table,), (note,)


def _record_in(line: bytes) -> dict[str, Any] | None:
    found = _RECORD_IN_LINE.fullmatch(line)
    try:
        record = decoded(found[1]) if found else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _blocks(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]] | None:
    """Returns records with one field on each line; None for any other text."""
    is_long = len(source.data) > len(source.head)
    if len(source.data) > PARSED_BYTES or (
        is_long and blocks_in(source.head.decode("utf-8", "replace")) is None
    ):
        return None
    found = blocks_in(source.data.decode("utf-8", "replace"))
    if found is None:
        return None
    rows = [[row.get(name) for name in found.names] for row in found.rows]
    are = "is" if found.others == 1 else "are"
    notes = [f"data is the list {found.of}; all else is only in lines."] if found.of else []
    if found.others and source.is_whole:
        notes.append(f"{count_of(found.others, 'block')} of another kind {are} only in lines.")
    table = _of_cells("data", found.names, rows)
    return (table if source.is_whole else table._replace(rows=None),), tuple(notes)


def _of_cells(name: str, names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Table:
    columns = _columns(names, rows[:_SAMPLED])
    return Table(name, columns, len(rows), _sample(rows, columns), read=lambda: iter(rows))


_MOST_TABLES, _FIRST_TABLES = 24, 8
_BARS = (b"|", b"+-", b"\xe2\x94", b"\xe2\x95")
_RULE_OF_BARS = re.compile(
    rb"^[ \t]*+(?:\|?[ \t]*+:?--[-: \t]*+[|+]|[+|][-=+|: ]{3}|\xe2[\x94\x95])", re.MULTILINE
)


def _has_rule(data: bytes) -> bool:
    """Avoids the pattern, which takes long if no line has a bar."""
    return any(mark in data for mark in _BARS) and _RULE_OF_BARS.search(data) is not None


def _in_text(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]] | None:
    """The tables between bars that stand in a text: `table1`, …; the only one is `data`, too."""
    if len(source.data) > PARSED_BYTES or not _has_rule(source.data):
        return None
    lines = source.data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    found = [
        (printed.names, list(printed.rows(lines)))
        for printed in islice(barred_tables(lines), _MOST_TABLES if source.is_whole else _FIRST_TABLES)
    ]
    if not found:
        return None
    tables = tuple(_of_cells(f"table{number}", *one) for number, one in enumerate(found, 1))
    data = tables[0] if len(tables) == 1 and source.is_whole else _lines(source)
    return (data._replace(name="data"), *_known(tables, source)), ()


_JSON_BELOW = re.compile(r"\n(?=[\[{])")


def _below(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Returns the tables of JSON below lines of text, such as the headers of a response."""
    if len(source.data) > PARSED_BYTES:
        return (), ()
    text = source.data.decode("utf-8", "replace")
    for begin in islice(_JSON_BELOW.finditer(text, 0, _HEAD), 3):
        if not source.is_whole:
            value, _ = parsed_head(text[begin.end() :].encode("utf-8", "replace"))
            if not isinstance(value, dict | list) or 2 * begin.end() > len(text):
                continue
            tables, _ = _json(encoded(value))
            above = count_of(text.count("\n", 0, begin.end()), "line")
            return _first((tables, ()))[0], (f"data is JSON below {above}, which are only in lines.",)
        values, end = documents(text[begin.end() :])
        if values and isinstance(values[0], dict | list) and _is_most(text, end):
            tables, _ = _json(encoded(values[0] if len(values) == 1 else values))
            above = count_of(text.count("\n", 0, begin.end()), "line")
            note = f"data is JSON below {above}, which are only in lines."
            return tables, (note,)
    return (), ()


def _is_most(text: str, size: int) -> bool:
    return 2 * size >= len(text)


_NO_SPACE = re.compile(r"\S")


def documents(text: str) -> tuple[list[object], int]:
    """Returns the JSON documents that follow each other from the beginning, and the end of the last one."""
    decode = json.JSONDecoder().raw_decode
    values: list[object] = []
    at = 0
    while begin := _NO_SPACE.search(text, at):
        try:
            value, at = decode(text, begin.start())
        except (ValueError, RecursionError):
            break
        values.append(value)
    return values, at


_NO_MARKS = bytes(set(range(256)) - set(b'"[]{}'))


def cut_off(text: str) -> object:
    """Returns the value of JSON whose end is missing, without its incomplete element. Raises ValueError."""
    value: Any = from_json(text, allow_partial=True, cache_strings="none")
    inner = value
    for _ in range(1, _open_brackets(text.encode("utf-8", "replace"))):
        if not inner:
            break
        if isinstance(inner, list):
            inner.pop()
            break
        inner = inner[next(reversed(inner))]
    return value


def _open_brackets(data: bytes) -> int:
    """Returns how many lists and objects of JSON are open at its end."""
    marks = data.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS)
    bare = b"".join(marks.split(b'"')[::2])
    return bare.count(b"[") + bare.count(b"{") - bare.count(b"]") - bare.count(b"}")


def _records(source: SourceText) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    lines = [line for line in source.data[:_HEAD].split(b"\n") if line[:1] in (b"{", b"[")]
    rows = []
    for line in lines[:_SAMPLED]:
        try:
            rows.append(decoded(line))
        except ValueError:
            break
    if not rows:
        head = source.data[:_HEAD].decode("utf-8", "replace")
        rows, end = documents(head)
        rows = rows if _is_most(head, end) else []
    if len(rows) == 1 and source.is_whole:
        return _broken(source.data)
    if not rows:
        raise ValueError("no record in the head")
    table = _of_rows(
        "data", JsonRows("", 0, rows=tuple(row if isinstance(row, dict) else {"value": row} for row in rows))
    )
    return (table._replace(rows=_records_count(source), path="", read=Documents()),), ()


def _records_count(source: SourceText) -> int | None:
    """Returns the records to load; None if finding them would take long."""
    if not source.is_whole or len(source.data) > _COUNTED:
        return None
    lines = [line for line in source.data.split(b"\n") if line.strip()]
    whole = [*map(_is_object, lines)]
    if all(whole[:-1]) and len(lines) > 1:
        return sum(whole)
    if any(whole) or len(source.data) > _HEAD:
        return None
    values, _ = documents(source.data.decode("utf-8", "replace"))
    lists = [value if isinstance(value, list) else [value] for value in values]
    rows = [*chain.from_iterable(lists)]
    return len(rows) if all(isinstance(row, dict) for row in rows) else None


def _is_object(line: bytes) -> bool:
    try:
        return bytes(_raw(line))[:1] == b"{"
    except msgspec.DecodeError:
        return False


_raw = msgspec.json.Decoder(msgspec.Raw).decode


def _of_rows(name: str, rows: JsonRows) -> Table:
    first = rows.first(_SAMPLED)
    keys = dict.fromkeys(key for row in first for key in row) or {"value": None}
    columns = tuple(
        Column(name, _json_type([row[key] for row in first if row.get(key) is not None]))
        for name, key in zip(unique(keys), keys, strict=True)
    )
    sample = tuple(first[0].get(key) for key in keys) if first else None
    return Table(name, columns, rows.size, sample, path=rows.path, read=rows)


def _json_type(values: Sequence[object]) -> str:
    kinds = {type(value) for value in values}
    if kinds and kinds <= {int}:
        return INTEGER
    if kinds and kinds <= {int, float}:
        return NUMBER
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {dict}:
        return "STRUCT"
    return "LIST" if kinds == {list} else TEXT


# Names.


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names of columns as SQL has them: a blank one is `column_N`, a repeated one gets _2, _3 and so on,
    whatever its case."""
    folded = set(taken)
    counts: dict[str, int] = {}
    found = []
    for number, name in enumerate(names, 1):
        plain = " ".join(name.replace("\0", " ").encode("utf-8", "replace").decode().split())
        first = name = plain or f"column_{number}"
        while name.lower() in folded:
            # Counted on, so that a header of one name alone takes linear time.
            count = counts[first.lower()] = counts.get(first.lower(), 1) + 1
            name = f"{first}_{count}"
        folded.add(name.lower())
        found.append(name)
    return found


_RESERVED_WORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast
check collate collation column concurrently constraint create cross default deferrable desc describe
distinct do else end except false fetch for foreign freeze from full glob group having ilike in initially
inner intersect into is isnull join lambda lateral leading left like limit natural not notnull null
offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify
references returning right select semi show similar some summarize symmetric table tablesample then to
trailing true union unique unpack unpivot using variadic verbose when where window with
"""
RESERVED = frozenset(_RESERVED_WORDS.split())
"""Words that DuckDB accepts as a name only in quotes."""


def spelled(name: str) -> str:
    """Returns the name in SQL: in double quotes unless it is a plain word."""
    is_plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in RESERVED
    return name if is_plain else quoted(name)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
