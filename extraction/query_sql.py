"""One SELECT over the tables of a result: its rows, why it selects none, and what is wrong with it."""

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import duckdb
from duckdb import DuckDBPyConnection, StatementType

from content import MAX_EXPRESSION_CHARS
from content.patterns import matcher
from content.tables import quoted, spelled
from content.text import clip, count_of, listed, without_surrogates
from domain.errors import BadQuery
from extraction.query_tables import QueryColumn, Tables

ONLY_READS = "A query can only read: give one statement that selects, over the table `data`."
_FENCE = re.compile(r"\s*```[\w-]*[ \t]*\n?(.*?)\n?\s*```\s*", re.DOTALL)
_BATCH = 2048
_NAMES_CHARS = 4000
_HINT_COLUMNS = 4
_FEW_VALUES = 8
_OFTEN = 4
"""If a column of texts has this many rows for each value, its most frequent values are listed."""
_VALUE_CHARS = 60
_LINE_CHARS = 120
_DIGITS_SHARE = 0.6
_BEGINS_WITH_DIGIT = r"\s*[-+<>~≈$€£¥(]?\s*\.?\d.*|[A-Z][a-z]{2} [ \d]\d\b.*"
_ISO = r"\d{4}-\d\d(?:-\d\d(?:[T ]\d\d:\d\d.*)?)?"
_LONGEST_INTEGER = 1 << 63
_TEXT_TYPE = "VARCHAR"
_ORDERED = frozenset(("min", "max", "arg_min", "arg_max", "min_by", "max_by", "median", "quantile"))
_SUMMED = frozenset(("sum", "avg", "mean", "total", "stddev", "median"))


_AGGREGATE = re.compile(r"(?i)\b(?:sum|avg|mean|median|count|min|max|stddev\w*|var\w*|quantile\w*)\s*\(")
_AGGREGATES = _ORDERED | _SUMMED | {"count", "count_star", "any_value", "list", "string_agg", "mode"}
_TOTAL = re.compile(
    r"(?i)(?:(?:grand|sub)[ -]?)?total|(?:sum|all|overall|summe|gesamt\w*|somme|suma)\b|合计|总计|итого"
)
_NUMBER_TYPES = ("BIGINT", "HUGEINT", "DOUBLE")
_LEAST_ADDED = 4
_PART = re.compile(r"(?i)\bpart\(\s*(\w+)\s*,\s*'((?:[^']|'')*)'")
_LONG_LINE = 1000


class UnknownName(Exception):
    """No column or table has the name. The text lists the existing ones."""


@dataclass(frozen=True, slots=True)
class Selected:
    """Iterating over `rows` raises BadQuery if a value cannot be computed."""

    columns: list[str]
    rows: Iterator[Sequence[object]]


