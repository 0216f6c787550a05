"""The tables that `query` reads a result by: their columns, their first rows, and names as SQL has them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from content.json_rows import JsonRows
from content.source import Source

PARSED_BYTES = 32 << 20
"""The most bytes that are parsed in Python, which takes ten times their size in memory."""

TEXT, INTEGER, NUMBER = "VARCHAR", "BIGINT", "DOUBLE"
LINES = "lines"

SAMPLED = 60
"""The first rows, which show the types of the columns."""
_LEVEL_LINES = 200
_MOST_VALUES, _LEAST_TIMES, _VALUE_CHARS = 5, 3, 24
HEAD_BYTES = 64 << 10
"""The most bytes of a beginning that columns and samples are taken from."""
COUNTED_BYTES = 256 << 10
"""The most bytes of data whose rows are counted."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BLANKS = r"[^\S\x1c-\x1f]*"
"""White space that `int` and `float` remove. They do not remove the separators of ASCII."""
# A float holds no more than 308 digits, and `int` takes no more than 4,300.
_NUMBER = re.compile(
    rf"{BLANKS}[-+]?(?:(?:0|[1-9]\d{{0,300}})(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{{1,3}})?{BLANKS}"
)

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
    read: Delimited | JsonRows | Documents | Rows | None = None


TablesAndNotes = tuple[tuple[Table, ...], tuple[str, ...]]
"""The notes say what was left out."""


def lines_table(source: Source) -> Table:
    first = source.data[: max(0, source.data.find(b"\n"))][:COUNTED_BYTES]
    columns = (Column("line", INTEGER), Column("text"))
    return Table(
        LINES, columns, source.lines, (source.line(0), first.decode("utf-8", "replace").rstrip("\r"))
    )


def without_counts(tables: tuple[Table, ...], source: Source) -> tuple[Table, ...]:
    """Removes the numbers of rows if the source is only a beginning."""
    return tables if source.is_whole else tuple(table._replace(rows=None) for table in tables)


def table_of_cells(name: str, names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Table:
    columns = columns_of(names, rows[:SAMPLED])
    return Table(name, columns, len(rows), sample_of(rows, columns), read=lambda: iter(rows))


def sample_of(rows: Sequence[Sequence[str | None]], columns: Sequence[Column]) -> tuple[object, ...] | None:
    return (
        tuple(_cell(cell, column) for cell, column in zip(rows[0], columns, strict=False)) if rows else None
    )


def columns_of(names: Iterable[str], rows: Sequence[Sequence[str | None]]) -> tuple[Column, ...]:
    """`rows` are the first."""
    columns = []
    for at, name in enumerate(unique(names)):
        cells = [cell for row in rows if at < len(row) and (cell := row[at])]
        kind = type_of(cells)
        columns.append(Column(name, kind, few_values(cells) if kind == TEXT else ()))
    return tuple(columns)


def few_values(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the different texts, if they are few, short and repeated; else nothing."""
    values = tuple(islice(dict.fromkeys(texts), _MOST_VALUES + 1))
    is_few = 1 < len(values) <= _MOST_VALUES and len(texts) >= _LEAST_TIMES * len(values)
    are_words = is_few and all(len(one) <= _VALUE_CHARS and not one[:1].isdigit() for one in values)
    return values if are_words else ()


def type_of(cells: Iterable[str | None]) -> str:
    filled = [cell for cell in cells if cell]
    if not filled or not all(map(_NUMBER.fullmatch, filled)):
        return TEXT
    return INTEGER if all(cell.strip().lstrip("+-").isdecimal() for cell in filled) else NUMBER


def _cell(cell: object, column: Column) -> object:
    if column.type == TEXT or not isinstance(cell, str):
        return cell
    return (int(cell) if column.type == INTEGER else float(cell)) if cell.strip() else None


Readers = Mapping[str, Callable[[bytes], str | None]]
"""What is read of each line besides its text, by the column names."""


def table_of_lines(source: Source, readers: Readers) -> Table:
    columns = (Column("line", INTEGER), Column("text"), *map(Column, readers))
    if level := readers.get("level"):
        found = (level(line) for _, line in islice(numbered_lines(source), _LEVEL_LINES))
        columns = (*columns[:-1], Column("level", values=tuple(dict.fromkeys(filter(None, found)))))
    sample = next(_rows_of_lines(source, readers), None)
    return Table("data", columns, source.lines, sample, read=partial(_rows_of_lines, source, readers))


def _rows_of_lines(source: Source, readers: Readers) -> Iterator[tuple[object, ...]]:
    of_line = tuple(readers.values())
    for number, line in numbered_lines(source):
        yield number, line.decode("utf-8", "replace"), *(read(line) for read in of_line)


def numbered_lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of the data, and their numbers in the stored text."""
    data, number, start = source.data, source.line(0), 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield number, data[start:end].removesuffix(b"\r")
        number, start = number + 1, end + 1


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
