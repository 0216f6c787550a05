"""The tables that stand in a text: records in its lines, lists of fields, tables between bars, JSON below."""

import re
from itertools import islice
from typing import Any

from content.formats.blocks import blocks_in
from content.formats.json_tables import (
    documents,
    is_most,
    only_data,
    parsed_head,
    table_of_rows,
    tables_of_value,
)
from content.formats.printed import barred_tables
from content.json_rows import JsonRows, decoded, encoded
from content.source import Source
from content.tables import (
    HEAD_BYTES,
    PARSED_BYTES,
    SAMPLED,
    TablesAndNotes,
    lines_table,
    numbered_lines,
    table_of_cells,
    without_counts,
)
from content.text import count_of


def tables_in_text(source: Source) -> TablesAndNotes:
    return _records_in_lines(source) or _blocks(source) or _within(source)


def tables_in_code(source: Source) -> TablesAndNotes:
    """Its blocks are no lists of fields."""
    return _records_in_lines(source) or _within(source)


def _within(source: Source) -> TablesAndNotes:
    return _barred(source) or _json_below(source)


_RECORD_IN_LINE = re.compile(rb"[^{\n]*(\{.*\})[ \t\r]*")
_RECORDS_SHARE = 0.8


def _records_in_lines(source: Source) -> TablesAndNotes | None:
    """Returns the JSON records that follow other words on most lines; None if most lines have none."""
    first = source.head.splitlines()[:SAMPLED]
    if len(source.data) > PARSED_BYTES or len([*filter(_RECORD_IN_LINE.fullmatch, first)]) < max(
        3, _RECORDS_SHARE * len(first)
    ):
        return None
    rows: list[dict[str, Any]] = []
    others = 0
    for number, line in numbered_lines(source):
        if not source.is_whole and len(rows) == SAMPLED:
            break
        record = _record_in(line)
        others += record is None and bool(line.strip())
        if record is not None:
            rows.append(record if "line" in record else {"line": number, **record})
    if len(rows) <= others:
        return None
    table = table_of_rows("data", JsonRows("$", len(rows), rows=tuple(rows)))
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


def _blocks(source: Source) -> TablesAndNotes | None:
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
    table = table_of_cells("data", found.names, rows)
    return (table if source.is_whole else table._replace(rows=None),), tuple(notes)


_MOST_TABLES, _FIRST_TABLES = 24, 8
_BARS = (b"|", b"+-", b"\xe2\x94", b"\xe2\x95")
_RULE_OF_BARS = re.compile(
    rb"^[ \t]*+(?:\|?[ \t]*+:?--[-: \t]*+[|+]|[+|][-=+|: ]{3}|\xe2[\x94\x95])", re.MULTILINE
)


def _has_rule(data: bytes) -> bool:
    """Avoids the pattern, which takes long if no line has a bar."""
    return any(mark in data for mark in _BARS) and _RULE_OF_BARS.search(data) is not None


def _barred(source: Source) -> TablesAndNotes | None:
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
    tables = tuple(table_of_cells(f"table{number}", *one) for number, one in enumerate(found, 1))
    data = tables[0] if len(tables) == 1 and source.is_whole else lines_table(source)
    return (data._replace(name="data"), *without_counts(tables, source)), ()


_JSON_BELOW = re.compile(r"\n(?=[\[{])")


def _json_below(source: Source) -> TablesAndNotes:
    """Returns the tables of JSON below lines of text, such as the headers of a response."""
    if len(source.data) > PARSED_BYTES:
        return (), ()
    text = source.data.decode("utf-8", "replace")
    for begin in islice(_JSON_BELOW.finditer(text, 0, HEAD_BYTES), 3):
        if not source.is_whole:
            value, _ = parsed_head(text[begin.end() :].encode("utf-8", "replace"))
            if not isinstance(value, dict | list) or 2 * begin.end() > len(text):
                continue
            tables, _ = tables_of_value(encoded(value))
            above = count_of(text.count("\n", 0, begin.end()), "line")
            return only_data((tables, ()))[0], (f"data is JSON below {above}, which are only in lines.",)
        values, end = documents(text[begin.end() :])
        if values and isinstance(values[0], dict | list) and is_most(text, end):
            tables, _ = tables_of_value(encoded(values[0] if len(values) == 1 else values))
            above = count_of(text.count("\n", 0, begin.end()), "line")
            note = f"data is JSON below {above}, which are only in lines."
            return tables, (note,)
    return (), ()
