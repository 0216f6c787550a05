"""A search for a pattern in a stored result for a model; what is said if nothing matches."""

import re
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from anyio.to_thread import run_sync

from app.answering.reading import path_of, scan
from app.answering.tool_definitions import GrepArguments
from app.answering.tool_text import Reading
from content import model_text
from content.grep import Grep, GrepPage, Match
from content.greppable import Greppable
from content.kind import Kind
from content.match_context import AROUND, grown, trimmed
from content.match_view import MOST_BYTES, block_ends, headings, page_text, surroundings
from content.natural_language import language_of_text, may_be_in
from content.near_misses import (
    NearMisses,
    Occurrence,
    lines_with_all,
    literals,
    near_miss_text,
    nowhere_text,
    occurrences,
    words_of,
)
from content.patterns import Pattern
from content.source_text import SourceText
from content.text import BOM, clip
from extraction.asked_bytes import AskedBytes
from policies.policy import Offer

_MOST_MATCHES, _MOST_WINDOWS = 10_000, 1000
_SCANNED_BYTES = 1 << 20

_USUAL_BYTES, _ALL_BYTES = 1500, 3500
"""The most bytes of matches, and of matches if that shows all of them."""

_FEW = 10
"""The most matches that are shown with the lines around them."""

_FEW_OTHERS, _OTHERS_BYTES = 24, 1000
"""If nothing matches, at most this many lines with the rarest word of the pattern are shown, if they fit."""

_MOST_ADDRESSED = 2000
"""The most characters of a line of a page that is shown with the addresses of its links."""

_CONTEXTS = (2, 1)
_WINDOW_BYTES = 120
"""The most characters on each side of a match in a long line."""

_JOINED_BYTES = 400
_LANGUAGE_BYTES = 8 << 10
_MOST_WORDS, _MOST_SCANS = 8, 3
_LINE_CHARS = 160

_NAME_END = re.compile(r'":(?! |\\s)')
"""In a pattern: the end of a name in JSON that is written without spaces."""
_SLASHES = re.compile(r"/(.+)/(i?)", re.DOTALL)

_INDENTED = "The data is one long line: it is searched indented, with a space after a name's colon."
_ANY_CASE = "Upper and lower case is ignored: nothing matches exactly."
_IN_MARKUP = "Only the markup of the page matches, not its text."
_BETWEEN_SLASHES = "The pattern is what stands between the slashes."


@dataclass(frozen=True, slots=True)
class _Searched:
    """The text to search: `view` if there is one, else the stored bytes. `text` is the whole text of a small
    result. `page` is the markup of a page, aligned with the lines of the view."""

    text: SourceText | None = None
    view: bytes | None = None
    page: bytes | None = None


async def search(reading: Reading, arguments: GrepArguments, max_bytes: int) -> str:
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
    matches = await _matches(reading, searched, arguments, page)
    fits = model_text.matches_that_fit(matches, min(max_bytes, _ALL_BYTES)) == len(matches.lines)
    return model_text.grep_text(matches, min(max_bytes, _ALL_BYTES if fits else _USUAL_BYTES), notes)


async def _matches(
    reading: Reading, searched: _Searched, arguments: GrepArguments, page: GrepPage
) -> model_text.Matches:
    """Shows few matches with the lines around them that fit and the addresses of their links. Of many
    matches, shows lines with the same wording once."""
    matches = await _shown_as(reading, searched, arguments, page)
    if arguments.context or arguments.offset or len(page.matches) < page.total_matches:
        return matches
    if page.total_matches <= _FEW:
        matches = await _with_lines(reading, searched, arguments, matches)
    elif not matches.is_record:
        matches = model_text.distinct(matches)
    if searched.page is None or model_text.matches_that_fit(matches, _USUAL_BYTES) < len(matches.lines):
        return matches
    addressed = await run_sync(_with_addresses, searched.page, matches, limiter=reading.rt.scanning)
    fits = model_text.matches_that_fit(addressed, _USUAL_BYTES) == len(matches.lines)
    return addressed if fits else matches


def _with_addresses(page: bytes, matches: model_text.Matches) -> model_text.Matches:
    lines = page_text(page, has_addresses=True).split(b"\n")

    def shown(match: Match) -> Match:
        text = lines[match.line - 1].decode("utf-8", "replace").strip()
        is_found = not match.truncated and len(text) <= _MOST_ADDRESSED and matches.spans(text)
        return replace(match, text=text) if is_found else match

    return matches._replace(lines=list(map(shown, matches.lines)))


