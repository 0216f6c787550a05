"""Parses a result into a value to query: JSON, a stream of JSON documents, or a table."""

import json
import re
from collections.abc import Callable

from content.data.tables import read_table
from content.kinds import Kind, sniff
from domain.errors import NotQueryable

_SPACE = re.compile(r"[ \t\r\n]*")
_NAMES = {
    Kind.LOG: "a log",
    Kind.MARKDOWN: "Markdown",
    Kind.HTML: "HTML",
    Kind.XML: "XML",
    Kind.CODE: "source code",
    Kind.GREP: "search output",
    Kind.BINARY: "binary data",
    Kind.TEXT: "plain text",
}


def read_value(data: bytes, tool_name: str = "") -> tuple[Kind, object]:
    """Returns the kind of the data and its value: the array of records for NDJSON, of rows for CSV.

    NaN and infinities are read as null; of equal keys in an object the last counts. Raises NotQueryable.
    """
    kind = sniff(data, tool_name)
    reader = _READERS.get(kind)
    if reader is None:
        raise NotQueryable(
            f"The result is {_NAMES[kind]}: only JSON, NDJSON, CSV and TSV can be queried. "
            "Search it by grep, read it by lines, or ask POST /extract."
        )
    text = data.decode("utf-8-sig", "replace")
    # Frees the bytes: the caller keeps no reference.
    del data
    return reader(text)


def _read_json(text: str) -> tuple[Kind, object]:
    found = _documents(text)
    return (Kind.JSON, found[0]) if len(found) == 1 else (Kind.NDJSON, found)


def _read_records(text: str) -> tuple[Kind, object]:
    # Read as one array, the records share the strings of their keys: half the memory.
    try:
        array = "[" + ",".join(filter(str.strip, text.split("\n"))) + "]"
        return Kind.NDJSON, json.loads(array, parse_constant=_null)
    except (ValueError, RecursionError):
        return Kind.NDJSON, _documents(text)


def _read_rows(text: str) -> tuple[Kind, object]:
    return Kind.CSV, read_table(text)


_READERS: dict[Kind, Callable[[str], tuple[Kind, object]]] = {
    Kind.JSON: _read_json,
    Kind.NDJSON: _read_records,
    Kind.CSV: _read_rows,
}


def _documents(text: str) -> list[object]:
    """Parses JSON documents with only white space between them."""
    decode = json.JSONDecoder(parse_constant=_null).raw_decode
    found: list[object] = []
    at = _after_space(text, 0)
    try:
        while at < len(text):
            value, at = decode(text, at)
            found.append(value)
            at = _after_space(text, at)
    except json.JSONDecodeError as error:
        raise _malformed(f"is not well-formed at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed("is nested too deeply") from None
    except ValueError:
        raise _malformed("holds a number with too many digits") from None
    return found


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _null(constant: str) -> None:
    """Reads NaN and Infinity, which JSON does not have, as null."""


def _malformed(what: str) -> NotQueryable:
    return NotQueryable(f"The result looks like JSON, but {what}. Read it by lines or grep.")
