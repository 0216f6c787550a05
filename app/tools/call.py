"""Executes one call of a model's tool: one text for the model, within the size cap, charged and accounted."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from app.extracting.extractor import Requirements, extract
from app.operations.tracing import note_asking, note_read, note_refused
from app.reading import (
    NO_VALUE,
    Subject,
    keep_words,
    open_subject,
    path_of,
    query_text,
    run_query,
    scan,
    session_in_any_case,
)
from app.runtime import Runtime
from app.tools.arguments import MOST_LINES, LinesAsked, question
from app.tools.definitions import (
    TOOLS,
    AskArguments,
    GrepArguments,
    QueryArguments,
    Tool,
    called_tool,
    offered_tools,
)
from app.tools.search import search
from content import model_text
from content.greppable import needs_view
from content.lines import LastLines, LinePager
from content.text import cut_head
from domain.accounting import AccountingEntry, EntryStatus, EntryType
from domain.errors import BadPattern, Gone, InvalidField, NotFound, ResultNotFound
from domain.extraction import Question
from domain.handles import Handle, SessionKey, cut_off, forgiven_handle
from extraction.queries import Query
from extraction.task import frame_failure
from policies.facts import Offer

_MOST_ITEMS = 1000
_LEAST_BYTES = 600

_EXHAUSTED = (
    "The answer does not fit what is left of the context budget. Take the final turn, or report the "
    "context's usage and ask for less of the result."
)


@dataclass(frozen=True, slots=True)
class ToolText:
    """`text` is what the model reads. `is_error`: it says why there is no answer. `entry_id` is the id of the
    accounting's entry, None if nothing was charged."""

    text: str
    is_error: bool = False
    entry_id: str | None = None


class Reading:
    """One stored result that is read back for a model. It called `tool`, `call` is what it asked."""

    def __init__(self, rt: Runtime, subject: Subject, tool: Tool, call: str) -> None:
        self.rt = rt
        self.stored = subject.stored
        self.tool = tool
        self._subject = subject
        self._cap = subject.most_bytes
        self.usual_bytes = min(self._cap, subject.policy.max_answer_bytes)
        self._started = rt.clock()
        self.found_nothing = False
        self._call = call
        self._shown = rt.shown_texts.of(self.stored.tenant, str(self.stored.handle))
        self.shown_before = self._shown.before(call)

    @property
    def greppable(self) -> bool:
        return needs_view(self.stored.measure.bytes, self.stored.measure.lines)

    async def answered(self, make: Callable[[int], Awaitable[str]]) -> ToolText:
        """The text that `make` returns for a number of bytes, charged. It is made shorter once if the budget
        does not hold it."""
        if self._subject.is_exhausted:
            return await self._failed(_EXHAUSTED, "budget exhausted")
        try:
            text = await self._text(make, self._cap)
            entry_id, tokens = await self._reserved(text)
            if entry_id is None:
                room = await self._subject.room(self.rt, len(text.encode()), tokens)
                if room > _LEAST_BYTES:
                    text = await self._text(make, room)
                    entry_id, _ = await self._reserved(text)
        except (BadPattern, InvalidField) as error:
            note_refused(error)
            return await self._failed(error.detail, error.code)
        if entry_id is None:
            return await self._failed(_EXHAUSTED, "budget exhausted")
        self._shown.add(self._call, text)
        return ToolText(text, entry_id=entry_id)

    async def _failed(self, reason: str, error: str) -> ToolText:
        """The model reads this text too: it is charged in any case."""
        text = cut_head(reason.encode(), self._cap).decode()
        entry = replace(await self._entry(text), status=EntryStatus.FAILED, error=error)
        await self._subject.settle(self.rt, entry)
        self.rt.metrics.spent(entry.tokens_out)
        return ToolText(text, is_error=True, entry_id=entry.id)

    async def _text(self, make: Callable[[int], Awaitable[str]], max_bytes: int) -> str:
        return cut_head((await make(max_bytes)).encode(), max_bytes).decode()

    async def _reserved(self, text: str) -> tuple[str | None, int]:
        """The id of the entry, None if the budget does not hold the text; and the text's tokens."""
        entry = await self._entry(text)
        tokens = entry.tokens_out
        if await self._subject.reserve(self.rt, entry, text) is None:
            return None, tokens
        self.rt.metrics.spent(tokens)
        note_read(len(text.encode()), tokens)
        return entry.id, tokens

    async def _entry(self, text: str) -> AccountingEntry:
        tokens = await self.rt.count(text, self._subject.model.tokenizer)
        entry = self._subject.entry(self.rt, EntryType.READ, text, tokens, self._started)
        return replace(entry, details=replace(entry.details, found_nothing=self.found_nothing))


