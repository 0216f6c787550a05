"""Executes one call of a model's tool: one text for the model, within the size cap, charged and accounted."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from app.answering.extractor import Requirements, extract
from app.answering.reading import (
    NO_VALUE,
    UNCAPPED_BYTES,
    keep_words,
    open_subject,
    path_of,
    query_text,
    run_query,
    scan,
    session_in_any_case,
)
from app.answering.session_reads import reachable_handle, reads_of
from app.answering.tool_arguments import MOST_LINES, LineRange, LinesAsked, ToolQuestion, question
from app.answering.tool_definitions import (
    TOOLS,
    AskArguments,
    GrepArguments,
    QueryArguments,
    Tool,
    called_tool,
    offered_tools,
)
from app.answering.tool_text import Reading, ToolText
from app.runtime import Runtime
from content import model_text
from content.grep import Grep
from content.lines import LastLines, LinePager
from content.text import clip, cut_head
from domain.accounting import EntryStatus
from domain.budget import Session
from domain.errors import BadPattern, Gone, InvalidField, NotFound, ResultNotFound
from domain.extraction import Question
from domain.handles import MOST_HANDLES, Handle, SessionKey, cut_off, split_handles
from extraction.query_terms import DataQuery, QueriedResult
from extraction.task import frame_failure
from policies.policy import Offer

_MOST_ITEMS = 1000
_BETWEEN = "\n\n"


async def call_tool(key: SessionKey, name: str, arguments: object, rt: Runtime) -> ToolText:
    """Executes a call. A mistake that the model can correct becomes a text with `is_error`. Raises
    StorageError, Overloaded, TooManySessions and Conflict."""
    session = await session_in_any_case(key, rt)
    key = session.key if session else key
    policy = rt.policies.policy("", session.policy if session else None)
    handles: list[str] = []
    try:
        tool = called_tool(name, policy)
        if tool is None:
            names = ", ".join(one.name for one in offered_tools(policy))
            raise NotFound(f"There is no such tool here. There is {names or 'none'}.")
        asked = question(tool, arguments)
        call = _Call(rt, key, tool, asked, _words(arguments))
        handles = split_handles(asked.handle)
        if len(handles) > 1:
            return await _several(call, handles, policy.max_bytes or UNCAPPED_BYTES)
        return await _one(call.about(handles[0]))
    except (NotFound, Gone, InvalidField) as error:
        rt.observer.told(error, handles)
        return ToolText(error.detail, is_error=True)


def _words(arguments: object) -> str:
    """A question that a person reads, such as `pattern = "ERROR"`. `arguments` were understood before."""
    value = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    members = value.items() if isinstance(value, dict) else ()
    asked = (one for one in members if one[0] != "handle" and one[1] not in ("", None))
    return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in asked)


class _Call(NamedTuple):
    """A call of a tool by the model of a session. `words`: the question as a person reads it."""

    rt: Runtime
    key: SessionKey
    tool: Tool
    asked: ToolQuestion
    words: str

    async def reading(self, handle: str, most_bytes: int | None = None) -> Reading:
        """Raises NotFound, Gone."""
        rt, key = self.rt, self.key
        subject = await open_subject(rt, key.tenant, await reachable_handle(rt, key, handle), key)
        return Reading(rt, subject, self.tool, str(self.asked), most_bytes)

    def about(self, handle: str) -> "_Call":
        return self._replace(asked=msgspec.structs.replace(self.asked, handle=handle))

    async def answered(self, reading: Reading, make: Callable[[int], Awaitable[str]]) -> ToolText:
        text = await reading.answered(make)
        if text.entry_id is not None:
            keep_words(self.rt, reading.subject, text.entry_id, self.words)
        return text


async def _one(call: _Call, most_bytes: int | None = None, *, is_headed: bool = False) -> ToolText:
    """`most_bytes`: of the answer, if they are fewer than the cap. `is_headed`: it begins with the handle.
    Raises NotFound, Gone, InvalidField."""
    asked = call.asked
    if isinstance(asked, AskArguments):
        call.rt.observer.asked(None)
        return await _ask(call.rt, call.key, asked, most_bytes)
    reading = await call.reading(asked.handle, most_bytes)
    make = partial(_TEXTS[type(asked)], reading, asked)
    return await call.answered(reading, partial(_headed, reading, make) if is_headed else make)


async def _headed(reading: Reading, make: Callable[[int], Awaitable[str]], max_bytes: int) -> str:
    head = f"{reading.stored.handle} ({reading.stored.tool_name}):\n"
    return head + await make(max(max_bytes - len(head.encode()), 1))


async def _several(call: _Call, handles: list[str], most_bytes: int) -> ToolText:
    """Returns one answer about several results, as large as an answer about one result: `most_bytes`. Each
    part names its result, is charged, and is accounted as a question about that result."""
    asked = call.asked
    if len(handles) > MOST_HANDLES:
        raise InvalidField(f"One call asks about at most {MOST_HANDLES} results. Give fewer handles.")
    if isinstance(asked, LinesAsked):
        raise InvalidField("`lines` are those of one result. Give one handle.")
    if isinstance(asked, QueryArguments):
        return await _query_several(call, asked, handles)
    if isinstance(asked, GrepArguments):
        try:
            Grep(asked.pattern)
        except BadPattern as error:
            # The advice stands once in the answer, not once for each result.
            raise InvalidField(error.detail) from None
    share = most_bytes // len(handles) - len(_BETWEEN)

    async def part(handle: str) -> ToolText:
        try:
            return await _one(call.about(handle), share, is_headed=True)
        except (NotFound, Gone) as error:
            call.rt.observer.told(error, [handle])
            told = clip(f"{handle}: {error.detail}", share)
            return ToolText(cut_head(told.encode(), share).decode(), is_error=True)

    tasks = [asyncio.create_task(part(handle)) for handle in handles]
    try:
        parts = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    entry_ids = (one.entry_id for one in parts if one.entry_id is not None)
    is_error = all(one.is_error for one in parts)
    return ToolText(_BETWEEN.join(one.text for one in parts), is_error, next(entry_ids, None))


async def _query_several(call: _Call, asked: QueryArguments, handles: list[str]) -> ToolText:
    """SQL over the tables data1, data2 and so on. It is charged and accounted as a question about the first
    result."""
    readings = [await call.reading(handle) for handle in handles]
    tables = "".join(
        f"data{number}: {one.stored.handle} ({one.stored.tool_name})\n"
        for number, one in enumerate(readings, 1)
    )

    async def make(max_bytes: int) -> str:
        room = max(max_bytes - len(tables.encode()), max_bytes // 2)
        return tables + await _query(readings[0], asked, room, readings)

    return await call.answered(readings[0], make)


async def tools_of_session(key: SessionKey, rt: Runtime, *, is_storing: bool = False) -> list[Tool]:
    """The tools that its model is given: none while nothing is stored, or when its budget is exhausted.
    `is_storing`: the caller knew up to an hour ago that something is stored; nothing is counted, and the
    tools are offered also if it was deleted since. To count takes 10 µs for each result, 2 ms for the 200
    results of a gateway's history."""
    session = await rt.ledger.session(key)
    if not is_storing and not await _has_results(key, session, rt):
        return []
    if session is not None:
        model = await rt.known_models.of_session(session.model)
        if session.budget(model.window, model.enforce).exhausted:
            return []
    return offered_tools(rt.policies.policy("", session.policy if session else None))