class Statement:
    """One statement that selects, and what it does with columns according to DuckDB's parser."""

    def __init__(self, connection: DuckDBPyConnection, sql: str) -> None:
        """Raises BadQuery."""
        if len(sql) > MAX_EXPRESSION_CHARS:
            raise BadQuery(f"The query has more than {MAX_EXPRESSION_CHARS:,} characters.")
        if "\0" in sql:
            raise BadQuery("The query holds a null character.")
        fenced = _FENCE.fullmatch(sql)
        self.sql = str(without_surrogates(fenced[1] if fenced else sql)).strip()
        self._connection = connection
        try:
            statements = connection.extract_statements(self.sql)
            is_select = len(statements) == 1 and statements[0].type == StatementType.SELECT
        except duckdb.Error as error:
            raise _explained_syntax(str(error), self.sql) from None
        except ValueError:
            # duckdb's StatementType lacks some kinds of statements.
            is_select = False
        if not is_select or not self._called.isdisjoint(_DENIED):
            raise BadQuery(ONLY_READS)

    def _serialized(self, sql: str) -> dict[str, Any]:
        ((text,),) = self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
        tree: dict[str, Any] = json.loads(text)
        return tree

    @cached_property
    def _tree(self) -> dict[str, Any]:
        """Raises BadQuery for a statement that has no tree."""
        tree = self._serialized(self.sql.rstrip("; \n"))
        if tree["error"]:
            raise BadQuery(ONLY_READS)
        return tree

    @cached_property
    def nodes(self) -> list[dict[str, Any]]:
        """All nodes of its tree, outer ones first. Raises BadQuery for a statement that has no tree."""
        found: list[dict[str, Any]] = []
        todo: list[Any] = [self._tree]
        while todo:
            one = todo.pop(0)
            if isinstance(one, dict):
                found.append(one)
                todo += one.values()
            elif isinstance(one, list):
                todo += one
        return found

    @property
    def _called(self) -> set[str]:
        """The names of the functions that it calls, in lower case."""
        return {str(node["function_name"]).lower() for node in self.nodes if "function_name" in node}

    @cached_property
    def tables(self) -> list[str]:
        names = (node["table_name"] for node in self.nodes if node.get("type") == "BASE_TABLE")
        return list(dict.fromkeys(names))

    @cached_property
    def compared(self) -> list[tuple[str, str, str]]:
        """Column, operator and text of each comparison with a constant; "" for a number."""
        found: list[tuple[str, str, str]] = []
        for node in self.nodes:
            kind = node.get("class")
            if kind == "COMPARISON":
                sides = [node["left"], node["right"]]
            elif kind == "BETWEEN":
                sides = [node["input"], node["lower"]]
            elif kind == "OPERATOR" and str(node.get("type")).startswith("COMPARE_"):
                sides = list(node["children"])
            elif kind == "FUNCTION" and node.get("function_name") in _MATCHING:
                sides = _arguments(node)
            else:
                continue
            operator = str(node.get("function_name") or node["type"])
            columns = [name for side in sides for name in _columns_in(side)]
            texts = [text for side in sides if (text := _constant(side)) is not None] or [""]
            found += [(column, operator, text) for column in columns for text in texts]
        return found

    @cached_property
    def ordered(self) -> list[tuple[str, str]]:
        """Each column by which rows are ordered, with "ordered"; each one of which an extreme is taken, or
        that is compared by <, > or BETWEEN, with "compared"."""
        found: list[tuple[str, str]] = []
        for node in self.nodes:
            kind, name = node.get("class"), node.get("function_name")
            if node.get("type") == "ORDER_MODIFIER":
                found += [
                    (column, "ordered") for one in node["orders"] for column in _column(one.get("expression"))
                ]
            elif kind == "FUNCTION" and name in _ORDERED:
                found += [(column, "compared") for side in _arguments(node)[-1:] for column in _column(side)]
            elif (
                kind == "COMPARISON" and ("LESS" in node["type"] or "GREATER" in node["type"])
            ) or kind == "BETWEEN":
                sides = [node.get(key) for key in ("left", "right", "input")]
                found += [(column, "compared") for side in sides for column in _column(side)]
        return list(dict.fromkeys(found))

    @cached_property
    def computed_from(self) -> str:
        """The statement that selects the rows from which this one computes its only row; "" if it computes no
        such row, or uses all rows."""
        root = self._tree["statements"][0]["node"]
        if (
            root.get("type") != "SELECT_NODE"
            or root["group_expressions"]
            or root["modifiers"]
            or root["from_table"]["type"] == "EMPTY"
            or not all(map(_is_aggregate, root["select_list"]))
            or not any(node.get("where_clause") for node in self.nodes)
        ):
            return ""
        rows = {**root, "select_list": self._serialized(_ALL)["statements"][0]["node"]["select_list"]}
        tree = {**self._tree, "statements": [{**self._tree["statements"][0], "node": rows}]}
        ((text,),) = self._connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
        return str(text)

    @cached_property
    def offset(self) -> int:
        for node in self.nodes:
            if node.get("type") == "LIMIT_MODIFIER" and isinstance(node.get("offset"), dict):
                literal = node["offset"].get("literal") or {}
                return int(literal["text"]) if str(literal.get("text", "")).isdecimal() else 0
        return 0

    @cached_property
    def patterns(self) -> list[str]:
        """The constants that the statement uses as patterns of RE2."""
        return [
            pattern
            for node in self.nodes
            if node.get("class") == "FUNCTION" and node.get("function_name") in _WITH_PATTERN
            for one in _arguments(node)[1:2]
            if (pattern := _constant(one))
        ]

    @cached_property
    def summed(self) -> list[str]:
        return [
            column
            for node in self.nodes
            if node.get("class") == "FUNCTION" and node.get("function_name") in _SUMMED
            for side in _arguments(node)[:1]
            for column in _column(side)
        ]


