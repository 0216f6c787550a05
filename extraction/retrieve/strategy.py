"""retrieve: ranks the passages of the data and shows the best; data that fits is shown whole."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio.to_thread import run_sync

from content.describe import extent, outline, source_of
from content.formats.binary import File, opaque, readable, readable_runs
from content.kind import Kind
from content.layout import layout_of
from content.natural_language import language_of_text
from content.patterns import Pattern
from content.source_text import SourceText
from content.tables import Table, spelled
from content.text import clip, count_of, cut_head, decode_part, line_count
from domain.extraction import Answer, Coverage, ExtractStatus, Mode, UnreadRange
from extraction.asked_bytes import AskedBytes
from extraction.passage_index import Likeness, PassageIndex
from extraction.prompts import NOTHING_FOUND
from extraction.retrieve import meaning
from extraction.retrieve.choice import Choice, choose
from extraction.retrieve.excerpts import Excerpts
from extraction.retrieve.question import ParsedQuestion, parse, stem
from extraction.retrieve.ranking import Hit, Ranked, rank
from extraction.task import CUT_WARNING, Progress, StrategyFailed, Task, cap_answer

NEEDS_MODEL = False

MOST_BYTES = 64 << 20
"""Larger data is not read into memory."""

NOTHING_BYTES = 1300
"""The most bytes of a body that says that nothing was found."""

OUTLINE_BYTES = 500
OUTLINED = 256 * 1024
_MOST_ABSENT = 12
_EXTENT_BYTES = 400
_SAMPLE_BYTES = 300
_LANGUAGE_BYTES = 8 * 1024
_TAIL_BYTES = 300
_MOST_LINES = 10_000
_CHARS = 60
_COLUMNS_BYTES = 300
_MOST_TABLES = 2

_SHORT_ANSWER = 0.4
"""The share of the usual bytes below which an answer gets passages of `Choice.others`."""

_READABLE = "Mostly binary: readable parts only."
_READABLE_BEGIN = "\nThe readable parts begin:\n"


async def answer(task: Task) -> Answer:
    """Data that fits is shown whole. Raises StrategyFailed for data larger than MOST_BYTES."""
    asked = task.asked
    task.progress(Progress("plan", {"strategy": Mode.RETRIEVE, "bytes": asked.size}))
    if asked.size > MOST_BYTES:
        raise StrategyFailed(f"{asked.size} bytes are too many to search at once; ask about `ranges` of them")
    async with task.indexes.gate(asked.size):
        return await _answer_from(task, await asked.text())


async def _answer_from(task: Task, text: SourceText) -> Answer:
    stored = text.stored
    if not stored:
        return _complete(f"{NOTHING_FOUND}\nThe data is empty.", 1, task.max_bytes)
    file = opaque(stored)
    if file and file.is_base64:
        return _unreadable(task.asked, file, task.max_bytes)
    try:
        index = await task.indexes.of(task.asked, text)
        search = _Search(task, text, index, parse(task.extract))
        if len(stored) <= task.max_bytes and not file:
            return await run_sync(_whole, search, limiter=task.indexes.threads)
        likeness, warnings = await meaning.compare(task, index, text.data)
        find = partial(_search_readable_parts if file else _search_passages, search, likeness)
        reply = await run_sync(find, abandon_on_cancel=True, limiter=task.indexes.threads)
        return replace(reply, warnings=(*reply.warnings, *warnings))
    except sqlite3.Error:
        # The SQLite of some Python builds has no FTS5.
        raise StrategyFailed("the full-text search of this machine's SQLite failed") from None


@dataclass(frozen=True, slots=True)
class _Search:
    """A question about a text and the index of it."""

    task: Task
    text: SourceText
    index: PassageIndex
    question: ParsedQuestion


def _whole(search: _Search) -> Answer:
    """The data as it is; above it what of the question is nowhere, below it its tables, if there is room for
    these."""
    task, text = search.task, search.text
    data = text.stored
    if text.format.kind is Kind.BINARY:
        return _complete(f"[{_READABLE}]\n{decode_part(readable(data))}", 1, task.max_bytes)
    above = _absent(rank(search.index, search.question, text.data), text.data)
    body = decode_part(data)
    body = f"{above}\n{body}" if above and len(f"{above}\n{body}".encode()) <= task.max_bytes else body
    below = _how_to_go_on(text, task.query)
    below = below if body.endswith("\n") else f"\n{below}"
    fits = len((body + below).encode()) <= task.max_bytes
    return _complete(body + below if fits else body, 1, task.max_bytes)


def _search_passages(search: _Search, likeness: Likeness | None) -> Answer:
    """All passages are searched, so the coverage is 1 however few of them are shown."""
    text, index, max_bytes = search.text, search.index, search.task.max_bytes
    total = len(index.passages)
    ranked = rank(index, search.question, text.data, likeness)
    choice = choose(index, search.question, text.data, ranked)
    if not choice.first:
        room = min(NOTHING_BYTES, max_bytes)
        return _complete(_nothing(search, ranked, room), total, max_bytes)
    head = "".join(f"{line}\n" for line in (_absent(ranked, text.data), _binary(text)) if line)
    excerpts, shown = _excerpts(search, choice, len(head.encode()))
    if excerpts.is_empty:
        return _too_little_room(text.data, choice.first[0], total, max_bytes)
    body = head + excerpts.text("by meaning" if ranked.is_by_meaning else "")
    below = (_tail(search, ranked, choice, shown), _how_to_go_on(text, search.task.query))
    for line in filter(None, below):
        body = body + line + "\n" if len((body + line).encode()) <= max_bytes else body
    return _complete(body.removesuffix("\n"), total, max_bytes)


def _excerpts(search: _Search, choice: Choice, head_bytes: int) -> tuple[Excerpts, Sequence[Hit]]:
    """The passages that are shown; the best alone if none fits the usual size of an answer."""
    task, text = search.task, search.text
    fixed = head_bytes + min(_TAIL_BYTES, task.max_bytes // 4)
    excerpts = Excerpts(task.asked, text, min(task.usual_bytes, task.max_bytes) - fixed)
    shown = [hit for hit in choice.first if excerpts.add(hit.passage)]
    aim = _SHORT_ANSWER * task.usual_bytes
    shown += [hit for hit in choice.others if shown and excerpts.size < aim and excerpts.add(hit.passage)]
    for room in (task.max_bytes - fixed, task.max_bytes - head_bytes):
        if excerpts.is_empty:
            excerpts = Excerpts(task.asked, text, room)
            shown = [hit for hit in choice.first[:1] if excerpts.add(hit.passage)]
    return excerpts, shown


def _tail(search: _Search, ranked: Ranked, choice: Choice, shown: Sequence[Hit]) -> str:
    """How many passages are shown, how many more there are, and in how many lines the rarest word stands."""
    sentences = [f"{len(shown):,} of {len(search.index.passages):,} passages"]
    if left := len([hit for hit in choice.equal if hit not in shown]):
        sentences.append(f"{left:,} more hold as much")
    sentences += filter(None, [_told_rarest(search.text.stored, ranked.rarest)])
    return f"[{'; '.join(sentences)}.]"


def _told_rarest(data: bytes, word: str) -> str:
    """In how many lines the word stands as it is spelled; if in none, in how many its stem stands."""
    for spelling, told in ((word, word), (stem(word), f"{stem(word)}…")):
        if spelling and (lines := _lines_with(data, spelling)):
            more = " or more" if lines == _MOST_LINES else ""
            return f"“{clip(told, _CHARS)}” is in {count_of(lines, 'line')}{more}"
    return ""


def _lines_with(data: bytes, word: str) -> int:
    """The number of lines that a search for the word in any letter case finds; at most 10,000."""
    pattern = Pattern(word, ignore_case=True, literal=True)
    count = at = 0
    while count < _MOST_LINES and (at := pattern.find(data, at, len(data))) >= 0:
        count += 1
        at = data.find(b"\n", at) + 1 or len(data)
    return count


def _how_to_go_on(text: SourceText, query: str) -> str:
    """The tables and columns of a query. They are read from the ends of the data, as in the handle message:
    to read all of it takes longer than the search. `query`: see Task. "" for binary data."""
    if _binary(text):
        return ""
    stored = text.stored
    ends = source_of(stored[:OUTLINED], stored, len(stored), line_count(stored), text.tool_name, text.path)
    *tables, lines = layout_of(ends).tables
    tables = [table for table in tables if table.columns != lines.columns]
    named = ", ".join(
        f"{spelled(table.name)}({_columns(table)})" for table in (*tables[:_MOST_TABLES], lines)
    )
    if not query:
        return f"[Nothing is counted, summed or compared. Ask by extract in the words of {named}.]"
    return f"[To count, sum or compare: {query} over {named}.]"


def _columns(table: Table) -> str:
    names = [spelled(column.name) for column in table.columns]
    fitting = list(names)
    while len(", ".join(fitting).encode()) > _COLUMNS_BYTES:
        fitting.pop()
    return ", ".join([*fitting, "…"] if len(fitting) < len(names) else names)


def _absent(ranked: Ranked, data: bytes) -> str:
    """What of the question is nowhere in the data; and the data's language, if that may be the reason."""
    if not ranked.absent:
        return ""
    listed = ", ".join(clip(one, _CHARS) for one in ranked.absent[:_MOST_ABSENT])
    language = language_of_text(data[:_LANGUAGE_BYTES].decode("utf-8", "ignore"))
    ask = f" The data is mostly {language}: ask in {language}." if language else ""
    return f"Nowhere in the data: {listed}.{ask}"