async def _has_results(key: SessionKey, session: Session | None, rt: Runtime) -> bool:
    """Returns whether the session, or a session that it may read, has a stored result."""
    if await rt.store.count_results([key]) != [0]:
        return True
    others = await reads_of(rt, session) if session is not None else []
    keys = [SessionKey(key.tenant, other) for other in others]
    return bool(keys) and any(await rt.store.count_results(keys))


async def read_lines(key: SessionKey, handle: str, offset: int, rt: Runtime) -> ToolText:
    """Returns lines from line `offset` on, as many as fit in an answer. Raises NotFound, Gone, StorageError,
    Overloaded, TooManySessions and Conflict."""
    tool = TOOLS[Offer.LINES]
    asked = LinesAsked(handle, (LineRange(offset, MOST_LINES),))
    reading = await _Call(rt, key, tool, asked, "").reading(handle)
    return await reading.answered(partial(_lines, reading, asked, onward="offset = {}".format))


async def _ask(rt: Runtime, key: SessionKey, arguments: AskArguments, most_bytes: int | None) -> ToolText:
    ends = asyncio.get_running_loop().time() + rt.settings.extract_deadline_ms / 1000
    handle: Handle | None = None
    try:
        if reason := cut_off(arguments.handle):
            raise ResultNotFound(reason)
        handle = await reachable_handle(rt, key, arguments.handle)
        question = Question(handle, arguments.extract, arguments.mode)
        required = Requirements(ends, reader=key, most_bytes=most_bytes)
        extracted = await extract(key.tenant, question, required, rt)
    except (NotFound, Gone) as error:
        if most_bytes is not None:
            raise
        rt.observer.told(error, [arguments.handle])
        text = frame_failure("unknown", str(handle or clip(arguments.handle)), arguments.mode, error.detail)
        return ToolText(text, is_error=True)
    return ToolText(extracted.text, extracted.entry.status is EntryStatus.FAILED, extracted.entry.id)