async def call_tool(key: SessionKey, name: str, arguments: object, rt: Runtime) -> ToolText:
    """A mistake that the model can correct is a text with `is_error`. Raises StorageError, Overloaded,
    TooManySessions and Conflict."""
    session = await session_in_any_case(key, rt)
    key = session.key if session else key
    policy = rt.policies.policy("", session.policy if session else None)
    try:
        tool = called_tool(name, policy)
        if tool is None:
            names = ", ".join(one.name for one in offered_tools(policy))
            raise NotFound(f"There is no such tool here. There is {names or 'none'}.")
        asked = question(tool, arguments)
        if isinstance(asked, AskArguments):
            note_asking()
            return await _ask(rt, key, asked)
        subject = await open_subject(rt, key.tenant, forgiven_handle(asked.handle, key))
        reading = Reading(rt, subject, tool, str(asked))
        read = await reading.answered(partial(_TEXTS[type(asked)], reading, asked))
        if read.entry_id is not None:
            keep_words(rt, reading.stored, read.entry_id, _words(arguments))
        return read
    except (NotFound, Gone, InvalidField) as error:
        note_refused(error)
        return ToolText(error.detail, is_error=True)


def _words(arguments: object) -> str:
    """A question that a person reads, such as `pattern = "ERROR"`. `arguments` were understood before."""
    given = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    members = given.items() if isinstance(given, dict) else ()
    asked = (one for one in members if one[0] != "handle" and one[1] not in ("", None))
    return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in asked)


async def tools_of_session(key: SessionKey, rt: Runtime, *, is_storing: bool = False) -> list[Tool]:
    """The tools that its model is given: none while nothing is stored, or when its budget is exhausted.
    `is_storing`: the caller knew up to an hour ago that something is stored; nothing is counted, and the
    tools are offered also if it was deleted since. To count takes 10 µs for each result: a fifth of the 10 ms
    that LiteLLM's history of 200 results is promised (bench/README.md)."""
    if not is_storing and await rt.store.count_results([key]) == [0]:
        return []
    session = await rt.ledger.session(key)
    if session is not None:
        model = await rt.known_models.of_session(session.model)
        if session.budget(model.window, model.enforce).exhausted:
            return []
    return offered_tools(rt.policies.policy("", session.policy if session else None))


async def read_lines(key: SessionKey, handle: str, offset: int, rt: Runtime) -> ToolText:
    """Lines from line `offset` on, as many as fit an answer. Raises NotFound, Gone, StorageError, Overloaded,
    TooManySessions and Conflict."""
    tool = TOOLS[Offer.LINES]
    asked = LinesAsked(handle, offset, MOST_LINES)
    subject = await open_subject(rt, key.tenant, forgiven_handle(handle, key))
    reading = Reading(rt, subject, tool, str(asked))
    return await reading.answered(partial(_lines, reading, asked, onward="offset = {}".format))


async def _ask(rt: Runtime, key: SessionKey, arguments: AskArguments) -> ToolText:
    if reason := cut_off(arguments.handle):
        raise ResultNotFound(reason)
    ends = asyncio.get_running_loop().time() + rt.settings.extract_deadline_ms / 1000
    handle: Handle | None = None
    try:
        handle = forgiven_handle(arguments.handle, key)
        question = Question(handle, arguments.extract, arguments.mode)
        call = f"{arguments.mode} {arguments.extract}"
        shown = rt.shown_texts.of(key.tenant, str(handle))
        required = Requirements(ends, shown_before=shown.before(call))
        extracted = await extract(key.tenant, question, required, rt)
        shown.add(call, extracted.text)
    except (NotFound, Gone) as error:
        note_refused(error)
        text = frame_failure("unknown", str(handle or "unknown"), arguments.mode, error.detail)
        return ToolText(text, is_error=True)
    return ToolText(extracted.text, extracted.entry.status is EntryStatus.FAILED, extracted.entry.id)


async def _lines(
    reading: Reading, asked: LinesAsked, max_bytes: int, *, onward: Callable[[int], str] | None = None
) -> str:
    most = max(max_bytes - model_text.LINE_ROOM, max_bytes // 2)
    scanner = LastLines(asked.most, most) if asked.first is None else LinePager(asked.first, asked.most, most)
    page = await scan(reading.rt, reading.stored, scanner, greppable=reading.greppable)

    def as_many(first: int) -> str:
        last = first + max(len(page.lines), 40) - 1
        return f'lines = "{first}-{min(last, page.total_lines)}"'

    return model_text.lines_text(page, asked.first or 1, max_bytes, onward or as_many)


async def _query(reading: Reading, arguments: QueryArguments, max_bytes: int) -> str:
    rt, stored = reading.rt, reading.stored
    max_bytes = min(max_bytes, 2 * reading.usual_bytes)
    room = model_text.room_of(max_bytes)
    query = Query(arguments.query, room, stored.tool_name, _MOST_ITEMS, path=path_of(stored), has_arrays=True)
    answer = await run_query(rt, stored, query)
    reading.found_nothing = bytes(answer.slice.result).decode() in NO_VALUE
    return query_text(query, answer, room)


_TEXTS: dict[type, Callable[..., Awaitable[str]]] = {
    GrepArguments: search,
    LinesAsked: _lines,
    QueryArguments: _query,
}
