"""How `query` reads a result: its tables, decided once from the bytes by its format."""

import csv
from typing import TYPE_CHECKING, NamedTuple

from content.source_text import SourceText
from content.tables import Table, lines_table
from domain.errors import NotQueryable

if TYPE_CHECKING:
    from content.formats.format import Format


class Layout(NamedTuple):
    """`data` is the first of the tables, `lines` the last. `notes` say what was left out."""

    tables: tuple[Table, ...]
    format: "Format"
    notes: tuple[str, ...] = ()


def layout_of(source: SourceText) -> Layout:
    """Never raises: data that cannot be read as its format is read as lines."""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        tables, notes = source.format.tables(source)
    except (ValueError, RecursionError, NotQueryable, csv.Error):
        if not source.format.is_lines:
            notes = (f"This is not well-formed {source.format.syntax}: data has its lines.",)
    lines = lines_table(source)
    if not tables:
        tables = (lines._replace(name="data"),)
    return Layout((*tables, lines), source.format, notes)
