"""A search for a pattern in a stored result for a model; what is said if nothing matches."""

import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from anyio.to_thread import run_sync

from app.reading import path_of, scan
from app.tools.definitions import GrepArguments
from content import model_text
from content.grep import Grep, GrepPage
from content.greppable import Greppable
from content.kind import Kind
from content.match_view import MOST_BYTES, page_text, surroundings
from content.natural_language import language_of_text, may_be_in
from content.otherwise import lines_with_all, literals, otherwise_text
from content.patterns import Pattern
from content.source import Source as Text
from extraction.source import Source
from policies.policy import Offer

if TYPE_CHECKING:
    from app.tools.call import Reading
    from extraction.retrieve.index import PassageIndex  # Imported with the strategies.

_MOST_MATCHES = 1000
_SCANNED_BYTES = 1 << 18

_SAMPLE_BYTES = 1500
"""The most bytes of matches that are a sample of all."""

_MANY, _FEW_BYTES = 8, 900
"""A sample of this many times as many matches as fit an answer tells how many there are: it is short."""

_FEW_MATCHES = 12
_WITH_NEIGHBOURS = (Kind.TEXT, Kind.MARKDOWN, Kind.HTML, Kind.XML, Kind.CODE, Kind.DIFF)

_WINDOW_BYTES = 120
"""What is shown on each side of a match in a long line as it is stored."""

_JOINED_BYTES = 400
_LANGUAGE_BYTES = 8 << 10

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2}")
"""A word worth looking for. Many words of Chinese, Japanese and Korean have two characters."""

_MOST_WORDS = 8
_NAME_END = re.compile(r'":(?! |\\s)')
"""In a pattern: the end of a name in JSON that is written without spaces."""
_ESCAPE = re.compile(r"\\[A-Za-z]")

_INDENTED = "The data is one long line: it is searched indented, with a space after a name's colon."
_ANY_CASE = "Upper and lower case is ignored: nothing matches exactly."
_IN_MARKUP = "Only the markup of the page matches, not its text."


@dataclass(frozen=True, slots=True)
class _Searched:
    """What is searched: `view` if there is one, else the stored bytes. `text` is all of a small result."""

    text: Text | None = None
    view: bytes | None = None
    is_page: bool = False


