"""Parses a result into a value to query: JSON, a stream of JSON documents, or a table."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal

from content.kinds import NAMES, Kind, sniff
from domain.errors import NotQueryable

_NO_SPACE = re.compile(r"[^ \t\r\n]")


def read_value(data: bytes, tool_name: str = "") -> tuple[Kind, object]:
    """Returns the kind of the data and its value: the array of records for NDJSON, of rows for CSV.

    NaN and infinities are read as null; of equal keys in an object the last counts. Raises NotQueryable.
    """
    kind = sniff(data, tool_name)
    if kind not in (Kind.JSON, Kind.NDJSON, Kind.CSV):
        raise NotQueryable(
            f"The result is {NAMES[kind]}: only JSON, NDJSON, CSV and TSV can be queried. "
            "Search it with grep, read its lines, or ask a question about it."
        )
    text = data.decode("utf-8-sig", "replace")
    # Frees the bytes: the caller keeps no reference.
    del data
    if kind is Kind.CSV:
        return kind, read_table(text)
    if kind is Kind.NDJSON:
        return kind, _records(text)
    found = _documents(text)
    return (kind, found[0]) if len(found) == 1 else (Kind.NDJSON, found)


def _records(text: str) -> object:
    # Read as one array, the records share the strings of their keys: half the memory.
    try:
        array = "[" + ",".join(filter(str.strip, text.split("\n"))) + "]"
        return json.loads(array, parse_constant=_null)
    except (ValueError, RecursionError):
        return _documents(text)


def _documents(text: str) -> list[object]:
    """Parses JSON documents with only white space between them."""
    decode = json.JSONDecoder(parse_constant=_null).raw_decode
    found: list[object] = []
    at = 0
    try:
        while begin := _NO_SPACE.search(text, at):
            value, at = decode(text, begin.start())
            found.append(value)
    except json.JSONDecodeError as error:
        raise _malformed(f"is not well-formed at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed("is nested too deeply") from None
    except ValueError:
        raise _malformed("holds a number with too many digits") from None
    return found


def _null(constant: str) -> None:
    """Reads NaN and Infinity, which JSON does not have, as null."""


def _malformed(what: str) -> NotQueryable:
    return NotQueryable(f"The result looks like JSON, but {what}. Read it by lines or grep.")


Cell = str | int | float | None
Quoting = Literal[0, 3]
Row = dict[str, Cell | list[str]]

MORE = "_more"
"""The key of the cells that a row has beyond the header."""

_MARKS = "\t,;"
_SAMPLED = 60
_QUOTED = re.compile(r'"[^"]*"')
# Leading zeros belong to codes, not to numbers; a float holds no more than 308 digits.
_NUMBER = re.compile(r"\s*-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?\s*")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LINE_NUMBER = re.compile(r"^(?: +\d{1,7}\t| *\d{1,7}→)", re.MULTILINE)
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class _Columns:
    names: list[str]
    numeric: list[bool]
    has_header: bool


def read_table(text: str) -> list[Row]:
    """Parses the text twice, to hold only the rows in memory. Raises NotQueryable for an unclosed quote,
    since the rows after it would be lost in one cell."""
    if _is_numbered(text):
        text = _LINE_NUMBER.sub("", text)
    mark = _mark_of(text)
    quoting: Quoting = csv.QUOTE_MINIMAL
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        columns = _columns(_split(text, mark, quoting))
    except csv.Error:
        if mark != "\t":
            raise NotQueryable(
                "The result looks like CSV, but a quote in it is not closed, or text follows one that is. "
                "Read it by lines or grep."
            ) from None
        # Databases print tabs between cells and leave quotes as they are.
        quoting = csv.QUOTE_NONE
        columns = _columns(_split(text, mark, quoting))
    rows = islice(_split(text, mark, quoting), int(columns.has_header), None)
    return [_row(columns, cells) for cells in rows]


def first_rows(text: str, most: int) -> tuple[str, list[list[str]]]:
    """The separator by the header alone, and the first rows; none if a cell is too long."""
    text = text.removeprefix("\ufeff").lstrip("\r\n")
    header = _QUOTED.sub("", text).partition("\n")[0]
    mark = max(_MARKS, key=header.count)
    try:
        return mark, list(islice(csv.reader(io.StringIO(text), delimiter=mark), most))
    except csv.Error:
        return mark, []


def _is_numbered(text: str) -> bool:
    """True if a tool such as `cat -n` put a number before every line."""
    lines = text[: 1 << 14].split("\n")[:_SAMPLED]
    return all(_LINE_NUMBER.match(line) for line in lines[:-1] or lines)


def _mark_of(text: str) -> str:
    """The separator that occurs equally often in the most of the first lines."""
    lines = [_QUOTED.sub("", line) for line in text[: 1 << 14].split("\n")[:_SAMPLED] if line.strip()]

    def agreeing(mark: str) -> int:
        first = lines[0].count(mark) if lines else 0
        return sum(1 for line in lines if first and line.count(mark) == first)

    return max(_MARKS, key=agreeing)


def _split(text: str, mark: str, quoting: Quoting) -> Iterator[list[str]]:
    """Rows of cells. Raises csv.Error."""
    lines = (line[0] for line in _LINE.finditer(text))
    return filter(None, csv.reader(lines, delimiter=mark, quoting=quoting, strict=True))


def _columns(rows: Iterator[list[str]]) -> _Columns:
    first = next(rows, [])
    sample = list(islice(rows, _SAMPLED))
    has_header = is_header(first, sample)
    names = _names(first if has_header else [""] * len(first))
    body = chain([] if has_header else [first], sample, rows)
    return _Columns(names, _numeric(body, len(first)), has_header)


def is_header(first: Sequence[str], sample: Sequence[Sequence[str]]) -> bool:
    """False if the first row is data: it has numbers, and no text above a column of numbers."""
    numbers = [column for column, cell in enumerate(first) if _NUMBER.fullmatch(cell)]
    if all(_is_year_above(first, column, sample) for column in numbers):
        return True
    numeric = _numeric(sample, len(first))
    return any(
        is_number and cell.strip() and not _NUMBER.fullmatch(cell)
        for cell, is_number in zip(first, numeric, strict=True)
    )


def _is_year_above(first: Sequence[str], column: int, sample: Sequence[Sequence[str]]) -> bool:
    """True for a year as the name of a column: the cells below are no years."""
    below = [cells[column] for cells in sample if column < len(cells)]
    return bool(_YEAR.fullmatch(first[column].strip())) and any(not _YEAR.fullmatch(cell) for cell in below)


def _names(header: Sequence[str]) -> list[str]:
    """A unique name for each column. A repeated name gets the number of its column."""
    names: list[str] = []
    taken = {MORE}
    for number, cell in enumerate(header, 1):
        name = cell.strip() or f"column_{number}"
        while name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        names.append(name)
    return names


def _numeric(rows: Iterable[Sequence[str]], width: int) -> list[bool]:
    """For each column: True if every cell is a number or empty, and at least one is a number."""
    possible, seen = set(range(width)), set[int]()
    for cells in rows:
        for column in tuple(possible):
            if column < len(cells) and cells[column]:
                if _NUMBER.fullmatch(cells[column]):
                    seen.add(column)
                else:
                    possible.remove(column)
    return [column in possible & seen for column in range(width)]


def _row(columns: _Columns, cells: Sequence[str]) -> Row:
    names = columns.names
    row: Row = {
        name: _number(cell) if is_number else cell
        for name, is_number, cell in zip(names, columns.numeric, cells, strict=False)
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