_DENIED = frozenset(
    ("pg_sleep", "sleep_ms", "query", "query_table", "json_execute_serialized_sql", "write_log")
)
"""Functions that wait, run a text as a statement, or write."""

_MATCHING = frozenset(
    (
        "~~",
        "~~*",
        "!~~",
        "!~~*",
        "matches",
        "regexp_matches",
        "contains",
        "starts_with",
        "ends_with",
        "instr",
        "~~~",
    )
)

_WITH_PATTERN = frozenset(
    (
        "matches",
        "part",
        "regexp_matches",
        "regexp_extract",
        "regexp_extract_all",
        "regexp_full_match",
        "regexp_replace",
    )
)


_ALL = "SELECT * FROM data"


def _is_aggregate(node: dict[str, Any]) -> bool:
    """Whether an expression holds an aggregate, and so gives one value for many rows."""
    if node.get("class") == "FUNCTION" and node.get("function_name") in _AGGREGATES:
        return True
    sides = [*_arguments(node), node.get("child"), node.get("left"), node.get("right")]
    return any(_is_aggregate(side) for side in sides if isinstance(side, dict))


def _arguments(node: dict[str, Any]) -> list[Any]:
    return [one.get("expression", one) for one in node.get("arguments") or node.get("children") or ()]


def _column(node: object) -> list[str]:
    """The name of the column that an expression is, in a list; [] if it is anything else."""
    if not isinstance(node, dict):
        return []
    if node.get("class") == "COLUMN_REF":
        return [".".join(node["column_names"])]
    return []


def _columns_in(node: object) -> list[str]:
    if isinstance(node, dict) and node.get("class") == "FUNCTION":
        return [column for one in _arguments(node) for column in _columns_in(one)]
    return _column(node)


