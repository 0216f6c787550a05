"""Parses a result into a value to query: JSON, a stream of JSON documents, or a table; else its lines."""

from content.formats import sheets
from content.kind import Kind
from content.source_text import SourceText


def read_value(data: bytes, tool_name: str = "", path: str | None = None) -> tuple[Kind, object]:
    """Returns the kind of the data and its value: the array of records for NDJSON, of rows for a table.

    NaN and infinities are read as null; of equal keys in an object the last counts. Raises NotQueryable.
    """
    source = SourceText(data, tool_name, path)
    # The caller keeps no reference: the bytes are freed once they are text.
    del data
    return source.format.kind, source.format.value(source)


def as_table(value: object) -> object:
    """The rows of a value that is a table in another form than a list of objects, else the value."""
    rows = sheets.table_of(value)
    return value if rows is None else rows