async def search(reading: "Reading", arguments: GrepArguments, max_bytes: int) -> str:
    max_bytes = min(max_bytes, reading.usual_bytes)
    searched = await _searched(reading)
    searched, arguments, page, notes = await _first_page(reading, searched, arguments)
    if not page.total_matches:
        if as_stored := await _in_stored(reading, searched, arguments, max_bytes):
            return as_stored
        reading.found_nothing = True
        return await _nothing(reading, searched, arguments.pattern)
    if note := model_text.word_boundary_note(arguments.pattern, page.matches, arguments.ignore_case):
        notes.append(note)
    matches = _shown_as(reading, searched, arguments, page)
    matches = await _with_neighbours(reading, searched, arguments, matches, max_bytes)
    fitting = model_text.matches_that_fit(matches, max_bytes)
    lines = page.total_matches
    is_sample = not arguments.offset and lines >= 2 * fitting
    if fitting < lines < (count := await _occurrences(reading, searched, arguments)):
        notes.append(f"{count:,} matches." if is_sample else f"{lines:,} lines, {count:,} matches.")
    if is_sample:
        is_counted = page.total_matches >= _MANY * fitting
        max_bytes = min(max_bytes, _FEW_BYTES if is_counted else max(_SAMPLE_BYTES, max_bytes // 2))
        # One of those that fit is the last.
        step = max(2, page.total_matches // max(1, model_text.matches_that_fit(matches, max_bytes) - 1))
        page = await _page(reading, searched, arguments, step=step)
        matches = _shown_as(reading, searched, arguments, page)._replace(step=step)
    return model_text.grep_text(matches, max_bytes, notes)


async def _with_neighbours(
    reading: "Reading",
    searched: _Searched,
    arguments: GrepArguments,
    matches: model_text.Matches,
    max_bytes: int,
) -> model_text.Matches:
    """The only match with a line on each side, and a few of a text whose lines are no records if they are
    short: that saves the call that would ask for these lines."""
    if arguments.context or matches.is_record or matches.total > _FEW_MATCHES:
        return matches
    kind = searched.text.format.kind if searched.text else None
    is_table = kind is not Kind.CODE and any(one.header or one.columns for one in matches.around.values())
    if matches.total > 1 and (is_table or kind not in _WITH_NEIGHBOURS):
        return matches
    wider = msgspec.structs.replace(arguments, context=1)
    shown = _shown_as(reading, searched, wider, await _page(reading, searched, wider))
    fitting = model_text.matches_that_fit(shown, min(max_bytes, _SAMPLE_BYTES))
    return shown if fitting == matches.total or matches.total == 1 else matches


async def _searched(reading: "Reading") -> _Searched:
    """All of a small result: the text of a page on the same lines, one long line indented."""
    shown, stored = reading.shown, reading.shown.result
    if stored.measure.bytes > MOST_BYTES:
        return _Searched()
    text = await Source(shown.store, stored, path=path_of(stored)).text()

    def viewed() -> _Searched:
        is_page = text.format.kind is Kind.HTML and text.data == text.stored
        view = text.stored
        if reading.shown.needs_view:
            greppable = Greppable()
            view = greppable.feed(view) + greppable.finish()
        return _Searched(text, page_text(view) if is_page else view, is_page)

    return await run_sync(viewed, limiter=reading.rt.scanning)


async def _first_page(
    reading: "Reading", searched: _Searched, arguments: GrepArguments
) -> tuple[_Searched, GrepArguments, GrepPage, list[str]]:
    """The matches of the pattern as it is, else as indented JSON spells it, else in any case, else in the
    markup of a page; with what was searched for, where, and what has to be said of it."""
    spaced = _NAME_END.sub(r'":\\s*', arguments.pattern) if reading.shown.needs_view else arguments.pattern
    tries = [
        (searched, arguments, []),
        (searched, msgspec.structs.replace(arguments, pattern=spaced), [_INDENTED]),
        (searched, msgspec.structs.replace(arguments, ignore_case=True), [_ANY_CASE]),
    ]
    if searched.is_page:
        tries.append((_Searched(), arguments, [_IN_MARKUP]))
    page = GrepPage([], 0, None)
    for place, (where, what, notes) in enumerate(tries):
        if place and where is searched and what == arguments:
            continue
        page = await _page(reading, where, what)
        if page.total_matches:
            return where, what, page, notes
    return searched, arguments, page, []


async def _occurrences(reading: "Reading", searched: _Searched, arguments: GrepArguments) -> int:
    """How often the pattern matches in what is searched, 0 if that is large or it does too often."""
    if searched.view is None:
        return 0
    pattern = Grep(arguments.pattern, ignore_case=arguments.ignore_case)
    return await run_sync(pattern.occurrences, searched.view, limiter=reading.rt.scanning)


async def _in_stored(
    reading: "Reading", searched: _Searched, arguments: GrepArguments, max_bytes: int
) -> str:
    """The matches in the text as it is stored, where a view of it has none; "" without one."""
    if not reading.shown.needs_view:
        return ""
    if searched.text is None:
        grep = Grep(arguments.pattern, ignore_case=arguments.ignore_case, limit=_MOST_MATCHES)
        page = await scan(reading.rt, reading.shown, grep, greppable=False)
        texts, count = [match.text for match in page.matches], f"{page.total_matches:,}"
    else:
        texts, count = await run_sync(_windows, searched.text.stored, arguments, limiter=reading.rt.scanning)
    max_bytes = min(max_bytes, max(_SAMPLE_BYTES, max_bytes // 2))
    return model_text.windows_text(texts, count, max_bytes) if texts else ""


def _windows(stored: bytes, arguments: GrepArguments) -> tuple[list[str], str]:
    """What is around the matches, those that are near each other together, and how many matches there are."""
    pattern = Pattern(arguments.pattern, arguments.ignore_case)
    spans = list(pattern.windows(stored, _MOST_MATCHES, _WINDOW_BYTES))
    joined: list[tuple[int, int]] = []
    for start, match, end in spans:
        if joined and start <= joined[-1][1]:
            before = joined.pop()[0]
            start = before if end - before <= _JOINED_BYTES else match
            if start == match:
                joined.append((before, match))
        joined.append((start, end))
    texts = [stored[start:end].decode("utf-8", "ignore") for start, end in joined]
    return texts, f"{len(spans):,}{' or more' if len(spans) == _MOST_MATCHES else ''}"


async def _page(
    reading: "Reading", searched: _Searched, arguments: GrepArguments, *, step: int = 1
) -> GrepPage:
    """With a `step` above 1 each `step`-th match of all."""
    grep = Grep(
        arguments.pattern,
        context=arguments.context,
        ignore_case=arguments.ignore_case,
        limit=_MOST_MATCHES,
        offset=max(arguments.offset, 1) - 1,
        step=step,
        max_bytes=_SCANNED_BYTES,
    )
    if searched.view is None:
        return await scan(reading.rt, reading.shown, grep, greppable=reading.shown.needs_view)
    await run_sync(grep.feed, searched.view, limiter=reading.rt.scanning)
    return await run_sync(grep.finish, limiter=reading.rt.scanning)


def _shown_as(
    reading: "Reading", searched: _Searched, arguments: GrepArguments, page: GrepPage
) -> model_text.Matches:
    around = {}
    is_many = page.total_matches > _FEW_MATCHES
    if (
        searched.text is not None
        and searched.view is not None
        and not (is_many and searched.text.format.kind is Kind.CODE)
    ):
        around = surroundings(searched.view, searched.text, [match.line for match in page.matches])
    if arguments.context:
        around = {line: replace(one, text="") for line, one in around.items()}
    pattern = Grep(arguments.pattern, ignore_case=arguments.ignore_case)
    return model_text.Matches(
        page.matches,
        page.total_matches,
        max(arguments.offset, 1),
        base=1 if reading.tool.offer is Offer.GREP else None,
        spans=pattern.spans,
        around=around,
        has_last=page.has_last,
    )


async def _nothing(reading: "Reading", searched: _Searched, pattern: str) -> str:
    """What the data has that is near the words of a pattern without a match, and the data's language."""
    rt, shown, stored = reading.rt, reading.shown, reading.shown.result
    if searched.view is not None and (texts := literals(pattern)):
        elsewhere = await run_sync(lines_with_all, searched.view, texts, limiter=rt.scanning)
        if elsewhere.lines:
            return otherwise_text(texts, elsewhere)
    sentences = ["No line matches."]
    source = Source(shown.store, stored, path=path_of(stored))
    words = list({word.lower(): word for word in _WORD.findall(_ESCAPE.sub(" ", pattern))}.values())
    if words and source.size <= MOST_BYTES:
        # The SQLite of some Python builds has no FTS5.
        with suppress(sqlite3.Error):
            async with rt.indexes.gate(source.size):
                index = await rt.indexes.of(source, await source.text())
                near = partial(_near, index)
                sentences += await run_sync(
                    lambda: list(map(near, words[:_MOST_WORDS])), limiter=rt.indexes.threads
                )
    head = await source.read(0, min(source.size, _LANGUAGE_BYTES))
    language = language_of_text(head.decode("utf-8", "ignore"))
    if language and not may_be_in(pattern, language):
        sentences.append(f"The data is mostly {language}: search in {language}.")
    ask = "ask with `extract`" if reading.tool.offer is Offer.ONE else "ask tool_output"
    sentences.append(f"Try a part of a word, or {ask}.")
    return " ".join(sentences)


def _near(index: "PassageIndex", word: str) -> str:
    if count := index.count(word):
        return f"“{word}” alone is in {count:,} passage{'' if count == 1 else 's'}."
    return f"“{word}” is not in the data."
