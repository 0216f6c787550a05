"""Tables in JSON: cells with addresses, arrays of arrays, objects of arrays, as tools read spreadsheets."""

import json
import re
from collections.abc import Sequence

from content.formats.table import unique_names
from content.text import IN_DOUBLE_QUOTES

Row = dict[str, object]

_ADDRESSES = ("address", "cell", "coordinate", "ref")
_VALUES = ("value", "v", "text", "content")
_ROW_LISTS = ("cells", "values", "data", "rows")
_NAME_LISTS = ("columns", "headers", "fields", "header")
_ADDRESS = re.compile(r"(?:[^!]{1,80}!)?\$?([A-Z]{1,3})\$?([1-9]\d{0,6})")

CELL = rb"\$?[A-Z]{1,3}\$?(\d{1,7})"
"""The address of a cell. The group of the patterns here is the number of its row."""

_MEMBER = "|".join(_ADDRESSES).encode()
CELL_OBJECT = re.compile(rb"""["'](?:%b)["']\s*+:\s*+["'](?:[^!"']{1,80}!)?%b["']""" % (_MEMBER, CELL))
CELL_KEY = re.compile(rb"""\s*["']%b["']\s*:""" % CELL)
CELL_LINE = re.compile(rb"""[ \t"'\[(|*-]{0,12}%b["'\])*]{0,3}[ \t]*[:=|\t]""" % CELL)
"""An address as a member of an object, as a key, at the beginning of a line."""

# A list of lists, or an object of lists.
_BEGINS = re.compile(rb'\s*+(?:\[\s*+\[|\{\s*+"%b"\s*+:\s*+\[(?!\s*+[{\[]))' % IN_DOUBLE_QUOTES)
# Addresses as keys or as members of cells; lists under one of the names of rows.
_HOLDS = re.compile(
    rb'"(?:(?:%b)"\s*+:\s*+"(?:[^!"]{1,80}!)?%b|(?:[^!"]{1,80}!)?%b"\s*+:|(?:%b)"\s*+:\s*+\[\s*+\[)'
    % (_MEMBER, CELL, CELL, "|".join(_ROW_LISTS).encode())
)
_HEAD = 4 << 10
_MOST_COLUMNS = 2000
_LEAST = 2


def rows_in(data: bytes) -> list[Row] | None:
    """Returns the rows of a table in JSON; None if the value is not a table."""
    if not (_BEGINS.match(data) or _HOLDS.search(data, 0, _HEAD)):
        return None
    try:
        return table_of(json.loads(data))
    except (ValueError, RecursionError):
        return None


def table_of(value: object) -> list[Row] | None:
    """Returns the rows of a value that is a table in another form than a list of objects; None if it is not a
    table."""
    if isinstance(value, dict):
        if (cells := _addressed(value)) is not None:
            return _grid(cells)
        if _are_columns(value):
            names = list(value)
            columns = list(value.values())
            return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
        return _within(value)
    if isinstance(value, list) and len(value) >= _LEAST:
        if (cells := _cells(value)) is not None:
            return _grid(cells)
        if _are_rows(value):
            return _named(value)
    return None


def _within(value: dict[str, object]) -> list[Row] | None:
    """A table that is the one long member of an object, whose columns may be named beside it."""
    lists = [
        (key, item) for key, item in value.items() if key in _ROW_LISTS and isinstance(item, list | dict)
    ]
    if len(lists) != 1:
        return None
    item = lists[0][1]
    if isinstance(item, dict):
        return _grid(cells) if (cells := _addressed(item)) is not None else None
    names = next((value[key] for key in _NAME_LISTS if isinstance(value.get(key), list)), None)
    if isinstance(names, list) and _are_rows([*item, *item]) and all(isinstance(name, str) for name in names):
        return _named([names, *item])
    if (cells := _cells(item)) is not None:
        return _grid(cells)
    return _named(item) if len(item) >= _LEAST and _are_rows(item) else None


SheetCells = dict[tuple[int, int], object]


def _cells(items: Sequence[object]) -> SheetCells | None:
    """Returns the values by row and column, from a list of objects that each have an address."""
    first = items[0] if items else None
    if not isinstance(first, dict):
        return None
    address = next((key for key in _ADDRESSES if isinstance(first.get(key), str)), None)
    value = next((key for key in _VALUES if key in first), None)
    if address is None or value is None:
        return None
    cells: SheetCells = {}
    for item in items:
        place = _place(item.get(address)) if isinstance(item, dict) else None
        if place is None or not isinstance(item, dict):
            return None
        cells[place] = item.get(value)
    return cells


def _addressed(value: dict[str, object]) -> SheetCells | None:
    """Returns the same from an object whose keys are addresses."""
    cells: SheetCells = {}
    for key, item in value.items():
        place = _place(key)
        if place is None or isinstance(item, list):
            return None
        cells[place] = (
            next((item[name] for name in _VALUES if name in item), None) if isinstance(item, dict) else item
        )
    return cells if len(cells) >= _LEAST else None


def _place(address: object) -> tuple[int, int] | None:
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None:
        return None
    column = 0
    for letter in match[1]:
        column = 26 * column + ord(letter) - ord("A") + 1
    return int(match[2]), column


def _grid(cells: SheetCells) -> list[Row] | None:
    numbers = sorted({row for row, _ in cells})
    columns = sorted({column for _, column in cells})[:_MOST_COLUMNS]
    rows = [[cells.get((row, column)) for column in columns] for row in numbers]
    return _named(rows, is_sheet=True) if len(rows) >= _LEAST else None


def _are_columns(value: dict[str, object]) -> bool:
    lists = [item for item in value.values() if isinstance(item, list)]
    if len(lists) != len(value) or len(value) < _LEAST or len(lists[0]) < _LEAST:
        return False
    return all(len(item) == len(lists[0]) and not any(map(_is_nested, item)) for item in lists)


def _are_rows(items: Sequence[object]) -> bool:
    width = len(items[0]) if items and isinstance(items[0], list) else 0
    return width >= _LEAST and all(
        isinstance(item, list) and len(item) <= width and not any(map(_is_nested, item)) for item in items
    )


def _is_nested(value: object) -> bool:
    return isinstance(value, list | dict)


def _named(rows: Sequence[Sequence[object]], *, is_sheet: bool = False) -> list[Row] | None:
    """Returns the rows under the names in the first row; None if the first row is not a header. A column of a
    sheet may have no name."""
    first = rows[0]
    texts = [cell for cell in first if isinstance(cell, str) and cell.strip()]
    if not texts or (
        len(texts) < len(first)
        and not (is_sheet and all(cell in (None, "") or cell in texts for cell in first))
    ):
        return None
    names = unique_names([str(cell or "") for cell in first])
    return [{**dict.fromkeys(names), **dict(zip(names, row, strict=False))} for row in rows[1:]]
