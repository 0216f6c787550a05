"""SQL over a relation: SQLite in memory, which may read its tables and call safe functions, nothing else."""

import difflib
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from itertools import filterfalse
from typing import Any, NamedTuple

import msgspec

from content import MAX_EXPRESSION_CHARS
from content.formats.numerals import numbers_in, stands_for_none
from content.formats.table import MORE, unique
from content.patterns import matcher
from content.relation import (
    RESERVED,
    Cells,
    Column,
    Lines,
    Relation,
    Row,
    columns_of,
    listed,
    plain_name,
    quoted,
    relation_of,
    spelled,
    text_of,
)
from content.text import clip, count_of, without_surrogates
from domain.errors import BadPattern, BadQuery

MOST_COLUMNS = 2000
"""SQLite's limit."""

_BEFORE = r"(?>(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*)"
_SELECT = re.compile(_BEFORE + r"(?:select|with)\b(?![.\[])", re.IGNORECASE | re.DOTALL)
_OTHER_STATEMENT = re.compile(
    _BEFORE
    + r"(?:alter|analyze|attach|begin|commit|create|delete|detach|drop|explain|insert|pragma|reindex|replace"
    r"|rollback|update|vacuum|values)\s+[\w('\"]",
    re.IGNORECASE | re.DOTALL,
)
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)|[^\W\d][\w$]*"""
    r"""|(?:\d[\w.]*)|\S""",
    re.DOTALL,
)
_FUNCTION_NAMES = """
abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling changes char coalesce concat concat_ws cos cosh
count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value
floor format glob group_concat hex if ifnull iif instr json json_array json_array_length json_each
json_error_position json_extract json_group_array json_group_object json_object json_patch json_pretty
json_quote json_remove json_replace json_set json_tree json_type json_valid julianday lag last_value lead
length like likelihood likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif
octet_length percent_rank percentile percentile_cont percentile_disc pi pow power printf quote radians
random rank replace round row_number rtrim sign sin sinh sqrt strftime string_agg substr substring subtype
sum tan tanh time timediff total trim trunc typeof unhex unicode unixepoch unlikely upper -> ->>
matches part regexp
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_TABLES = frozenset(("document", "json_each", "json_tree"))
_MOST_TEXT_BYTES = 64 << 20
_MOST_REPAIRS = 40
_INTEGERS = range(-(1 << 63), 1 << 63)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.(\d+))?")
_NUMBER_CHARS = 15
_INTEGER_CHARS = 18
_WORDS_BEFORE = 2
_NAMES_CHARS = 4000
_PAGE = re.compile(r"\blimit\s+\d{1,9}\s+offset\s+([1-9]\d{0,17})\s*;?\s*\Z", re.IGNORECASE)
_HINT_SECONDS = 0.5
_matcher = lru_cache(maxsize=16)(matcher)
_HINT_COLUMNS = 3
_HINT_VALUES = 6

ONLY_READS = "A query can only read: give one SELECT over the table `data`, with no second statement."
_NO_FUNCTION = (
    "SQLite has no such function, or it is not allowed here. There are count, sum, total, avg, min, max, "
    "group_concat, round, substr, instr, lower, date, strftime, json_extract, json_each and the other usual "
    "ones; texts are matched with LIKE and GLOB, and by RE2 with matches(text, pattern) and part(text, "
    "pattern)."
)


def is_sql(expression: str) -> bool:
    """True where the expression begins with SELECT or WITH. A key of that name is written in quotes."""
    return _SELECT.match(expression) is not None


def is_other_statement(expression: str) -> bool:
    """True where the expression begins as a statement of SQL that is not run."""
    return _OTHER_STATEMENT.match(expression) is not None


class UnknownName(Exception):
    """No column or table has the name; the text names those that there are."""


