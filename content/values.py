"""Parses a result into a value to query: JSON, a stream of JSON documents, or a table; else its lines."""

from content.formats import sheets
from content.formats.table import Table
from content.kind import Kind
from content.relation import Cells, Lines
from content.source import Source


def read_value(data: bytes, tool_name: str = "", path: str | None = None) -> tuple[Kind, object]:
    """Returns the kind of the data and its value: the array of records for NDJSON, of rows for a table.

    NaN and infinities are read as null; of equal keys in an object the last counts. Raises NotQueryable.
    """
    source = Source(data, tool_name, path)
    # The caller keeps no reference: the bytes are freed once they are text.
    del data
    return source.format.kind, source.format.value(source)


def read_rows(data: bytes, tool_name: str = "", path: str | None = None) -> tuple[Kind, object]:
    """The same for SQL, which reads the Cells of a table and the Lines of a text that is no such value."""
    source = Source(data, tool_name, path)
    del data
    text_format = source.format
    if isinstance(text_format, Table) and (rows := text_format.rows(source)) is not None:
        return text_format.kind, Cells(rows.types, rows.read, rows.notes)
    if not text_format.is_lines:
        return text_format.kind, text_format.value(source)
    return text_format.kind, Lines(source.line(0), source.data, text_format.of_lines(source))


def as_table(value: object) -> object:
    """The rows of a value that is a table in another form than a list of objects, else the value."""
    rows = sheets.table_of(value)
    return value if rows is None else rows
