"""The process of one query: reads what is asked and the data from stdin, answers on stdout, and ends.

It is bounded by the kernel in memory and in CPU time, so that no data and no expression can hold up, fill or
end the service. Past its memory it still says so; past its time it is ended by a signal.
"""

import gc
import math
import os
import resource
import sys
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from content.kinds import Kind
from content.query import Query
from content.questions import structured_question
from content.record_keys import keys_of
from content.slices import Slice, slice_of
from content.values import read_value
from domain.errors import InvalidField, QueryTooCostly

MEMORY_BYTES = 320 << 20
READ_SECONDS = 6
EVALUATE_SECONDS = 2
_NICER = 10
_NAME_CHARS = 80
_NAME_WORDS = 5
_MOST_COLUMNS = 20

TOO_LARGE = "The query takes more memory than it has: the data, or what the expression makes, is too large."


class Asked(Struct, frozen=True):
    """`expression`, or an `instruction` in words; `max_bytes` of JSON come back."""

    max_bytes: int
    expression: str = ""
    instruction: str = ""
    tool_name: str = ""
    limit: int = 100
    offset: int = 0


class Found(Struct, frozen=True):
    """The expression that was evaluated, and what it gave; of a table that was asked in words its first
    `columns`."""

    kind: Kind
    expression: str
    slice: Slice
    columns: tuple[str, ...] = ()


class Refused(Struct, frozen=True):
    code: str
    detail: str


class Told(Struct, frozen=True):
    """Neither, where the instruction is no plain question about this data."""

    found: Found | None = None
    refused: Refused | None = None


def answer(asked: Asked, read: Callable[[], bytes]) -> Found | None:
    """None for an instruction that is no plain question about this data. Raises InvalidField, its children,
    and MemoryError."""
    query = Query(asked.expression) if asked.expression or not asked.instruction else None
    kind, value = read_value(read(), asked.tool_name)
    columns = () if query or kind is not Kind.CSV else _columns(value)
    expression = asked.expression if query else _expression(asked.instruction, value)
    if expression is None or not all(map(_is_name, columns)):
        return None
    _bound(resource.RLIMIT_CPU, math.floor(time.process_time()) + EVALUATE_SECONDS)
    result = (query or Query(expression)).evaluate(value)
    if not query and not result:
        # It may be asked in other letters than the data has: that nothing is found is for others to say.
        return None
    part = slice_of(result, asked.limit, asked.offset, asked.max_bytes)
    return Found(kind, expression, part, columns[:_MOST_COLUMNS])


def _columns(rows: object) -> tuple[str, ...]:
    return tuple(rows[0]) if isinstance(rows, list) and rows else ()


def _is_name(column: str) -> bool:
    """False for a sentence: then lines of prose were taken for rows, and the first of them for a header."""
    return len(column) <= _NAME_CHARS and len(column.split()) <= _NAME_WORDS


def _expression(instruction: str, value: object) -> str | None:
    keys = keys_of(value)
    return None if keys is None else structured_question(instruction, keys)


def _bound(kind: int, most: int) -> None:
    """The lesser of ours and what this process was given itself."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _confine() -> None:
    # macOS refuses this one: there the cap on the data has to do.
    if sys.platform != "darwin":
        _bound(resource.RLIMIT_AS, MEMORY_BYTES)
    _bound(resource.RLIMIT_CPU, READ_SECONDS)
    # What SIGXCPU would leave on disk holds the data.
    _bound(resource.RLIMIT_CORE, 0)
    os.nice(_NICER)
    # What is read lives as long as the process.
    gc.disable()


def _told(asked: Asked) -> Told:
    try:
        return Told(found=answer(asked, sys.stdin.buffer.read))
    except MemoryError:
        return Told(refused=Refused(QueryTooCostly.code, TOO_LARGE))
    except InvalidField as error:
        return Told(refused=Refused(error.code, error.detail))


def main() -> None:
    _confine()
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=Asked)
    sys.stdout.buffer.write(msgspec.json.encode(_told(asked)))


if __name__ == "__main__":
    main()
