"""A question that is plainly a query over records, answered by that query."""

import textwrap

import anyio

from content.questions import read_question
from content.values import is_data
from domain.extraction import Answer, Coverage, ExtractStatus, Mode
from extraction import bodies
from extraction.query_process import Asked, Found
from extraction.task import Task

_HEAD_BYTES = 8 * 1024
_MOST_ITEMS = 10_000
_COLUMNS_CHARS = 100

# Kept free for what is said of the query; where there is little room, the half of it.
_AROUND_BYTES = 512


async def answer(task: Task) -> Answer | None:
    """None where it is no such question, the data holds no such records, or there is no time or room for the
    query: then it is better to show passages. Takes no more than half of the time that is left."""
    source = task.source
    if source.size < source.stored.measure.bytes or read_question(task.extract) is None:
        return None
    if not is_data(await source.read(0, _HEAD_BYTES), source.stored.tool_name):
        return None
    seconds = (anyio.current_effective_deadline() - anyio.current_time()) / 2
    with anyio.move_on_after(seconds):
        found = await task.queries.answer(_asked(task), source.size, source.stream)
        return None if found is None else _answer(found, task.max_bytes)
    return None


def _asked(task: Task) -> Asked:
    room = max(task.max_bytes - _AROUND_BYTES, task.max_bytes // 2)
    tool_name = task.source.stored.tool_name
    return Asked(room, instruction=task.extract, tool_name=tool_name, limit=_MOST_ITEMS)


def _answer(found: Found, max_bytes: int) -> Answer | None:
    """None where it does not fit."""
    value = found.slice
    body = (
        f"[Answered by a query over all of the data, in JMESPath: {found.expression} · "
        f"GET /results/{{handle}}/query takes others]\n"
        f"{_columns(found)}{bytes(value.result).decode()}\n"
    )
    if value.truncated:
        body += (
            f"[Cut: the first {value.next_offset} of {value.total} items; "
            f"offset={value.next_offset} in that query gives the next]\n"
        )
    if len(body.encode()) > max_bytes:
        return None
    status = ExtractStatus.PARTIAL if value.truncated else ExtractStatus.COMPLETE
    warnings = (bodies.WARNING,) if value.truncated else ()
    return Answer(body, Mode.RETRIEVE, status, Coverage(1, 1, 1.0), warnings=warnings)


def _columns(found: Found) -> str:
    """Whoever reads them sees whether a row was taken for the header."""
    named = ", ".join(found.columns)
    return f"[Columns: {textwrap.shorten(named, _COLUMNS_CHARS, placeholder=' …')}]\n" if named else ""
