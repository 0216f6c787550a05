"""Loads the tables of a result into DuckDB. Data that DuckDB's readers cannot read is rewritten first."""

import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import msgspec
from duckdb import DuckDBPyConnection

from content.formats.json_tables import documents, rows_of
from content.formats.table import cells_of
from content.json_rows import JsonRows, decoded
from content.kind import Kind
from content.layout import layout_of
from content.source_text import SourceText
from content.tables import PARSED_BYTES, Delimited, Documents, Table, quoted, spelled, unique
from content.text import count_of, without_surrogates
from domain.errors import NotQueryable

MEMORY = "400MB"
"""The bound that DuckDB keeps itself. The kernel enforces that of the process."""

MORE = "_more"
"""The column that holds what a row has beyond the other columns."""

MOST_COLUMNS = 2000
_MOST_MEMBERS = 100
_OBJECT_BYTES = 16 << 20
_JSON_OPTIONS = f"maximum_object_size = {_OBJECT_BYTES}, map_inference_threshold = -1"
_CSV_OPTIONS = (
    "auto_detect = false, header = false, quote = '\"', null_padding = true, "
    "parallel = false, "
    "buffer_size = 8388608, max_line_size = 4000000"
)
# A field name may be quoted; a type is followed by a comma, a bracket or the end.
_TEXTS = re.compile(
    r"""("(?:[^"]|"")*")|\b(?:TIMESTAMP WITH TIME ZONE|TIMESTAMP_NS|TIMESTAMP|TIME|DATE|UUID)(?=[,)\[]|$)"""
)
_LONG_INTEGER = re.compile(rb"(?<![\d.\"A-Za-z])-?\d{19,}(?![\d.eE])")
_LONG_DIGITS = 19
"""Integers of fewer digits have 64 bits."""

_TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)

_DIGITS = r"(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)"
_PLAIN = rf"\s*[-+]?{_DIGITS}\s*"
_POWER = rf"\s*[-+]?{_DIGITS}[eE][-+]?\d{{1,3}}\s*"
_INTEGER = r"\s*[-+]?(?:0|[1-9]\d*)\s*"
_COMMA = r"\s*[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?\s*"
_ODD = r"(?i)\s*[-+]?(?:nan|inf|infinity)\s*"
_SIGNS = "$€£¥"
_GROUPED = rf"(?:[1-9]\d{{0,2}}(?:,\d{{3}})+(?:\.\d+)?|{_DIGITS})"
_WRITTEN = rf"\s*(?:(?:[-+]?[{_SIGNS}]?|[{_SIGNS}][-+])\s?{_GROUPED}\s?%?|\([{_SIGNS}]?{_GROUPED}%?\))\s*"


class Unfit(Exception):
    """DuckDB's reader would read the content differently from ours."""


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """`note` says how numbers that are not written plainly are read. `cell` is the SQL expression of a member
    of an object, "" for a column of the table."""

    name: str
    type: str
    note: str = ""
    cell: str = ""

    @property
    def expression(self) -> str:
        return self.cell or quoted(self.name)

    @property
    def spelled(self) -> str:
        return ".".join(map(spelled, self.name.split("."))) if self.cell else spelled(self.name)


def connect() -> DuckDBPyConnection:
    options: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": MEMORY,
        "temp_directory": "",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "preserve_insertion_order": "true",
    }
    connection = duckdb.connect(":memory:", config=options)
    connection.execute("SET async_threads = 1")
    connection.execute("CREATE MACRO matches(t, re) AS regexp_matches(t::VARCHAR, re)")
    connection.execute(
        r"CREATE MACRO part(t, re) AS CASE WHEN NOT regexp_matches(t::VARCHAR, re) THEN NULL "
        r"WHEN regexp_matches(re, '(?:^|[^\\])\((?:[^?]|\?P?<)') "
        r"THEN nullif(regexp_extract(t::VARCHAR, re, 1), '') "
        r"ELSE regexp_extract(t::VARCHAR, re) END"
    )
    return connection