async def _with_lines(
    reading: Reading, searched: _Searched, arguments: GrepArguments, matches: model_text.Matches
) -> model_text.Matches:
    total = matches.total
    text_format = searched.text.format if searched.text else None
    are_records = text_format is not None and text_format.is_records
    rows = _rows(matches) if total > 1 else set()
    if matches.is_record or (total > 1 and (are_records or len(rows) == total)):
        return matches
    wider = msgspec.structs.replace(arguments, context=AROUND)
    page = await _page(reading, searched, wider)
    if len(page.matches) < total:
        return matches
    shown = await _shown_as(reading, searched, wider, page)
    for context in _CONTEXTS:
        with_lines = shown._replace(lines=trimmed(page.matches, context, rows))
        if model_text.matches_that_fit(with_lines, _USUAL_BYTES) == total:
            if are_records or (text_format is not None and text_format.kind is Kind.LOG):
                return with_lines
            return shown._replace(lines=grown(page.matches, context, rows))
    return matches


def _rows(matches: model_text.Matches) -> set[int]:
    """The lines that are rows of a table."""
    return {line for line, one in matches.around.items() if one.columns or len(one.header) > 1}


async def _searched(reading: Reading) -> _Searched:
    """The whole text of a small result. The text of a page keeps its line numbers; one long line is indented
    as JSON."""
    shown, stored = reading.shown, reading.shown.result
    if stored.measure.bytes > MOST_BYTES:
        return _Searched()
    text = await AskedBytes(shown.store, stored, path=path_of(stored)).text()

    def viewed() -> _Searched:
        is_page = text.format.kind is Kind.HTML and text.data == text.stored
        view = text.stored.removeprefix(BOM)
        if reading.shown.needs_view:
            greppable = Greppable()
            view = greppable.feed(view) + greppable.finish()
        return _Searched(text, page_text(view), view) if is_page else _Searched(text, view)

    return await run_sync(viewed, limiter=reading.rt.scanning)


async def _first_page(
    reading: Reading, searched: _Searched, arguments: GrepArguments
) -> tuple[_Searched, GrepArguments, GrepPage, list[str]]:
    """Tries the pattern as it is, as indented JSON spells it, in any letter case, in the markup of a page,
    and without slashes around it, until one matches. Returns what was searched, how, the matches, and remarks
    for the model."""
    spaced = _NAME_END.sub(r'":\\s*', arguments.pattern) if reading.shown.needs_view else arguments.pattern
    tries = [
        (searched, arguments, []),
        (searched, msgspec.structs.replace(arguments, pattern=spaced), [_INDENTED]),
        (searched, msgspec.structs.replace(arguments, ignore_case=True), [_ANY_CASE]),
    ]
    if searched.page is not None:
        tries.append((_Searched(), arguments, [_IN_MARKUP]))
    if inside := _SLASHES.fullmatch(arguments.pattern):
        is_any_case = arguments.ignore_case or bool(inside[2])
        bare = msgspec.structs.replace(arguments, pattern=inside[1], ignore_case=is_any_case)
        tries.append((searched, bare, [_BETWEEN_SLASHES]))
    page = GrepPage([], 0, None)
    for place, (where, what, notes) in enumerate(tries):
        if place and where is searched and what == arguments:
            continue
        page = await _page(reading, where, what)
        if page.total_matches:
            return where, what, page, notes
    return searched, arguments, page, []


async def _in_stored(reading: Reading, searched: _Searched, arguments: GrepArguments, max_bytes: int) -> str:
    """Returns the matches in the stored text, if its view has none; "" if the text has no view."""
    if not reading.shown.needs_view:
        return ""
    if searched.text is None:
        grep = Grep(arguments.pattern, ignore_case=arguments.ignore_case, limit=_MOST_WINDOWS)
        page = await scan(reading.rt, reading.shown, grep, greppable=False)
        texts, count = [match.text for match in page.matches], f"{page.total_matches:,}"
    else:
        texts, count = await run_sync(_windows, searched.text.stored, arguments, limiter=reading.rt.scanning)
    return model_text.windows_text(texts, count, min(max_bytes, _USUAL_BYTES)) if texts else ""


def _windows(stored: bytes, arguments: GrepArguments) -> tuple[list[str], str]:
    """Returns the bytes around the matches, together for matches that are near each other, and the number of
    matches."""
    pattern = Pattern(arguments.pattern, arguments.ignore_case)
    spans = list(pattern.windows(stored, _MOST_WINDOWS, _WINDOW_BYTES))
    joined: list[tuple[int, int]] = []
    for start, match, end in spans:
        if joined and start <= joined[-1][1]:
            before = joined.pop()[0]
            start = before if end - before <= _JOINED_BYTES else match
            if start == match:
                joined.append((before, match))
        joined.append((start, end))
    texts = [stored[start:end].decode("utf-8", "ignore") for start, end in joined]
    return texts, f"{len(spans):,}{' or more' if len(spans) == _MOST_WINDOWS else ''}"


