"""Executes one call of a model's tool: one text for the model, within the size cap, charged and accounted."""

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from anyio.to_thread import run_sync

from app.extracting.extractor import Requirements, extract
from app.operations.tracing import note_asking, note_read, note_refused
from app.reading import (
    NO_VALUE,
    Subject,
    keep_words,
    open_subject,
    path_of,
    query_text,
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
from content import model_text
from content.grep import Grep, GrepPage
from content.greppable import needs_view
from content.lines import LastLines, LinePager
from content.natural_language import language_of_text, may_be_in
from content.text import clip, cut_head
from domain.accounting import AccountingEntry, EntryStatus, EntryType
from domain.errors import BadPattern, BadQuery, Gone, InvalidField, NotFound, ResultNotFound
from domain.extraction import Question
from domain.handles import Handle, SessionKey, cut_off, forgiven_handle
from extraction.queries import Query
from extraction.source import Source
from extraction.task import frame_failure
from policies.facts import Offer

if TYPE_CHECKING:  # Imported with the strategies.
    from extraction.retrieve.index import PassageIndex

_MOST_MATCHES = 1000
_MOST_ITEMS = 1000
_NEAR_CHARS = 60
_SCANNED_BYTES = 1 << 18

_NEAREST_BYTES = 8 << 20
"""In larger data no nearest words are looked for: an index of it takes a second."""

_NEAREST_WORDS = 5
_LANGUAGE_BYTES = 8 << 10

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2}")
"""A word worth looking for. Many words of Chinese, Japanese and Korean have two characters."""

_MOST_WORDS = 8
_LEAST_BYTES = 600
_NAME_END = re.compile(r'":(?! |\\s)')
"""In a pattern: the end of a name in JSON that is written without spaces."""
_ESCAPE = re.compile(r"\\[A-Za-z]")

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


class _Reading:
    """One stored result that is read back for a model. `tool` is the one that it called."""

    def __init__(self, rt: Runtime, subject: Subject, tool: Tool) -> None:
        self.rt = rt
        self.stored = subject.stored
        self.tool = tool
        self._subject = subject
        self._cap = subject.most_bytes
        self.usual_bytes = min(self._cap, subject.policy.max_answer_bytes)
        self._started = rt.clock()
        self.found_nothing = False

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
        reading = _Reading(rt, await open_subject(rt, key.tenant, forgiven_handle(asked.handle, key)), tool)
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
    reading = _Reading(rt, await open_subject(rt, key.tenant, forgiven_handle(handle, key)), tool)
    asked = LinesAsked(handle, offset, MOST_LINES)
    return await reading.answered(partial(_lines, reading, asked, onward="offset = {}".format))


async def _ask(rt: Runtime, key: SessionKey, arguments: AskArguments) -> ToolText:
    if reason := cut_off(arguments.handle):
        raise ResultNotFound(reason)
    ends = asyncio.get_running_loop().time() + rt.settings.extract_deadline_ms / 1000
    handle: Handle | None = None
    try:
        handle = forgiven_handle(arguments.handle, key)
        question = Question(handle, arguments.extract, arguments.mode)
        extracted = await extract(key.tenant, question, Requirements(ends), rt)
    except (NotFound, Gone) as error:
        note_refused(error)
        text = frame_failure("unknown", str(handle or "unknown"), arguments.mode, error.detail)
        return ToolText(text, is_error=True)
    return ToolText(extracted.text, extracted.entry.status is EntryStatus.FAILED, extracted.entry.id)