def _nothing(search: _Search, ranked: Ranked, max_bytes: int) -> str:
    """What the data is and how to go on, in at most NOTHING_BYTES."""
    text = search.text
    lines = [NOTHING_FOUND, _absent(ranked, text.data), _extent(search.task.asked, text)]
    if binary := _binary(text):
        sample = decode_part(cut_head(readable(text.data[:OUTLINED]), _SAMPLE_BYTES))
        lines.append(binary + (_READABLE_BEGIN + sample if sample else ""))
    else:
        lines.append(_outline(text, min(OUTLINE_BYTES, max_bytes // 2)))
    go_on = _how_to_go_on(text, search.task.query)
    below = f"\n{go_on}" if go_on else ""
    room = max_bytes - len(below.encode())
    body = decode_part(cut_head("\n".join(filter(None, lines)).encode(), room if room > 0 else max_bytes))
    return body.removesuffix("\n") + below if room > 0 else body


def _outline(text: SourceText, most: int) -> str:
    return outline(text.stored[:OUTLINED], most, len(text.stored), text.path, tool_name=text.tool_name)


def _extent(asked: AskedBytes, text: SourceText) -> str:
    """One sentence of at most 400 bytes."""
    subject = "The data" if asked.size == asked.stored.measure.bytes else "The part asked about"
    sentence = f"{subject}: {extent(text)}."
    cut = decode_part(cut_head(sentence.encode(), _EXTENT_BYTES))
    return sentence if cut == sentence else f"{cut} …"


def _too_little_room(data: bytes, best: Hit, total: int, max_bytes: int) -> Answer:
    body = cut_head(data[best.passage.start : best.passage.end], max_bytes)
    coverage = Coverage(total, 0, round(len(body) / len(data), 4))
    return Answer(decode_part(body), Mode.RETRIEVE, ExtractStatus.PARTIAL, coverage, warnings=(CUT_WARNING,))


def _complete(body: str, passages: int, max_bytes: int) -> Answer:
    """The answer rests on all of the data. A body that has to be cut makes it partial."""
    coverage = Coverage(passages, passages, 1.0)
    return cap_answer(Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, coverage), max_bytes)


def _binary(text: SourceText) -> str:
    """A remark about data that is mostly binary; "" for text."""
    if file := opaque(text.stored):
        return f"The data is {file.name} read as text. {_READABLE} For the rest use {file.opener}."
    return _READABLE if text.format.kind is Kind.BINARY else ""


def _search_readable_parts(search: _Search, likeness: Likeness | None) -> Answer:
    """The answer rests on the readable parts of a file."""
    stored = search.text.stored
    size = sum(len(run) + 1 for run in readable_runs(stored))
    share = round(max(0, size - 1) / len(stored), 4)
    return _in_part(search.task.asked, _search_passages(search, likeness), share)


def _in_part(asked: AskedBytes, answer: Answer, share: float) -> Answer:
    missing = tuple(UnreadRange(span.start, span.end, "not text") for span in asked.spans)
    coverage = replace(answer.coverage, ratio=share, missing=missing)
    return replace(answer, status=ExtractStatus.PARTIAL, coverage=coverage)


def _unreadable(asked: AskedBytes, file: File, max_bytes: int) -> Answer:
    """The answer rests on none of the data."""
    body = (
        f"{NOTHING_FOUND}\nThe data ({asked.size} bytes) is {file.name}: nothing in it can be read. "
        f"Use {file.opener}."
    )
    answer = Answer(body, Mode.RETRIEVE, ExtractStatus.PARTIAL, Coverage(1, 0, 0.0))
    return cap_answer(_in_part(asked, answer, 0.0), max_bytes)
