"""The messages between the service and the process that runs a query: the query and its answer."""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from content.kind import Kind
from content.text import cut_head, without_surrogates
from domain.errors import BadQuery, QueryTooCostly

# This module must not import asyncio, which takes a quarter of the start of the process.

_encode = msgspec.json.Encoder().encode

TOO_LARGE = "The query takes more memory than it has: the data, or what the query makes of it, is too large."
LINES_ALWAYS_BYTES = 8 << 20
"""The lines of larger data are loaded only for a query that names them."""


class Slice(Struct, frozen=True):
    """A part of a query's value. `total` counts the items of an array, None for any other value. `truncated`:
    `result` is not the whole value. `columns` are those of rows that SQL selects."""

    result: Raw
    type: str
    total: int | None
    next_offset: int | None
    truncated: bool
    columns: list[str] | None = None


def slice_of(value: object, limit: int, offset: int, max_bytes: int) -> Slice:
    """Returns items `offset` to before `offset + limit` of an array, as many as fit; a string, cut if needed;
    any other value whole. Raises QueryTooCostly if an item or value does not fit and cannot be cut."""
    if isinstance(value, list):
        return _items(value, limit, offset, max_bytes)
    encoded, truncated = encoded_json(value), False
    if len(encoded) > max_bytes:
        if not isinstance(value, str):
            raise _too_large("value", len(encoded), max_bytes)
        encoded, truncated = _string_head(str(without_surrogates(value)), len(encoded), max_bytes), True
    return Slice(Raw(encoded), _type(value), None, None, truncated)


def _items(array: list[object], limit: int, offset: int, max_bytes: int) -> Slice:
    items: list[bytes] = []
    room = max_bytes - 2
    for item in array[offset : offset + limit]:
        encoded = encoded_json(item)
        room -= len(encoded) + 1
        if room < -1:
            if not items:
                raise _too_large("first of these items", len(encoded), max_bytes)
            break
        items.append(encoded)
    end = offset + len(items)
    return Slice(
        Raw(b"[" + b",".join(items) + b"]"),
        "array",
        len(array),
        end if end < len(array) else None,
        len(items) < len(array),
    )


def rows_slice(columns: list[str], rows: Iterable[Sequence[object]], query: "DataQuery") -> Slice:
    """Returns rows `offset` to before `offset + limit`, as many as fit, and counts all. Each is an object, or
    an array if `query.has_arrays`. The texts of a row that is too large alone are cut. Raises QueryTooCostly
    if it does not fit then either."""
    items: list[bytes] = []
    room, total, end = query.max_bytes - 2, 0, query.offset + query.limit
    is_cut = False
    for row in rows:
        if query.offset <= total < end:
            encoded = _row_json(columns, row, query)
            if not items and len(encoded) > room:
                encoded, is_cut = _row_json(columns, _cut_row(row, room), query), True
                if len(encoded) > room:
                    raise _too_large_row(len(encoded), query.max_bytes)
            room -= len(encoded) + 1
            if room >= -1:
                items.append(encoded)
            else:
                end = total
        total += 1
    end = query.offset + len(items)
    following = end if end < total and query.offset < total else None
    result = Raw(b"[" + b",".join(items) + b"]")
    return Slice(result, "array", total, following, is_cut or len(items) < total, columns)


def _row_json(columns: list[str], row: Sequence[object], query: "DataQuery") -> bytes:
    return encoded_json(row if query.has_arrays else dict(zip(columns, row, strict=True)))


def _cut_row(row: Sequence[object], room: int) -> list[object]:
    """Cuts long texts to equal shares of half of the room. The other half is for names of columns and for
    other values."""
    share = room // (2 * len(row))
    cells = []
    for cell in row:
        size = len(encoded_json(cell))
        is_long = isinstance(cell, str) and size > share
        cells.append(msgspec.json.decode(_string_head(str(cell), size, share)) if is_long else cell)
    return cells


def _too_large_row(size: int, max_bytes: int) -> QueryTooCostly:
    return QueryTooCostly(
        f"A row has {size:,} bytes, and an answer holds {max_bytes:,}. Select the columns that you need, "
        "by name."
    )


def encoded_json(value: object) -> bytes:
    """Encodes as JSON. Lone surrogates become U+FFFD, infinities null. Raises BadQuery for other
    values."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(without_surrogates(value))
    except TypeError:
        raise BadQuery("The value is an expression (&…), not data: give it to a function.") from None
    except RecursionError:
        raise BadQuery("The value is nested too deeply for an answer.") from None


def _string_head(text: str, encoded_size: int, max_bytes: int) -> bytes:
    """Shortens the string in proportion until it fits with its escapes and quotes."""
    data, encoded = text.encode(), b""
    while data and encoded_size > max_bytes:
        data = cut_head(data, len(data) * max(max_bytes - 2, 0) // encoded_size)
        encoded = _encode(data.decode())
        encoded_size = len(encoded)
    return encoded


def _type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "object"


def _too_large(what: str, size: int, max_bytes: int) -> QueryTooCostly:
    return QueryTooCostly(
        f"The {what} has {size:,} bytes, and an answer holds {max_bytes:,}. Select less of it: "
        "`keys(@)` lists an object's keys, `.{a: a, b: b}` picks some."
    )


class QueriedResult(Struct, frozen=True):
    """One of several results that a query reads: its size in bytes, and what its format is recognised by."""

    size: int
    tool_name: str
    path: str | None


class DataQuery(Struct, frozen=True):
    """SQL or a JMESPath expression. The answer has at most `limit` items of an array, and `max_bytes` of
    JSON. `has_arrays`: rows that SQL selects are arrays, not objects. `several`: the results that SQL reads,
    if there are several; their bytes follow each other."""

    expression: str
    max_bytes: int
    tool_name: str = ""
    limit: int = 100
    offset: int = 0
    path: str | None = None
    has_arrays: bool = False
    several: tuple[QueriedResult, ...] = ()


class QueryAnswer(Struct, frozen=True, tag=True):
    """`kind` is what the data was read as, `slice` the part of the query's value in the answer. `hint` says
    which keys exist if the query selects nothing, and where in the data the rows are."""

    kind: Kind
    slice: Slice
    hint: str = ""


class RefusedQuery(Struct, frozen=True, tag=True):
    """The code and detail of an InvalidField or of a subclass; `near` is the place in the query that a
    BadQuery names."""

    code: str
    detail: str
    near: str = ""


_BEFORE = r"(?>(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/|```\w*)*)"
_SQL = re.compile(
    _BEFORE + r"(?:(?:select|with)\b(?!\s*[.|\[])|values(?!\()\s*\(|"
    r"(?:from|describe|summarize|show|table|pivot|unpivot"
    r"|alter|analyze|attach|begin|call|checkpoint|commit|copy|create|delete|detach|drop|execute|explain|export|import"
    r"|insert|install|load|merge|pragma|prepare|replace|reset|rollback|set|update|use|vacuum"
    r"|comment|deallocate|force|truncate)\s+[\w(\"'])|"
    + _BEFORE
    + r"\((?:\s*\()*\s*(?:select|with|from|values)\b",
    re.IGNORECASE | re.DOTALL,
)
_LINES = re.compile(r"\blines\d*\b", re.IGNORECASE)


def is_sql(expression: str) -> bool:
    """True if the expression begins like a statement of SQL. In JMESPath a key of such a name needs
    quotes."""
    return _SQL.match(expression) is not None


def needs_lines(expression: str) -> bool:
    return _LINES.search(expression) is not None