def confine(connection: DuckDBPyConnection) -> None:
    """After this, the connection can read nothing but its tables."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


class Tables:
    """The tables that were loaded. `columns` has those of each table, in their order; `notes`, sentences
    about what the tables lack; `places`, where in the data the rows of a table are."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection
        self.columns: dict[str, list[QueryColumn]] = {}
        self.notes: list[str] = []
        self.places: dict[str, str] = {}

    def load(self, source: SourceText, suffix: str = "", *, has_lines: bool = True) -> None:
        """`suffix` is the number of the result among several. Raises NotQueryable, MemoryError."""
        if source.format.kind is Kind.BINARY:
            source.format.value(source)
        layout = layout_of(source)
        self.notes += layout.notes
        data, *others, _ = layout.tables
        if has_lines or data.read is None:
            self._load_lines(f"lines{suffix}" if has_lines else f"data{suffix}", source)
        if data.read is None and has_lines:
            self._show_lines(suffix)
        for table in (data, *others):
            if table.read is not None:
                self._load_or_show_lines(table, source, suffix, has_lines=has_lines)
                if table.path not in ("", "$") and table.name == "data":
                    self.places[f"{table.name}{suffix}"] = table.path

    def _show_lines(self, suffix: str) -> None:
        self._connection.execute(f"CREATE VIEW data{suffix} AS SELECT * FROM lines{suffix}")
        self._note(f"data{suffix}")

    def _load_or_show_lines(self, table: Table, source: SourceText, suffix: str, *, has_lines: bool) -> None:
        """Loads the table. If the data is not well-formed, `data` has its lines instead."""
        try:
            self._load(f"{table.name}{suffix}", table, source)
        except (ValueError, csv.Error, NotQueryable, RecursionError):
            if table.name != "data":
                return
            self.notes.append(
                f"This is not well-formed {source.format.noun.removeprefix('a ')}: data has its lines."
            )
            if has_lines:
                self._show_lines(suffix)
            else:
                self._load_lines(f"data{suffix}", source)

    def _load(self, name: str, table: Table, source: SourceText) -> None:
        """Raises ValueError, RecursionError, NotQueryable and csv.Error for what is not well-formed."""
        columns = [column.name for column in table.columns]
        match table.read:
            case Delimited() as read:
                self._load_csv(name, columns, read, source)
            case Documents():
                self._load_json(name, source.data, "newline_delimited")
            case JsonRows(array=array) if array:
                self._load_json(name, array, "array")
            case JsonRows(rows=rows):
                self._load_values(name, rows)
            case None:
                pass
            case read:
                is_log = columns[:2] == ["line", "text"]
                texts = ([None if cell is None else str(cell) for cell in row] for row in read())
                self._load_cells(name, columns, texts, is_text=columns[1:] if is_log else ())

    def _load_json(self, name: str, data: bytes, form: str) -> None:
        """Raises ValueError and RecursionError."""
        try:
            if _has_long_integer(data):
                raise Unfit
            self._read_json(name, data, form)
        except (duckdb.Error, Unfit) as error:
            if isinstance(error, duckdb.OutOfMemoryException) or len(data) > PARSED_BYTES:
                raise MemoryError from None
            self._load_values(name, rows_of(self._parsed(data, form)))

    def _parsed(self, data: bytes, form: str) -> list[object]:
        """The values of an array, or of the lines that are records. A note counts the other lines."""
        if form == "array":
            values: list[object] = decoded(data)
            return values
        values, rest, lines = [], list[int](), data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                text = line.decode("utf-8", "replace")
                found, end = documents(text)
                # A line that is part of a longer record is not a record.
                if found and not text[end:].strip():
                    values += found
                else:
                    rest.append(number)
        if len(rest) > len(values):
            found, end = documents(data.decode("utf-8", "replace"))
            if not found:
                raise ValueError("no records")
            if len(found) == 1 and isinstance(found[0], list):
                found = found[0]
            if data[end:].strip():
                self.notes.append("What follows the JSON is only in lines.")
            return found
        if rest:
            are = "is" if len(rest) == 1 else "are"
            first = f"{count_of(len(rest), 'line')}, from line {rest[0]:,} on, {are}"
            self.notes.append(f"{first} no JSON, and only in lines.")
        return values

    def _read_json(self, name: str, data: bytes, form: str, *, has_unique_names: bool = False) -> None:
        """`has_unique_names`: the names of the members are unique. Raises Unfit and duckdb.Error."""
        with _file(data) as path:
            reader = f"read_json('{path}', format = '{form}', {_JSON_OPTIONS}"
            described = self._connection.execute(
                f"DESCRIBE SELECT * FROM {reader}, sample_size = -1)"
            ).fetchall()
            types = {
                str(row[0]): _TEXTS.sub(lambda one: one[1] or "VARCHAR", str(row[1])) for row in described
            }
            if not has_unique_names and (_has_doubtful_names(list(types)) or len(types) > MOST_COLUMNS):
                raise Unfit
            # An object with this many members has ids as keys: it stays JSON.
            types |= {key: "JSON" for key, kind in types.items() if kind.count(",") > _MOST_MEMBERS}
            columns = ", ".join(f"{_literal(key)}: {_literal(kind)}" for key, kind in types.items())
            shown = unique(types)
            fields = ", ".join(
                f"{_unpacked(key) if kind == 'JSON' else quoted(key)} AS {quoted(alias)}"
                for (key, kind), alias in zip(types.items(), shown, strict=True)
            )
            self._connection.execute(
                f"CREATE TABLE {quoted(name)} AS SELECT {fields} FROM {reader}, columns = {{{columns}}})"
            )
        self._note(name)

    def _load_values(self, name: str, rows: Sequence[dict[str, object]]) -> None:
        """Rows of values that Python parsed."""
        keys = list(dict.fromkeys(key for row in rows for key in row)) or ["value"]
        if not rows:
            self._connection.execute(f"CREATE TABLE {quoted(name)} (value VARCHAR)")
            self._note(name)
            return
        more = keys[MOST_COLUMNS - 1 :] if len(keys) > MOST_COLUMNS else []
        keys = keys[: len(keys) - len(more)]
        names = [*unique(keys, [MORE]), *([MORE] if more else [])]
        large = {key for key in keys if any(_is_large(row.get(key)) for row in rows)}
        lines = (
            _encoded(
                [
                    *(_cell(row.get(key), key in large) for key in keys),
                    *([_others(row, more)] if more else []),
                ],
                names,
            )
            for row in rows
        )
        data = b"\n".join(lines)
        try:
            self._read_json(name, data, "newline_delimited", has_unique_names=True)
        except duckdb.OutOfMemoryException:
            raise MemoryError from None
        except (duckdb.Error, Unfit):
            # Names of members that differ only in case, or deep nesting: such cells become JSON texts.
            flat = [
                [
                    json.dumps(cell) if isinstance(cell, dict | list) else cell
                    for cell in (row.get(key) for key in keys)
                ]
                for row in rows
            ]
            self._connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
            lines = (_encoded(cells, names) for cells in flat)
            self._read_json(name, b"\n".join(lines), "newline_delimited", has_unique_names=True)
        exact = [column for column, key in zip(names, keys, strict=False) if key in large]
        for column in exact:
            self._cast_exact(name, column)

    def _cast_exact(self, name: str, column: str) -> None:
        """Makes a column of integers beyond 64 bits HUGEINT (128 bits); it stays text if one needs more."""
        cell = quoted(column)
        ((others,),) = self._connection.execute(
            f"SELECT count(*) FROM {quoted(name)} WHERE {cell} IS NOT NULL "
            f"AND TRY_CAST({cell} AS HUGEINT) IS NULL"
        ).fetchall()
        if not others:
            self._connection.execute(f"ALTER TABLE {quoted(name)} ALTER {cell} TYPE HUGEINT")
        self._note(name)

    def _load_csv(self, name: str, names: list[str], read: Delimited, source: SourceText) -> None:
        """Raises NotQueryable."""
        data = source.data[read.start : read.end]
        quotes = data.count(b'"') - (data.count(b'\\"') if read.escape == "\\" else 0)
        if len(names) > MOST_COLUMNS or quotes % 2:
            self._load_parsed(name, names, source)
            return
        columns = ", ".join(f"{_literal(one)}: 'VARCHAR'" for one in names)
        try:
            with _file(data) as path:
                self._connection.execute(
                    f"CREATE TABLE {quoted(name)} AS SELECT * FROM read_csv('{path}', {_CSV_OPTIONS}, "
                    f"delim = {_literal(read.mark)}, escape = {_literal(read.escape)}, "
                    f"columns = {{{columns}}})"
                )
        except duckdb.OutOfMemoryException:
            raise MemoryError from None
        except duckdb.Error:
            self._load_parsed(name, names, source)
            return
        self._type(name, names, mark=read.mark)

    def _load_parsed(self, name: str, names: list[str], source: SourceText) -> None:
        _, rows = cells_of(SourceText(source.stored, source.tool_name, source.path))
        self._load_cells(name, names[:MOST_COLUMNS], rows())

    def _load_cells(
        self,
        name: str,
        names: Sequence[str],
        rows: Iterable[Sequence[str | None]],
        is_text: Iterable[str] = (),
    ) -> None:
        names = list(names)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        width, widest = len(names), len(names)
        kept = []
        for row in rows:
            if len(row) > width:
                widest = max(widest, len(row))
                row = [*row[:width], json.dumps(list(row[width:]), ensure_ascii=False)]
            kept.append(row)
        is_wide = widest > width
        columns = [*names, MORE] if is_wide else names
        writer.writerows([*row, *[""] * (len(columns) - len(row))] for row in kept)
        del kept
        data = str(without_surrogates(text.getvalue())).encode()
        spelled = ", ".join(f"{_literal(one)}: 'VARCHAR'" for one in columns)
        with _file(data) as path:
            self._connection.execute(
                f"CREATE TABLE {quoted(name)} AS SELECT * FROM read_csv('{path}', {_CSV_OPTIONS}, "
                f"delim = ',', escape = '\"', columns = {{{spelled}}})"
            )
        self._type(name, columns, is_text={*is_text, MORE})

    def _type(self, name: str, names: Sequence[str], is_text: Iterable[str] = (), *, mark: str = ",") -> None:
        """Casts the columns whose filled cells are all numbers. Between semicolons, a comma is the decimal
        mark. White space beside `|` is not part of a cell."""
        table, texts = quoted(name), set(is_text)
        forms = {
            column: form
            for column in names
            if column not in texts and (form := self._form(table, column, has_comma=mark == ";"))
        }
        if mark == "|":
            fields = ", ".join(
                f"{forms[column].cast(quoted(column))} AS {quoted(column)}"
                if column in forms
                else f"nullif(trim({quoted(column)}), '') AS {quoted(column)}"
                for column in names
            )
            self._connection.execute(f"CREATE TABLE typed AS SELECT {fields} FROM {table}")
            self._connection.execute(f"DROP TABLE {table}")
            self._connection.execute(f"ALTER TABLE typed RENAME TO {table}")
        else:
            for column, form in forms.items():
                cell = quoted(column)
                self._connection.execute(
                    f"ALTER TABLE {table} ALTER {cell} TYPE {form.kind} USING {form.cast(cell)}"
                )
        self._note(name, {column: form.note for column, form in forms.items() if form.note})

    def _form(self, table: str, column: str, *, has_comma: bool) -> "_Form | None":
        cell = quoted(column)
        if has_comma:
            [(filled, commas, others)] = self._connection.execute(
                f"SELECT count(c), count(*) FILTER (c LIKE '%,%'), "
                f"count(*) FILTER (NOT regexp_full_match(c, '{_COMMA}')) "
                f"FROM (SELECT {cell} AS c FROM {table})"
            ).fetchall()
            if filled and not others and commas:
                return _Form(
                    "DOUBLE", "replace(replace(trim({0}), '.', ''), ',', '.')", "with decimal commas"
                )
            if commas:
                return None
        # The first cells are enough to exclude most columns of text.
        sample = self._connection.execute(
            f"SELECT count(*) FROM (SELECT {cell} AS c FROM {table} WHERE {cell} IS NOT NULL LIMIT 50) "
            f"WHERE NOT (regexp_full_match(c, '{_WRITTEN}') OR regexp_full_match(c, '{_POWER}') "
            f"OR regexp_full_match(c, '{_ODD}'))"
        ).fetchall()
        if sample[0][0]:
            return None
        # Most numbers are written plainly, and are short.
        [(filled, integers, plain, longest)] = self._connection.execute(
            f"SELECT count(c), count(*) FILTER (regexp_full_match(c, '{_INTEGER}')), "
            f"count(*) FILTER (regexp_full_match(c, '{_PLAIN}')), coalesce(max(strlen(c)), 0) "
            f"FROM (SELECT {cell} AS c FROM {table})"
        ).fetchall()
        if filled == plain and longest < _LONG_DIGITS:
            return (_Form("BIGINT") if integers == filled else _Form("DOUBLE")) if filled else None
        counted = self._connection.execute(
            f"SELECT count(c), count(*) FILTER (regexp_full_match(c, '{_INTEGER}')), "
            f"count(*) FILTER (regexp_full_match(c, '{_PLAIN}')), "
            f"count(*) FILTER (regexp_full_match(c, '{_POWER}')), "
            f"count(*) FILTER (regexp_full_match(c, '{_ODD}')), "
            f"count(*) FILTER (regexp_full_match(c, '{_WRITTEN}')), "
            f"count(*) FILTER (c LIKE '%,%'), count(*) FILTER (c LIKE '%\\%%' ESCAPE '\\'), "
            f"count(*) FILTER (regexp_matches(c, '[{_SIGNS}]')), "
            f"count(DISTINCT regexp_extract(c, '[{_SIGNS}]')), "
            f"count(*) FILTER (c LIKE '%(%'), count(*) FILTER (regexp_full_match(c, '{_INTEGER}') "
            f"AND TRY_CAST(c AS BIGINT) IS NULL), count(*) FILTER (regexp_full_match(c, '{_INTEGER}') "
            f"AND TRY_CAST(c AS HUGEINT) IS NULL) FROM (SELECT {cell} AS c FROM {table})"
        ).fetchall()
        return _form_of(_Counts(*counted[0]))

    def _load_lines(self, name: str, source: SourceText) -> None:
        data = source.data.removesuffix(b"\n").replace(b"\r\n", b"\n").removesuffix(b"\r")
        data = data.decode("utf-8", "replace").encode()
        first = source.line(0)
        try:
            with _file(data) as path:
                self._connection.execute(
                    f"CREATE TABLE {quoted(name)} AS SELECT unnest(generate_series({first}, "
                    f"{first - 1} + len(l))) AS line, unnest(l) AS text FROM "
                    f"(SELECT string_split(content, chr(10)) AS l FROM read_text('{path}'))"
                )
        except duckdb.OutOfMemoryException:
            raise MemoryError from None
        self._note(name)

    def _note(self, name: str, notes: dict[str, str] | None = None) -> None:
        described = self._connection.execute(f"DESCRIBE {quoted(name)}").fetchall()
        self.columns[name] = [QueryColumn(row[0], row[1], (notes or {}).get(row[0], "")) for row in described]


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many cells of a column are filled, and how many of these are written in each way."""

    filled: int
    integers: int
    plain: int
    powers: int
    odd: int
    written: int
    commas: int
    percents: int
    signs: int
    kinds_of_signs: int
    parentheses: int
    large: int
    too_large: int


_BARE = f"regexp_replace(trim({{0}}), '[{_SIGNS}%,()\\s]', '', 'g')"


@dataclass(frozen=True, slots=True)
class _Form:
    """How a column's texts are cast to numbers: `bare` is the expression that makes plain digits of the cell
    {0}, `kind` the type of SQL."""

    kind: str
    bare: str = "trim({0})"
    note: str = ""

    def cast(self, cell: str) -> str:
        number = f"CAST({self.bare.format(cell)} AS {self.kind})"
        return f"CASE WHEN {cell} LIKE '%(%' THEN -1 ELSE 1 END * {number}" if self.bare == _BARE else number


def _form_of(counts: _Counts) -> _Form | None:
    if not counts.filled:
        return None
    if counts.integers == counts.filled:
        if counts.too_large:
            return None
        return _Form("HUGEINT" if counts.large else "BIGINT")
    if counts.plain + counts.powers + counts.odd == counts.filled and counts.plain:
        # A DOUBLE would round large integers: the column stays text.
        return None if counts.large else _Form("DOUBLE")
    if counts.written != counts.filled or counts.large:
        return None
    shares = (
        counts.signs in (0, counts.filled)
        and counts.kinds_of_signs == 1
        and counts.percents in (0, counts.filled)
    )
    if not shares:
        return None
    has_signs = [
        word
        for word, count in (
            ("its commas", counts.commas),
            ("its currency sign", counts.signs),
            ("its %", counts.percents),
        )
        if count
    ]
    note = f"without {' and '.join(has_signs)}" if has_signs else ""
    if counts.parentheses:
        note += f"{', ' if note else ''}negative in parentheses"
    return _Form("DOUBLE", _BARE, note)


def _has_long_integer(data: bytes) -> bool:
    """Whether an integer has 19 digits or more. The first test excludes most data: the pattern takes ten
    times as long."""
    return b"0" * 19 in data.translate(_TO_ZEROS) and _LONG_INTEGER.search(data) is not None


def _has_doubtful_names(names: Sequence[str]) -> bool:
    """True if DuckDB renamed a key, or made one column of values that are not objects."""
    if names == ["json"]:
        return True
    lower = {name.lower() for name in names}
    return any(
        (match := re.fullmatch(r"(.*)_\d+", name.lower())) is not None and match[1] in lower for name in names
    )


def _unpacked(key: str) -> str:
    """The expression for a value whose type differs from row to row: its text without quotes, NULL for
    null."""
    cell = quoted(key)
    return (
        f"CASE json_type({cell}) WHEN 'VARCHAR' THEN {cell}->>'$' WHEN 'NULL' THEN NULL "
        f"ELSE CAST({cell} AS VARCHAR) END"
    )


def _is_large(value: object) -> bool:
    return type(value) is int and not -(1 << 63) <= value < 1 << 63


def _cell(value: object, is_text: bool) -> object:
    return str(value) if is_text and value is not None and type(value) in (int, float) else value


def _others(row: dict[str, object], keys: Sequence[str]) -> str | None:
    others = {key: row[key] for key in keys if key in row}
    return json.dumps(others, ensure_ascii=False) if others else None


def _encoded(cells: Sequence[object], names: Sequence[str]) -> bytes:
    record = dict(zip(names, cells, strict=True))
    try:
        return msgspec.json.encode(record)
    except (UnicodeEncodeError, OverflowError, ValueError):
        return json.dumps(without_surrogates(record)).encode()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """A file in memory, by a path that DuckDB opens."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("rows")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(number, view) :]
        os.lseek(number, 0, os.SEEK_SET)
        yield f"/dev/fd/{number}"
    finally:
        os.close(number)
