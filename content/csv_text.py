"""Rows as CSV: for a program as they are, for a person safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from content.json_rows import encoded

CSV = "text/csv"

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def safe_cell(value: Any) -> Any:
    # A spreadsheet runs a cell that begins like a formula, some also with full-width signs.
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def plain_cell(value: Any) -> Any:
    return value


def rows_csv(
    items: Sequence[Any],
    cell: Callable[[Any], Any] = plain_cell,
    *,
    columns: Sequence[str] | None = None,
    line_end: str = "\n",
) -> str:
    """Objects have a header of `columns`, else of all their keys in the order in which they come; other items
    have the column `value`. Nested values are JSON, null is an empty cell."""
    rows = [item if isinstance(item, dict) else {"value": item} for item in items]
    names = list(dict.fromkeys(name for row in rows for name in row) if columns is None else columns)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=line_end)
    writer.writerow(map(cell, names))
    writer.writerows([_text(cell(row.get(name))) for name in names] for row in rows)
    return out.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encoded(value).decode()