def _constant(node: object) -> str | None:
    """The text of a constant, "" for a number; None for anything else."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal") or {}
    return str(literal.get("text", "")) if literal.get("kind") == "STRING" else ""


class Queried:
    """Runs statements over loaded tables."""

    def __init__(self, connection: DuckDBPyConnection, tables: Tables) -> None:
        self._connection = connection
        self._tables = tables

    @property
    def names(self) -> list[str]:
        return list(self._tables.columns)

    def statement(self, sql: str) -> Statement:
        """Raises BadQuery."""
        return Statement(self._connection, sql)

    def select(self, statement: Statement) -> Selected:
        """Raises BadQuery, BadPattern and UnknownName."""
        for pattern in statement.patterns:
            matcher(pattern)
        self._connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            self._connection.execute(statement.sql)
        except duckdb.Error as error:
            raise self._explained(statement, error) from None
        described = self._connection.description or []
        columns = _unique([str(one[0]).replace("count_star()", "count(*)") for one in described])
        return Selected(columns, self._fetched(statement))

    def end(self) -> None:
        """Ends the statement, even if not all of its rows were read."""
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.TransactionException:
            return

    def _fetched(self, statement: Statement) -> Iterator[Sequence[object]]:
        def rows() -> Iterator[Sequence[object]]:
            while batch := self._connection.fetchmany(_BATCH):
                yield from batch

        try:
            for row in rows():
                yield [plain(cell) for cell in row]
        except duckdb.Error as error:
            raise self._explained(statement, error) from None

    def _explained(self, statement: Statement, error: duckdb.Error) -> BadQuery | UnknownName | MemoryError:
        self.end()
        text = str(error)
        if isinstance(error, duckdb.OutOfMemoryException):
            return MemoryError()
        if match := re.search(r'Referenced column "(.+?)" (?:was )?not found', text, re.DOTALL):
            return UnknownName(self._absent(statement, match[1]))
        if match := re.search(r"does not have a column named \"(.+?)\"", text):
            return UnknownName(self._absent(statement, match[1]))
        if match := re.search(r"Could not find key \"(.+?)\" in struct", text):
            return UnknownName(self._absent(statement, match[1]))
        if match := re.search(r"Table with name (.+?) does not exist", text):
            places = [f" {table} is {place}." for table, place in self._tables.places.items()]
            name = spelled(clip(match[1], 60))
            return UnknownName(f"No table is named {name}.{''.join(places)} {self.all_columns()}")
        if isinstance(error, duckdb.PermissionException | duckdb.IOException | duckdb.HTTPException):
            return BadQuery(ONLY_READS)
        if "disabled by configuration" in text or "read-only" in text.lower():
            return BadQuery(ONLY_READS)
        if match := re.search(
            r"(?:Scalar|Table|Aggregate|Macro)?\s*Function with name (\S+?) does not exist", text
        ):
            near = re.search(r"Did you mean \"(.+?)\"", text)
            meant = f" The nearest is {near[1]}." if near else ""
            return BadQuery(f"DuckDB has no such function.{meant}", clip(match[1], 60))
        if "ambiguous reference" in text.lower():
            return BadQuery("A column that the query names is in several of its tables: write table.column.")
        if match := re.search(r'column "(.+?)" must appear in the GROUP BY clause', text):
            return BadQuery(
                f"{spelled(match[1])} must be in GROUP BY or in an aggregate, such as "
                f"any_value({spelled(match[1])})."
            )
        if isinstance(error, duckdb.ParserException):
            return _explained_syntax(text, statement.sql)
        return self._of_types(statement, error, text)

    def _of_types(self, statement: Statement, error: duckdb.Error, text: str) -> BadQuery:
        for name in statement.summed:
            if (
                (found := self._find(statement, name))
                and found[1].type == _TEXT_TYPE
                and "No function matches" in text
            ):
                return BadQuery(f"{self._is_text(*found)}: CAST it, or take the number with part().")
        if isinstance(error, duckdb.ConversionException):
            match = re.search(
                r"[Cc]ould not convert (?:string|\w+) '(.*?)' to '?([A-Z0-9()]+)", text, re.DOTALL
            )
            what = f"“{clip(match[1], 40)}” is no {match[2]}" if match else "a value cannot be converted"
            texts = [
                name
                for name, *_ in statement.compared
                if (found := self._find(statement, name)) and found[1].type == _TEXT_TYPE
            ]
            where = f" ({spelled(texts[0].rpartition('.')[2])} is text)" if texts else ""
            return BadQuery(f"{what}{where}: TRY_CAST gives NULL instead.")
        if "=>" in text or ("->" in text and "lambda" in text.lower()):
            return BadQuery("A lambda is written as a comprehension here: [x + 1 FOR x IN list IF x > 0].")
        if match := re.search(
            r"No function matches the given name and argument types '(.+?)'", text, re.DOTALL
        ):
            return BadQuery(f"No function takes these types: {clip(match[1], 120)}. CAST an argument.")
        if match := re.search(r"Cannot compare values of type (.+?) and (?:type )?(.+?)(?: -|\.|$)", text):
            for name, *_ in statement.compared:
                if (found := self._find(statement, name)) and found[1].type == _TEXT_TYPE:
                    return BadQuery(f"{self._is_text(*found)}: CAST it, or take the number with part().")
            return BadQuery(f"A {match[1]} and a {match[2]} cannot be compared: CAST one of them.")
        if isinstance(error, duckdb.InterruptException):
            return BadQuery("The query was stopped: it took too long.")
        if match := re.search(
            r"Cannot extract field '.+?' from expression \"(.+?)\" because it is not a struct", text
        ):
            name = spelled(match[1])
            return BadQuery(f"{name} is no object: UNNEST a list, or take [x.a FOR x IN {name}].")
        # Texts in quotes may repeat the query.
        reason = re.sub(
            r"""\s*(?:".*?"|'.*?'|/\S+)""", " …", text.partition("\n")[0].partition(": ")[2], flags=re.DOTALL
        )
        return BadQuery(f"DuckDB cannot run the query: {clip(reason.rstrip('.!'), 200)}.")

    def _find(self, statement: Statement, name: str) -> tuple[str, QueryColumn] | None:
        """The table and the column that a query names, with or without the name of the table. A member of an
        object is a column with a `cell`."""
        parts = name.split(".")
        for table in [*statement.tables, *self._tables.columns]:
            by_name = {column.name.lower(): column for column in self._tables.columns.get(table, ())}
            for start in (0, 1):
                for end in range(len(parts), start, -1):
                    if (column := by_name.get(".".join(parts[start:end]).lower())) is not None:
                        return table, self._member(table, column, parts[end:])
        return None

    def _member(self, table: str, column: QueryColumn, steps: Sequence[str]) -> QueryColumn:
        if not steps:
            return column
        cell = ".".join(map(quoted, (column.name, *steps)))
        try:
            [described] = self._rows(f"DESCRIBE SELECT {cell} FROM {quoted(table)}")
        except duckdb.Error:
            return column
        return QueryColumn(".".join((column.name, *steps)), str(described[1]), cell=cell)

    def _is_text(self, table: str, column: QueryColumn, example: str = "") -> str:
        if not example:
            cell = column.expression
            found = self._rows(f"SELECT {cell} FROM {quoted(table)} WHERE {cell} IS NOT NULL LIMIT 1")
            example = str(found[0][0]) if found else ""
        return f'{column.spelled} is text ("{clip(example, 30)}")'

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        self.end()
        return self._connection.execute(sql).fetchall()

    def _absent(self, statement: Statement, name: str) -> str:
        last = name.rpartition(".")[2].lower()
        for table, columns in self._tables.columns.items():
            if table not in statement.tables and last in {column.name.lower() for column in columns}:
                return f"{spelled(clip(name, 60))} is a column of {table}. {self.all_columns()}"
        names = [column.name for columns in self._tables.columns.values() for column in columns]
        close = difflib.get_close_matches(last, [one.lower() for one in names], n=1, cutoff=0.5)
        near = [one for one in names if one.lower() in close]
        text = f"No column is named {spelled(clip(name, 60))}."
        if near:
            text += f" The nearest is {spelled(near[0])}."
        return f"{text} {self.all_columns()}"

    def all_columns(self) -> str:
        """The columns of all tables, and last those of `lines`, which are the same for each result."""
        tables = {
            name: columns for name, columns in self._tables.columns.items() if not name.startswith("lines")
        }
        most = _NAMES_CHARS // max(1, len(tables))
        told = [
            f"Columns of {table}: {listed([_told(column) for column in columns], most)}."
            for table, columns in tables.items()
        ]
        return " ".join((*told, "lines has line, text."))

    def notes(self, statement: Statement) -> str:
        """Where the rows are in the data, what they lack, and which columns of texts the query treats as
        numbers."""
        places = [
            f"{table} is {place}."
            for table, place in self._tables.places.items()
            if table in statement.tables
        ]
        read = [table for table in statement.tables if not table.startswith("lines")]
        lacking = self._tables.notes if read else []
        return " ".join(
            (
                *places,
                *lacking,
                *self._forms(statement),
                *self._texts(statement),
                *self._totals(statement),
                *self._firsts(statement),
            )
        )

    def evidence(self, statement: Statement) -> str:
        """From how many rows a single row was computed, and the first of them; "" if that is not known."""
        if not (rows := statement.computed_from):
            return ""
        try:
            ((count,),) = self._rows(f"SELECT count(*) FROM ({rows})")
            first = self._rows(f"{rows} LIMIT 1")
        except duckdb.Error:
            return ""
        described = [str(one[0]) for one in self._connection.description or []]
        if not first:
            return ""
        cells = [(name, cell) for name, cell in zip(described, first[0], strict=True) if cell is not None]
        if described[:2] == ["line", "text"]:
            such = f"{first[0][0]}: {clip(str(first[0][1]), _LINE_CHARS)}"
        else:
            wanted = {name.rpartition(".")[2].lower() for name in self._named_in(statement)}
            shown = [one for one in cells if one[0].lower() in wanted][:_HINT_COLUMNS]
            such = ", ".join(f"{spelled(name)}: {_shown(cell)}" for name, cell in shown)
        return f"From {count_of(count, 'row')}{such and ', the first: '}{such}."

    def _named_in(self, statement: Statement) -> Iterator[str]:
        for node in statement.nodes:
            yield from _column(node)

    def _forms(self, statement: Statement) -> list[str]:
        sql = statement.sql.lower()
        return [
            f"{column.spelled} is read as numbers {column.note}."
            for table in statement.tables
            for column in self._tables.columns.get(table, ())
            if column.note and column.name.lower() in sql
        ][:_HINT_COLUMNS]

    def _totals(self, statement: Statement) -> list[str]:
        """If the query computes over rows: a warning about each table whose last row has the sums of the
        others."""
        if not _AGGREGATE.search(statement.sql):
            return []
        return [*filter(None, map(self._total_row, statement.tables))]

    def _total_row(self, table: str) -> str:
        first, *_ = columns = self._tables.columns.get(table) or [QueryColumn("", "")]
        numbers = [column.expression for column in columns if column.type in _NUMBER_TYPES]
        if not numbers or table.startswith("lines"):
            return ""
        source, cells = quoted(table), ", ".join(numbers)
        try:
            last = self._rows(f"SELECT {first.expression}, {cells} FROM {source} ORDER BY rowid DESC LIMIT 1")
            name = str(last[0][0] or "").strip() if last else "-"
            if name and not _TOTAL.match(name):
                return ""
            sums = ", ".join(f"sum({cell})" for cell in numbers)
            ((count, *totals),) = self._rows(f"SELECT count(*), {sums} FROM {source}")
        except duckdb.Error:
            return ""
        pairs = [(cell, total) for cell, total in zip(last[0][1:], totals, strict=True) if cell]
        if count < _LEAST_ADDED or not any(math.isclose(2 * cell, total) for cell, total in pairs):
            return ""
        called = f' ("{clip(name, 30)}")' if name else ""
        return f"The last row of {table}{called} holds sums of the rows above it, and is counted as a row."

    def _firsts(self, statement: Statement) -> list[str]:
        """A warning if part() took the first of several matches in a long line."""
        found = _PART.search(statement.sql)
        if found is None:
            return []
        name, cell, pattern = found[1], quoted(found[1]), found[2]
        for table in statement.tables:
            long = f"SELECT {cell} AS c FROM {quoted(table)} WHERE len({cell}) > {_LONG_LINE} LIMIT 1000"
            try:
                ((count,),) = self._rows(
                    f"SELECT count(*) FROM ({long}) WHERE len(regexp_extract_all(c, '{pattern}')) > 1"
                )
            except duckdb.Error:
                continue
            if count:
                have = "has" if count == 1 else "have"
                told = (
                    f"part() takes the first match of a line, and {count_of(count, 'long line')} {have} more"
                )
                return [f"{told}: unnest(regexp_extract_all({name}, …, 1)) has all."]
        return []

    def _texts(self, statement: Statement) -> list[str]:
        told: dict[str, str] = {}
        for name, what in statement.ordered:
            found = self._find(statement, name)
            if (
                found is None
                or found[1].type != _TEXT_TYPE
                or found[0].startswith("lines")
                or found[1].name in told
            ):
                continue
            if example := self._example_of_digits(*found):
                told[found[1].name] = f"{self._is_text(*found, example)}: {what} as text."
        return list(told.values())[:_HINT_COLUMNS]

    def _example_of_digits(self, table: str, column: QueryColumn) -> str:
        """A cell of a column of texts that mostly begin with digits. "" for other columns, and for ISO dates,
        which are ordered correctly as texts."""
        cell = column.expression
        ((filled, digits, iso, example),) = self._rows(
            f"SELECT count(c), count(*) FILTER (regexp_full_match(c, '{_BEGINS_WITH_DIGIT}', 's')), "
            f"count(*) FILTER (regexp_full_match(c, '{_ISO}')), "
            f"any_value(c) FILTER (regexp_full_match(c, '{_BEGINS_WITH_DIGIT}', 's')) "
            f"FROM (SELECT {cell} AS c FROM {quoted(table)} WHERE trim({cell}) <> '' LIMIT 1000)"
        )
        if not filled or digits < _DIGITS_SHARE * filled or iso == filled:
            return ""
        return str(example)

    def why_empty(self, statement: Statement) -> str:
        """Why the query selects nothing: what the compared columns hold, or that its text occurs nowhere;
        else the names of all columns."""
        sentences = list(filter(None, [self._past_last(statement)]))
        seen: set[str] = set()
        for name, operator, text in statement.compared:
            found = self._find(statement, name)
            if found is None or len(seen) >= _HINT_COLUMNS:
                continue
            table, column = found
            if column.name not in seen and not (
                column.name == "text" and {"lines", "data"} & {table} and text
            ):
                seen.add(column.name)
                sentences.append(self._range(table, column))
            if text:
                sentences.append(self._where_is(table, column, operator, text))
        notes = self.notes(statement)
        told = [one for one in sentences if one] or [self.all_columns()]
        return " ".join(filter(None, (*dict.fromkeys(told), notes)))

    def _past_last(self, statement: Statement) -> str:
        if not statement.offset:
            return ""
        bare = re.sub(r"(?i)\boffset\s+\d+", "", statement.sql.rstrip("; \n"))
        bare = re.sub(r"(?i)\blimit\s+\d+\s*$", "", bare.rstrip())
        try:
            ((count,),) = self._rows(f"SELECT count(*) FROM ({bare})")
        except duckdb.Error:
            return ""
        return f"{count_of(count, 'row')}: offset {statement.offset:,} is past the last." if count else ""

    def _range(self, table: str, column: QueryColumn) -> str:
        cell, source = column.expression, quoted(table)
        try:
            ((low, high, filled, kinds),) = self._rows(
                f"SELECT min({cell}), max({cell}), count({cell}), approx_count_distinct({cell}) FROM {source}"
            )
        except duckdb.Error:
            return ""
        name = column.spelled
        if not filled:
            return f"{name} is NULL in all rows."
        if kinds <= 2 * _FEW_VALUES:
            values = self._rows(
                f"SELECT {cell}, count(*) FROM {source} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_FEW_VALUES + 1}"
            )
            if len(values) <= _FEW_VALUES:
                return f"{name} has {_with_counts(values)}."
        if column.type == _TEXT_TYPE and _OFTEN * kinds <= filled:
            values = self._rows(
                f"SELECT {cell}, count(*) FROM {source} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_FEW_VALUES}"
            )
            return f"{name} has most often {_with_counts(values)}."
        return f"{name} is from {_shown(low)} to {_shown(high)}."

    def _where_is(self, table: str, column: QueryColumn, operator: str, text: str) -> str:
        word = text.strip("%*") if operator != "matches" and "regexp" not in operator else ""
        if not word or column.type != _TEXT_TYPE:
            return ""
        cell, source, shown = column.expression, quoted(table), f"“{clip(word, 40)}”"
        like = "~~" in operator and "*" not in operator
        pieces = [piece for piece in re.split(r"[%_]+", word) if piece] if "~~" in operator else [word]
        other_case = " AND ".join(f"contains(lower({cell}), {_literal(piece.lower())})" for piece in pieces)
        ((count,),) = self._rows(f"SELECT count(*) FROM {source} WHERE {other_case}")
        if count and like:
            return f"LIKE tells case: ILIKE finds {count_of(count, 'row')}."
        if count:
            ((example,),) = self._rows(f"SELECT {cell} FROM {source} WHERE {other_case} LIMIT 1")
            such = clip(str(example), 80)
            return f"{shown} is in {count_of(count, 'row')} of {column.spelled}, such as “{such}”."
        if spaced := self._with_other_spaces(table, column, pieces):
            return f"{shown} is in {column.spelled} with other spaces, such as “{spaced}”."
        everywhere = " AND ".join(f"contains(lower(text), {_literal(piece.lower())})" for piece in pieces)
        if "lines" in self._tables.columns:
            ((count,),) = self._rows(f"SELECT count(*) FROM lines WHERE {everywhere}")
            if count:
                return f"{shown} is in no cell of {column.spelled}, but in {count_of(count, 'line')}."
        return f"{shown} is nowhere in the data."

    def _with_other_spaces(self, table: str, column: QueryColumn, pieces: Sequence[str]) -> str:
        """A cell that holds the pieces if each run of spaces counts as one space; "" if there is none."""
        if not any(" " in piece.strip() for piece in pieces):
            return ""
        bare = rf"regexp_replace(lower({column.expression}), '\s+', ' ', 'g')"
        holds = " AND ".join(
            f"contains({bare}, {_literal(' '.join(piece.lower().split()))})" for piece in pieces
        )
        found = self._rows(f"SELECT {column.expression} FROM {quoted(table)} WHERE {holds} LIMIT 1")
        return str(found[0][0])[:_VALUE_CHARS] if found else ""


def _told(column: QueryColumn) -> str:
    kind = "" if column.type == _TEXT_TYPE else f" {clip(column.type, 80)}"
    return f"{column.spelled}{kind}"


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(plain(value))
    # Spaces are kept, so that a search for the shown text finds it.
    return (
        text if len(text) <= _VALUE_CHARS and text.isprintable() else clip(text, _VALUE_CHARS)
    ) or "(blank)"


def _with_counts(values: Iterable[Sequence[Any]]) -> str:
    return ", ".join(f"{_shown(value)} ({count:,})" for value, count in values)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return told


def _explained_syntax(error: str, sql: str) -> BadQuery:
    if _is_open(sql):
        return BadQuery("The query is not SQL as DuckDB reads it: something is missing at its end.")
    if match := re.search(r'syntax error at or near "(.*?)"', error, re.DOTALL):
        return BadQuery("The query is not SQL as DuckDB reads it.", clip(_near(sql, match[1]), 200))
    if "at end of input" in error or "unterminated" in error:
        return BadQuery("The query is not SQL as DuckDB reads it: something is missing at its end.")
    return BadQuery("The query is not SQL as DuckDB reads it.")


_IN_QUOTES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)


def _is_open(sql: str) -> bool:
    """True where a quote or a bracket is not closed, or nothing follows the first word."""
    bare = _IN_QUOTES.sub(" ", sql)
    return "'" in bare or '"' in bare or bare.count("(") > bare.count(")") or len(bare.split()) < 2


def _near(sql: str, token: str) -> str:
    at = sql.find(token)
    if at < 0:
        return token
    return " ".join((*sql[:at].split()[-2:], sql[at:]))


def plain(cell: object) -> object:
    """A cell as a value of JSON; a type that JSON lacks becomes text."""
    match cell:
        case None | str() | bool():
            return cell
        case int():
            return cell if -_LONGEST_INTEGER <= cell < _LONGEST_INTEGER else str(cell)
        case float():
            if math.isfinite(cell):
                return cell
            return "NaN" if math.isnan(cell) else ("Infinity" if cell > 0 else "-Infinity")
        case Decimal():
            return (
                int(cell)
                if cell == cell.to_integral_value() and abs(cell) < _LONGEST_INTEGER
                else float(cell)
            )
        case datetime():
            return cell.isoformat(" ")
        case date() | time() | timedelta() | UUID():
            return str(cell)
        case bytes():
            return cell.decode("utf-8", "replace")
        case dict():
            return {str(plain(key)): plain(item) for key, item in cell.items()}
        case list() | tuple():
            return [plain(item) for item in cell]
    return str(cell)