async def _lines(
    reading: _Reading, asked: LinesAsked, max_bytes: int, *, onward: Callable[[int], str] | None = None
) -> str:
    most = max(max_bytes - model_text.LINE_ROOM, max_bytes // 2)
    scanner = LastLines(asked.most, most) if asked.first is None else LinePager(asked.first, asked.most, most)
    page = await scan(reading.rt, reading.stored, scanner, greppable=reading.greppable)

    def as_many(first: int) -> str:
        last = first + max(len(page.lines), 40) - 1
        return f'lines = "{first}-{min(last, page.total_lines)}"'

    return model_text.lines_text(page, asked.first or 1, max_bytes, onward or as_many)


async def _grep(reading: _Reading, arguments: GrepArguments, max_bytes: int) -> str:
    max_bytes = min(max_bytes, reading.usual_bytes)
    first = max(arguments.offset, 1)
    page = await _page(reading, arguments, first, ignore_case=arguments.ignore_case)
    notes = []
    ignore_case = arguments.ignore_case
    spaced = msgspec.structs.replace(arguments, pattern=_NAME_END.sub(r'":\\s*', arguments.pattern))
    if not page.total_matches and reading.greppable and spaced != arguments:
        page = await _page(reading, spaced, first, ignore_case=ignore_case)
        if page.total_matches:
            arguments = spaced
            notes.append(
                "The data is one long line: it is searched indented, with a space after a name's colon."
            )
    if not page.total_matches and not ignore_case:
        ignore_case = True
        page = await _page(reading, arguments, first, ignore_case=True)
        notes.append("Upper and lower case is ignored: nothing matches exactly.")
    if not page.total_matches:
        reading.found_nothing = True
        return await _nothing(reading, arguments.pattern)
    if note := model_text.word_boundary_note(arguments.pattern, page.matches, ignore_case):
        notes.append(note)
    fitting = model_text.matches_that_fit(page.matches, max_bytes)
    base = 1 if reading.tool.offer is Offer.GREP else None
    step = page.total_matches // max(fitting, 1)
    if arguments.offset or step < 2:
        matches = model_text.Matches(page.matches, page.total_matches, first, base=base)
    else:
        spread = await _page(reading, arguments, 1, ignore_case=ignore_case, step=step)
        matches = model_text.Matches(spread.matches, page.total_matches, 1, step, base)
    return model_text.grep_text(matches, max_bytes, notes)


async def _page(
    reading: _Reading, arguments: GrepArguments, first: int, *, ignore_case: bool, step: int = 1
) -> GrepPage:
    grep = Grep(
        arguments.pattern,
        context=arguments.context,
        ignore_case=ignore_case,
        limit=_MOST_MATCHES,
        offset=first - 1,
        step=step,
        max_bytes=_SCANNED_BYTES,
    )
    return await scan(reading.rt, reading.stored, grep, greppable=reading.greppable)


async def _nothing(reading: _Reading, pattern: str) -> str:
    """What the data has that is near the words of a pattern without a match, and the data's language."""
    rt, stored = reading.rt, reading.stored
    sentences = ["No line matches."]
    source = Source(rt.store, stored, path=path_of(stored))
    words = list(dict.fromkeys(_WORD.findall(_ESCAPE.sub(" ", pattern))))[:_MOST_WORDS]
    if words and source.size <= _NEAREST_BYTES:
        # The SQLite of some Python builds has no FTS5.
        with suppress(sqlite3.Error):
            async with rt.indexes.gate(source.size):
                index = await rt.indexes.of(source, await source.text())
                near = partial(_near, index)
                sentences += await run_sync(lambda: list(map(near, words)), limiter=rt.indexes.threads)
    head = await source.read(0, min(source.size, _LANGUAGE_BYTES))
    language = language_of_text(head.decode("utf-8", "ignore"))
    if language and not may_be_in(pattern, language):
        sentences.append(f"The data is mostly {language}: search in {language}.")
    ask = "ask with `extract`" if reading.tool.offer is Offer.ONE else "ask tool_output"
    sentences.append(f"Try a part of a word, or {ask}.")
    return " ".join(sentences)


def _near(index: "PassageIndex", word: str) -> str:
    # With the other strategies, a twentieth of the start (bench/README.md, start).
    from extraction.retrieve.ranking import similar_words

    if count := index.count(word):
        return f"“{word}” alone is in {count:,} passage{'' if count == 1 else 's'}."
    near = similar_words(index, word)[:_NEAREST_WORDS]
    return f"“{word}” is not in the data" + (f"; it has {', '.join(near)}." if near else ".")


async def _query(reading: _Reading, arguments: QueryArguments, max_bytes: int) -> str:
    rt, stored = reading.rt, reading.stored
    max_bytes = min(max_bytes, 2 * reading.usual_bytes)
    room = model_text.room_of(max_bytes)
    query = Query(arguments.query, room, stored.tool_name, _MOST_ITEMS, path=path_of(stored), has_arrays=True)
    try:
        answer = await rt.queries.run(
            stored.tenant, query, stored.measure.bytes, partial(rt.store.read, stored)
        )
    except BadQuery as error:
        near = f" It cannot be read near: {clip(error.near, _NEAR_CHARS)}" if error.near else ""
        raise BadQuery(error.detail + near) from None
    reading.found_nothing = bytes(answer.slice.result).decode() in NO_VALUE
    return query_text(query, answer, room)


_TEXTS: dict[type, Callable[..., Awaitable[str]]] = {
    GrepArguments: _grep,
    LinesAsked: _lines,
    QueryArguments: _query,
}