async def _lines(
    reading: Reading, asked: LinesAsked, max_bytes: int, *, onward: Callable[[int], str] | None = None
) -> str:
    """Returns the ranges one after the other. Each range gets an equal share of the room that is left."""
    texts: list[str] = []
    left = max_bytes
    for place, wanted in enumerate(asked.ranges):
        texts.append(await _range(reading, wanted, left // (len(asked.ranges) - place), onward))
        left -= len(texts[-1].encode()) + 1
    return "\n".join(texts)


async def _range(
    reading: Reading, wanted: LineRange, max_bytes: int, onward: Callable[[int], str] | None
) -> str:
    most = max(max_bytes - model_text.LINE_ROOM, max_bytes // 2)
    scanner = (
        LastLines(wanted.most, most) if wanted.first is None else LinePager(wanted.first, wanted.most, most)
    )
    page = await scan(reading.rt, reading.shown, scanner, greppable=reading.shown.needs_view)

    def as_many(first: int) -> str:
        last = first + max(len(page.lines), 40) - 1
        return f'lines = "{first}-{min(last, page.total_lines)}"'

    return model_text.lines_text(page, wanted.first or 1, max_bytes, onward or as_many)


async def _query(
    reading: Reading, arguments: QueryArguments, max_bytes: int, several: Sequence[Reading] = ()
) -> str:
    """`several`: the results that are queried together, `reading` the first of them."""
    rt, stored = reading.rt, reading.shown.result
    max_bytes = min(max_bytes, 2 * reading.usual_bytes)
    room = model_text.room_of(max_bytes)
    shown = [one.shown for one in several or (reading,)]
    parts = tuple(
        QueriedResult(one.result.measure.bytes, one.result.tool_name, path_of(one.result)) for one in shown
    )
    query = DataQuery(
        arguments.query,
        room,
        stored.tool_name,
        _MOST_ITEMS,
        path=path_of(stored),
        has_arrays=True,
        several=parts if several else (),
    )
    answer = await run_query(rt, shown, query)
    reading.found_nothing = bytes(answer.slice.result).decode() in NO_VALUE
    return query_text(query, answer, room)


async def _search(reading: Reading, arguments: GrepArguments, max_bytes: int) -> str:
    # With the formats of text, which it looks for, a twentieth of the start (bench/README.md, start).
    from app.answering.tool_search import search

    return await search(reading, arguments, max_bytes)


_TEXTS: dict[type, Callable[..., Awaitable[str]]] = {
    GrepArguments: _search,
    LinesAsked: _lines,
    QueryArguments: _query,
}
