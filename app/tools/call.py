"""Executes one call of a model's tool: one text for the model, within the size cap, charged and accounted."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from app.extracting.extractor import Requirements, extract
from app.operations.tracing import note_asking, note_read, note_refused
from app.reading import NO_VALUE, Subject, open_subject, path_of, scan, session_in_any_case
from app.runtime import Runtime
from app.tools.definitions import (
    TOOLS,
    Arguments,
    AskArguments,
    LinesArguments,
    QueryArguments,
    Tool,
    offered_tools,
)
from app.tools.search import search
from content import model_text
from content.greppable import needs_view
from content.lines import LinePager
from content.text import cut_head, without_surrogates
from domain.accounting import AccountingEntry, EntryStatus, EntryType
from domain.errors import BadPattern, Gone, InvalidField, NotFound, ResultNotFound
from domain.extraction import Mode, Question
from domain.handles import Handle, SessionKey, cut_off, forgiven_handle
from domain.library_errors import msgspec_rule, types_in_words
from extraction.queries import Query
from extraction.task import frame_failure

_MOST_LINES = 10_000
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
    """One stored result that is read back for a model."""

    def __init__(self, rt: Runtime, subject: Subject, call: str) -> None:
        """`call` is what is called, with which arguments."""
        self.rt = rt
        self.stored = subject.stored
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
    offered = offered_tools(rt.policies.policy("", session.policy if session else None))
    tool = TOOLS.get(name)
    try:
        if tool is None or tool not in offered:
            names = ", ".join(one.name for one in offered)
            raise NotFound(f"There is no such tool here. There is {names or 'none'}.")
        if tool.arguments is AskArguments:
            note_asking()
        parsed = _parsed(tool, arguments)
        if isinstance(parsed, AskArguments):
            return await _ask(rt, key, parsed)
        subject = await open_subject(rt, key.tenant, forgiven_handle(parsed.handle, key))
        reading = Reading(rt, subject, str(parsed))
        return await reading.answered(partial(_TEXTS[tool.name], reading, parsed))
    except (NotFound, Gone, InvalidField) as error:
        note_refused(error)
        return ToolText(error.detail, is_error=True)


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
    """What tool_output_lines answers from line `offset` on, as many lines as fit. Raises NotFound, Gone,
    StorageError, Overloaded, TooManySessions and Conflict."""
    arguments = LinesArguments(handle, offset, _MOST_LINES)
    subject = await open_subject(rt, key.tenant, forgiven_handle(handle, key))
    reading = Reading(rt, subject, str(arguments))
    return await reading.answered(partial(_lines, reading, arguments))


def _parsed(tool: Tool, arguments: object) -> Arguments:
    """None is no arguments, and an argument that is None is left out: some models send all that there are.
    Lone surrogates become U+FFFD. Raises InvalidField, which names arguments and repeats no value."""
    try:
        arguments = {} if arguments is None else without_surrogates(arguments)
        if isinstance(arguments, str):
            arguments = msgspec.json.decode(arguments)
        if isinstance(arguments, dict):
            arguments = {name: value for name, value in arguments.items() if value is not None}
        return msgspec.convert(arguments, type=tool.arguments, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        fields = ", ".join(tool.arguments.__struct_fields__)
        raise InvalidField(f"{tool.name} takes a JSON object with {fields}. {_broken_rule(error)}.") from None


def _broken_rule(error: msgspec.DecodeError | RecursionError) -> str:
    """msgspec's message with the argument at fault first, and types in words."""
    if isinstance(error, RecursionError):
        return "The arguments are nested too deeply"
    path, rule = msgspec_rule(str(error))
    # `mode` is the only argument that is one of a list.
    rule = (
        f"must be one of {', '.join(Mode)}" if rule.startswith("Invalid enum value") else types_in_words(rule)
    )
    return f"`{path}`: {rule}" if path else f"{rule[:1].upper()}{rule[1:]}"


async def _ask(rt: Runtime, key: SessionKey, arguments: AskArguments) -> ToolText:
    if not arguments.extract.strip():
        raise InvalidField("`extract` is empty: say what you look for.")
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


async def _lines(reading: Reading, arguments: LinesArguments, max_bytes: int) -> str:
    pager = LinePager(
        arguments.offset, arguments.limit, max(max_bytes - model_text.LINE_ROOM, max_bytes // 2)
    )
    page = await scan(reading.rt, reading.stored, pager, greppable=reading.greppable)
    return model_text.lines_text(page, arguments.offset, max_bytes)


async def _query(reading: Reading, arguments: QueryArguments, max_bytes: int) -> str:
    rt, stored = reading.rt, reading.stored
    max_bytes = min(max_bytes, 2 * reading.usual_bytes)
    room = model_text.room_of(max_bytes)
    query = Query(arguments.expression, room, stored.tool_name, _MOST_ITEMS, 0, path_of(stored))
    answer = await rt.queries.run(stored.tenant, query, stored.measure.bytes, partial(rt.store.read, stored))
    part = answer.slice
    reading.found_nothing = bytes(part.result).decode() in NO_VALUE
    if answer.hint:
        return f"{bytes(part.result).decode()}\n[Nothing is selected. {answer.hint}]"
    text = model_text.value_text(bytes(part.result))
    if part.next_offset is not None:
        text += (
            f"\n[Items 1 to {part.next_offset:,} of {part.total:,}. Go on with: … | [{part.next_offset}:]]"
        )
    elif part.truncated:
        text += "\n[Cut: select less.]"
    return text


_TEXTS: dict[str, Callable[..., Awaitable[str]]] = {
    "tool_output_grep": search,
    "tool_output_lines": _lines,
    "tool_output_query": _query,
}
