"""The process of one query: reads the query and the data from stdin, writes the answer to stdout, and ends.

The kernel bounds its memory and its CPU time, and kills it when its service ends.
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
from contextlib import closing

import msgspec

from content.jmespath import Expression
from content.kind import Kind
from content.sql import ONLY_READS, Database, UnknownName, is_other_statement, is_sql
from content.values import as_table, read_rows, read_value
from domain.errors import BadQuery, InvalidField, NotQueryable, QueryTooCostly
from extraction.queries import TOO_LARGE, Query, QueryAnswer, RefusedQuery, rows_slice, slice_of

MEMORY_BYTES = 320 << 20
READ_SECONDS = 12
EVALUATE_SECONDS = 2
_NICER = 10
_PR_SET_PDEATHSIG = 1


def answer(query: Query, read: Callable[..., bytes]) -> QueryAnswer:
    """`read` takes a number of bytes, or all. Raises BadQuery, NotQueryable, QueryTooCostly, MemoryError."""
    if is_sql(query.expression):
        kind, values = _values(query, read)
        return _selected(query, kind, values)
    if query.several:
        raise BadQuery("Over several results only SQL runs: SELECT … FROM data1, data2, ….")
    if is_other_statement(query.expression):
        raise BadQuery(ONLY_READS)
    expression = Expression(query.expression)
    # The data has no name here, so that read_value can free it.
    kind, value = read_value(read(), query.tool_name, query.path)
    rows = as_table(value)
    _bound(resource.RLIMIT_CPU, math.floor(time.process_time()) + EVALUATE_SECONDS)
    result = expression.evaluate(rows)
    # An expression may name the members that the JSON has, and not the columns.
    if rows is not value and _is_empty(result) and not _is_empty(found := expression.evaluate(value)):
        result = found
    hint = expression.why_empty(rows) if _is_empty(result) else ""
    return QueryAnswer(kind, slice_of(result, query.limit, query.offset, query.max_bytes), hint)


def _values(query: Query, read: Callable[..., bytes]) -> tuple[Kind, list[object]]:
    if not query.several:
        kind, value = read_rows(read(), query.tool_name, query.path)
        return kind, [value]
    kind, values = Kind.JSON, list[object]()
    for number, part in enumerate(query.several, 1):
        data = read(part.size)
        try:
            kind, value = read_rows(data, part.tool_name, part.path)
        except NotQueryable as error:
            raise NotQueryable(f"data{number}: {error.detail}") from None
        values.append(value)
    return kind, values


def _selected(query: Query, kind: Kind, values: list[object]) -> QueryAnswer:
    try:
        opened = Database(*values)
    except RecursionError:
        raise NotQueryable("The result is nested too deeply for SQL. Use `lines` or `pattern`.") from None
    with closing(opened) as database:
        return _rows(query, kind, database)


def _rows(query: Query, kind: Kind, database: Database) -> QueryAnswer:
    _bound(resource.RLIMIT_CPU, math.floor(time.process_time()) + EVALUATE_SECONDS)
    try:
        columns, rows = database.select(query.expression)
    except UnknownName as error:
        return QueryAnswer(kind, rows_slice([], [], query), str(error))
    part = rows_slice(columns, rows, query)
    if part.total:
        return QueryAnswer(kind, part, database.about_rows())
    # What the query took is no reason to leave its hint out.
    _bound(resource.RLIMIT_CPU, math.floor(time.process_time()) + EVALUATE_SECONDS)
    return QueryAnswer(kind, part, database.why_empty())


def _is_empty(result: object) -> bool:
    return result is None or result == []


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


def _confine() -> None:
    # macOS refuses this limit: there only the cap on the size of the data holds.
    if sys.platform != "darwin":
        _bound(resource.RLIMIT_AS, MEMORY_BYTES)
    _bound(resource.RLIMIT_CPU, READ_SECONDS)
    # A core file would hold the data.
    _bound(resource.RLIMIT_CORE, 0)
    os.nice(_NICER)
    # What is read lives as long as the process.
    gc.disable()


def _reply(query: Query) -> QueryAnswer | RefusedQuery:
    try:
        return answer(query, sys.stdin.buffer.read)
    except MemoryError:
        return RefusedQuery(QueryTooCostly.code, TOO_LARGE)
    except BadQuery as error:
        return RefusedQuery(error.code, error.detail, error.near)
    except InvalidField as error:
        return RefusedQuery(error.code, error.detail)


def main() -> None:
    _end_with(int(sys.argv[1]))
    _confine()
    query = msgspec.json.decode(sys.stdin.buffer.readline(), type=Query)
    sys.stdout.buffer.write(msgspec.json.encode(_reply(query)))


if __name__ == "__main__":
    main()
