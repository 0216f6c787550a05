"""The child process for queries: loads the data, then answers one query for each line of stdin.

The kernel bounds its memory and the processor time of each query, and kills it when the service ends.
"""

import ctypes
import gc
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

import msgspec

from content.source_text import SourceText
from content.values import as_table, read_value
from domain.errors import BadPattern, BadQuery, InvalidField, NotQueryable, QueryTooCostly
from extraction.query_terms import (
    LINES_ALWAYS_BYTES,
    TOO_LARGE,
    DataQuery,
    QueryAnswer,
    RefusedQuery,
    Slice,
    is_sql,
    needs_lines,
    rows_slice,
    slice_of,
)

MEMORY_BYTES = 768 << 20
READ_SECONDS = 12
EVALUATE_SECONDS = 4
EVIDENCE_SECONDS = 1
"""A query that took more processor time is not run again to show the rows that it computed from."""

_NICER = 10
_PR_SET_PDEATHSIG = 1


class Answerer:
    """Answers queries over the bytes of `read`, which returns the next n bytes, or all without an
    argument."""

    def __init__(self, read: Callable[..., bytes]) -> None:
        self._read = read
        self._queried: _SqlAnswerer | None = None

    def answer(self, query: DataQuery) -> QueryAnswer:
        """Raises BadQuery, NotQueryable, QueryTooCostly, MemoryError."""
        if is_sql(query.expression):
            if self._queried is None:
                self._queried = _SqlAnswerer(query, self._read)
            return self._queried.answer(query)
        if query.several:
            raise BadQuery("Over several results only SQL runs: SELECT … FROM data1, data2, ….")
        return _jmespath(query, self._read())


def _jmespath(query: DataQuery, data: bytes) -> QueryAnswer:
    from content.jmespath import Expression

    expression = Expression(query.expression)
    kind, value = read_value(data, query.tool_name, query.path)
    del data
    rows = as_table(value)
    _bound_time(EVALUATE_SECONDS)
    result = expression.evaluate(rows)
    # The expression may name members of the JSON instead of columns.
    if rows is not value and _is_empty(result) and not _is_empty(found := expression.evaluate(value)):
        result = found
    hint = expression.why_empty(rows) if _is_empty(result) else ""
    return QueryAnswer(kind, slice_of(result, query.limit, query.offset, query.max_bytes), hint)


class _SqlAnswerer:
    """Answers SQL over the tables of the data. Only this class imports DuckDB: JMESPath does not need it."""

    def __init__(self, query: DataQuery, read: Callable[..., bytes]) -> None:
        """Raises NotQueryable, MemoryError."""
        from extraction.query_sql import Queried
        from extraction.query_tables import Tables, confine, connect

        connection = connect()
        tables = Tables(connection)
        parts = query.several or (None,)
        for number, part in enumerate(parts, 1):
            data = read() if part is None else read(part.size)
            suffix = "" if part is None else str(number)
            has_lines = needs_lines(query.expression) or len(data) <= LINES_ALWAYS_BYTES
            source = SourceText(
                data, *((query.tool_name, query.path) if part is None else (part.tool_name, part.path))
            )
            del data
            try:
                tables.load(source, suffix, has_lines=has_lines)
            except NotQueryable as error:
                raise (NotQueryable(f"data{number}: {error.detail}") if part else error) from None
            self._kind = source.format.kind
        confine(connection)
        self._queried = Queried(connection, tables)

    def answer(self, query: DataQuery) -> QueryAnswer:
        from extraction.query_sql import UnknownName

        _bound_time(EVALUATE_SECONDS)
        began = time.process_time()
        queried = self._queried
        try:
            statement = queried.statement(query.expression)
            selected = queried.select(statement)
            part = rows_slice(selected.columns, selected.rows, query)
        except BadPattern as error:
            raise BadQuery(error.detail) from None
        except UnknownName as error:
            return QueryAnswer(self._kind, rows_slice([], [], query), str(error))
        finally:
            queried.end()
        took = time.process_time() - began
        # The hint has processor time of its own.
        _bound_time(EVALUATE_SECONDS)
        is_empty = not part.total or (statement.compared and _counts_nothing(part))
        hint = queried.why_empty(statement) if is_empty else queried.notes(statement)
        if not is_empty and part.total == 1 and took < EVIDENCE_SECONDS:
            hint = f"{queried.evidence(statement)} {hint}".strip()
        return QueryAnswer(self._kind, part, hint)


def _counts_nothing(part: Slice) -> bool:
    """True for a single row of zeros and nulls: an aggregate over no rows."""
    if part.total != 1:
        return False
    [row] = msgspec.json.decode(part.result)
    cells = row.values() if isinstance(row, dict) else row
    return not any(cells)


def _is_empty(result: object) -> bool:
    return result is None or (isinstance(result, list) and all(item is None for item in result))


def _end_with(service: int) -> None:
    """Has the kernel kill this process when the process with the id `service`, its parent, ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The service may have ended before that call.
    if os.getppid() != service:
        sys.exit(1)


def _bound(kind: int, most: int) -> None:
    """Lowers a limit to `most`, or to the hard limit that this process was given."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _bound_time(seconds: int) -> None:
    """Has the kernel end the process after `seconds` more of processor time, or up to a second more: it
    counts whole ones."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = math.ceil(time.process_time()) + seconds
    # Only the soft limit: the next query raises it again.
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def _confine() -> None:
    # macOS refuses this limit: there only the cap on the size of the data holds.
    if sys.platform != "darwin":
        _bound(resource.RLIMIT_AS, MEMORY_BYTES)
    _bound_time(READ_SECONDS)
    # A core file would hold the data.
    _bound(resource.RLIMIT_CORE, 0)
    os.nice(_NICER)
    # Garbage collection would free nothing: the data lives as long as the process.
    gc.disable()


def _reply(answerer: Answerer, query: DataQuery) -> QueryAnswer | RefusedQuery:
    try:
        return answerer.answer(query)
    except MemoryError:
        return RefusedQuery(QueryTooCostly.code, TOO_LARGE)
    except RecursionError:
        return RefusedQuery(BadQuery.code, "The query, or what it makes, is nested too deeply.")
    except BadQuery as error:
        return RefusedQuery(error.code, error.detail, error.near)
    except InvalidField as error:
        return RefusedQuery(error.code, error.detail)


def _replies() -> BinaryIO:
    """The stdout that the service reads. What a library prints goes elsewhere: DuckDB prints the progress of
    a query that takes more than two seconds."""
    replies = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return replies


def main() -> None:
    _end_with(int(sys.argv[1]))
    _confine()
    replies = _replies()
    with open(int(sys.argv[2]), "rb") as data:
        answerer = Answerer(data.read)
        while line := sys.stdin.buffer.readline():
            query = msgspec.json.decode(line, type=DataQuery)
            replies.write(msgspec.json.encode(_reply(answerer, query)) + b"\n")
            with suppress(BrokenPipeError):
                replies.flush()


if __name__ == "__main__":
    main()