async def _page(reading: Reading, searched: _Searched, arguments: GrepArguments) -> GrepPage:
    grep = Grep(
        arguments.pattern,
        context=arguments.context,
        ignore_case=arguments.ignore_case,
        limit=_MOST_MATCHES,
        offset=max(arguments.offset, 1) - 1,
        max_bytes=_SCANNED_BYTES,
    )
    if searched.view is None:
        return await scan(reading.rt, reading.shown, grep, greppable=reading.shown.needs_view)
    await run_sync(grep.feed, searched.view, limiter=reading.rt.scanning)
    return await run_sync(grep.finish, limiter=reading.rt.scanning)


async def _shown_as(
    reading: Reading, searched: _Searched, arguments: GrepArguments, page: GrepPage
) -> model_text.Matches:
    pattern = Grep(arguments.pattern, ignore_case=arguments.ignore_case)
    matches = model_text.Matches(
        page.matches,
        page.total_matches,
        max(arguments.offset, 1),
        base=1 if reading.tool.offer is Offer.GREP else None,
        spans=pattern.spans,
        onward=partial(_onward, arguments, searched, reading.shown.needs_view),
    )
    text, view = searched.text, searched.view
    if text is None or view is None:
        return matches
    lines = [match.line for match in page.matches]
    around = await run_sync(surroundings, view, text, lines, limiter=reading.rt.scanning)
    if arguments.context:
        around = {line: replace(one, text="") for line, one in around.items()}
        if text.format.kind is not Kind.LOG:
            ends = await run_sync(block_ends, view, lines, limiter=reading.rt.scanning)
            matches = matches._replace(ends=ends)
    # For a line of source, the line of its function is also shown.
    is_source = text.format.kind is Kind.CODE and around
    if text.is_verbatim and not reading.shown.needs_view and not is_source:
        above = await run_sync(headings, text, limiter=reading.rt.scanning)
        matches = matches._replace(headings=above)
    return matches._replace(around=around)


def _onward(arguments: GrepArguments, searched: _Searched, needs_view: bool, line: int) -> str:
    """Says how to ask for the matches after a line. Suggests SQL if the table `lines` has the lines that were
    searched."""
    if searched.page is not None or needs_view:
        return "a narrower pattern"
    pattern = f"{'(?i)' if arguments.ignore_case else ''}{arguments.pattern}".replace("'", "''")
    # A query for the model to send, which is confined.
    return f"query = SELECT line, text FROM lines WHERE line > {line} AND matches(text, '{pattern}') LIMIT 40"  # noqa: S608


async def _nothing(reading: Reading, searched: _Searched, pattern: str) -> str:
    """Whether and where each literal of the pattern stands, and the data's language."""
    rt, shown, stored = reading.rt, reading.shown, reading.shown.result
    asked = AskedBytes(shown.store, stored, path=path_of(stored))
    sentences, words = ["No line matches."], words_of(pattern)[:_MOST_WORDS]
    elsewhere = NearMisses(0)
    if searched.view is None:
        sentences += [(await _occurrence(reading, word)).told() for word in words[:_MOST_SCANS]]
    else:
        if texts := literals(pattern):
            elsewhere = await run_sync(lines_with_all, searched.view, texts, limiter=rt.scanning)
            if elsewhere.lines:
                return near_miss_text(texts, elsewhere)
        found = await run_sync(occurrences, searched.view, words, limiter=rt.scanning)
        if texts and elsewhere.is_all and "|" not in pattern and all(one.lines for one in found):
            sentences = [nowhere_text(texts)]
        rarest = min((one for one in found if one.lines), key=lambda one: one.lines, default=None)
        others = ""
        if rarest and 1 < rarest.lines <= _FEW_OTHERS:
            others = await _lines_with(reading, searched, rarest)
        sentences += [one.told() for one in found if not others or one is not rarest]
        sentences.append(others)
    head = await asked.read(0, min(asked.size, _LANGUAGE_BYTES))
    language = language_of_text(head.decode("utf-8", "ignore"))
    if language and not may_be_in(pattern, language):
        sentences.append(f"The data is mostly {language}: search in {language}.")
    return "\n".join(filter(None, sentences))


async def _lines_with(reading: Reading, searched: _Searched, found: Occurrence) -> str:
    """Returns all lines that hold a word; "" if they do not fit."""
    asked = GrepArguments(str(reading.stored.handle), pattern=f"(?i){re.escape(found.word)}")
    page = await _page(reading, searched, asked)
    matches = model_text.distinct(await _shown_as(reading, searched, asked, page))
    fitted = model_text.fitting_matches(matches, _OTHERS_BYTES)
    return f"“{found.word}”: {found.lines} lines:\n{fitted.text}" if fitted.next is None else ""


async def _occurrence(reading: Reading, word: str) -> Occurrence:
    """Returns where a word occurs in a result that is streamed."""
    grep = Grep(word, ignore_case=True, literal=True, limit=1)
    page = await scan(reading.rt, reading.shown, grep, greppable=reading.shown.needs_view)
    if not page.matches:
        return Occurrence(word, 0)
    first = page.matches[0]
    return Occurrence(word, page.total_matches, first.line, clip(first.text, _LINE_CHARS))