class Selected(NamedTuple):
    """`rows` raises BadQuery, as values may be at fault."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


class Database:
    """The table `data` of the relation's rows, and the table `document` of the object around them. Of several
    values there are the tables `data1`, `data2` and so on, and no `document`."""

    def __init__(self, *values: object) -> None:
        """Takes the rows out of the values, to free their memory as they are loaded. Raises RecursionError
        for rows that are nested too deeply."""
        relations = [value if isinstance(value, Lines | Cells) else relation_of(value) for value in values]
        only = relations[0] if len(relations) == 1 else None
        self.path = only.path if isinstance(only, Relation) else ""
        self._bad_pattern: BadPattern | None = None
        self._read: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._denied = ""
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        with ExitStack() as opened:
            opened.callback(self.close)
            self._fill(relations, only)
            opened.pop_all()

    def close(self) -> None:
        """From Python 3.13 on, a connection that is left open is a warning."""
        self._connection.close()

    def _fill(
        self, relations: Sequence[Relation | Lines | Cells], only: Relation | Lines | Cells | None
    ) -> None:
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_TEXT_BYTES)
        self._connection.execute("PRAGMA temp_store = MEMORY")
        sqlite3.register_adapter(dict, json_text)
        sqlite3.register_adapter(list, json_text)
        tables = ["data"] if len(relations) == 1 else [f"data{at}" for at in range(1, len(relations) + 1)]
        loaded = zip(tables, relations, strict=True)
        self._columns_of = {table: self._loaded(table, relation) for table, relation in loaded}
        self._columns = [column for columns in self._columns_of.values() for column in columns]
        document = only.document if isinstance(only, Relation) else None
        self._document = self._load("document", [document]) if document else []
        # Their tables are declared when they are first used, which the authorizer would deny.
        self._connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        functions: dict[str, Callable[[object, object], int | str | None]] = {
            "matches": self._matches,
            "part": self._part,
            "regexp": lambda pattern, text: self._matches(text, pattern),
        }
        for name, function in functions.items():
            self._connection.create_function(name, 2, function, deterministic=True)
        self._connection.set_authorizer(self._authorized)

    def _loaded(self, table: str, relation: Relation | Lines | Cells) -> list[Column]:
        if isinstance(relation, Relation):
            return self._load(table, relation.rows)
        columns = relation.columns()
        if isinstance(relation, Cells):
            names = zip(relation.types, columns, strict=True)
            self._notes |= {
                column.name: relation.notes[name] for name, column in names if name in relation.notes
            }
        definitions = [
            f"{quoted(one.name)} {relation.affinities[kind]}" for one in columns for kind in one.types
        ]
        self._create(table, definitions, relation.rows())
        return columns

    def _load(self, table: str, rows: list[Row]) -> list[Column]:
        columns = columns_of(rows) or [Column("value", ("value",), frozenset())]
        shown, more = columns, columns[MOST_COLUMNS - 1 :]
        if len(columns) > MOST_COLUMNS:
            shown = [*columns[: MOST_COLUMNS - 1], Column(MORE, (), frozenset())]
        fields = [_field(column, rows) for column in shown if column.keys]
        self._notes |= {field.name: field.note for field in fields if field.note}
        definitions = [f"{quoted(field.name)} {field.affinity}" for field in fields]
        readers = [field.read for field in fields]
        if len(shown) < len(columns):
            definitions.append(quoted(MORE))
            others = {column.keys: column.name for column in more}
            readers.append(lambda row: _others(row, others))
        rows.reverse()
        self._create(table, definitions, ([read(row) for read in readers] for row in _taken(rows)))
        return shown

    def _create(self, table: str, definitions: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Creates the table. There is a definition for each cell of a row."""
        marks = ", ".join("?" * len(definitions))
        self._connection.execute(f"CREATE TABLE {table} ({', '.join(definitions)})")
        self._connection.execute("BEGIN")
        self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
        self._connection.execute("COMMIT")

    @property
    def names(self) -> list[str]:
        return [column.name for column in self._columns]

    def select(self, sql: str) -> Selected:
        """Names that need quotes get them: nested ones, and words of SQL. Raises BadQuery and UnknownName."""
        if len(sql) > MAX_EXPRESSION_CHARS:
            raise BadQuery(f"The query has more than {MAX_EXPRESSION_CHARS:,} characters.")
        if "\0" in sql:
            raise BadQuery("The query holds a null character.")
        sql = _requoted(str(without_surrogates(sql)))
        for _ in range(_MOST_REPAIRS):
            try:
                cursor = self._execute(sql)
            except (sqlite3.Error, sqlite3.Warning) as error:
                if (repaired := self._repaired(sql, str(error))) is None:
                    raise self._explained(sql, str(error)) from None
                sql = repaired
            else:
                names = (name for name, *_ in cursor.description)
                columns = [name if name in self.names else name.replace("`", '"') for name in names]
                return Selected(unique(columns), self._fetched(sql, cursor))
        raise BadQuery("The query cannot be read.")

    def _matches(self, text: object, pattern: object) -> int | None:
        """The SQL function that tells whether an RE2 pattern matches."""
        return None if text is None or pattern is None else int(bool(self._spans(text, pattern)))

    def _part(self, text: object, pattern: object) -> str | None:
        """The SQL function for the first group that a pattern finds, all that it finds if it has none."""
        if text is None or pattern is None or not (spans := self._spans(text, pattern)):
            return None
        start, end = spans[min(1, len(spans) - 1)]
        return _encoded(text)[start:end].decode("utf-8", "replace") if start >= 0 else None

    def _spans(self, text: object, pattern: object) -> list[tuple[int, int]]:
        try:
            return _matcher(str(pattern))(_encoded(text))
        except BadPattern as error:
            self._bad_pattern = error
            raise

    def _execute(self, sql: str) -> sqlite3.Cursor:
        self._denied, self._bad_pattern = "", None
        self._sql = sql
        self._read.clear()
        return self._connection.execute(sql)

    def _fetched(self, sql: str, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        try:
            yield from cursor
        except sqlite3.Error as error:
            raise self._explained(sql, str(error)) from None

    def _authorized(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_READ if first in self._columns_of or first in _TABLES or not second:
                # The name of no column: only the number of rows is read, also those of a query in WITH.
                if first and second and first in self._columns_of:
                    self._read[second] = first
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_FUNCTION if (second or "").lower() in _FUNCTIONS:
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_READ:
                self._denied = self._denied or "table"
            case sqlite3.SQLITE_FUNCTION:
                self._denied = self._denied or "function"
            case _:
                self._denied = self._denied or "statement"
        return sqlite3.SQLITE_DENY

    def _repaired(self, sql: str, error: str) -> str | None:
        if match := re.fullmatch(r"no such column: (.+)", error, re.DOTALL):
            return self._resolved(sql, match[1])
        match = re.fullmatch(r'near "(.+)": syntax error', error, re.DOTALL)
        word = match[1].lower() if match else ""
        if match is None or word not in RESERVED or word not in map(str.lower, self.names):
            return None
        at = self._place(sql, match[1])
        return f"{sql[: at[0]]}`{match[1]}`{sql[at[1] :]}" if at else None

    def _resolved(self, sql: str, name: str) -> str | None:
        """The statement with the name of a nested column as SQLite takes it; None if there is no such
        column."""
        by_name = {column.name.lower(): column for column in (*self._document, *self._columns)}
        parts = name.split(".")
        for start in (0, 1):
            for end in range(len(parts), start, -1):
                column = by_name.get(".".join(parts[start:end]).lower())
                if column and end - start > 1:
                    inner = "".join(f'."{part}"' for part in parts[end:])
                    own = ".".join([*parts[:start], _backticked(column.name)])
                    inner = text_of(f"${inner}") if inner else ""
                    return _replaced(sql, parts, f"json_extract({own}, {inner})" if inner else own)
        outer = parts[-1].lower()
        members = [
            column
            for column in self._columns
            if len(column.keys) > 1 and plain_name(column.keys[0]).lower() == outer
        ]
        if not members or outer in by_name or len(self._columns) >= MOST_COLUMNS or len(self._columns_of) > 1:
            return None
        self._add_outer(members)
        return sql

    def _add_outer(self, members: list[Column]) -> None:
        """Adds the column of the objects whose members have columns."""
        name = plain_name(members[0].keys[0])
        pairs = ", ".join(
            f"{text_of(plain_name(member.keys[1]))}, {_as_json(member.name)}" for member in members
        )
        self._connection.set_authorizer(None)
        self._connection.execute(
            f"ALTER TABLE data ADD COLUMN {quoted(name)} GENERATED ALWAYS AS (json_object({pairs})) VIRTUAL"
        )
        self._connection.set_authorizer(self._authorized)
        self._columns.append(Column(name, (name,), frozenset()))

    def _place(self, sql: str, token: str) -> tuple[int, int] | None:
        """The span of the token at which the statement cannot be read on."""
        denied = self._denied
        for match in _TOKEN.finditer(sql):
            if match[0].lower() == token.lower():
                try:
                    self._connection.execute(f"EXPLAIN {sql[: match.end()]}")
                except (sqlite3.Error, sqlite3.Warning) as error:
                    if str(error).startswith("near "):
                        return match.span()
                finally:
                    self._denied = denied
        return None

    def _explained(self, sql: str, error: str) -> BadQuery | UnknownName:
        if self._bad_pattern:
            return BadQuery(self._bad_pattern.detail)
        kind, _, name = error.partition(": ")
        if kind == "no such column":
            return UnknownName(self._absent(sql, name))
        if kind == "no such table" or self._denied == "table":
            *others, last = self._columns_of
            where = f"tables {', '.join(others)} and {last}" if others else "table data"
            return UnknownName(f"The rows are in the {where}. {self.all_columns()}")
        if kind == "no such function" or self._denied == "function":
            return BadQuery(_NO_FUNCTION)
        if self._denied or "one statement" in error:
            return BadQuery(ONLY_READS)
        if match := re.fullmatch(r'(?:near|unrecognized token:) "(.+)"(?:: syntax error)?', error, re.DOTALL):
            at = self._place(sql, match[1])
            near = " ".join((*sql[: at[0]].split()[-_WORDS_BEFORE:], sql[at[0] :])) if at else match[1]
            return BadQuery("The query is not SQL as SQLite reads it.", near.replace("`", '"'))
        if error == "incomplete input":
            return BadQuery("The query is not SQL as SQLite reads it: something is missing at its end.")
        if "malformed JSON" in error:
            return BadQuery(
                "A value that a JSON function reads is not JSON: leave it out with WHERE json_valid(…)."
            )
        # What follows a colon or is in quotes may repeat the query.
        reason = re.sub(r"""\s*(?::.*|".*"|'.*')""", "", error, flags=re.DOTALL)
        return BadQuery(f"SQLite cannot run the query: {reason}.")

    def _absent(self, sql: str, name: str) -> str:
        last = name.rpartition(".")[2].lower()
        names = self.names
        nested = [one for one in names if one.lower().endswith(f".{last}")]
        close = difflib.get_close_matches(last, [one.lower() for one in names], n=1, cutoff=0.5)
        near = nested or [one for one in names if one.lower() in close]
        text = f"No column is named {spelled(clip(name, 60))}."
        if near:
            text += f" The nearest is {spelled(near[0])}."
        elif _backticked(name) in sql:
            text += " A text is written in single quotes."
        return f"{text} {self.all_columns()}"

    def all_columns(self) -> str:
        most = _NAMES_CHARS // len(self._columns_of)
        columns = {"data": self._columns} if len(self._columns_of) == 1 else self._columns_of
        text = " ".join(
            f"Columns of {table}: {listed([spelled(column.name) for column in of_table], most)}."
            for table, of_table in columns.items()
        )
        if self._document:
            names = listed([spelled(column.name) for column in self._document], _NAMES_CHARS)
            text += f" Columns of document, which has one row: {names}."
        return text

    def about_rows(self) -> str:
        """The place of the rows in the data where they are not all of it, and how the numbers are read that
        are not written plainly, of the columns that the last query read."""
        place = f"data is {self.path}; document is the object around it." if self.path else ""
        return " ".join(filter(None, (place, *self._forms_read())))

    def _forms_read(self) -> list[str]:
        noted = [name for name in self._read if name in self._notes][:_HINT_COLUMNS]
        return [f"{spelled(name)} is read as numbers: {self._notes[name]}." for name in noted]

    def why_empty(self) -> str:
        """How many rows there are before an offset that is past them, else the most frequent values of the
        columns that the last query read; and all columns."""
        if past := self._past_last():
            return past
        ends = time.process_time() + _HINT_SECONDS
        read = [name for name in self._read if name in self.names][:_HINT_COLUMNS]
        sentences = [
            f"{spelled(name)} has {values}."
            for name in read
            if time.process_time() < ends and (values := self._frequent(name))
        ]
        return " ".join((*sentences, *self._forms_read(), self.all_columns()))

    def _past_last(self) -> str:
        page = _PAGE.search(self._sql)
        if page is None:
            return ""
        counting = f"SELECT count(*) FROM ({self._sql[: page.start()]})"  # noqa: S608
        with suppress(sqlite3.Error):
            ((count,),) = self._connection.execute(counting)
            return f"{count_of(count, 'row')}: offset {int(page[1]):,} is past the last." if count else ""
        return ""

    def _frequent(self, name: str) -> str:
        column, table = quoted(name), self._read[name]
        counted = self._connection.execute(
            f"SELECT {column}, count(*) FROM {table} GROUP BY 1 ORDER BY 2 DESC"  # noqa: S608
        ).fetchmany(_HINT_VALUES + 1)
        if not counted or (counted[0][1] < 2 and len(counted) > _HINT_VALUES):
            return ""
        texts = [
            f"{'null' if value is None else clip(str(value), 40) or '(blank)'} ({count:,})"
            for value, count in counted[:_HINT_VALUES]
        ]
        return ", ".join(texts) + (", …" if len(counted) > _HINT_VALUES else "")


class _Field(NamedTuple):
    """A column as SQLite keeps it. `read` takes its cell from a row."""

    name: str
    affinity: str
    read: Callable[[Row], object]
    note: str = ""


def _field(column: Column, rows: list[Row]) -> _Field:
    """Numbers are compared as numbers also where they are texts, such as "12.50": in all cells of a column,
    and so that no two of them become one."""
    types = column.types - {type(None)}
    read = column.read
    if types <= {int, float, bool}:
        is_large = int in types and any(
            type(cell) is int and cell not in _INTEGERS for cell in map(read, rows)
        )
        return (
            _Field(column.name, "", lambda row: _bounded(read(row)))
            if is_large
            else _Field(column.name, "NUMERIC", read)
        )
    if types == {str}:
        if _are_numbers(filter(None, map(read, rows))):
            return _Field(column.name, "NUMERIC", lambda row: read(row) or None)
        numbers = numbers_in(map(read, rows))
        if numbers and (
            numbers.written or _are_numbers(filterfalse(stands_for_none, filter(None, map(read, rows))))
        ):
            form = numbers.form
            return _Field(column.name, "NUMERIC", lambda row: form.read(read(row) or ""), numbers.note)
        if all(map(_is_encodable, map(read, rows))):
            return _Field(column.name, "TEXT", read)
        return _Field(column.name, "TEXT", lambda row: without_surrogates(read(row)))
    return _Field(column.name, "", lambda row: without_surrogates(_bounded(read(row))))


def _others(row: Row, names: dict[tuple[str, ...], str]) -> Row | None:
    """The cells of these columns that the row has, by the names of the columns."""
    others: Row = {}
    for key, item in row.items():
        if name := names.get((key,)):
            others[name] = item
        elif isinstance(item, dict):
            others |= {name: cell for inner, cell in item.items() if (name := names.get((key, inner)))}
    return others or None


def _taken(rows: list[Row]) -> Iterator[Row]:
    while rows:
        yield rows.pop()


def _bounded(cell: object) -> object:
    """SQLite has integers of 64 bits: a larger one is a text."""
    return str(cell) if type(cell) is int and cell not in _INTEGERS else cell


def _is_encodable(text: str | None) -> bool:
    if text is None or text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _are_numbers(texts: Iterable[str]) -> bool:
    """True if all are numbers, as programs write them, and no two are one number in two forms."""
    decimals: set[int] = set()
    ends_in_zero = False
    for text in texts:
        match = _NUMBER.fullmatch(text)
        if match is None or len(text) > (_NUMBER_CHARS if match[1] else _INTEGER_CHARS):
            return False
        decimals.add(len(match[1] or ""))
        ends_in_zero = ends_in_zero or bool(match[1] and text.endswith("0"))
    return bool(decimals) and (len(decimals) == 1 or not ends_in_zero)


def _encoded(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")


def json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(value)).decode()


def _as_json(name: str) -> str:
    """The expression of a column's cell within a JSON object."""
    cell = quoted(name)
    is_json = f"substr({cell}, 1, 1) IN ('{{', '[') AND json_valid({cell})"
    return f"CASE WHEN {is_json} THEN json({cell}) ELSE {cell} END"


def _backticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _requoted(sql: str) -> str:
    """The statement with backticks in place of double quotes: a name in double quotes that is no column would
    be a text for SQLite."""

    def requoted(token: re.Match[str]) -> str:
        text = token[0]
        return _backticked(text[1:-1].replace('""', '"')) if len(text) > 1 and text[0] == '"' else text

    return _TOKEN.sub(requoted, sql)


def _replaced(sql: str, parts: list[str], new: str) -> str | None:
    """The statement with each name of these parts, joined by dots, replaced; None if it has none."""
    names = [f"(?:{re.escape(part)}|{re.escape(_backticked(part))})" for part in parts]
    dotted = r"(?<![\w.`])" + r"\s*\.\s*".join(names) + r"(?![\w`])"
    # What stands in a text is no name.
    replaced = re.sub(rf"('(?:[^']|'')*')|{dotted}", lambda one: one[1] or new, sql, flags=re.IGNORECASE)
    return replaced if replaced != sql else None
