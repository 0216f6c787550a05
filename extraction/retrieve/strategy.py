"""The strategy: ranks the passages of the data and shows the best; data that fits is shown whole."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from anyio.to_thread import run_sync

from content.describe import extent, outline
from content.formats.binary import File, opaque, readable, readable_runs
from content.formats.format import Passage, Whole
from content.kind import Kind
from content.natural_language import language_of_text, may_be_in
from content.passages import whole
from content.source import Source as Text
from content.text import cut_head, cut_tail, decode_part
from domain.extraction import Answer, Coverage, ExtractStatus, Gap, Mode
from extraction.prompts import NOTHING_FOUND
from extraction.retrieve import meaning
from extraction.retrieve.index import Likeness, PassageIndex
from extraction.retrieve.instruction import ParsedInstruction, parse
from extraction.retrieve.ranking import Ranked, rank, stem
from extraction.retrieve.suggested_query import suggested_query
from extraction.source import Source
from extraction.task import CUT_WARNING, Progress, StrategyFailed, Task, cap_answer

NEEDS_MODEL = False

MOST_BYTES = 64 << 20
"""Larger data is not read into memory."""

_MOST_ABSENT = 12
_ABSENT_BYTES = 300
_EXTENT_BYTES = 400
OUTLINE_BYTES = 2000
OUTLINED = 256 * 1024
_SAMPLE_BYTES = 1000
_LANGUAGE_BYTES = 8 * 1024
_NOTE_BYTES = 24
_HEADER_BYTES = 1000
_BEGINS = "\nIt begins:\n"
_ENDS = "\nIt ends:\n"
_READABLE = "Mostly binary: readable parts only."
_READABLE_BEGIN = "\nThe readable parts begin:\n"


async def answer(task: Task) -> Answer:
    """Data that fits is shown whole. Raises StrategyFailed for data larger than MOST_BYTES."""
    source = task.source
    task.progress(Progress("plan", {"strategy": Mode.RETRIEVE, "bytes": source.size}))
    if source.size > MOST_BYTES:
        raise StrategyFailed(
            f"{source.size} bytes are too many to search at once; ask about `ranges` of them"
        )
    async with task.indexes.gate(source.size):
        return await _answered(task, await source.text())


async def _answered(task: Task, text: Text) -> Answer:
    stored = text.stored
    if not stored:
        return _complete(f"{NOTHING_FOUND}\nThe data is empty.", 1, task.max_bytes)
    file = opaque(stored)
    if file and file.is_base64:
        return _unreadable(task.source, file, task.max_bytes)
    if len(stored) <= task.max_bytes and not file:
        return _whole(task, text)
    try:
        index = await task.indexes.of(task.source, text)
        likeness, warnings = await meaning.compare(task, index, text.data)
        find = partial(_found_in_part if file else _found, task, text, index, likeness)
        found = await run_sync(find, abandon_on_cancel=True, limiter=task.indexes.threads)
        return replace(found, warnings=(*found.warnings, *warnings))
    except sqlite3.Error:
        # The SQLite of some Python builds has no FTS5.
        raise StrategyFailed("the full-text search of this machine's SQLite failed") from None


def _whole(task: Task, text: Text) -> Answer:
    """All of the data, after its extent where the instruction asks for that and there is room."""
    data = text.stored
    is_binary = text.format.kind is Kind.BINARY
    body = f"[{_READABLE}]\n{decode_part(readable(data))}" if is_binary else decode_part(data)
    instruction = parse(task.extract)
    head = f"{_extent(task.source, text)}\n\n" if instruction.about_extent else ""
    for more in (head, _named_query(text, instruction)):
        body = more + body if len((more + body).encode()) <= task.max_bytes else body
    return _complete(body, 1, task.max_bytes)


def _named_query(text: Text, instruction: ParsedInstruction) -> str:
    query = suggested_query(text, instruction)
    return f"[To answer from all rows, query: {query}]\n" if query else ""


def _found(task: Task, text: Text, index: PassageIndex, likeness: Likeness | None) -> Answer:
    """All passages are searched, so the coverage is 1 however few of them are shown."""
    source, max_bytes, total = task.source, task.max_bytes, len(index.passages)
    data = text.data
    instruction = parse(task.extract)
    ranked = rank(index, instruction, data, likeness)
    named = _named_query(text, instruction)
    if other := _ask_in(instruction, ranked, data):
        return _complete(named + other, total, max_bytes)
    if not ranked.hits:
        without = _without_hits(source, text, instruction, ranked, max_bytes - len(named.encode()))
        return _complete(named + without, total, max_bytes)
    head = named + (f"[{_weakness(ranked, instruction, data)}]\n" if ranked.is_weak else "")
    if binary := _binary(text):
        head += f"[{binary}]\n"
    if instruction.about_extent:
        head += f"[{_extent(source, text)}]\n"
    tail = _tail(total, ranked)
    fixed = len(head.encode()) + len(tail.encode()) + _NOTE_BYTES
    # Most of the data fits: where the words do not help, the model may find it.
    is_shown = ranked.is_weak and 4 * len(data) <= 5 * max_bytes
    room = (max_bytes if is_shown else min(task.usual_bytes, max_bytes)) - fixed
    # Where no passage is sure to answer, more of them help more than more of one.
    excerpts = Excerpts(source, text, room, has_sentences=not ranked.is_weak)
    passages = _in_turn(index, instruction, ranked, text)
    for passage in passages:
        excerpts.add(passage)
    if excerpts.is_empty:
        excerpts = Excerpts(source, text, max_bytes - fixed)
        excerpts.add(passages[0])
    if excerpts.is_empty:
        return _too_little_room(data, passages[0], total, max_bytes)
    first = next((hit for hit in ranked.hits if hit.passage == passages[0]), None)
    note = f"{first.words if first else 0} of {ranked.words} words"
    if ranked.is_by_meaning and first is ranked.hits[0]:
        note += ", by meaning"
    return _complete(head + excerpts.text(note) + tail, total, max_bytes)


def _in_turn(
    index: PassageIndex, instruction: ParsedInstruction, ranked: Ranked, text: Text
) -> list[Passage]:
    """Best first; before it the oldest or newest of what is asked for, in data whose order is known. The end
    or the beginning of the data, where it is asked for, comes before a weak match and after any other. After
    a weak match the beginning too: it says what the data is."""
    passages = [hit.passage for hit in ranked.hits]
    after_best = not ranked.is_weak
    if instruction.about_first:
        passages.insert(after_best, index.passages[0])
    if instruction.about_last:
        passages.insert(after_best, index.passages[-1])
    if ranked.is_weak:
        passages.insert(1, index.passages[0])
    if (number := _at_end(index, instruction, text)) is not None:
        passages.insert(0, index.passages[number])
    return list(dict.fromkeys(passages))


def _at_end(index: PassageIndex, instruction: ParsedInstruction, text: Text) -> int | None:
    """The passage with the oldest or newest of what is asked for; None where the data has no known order."""
    if instruction.about_oldest == instruction.about_newest:
        return None
    is_ascending = text.format.is_ascending(text)
    if is_ascending is None:
        return None
    is_last = instruction.about_newest == is_ascending
    words = [word for word in instruction.ordered_words if index.count(word)]
    if text.format.kind is Kind.CSV:
        # The names of its columns are in every row.
        header = text.data[:_HEADER_BYTES].partition(b"\n")[0].decode("utf-8", "replace").lower()
        words = [word for word in words if stem(word) not in header]
    found = index.at_end(words, is_last=is_last)
    if found is None and len(words) < 2:
        return len(index.passages) - 1 if is_last else 0
    return found


def _weakness(ranked: Ranked, instruction: ParsedInstruction, data: bytes) -> str:
    said = f"Weak match: {ranked.hits[0].words} of {ranked.words} words."
    return f"{said} {other}" if (other := _other_language(instruction, data)) else said


def _ask_in(instruction: ParsedInstruction, ranked: Ranked, data: bytes) -> str:
    """What is answered alone, in under 400 bytes, where no word of the question is in the data because it is
    in another language; "" where the language of the data is unknown, and for what needs no word."""
    if ranked.hits and (ranked.hits[0].words or ranked.is_by_meaning):
        return ""
    needs_none = instruction.about_extent or instruction.about_first or instruction.about_last
    is_ordered = instruction.about_oldest or instruction.about_newest
    language = "" if needs_none or is_ordered else _language(data)
    if not language or may_be_in(instruction.text, language):
        return ""
    absent = f"Nowhere in the data: {_listed(ranked.absent)}.\n" if ranked.absent else ""
    absent = absent if len(absent.encode()) <= _ABSENT_BYTES else ""
    return f"{NOTHING_FOUND}\n{absent}The data is mostly {language}: ask in {language}."


def _language(data: bytes) -> str:
    return language_of_text(data[:_LANGUAGE_BYTES].decode("utf-8", "ignore"))


def _other_language(instruction: ParsedInstruction, data: bytes) -> str:
    """Names the language of the data if the instruction is not in it, else "". That data is in English cannot
    be told from data without a language: then the language of the instruction is named."""
    language = _language(data)
    if not language:
        asked = language_of_text(instruction.text)
        return f"The data is mostly not {asked}: ask in its language." if asked else ""
    if may_be_in(instruction.text, language):
        return ""
    return f"The data is mostly {language}: ask in {language}."


def _tail(total: int, ranked: Ranked) -> str:
    absent = f" Not in the data: {_listed(ranked.absent)}." if ranked.absent else ""
    return (
        f"[Best first, out of {total:,} passages.{absent} For more: ask in other words, or read the lines "
        "around a place.]"
    )


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:_MOST_ABSENT])


def _too_little_room(data: bytes, best: Passage, total: int, max_bytes: int) -> Answer:
    body = cut_head(data[best.start : best.end], max_bytes)
    coverage = Coverage(total, 0, round(len(body) / len(data), 4))
    return Answer(decode_part(body), Mode.RETRIEVE, ExtractStatus.PARTIAL, coverage, warnings=(CUT_WARNING,))


def _without_hits(
    source: Source, text: Text, instruction: ParsedInstruction, ranked: Ranked, max_bytes: int
) -> str:
    """The extent, the outline and the beginning of the data. They answer a question about the extent.
    Otherwise nothing was found, and they help to ask again. Data hardly longer than the cap is shown for the
    most part."""
    data = text.data
    said = [] if instruction.about_extent and not ranked.absent else [NOTHING_FOUND]
    if ranked.absent:
        said.append(f"Nowhere in the data: {_listed(ranked.absent)}.")
    if other := _other_language(instruction, data):
        said.append(other)
    said.append(_extent(source, text))
    if binary := _binary(text):
        sample = decode_part(cut_head(readable(data[:OUTLINED]), _SAMPLE_BYTES))
        return "\n".join((*said, binary)) + (_READABLE_BEGIN + sample if sample else "")
    said += filter(None, [_outline(text, min(OUTLINE_BYTES, max_bytes // 2))])
    shown = "\n".join(said)
    room = max(0, max_bytes - len(shown.encode()) - len(_BEGINS) - len(_ENDS))
    if len(data) > 2 * max_bytes:
        room = min(room, _SAMPLE_BYTES)
    if instruction.about_last:
        half = room // 2
        return (
            f"{shown}{_BEGINS}{decode_part(cut_head(data, half))}{_ENDS}{decode_part(cut_tail(data, half))}"
        )
    return shown + _BEGINS + decode_part(cut_head(data, room))


def _outline(text: Text, most: int) -> str:
    return outline(text.stored[:OUTLINED], most, len(text.stored), text.path, tool_name=text.tool_name)


def _extent(source: Source, text: Text) -> str:
    """One sentence of at most 400 bytes."""
    subject = "The data" if source.size == source.stored.measure.bytes else "The part asked about"
    said = f"{subject}: {extent(text)}."
    cut = decode_part(cut_head(said.encode(), _EXTENT_BYTES))
    return said if cut == said else f"{cut} …"


def _complete(body: str, passages: int, max_bytes: int) -> Answer:
    """The answer rests on all of the data. A body that has to be cut makes it partial."""
    coverage = Coverage(passages, passages, 1.0)
    return cap_answer(Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, coverage), max_bytes)


def _binary(text: Text) -> str:
    """What is said of data that is mostly binary; "" for text."""
    if file := opaque(text.stored):
        return f"The data is {file.name} read as text. {_READABLE} For the rest use {file.opener}."
    return _READABLE if text.format.kind is Kind.BINARY else ""


def _found_in_part(task: Task, text: Text, index: PassageIndex, likeness: Likeness | None) -> Answer:
    """The answer rests on the readable parts of a file."""
    size = sum(len(run) + 1 for run in readable_runs(text.stored))
    share = round(max(0, size - 1) / len(text.stored), 4)
    return _in_part(task.source, _found(task, text, index, likeness), share)


def _in_part(source: Source, answer: Answer, share: float) -> Answer:
    missing = tuple(Gap(span.start, span.end, "not text") for span in source.spans)
    coverage = replace(answer.coverage, ratio=share, missing=missing)
    return replace(answer, status=ExtractStatus.PARTIAL, coverage=coverage)


def _unreadable(source: Source, found: File, max_bytes: int) -> Answer:
    """The answer rests on none of the data."""
    body = (
        f"{NOTHING_FOUND}\nThe data ({source.size} bytes) is {found.name}: nothing in it can be read. "
        f"Use {found.opener}."
    )
    answer = Answer(body, Mode.RETRIEVE, ExtractStatus.PARTIAL, Coverage(1, 0, 0.0))
    return cap_answer(_in_part(source, answer, 0.0), max_bytes)


_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """Bytes `start` to before `end`, from line `line` on (1-based). `first` is the part it begins with."""

    start: int
    end: int
    line: int
    first: Whole

    def joins(self, other: "_Excerpt") -> bool:
        if self.first.path == other.first.path and (self.end == other.start or other.end == self.start):
            return True
        return self.start < other.end and other.start < self.end


class Excerpts:
    """Passages in the order in which they are added. What overlaps an excerpt, or adjoins one with the same
    path, becomes a part of it. Of binary data only the readable runs are shown."""

    def __init__(self, source: Source, text: Text, max_bytes: int, has_sentences: bool = True) -> None:
        """`text` is all of the source. `max_bytes` is room for the text, without its note. `has_sentences`:
        prose is shown with the sentences around it."""
        self._source = source
        self._text = text
        self._data = text.data
        self._max_bytes = max_bytes
        self._has_sentences = has_sentences
        self._is_text = text.format.kind is not Kind.BINARY
        self._excerpts: list[_Excerpt] = []
        self._left = max_bytes

    @property
    def is_empty(self) -> bool:
        return not self._excerpts

    def add(self, passage: Passage) -> None:
        """Adds the passage with what belongs to it; alone where there is no room for that; not at all where
        there is no room for it either."""
        known = sum(
            max(0, min(one.end, passage.end) - max(one.start, passage.start)) for one in self._excerpts
        )
        is_blank = not self._is_text and not readable(self._data[passage.start : passage.end])
        if is_blank or passage.end - passage.start - known > self._left:
            return
        alone = Whole(passage.start, passage.end, passage.path)
        for shown in (whole(self._text, passage, has_sentences=self._has_sentences), alone):
            excerpts = self._with(passage, shown)
            size = sum(len(part.encode()) for part in self._parts(excerpts, ""))
            if size <= self._max_bytes:
                self._excerpts, self._left = excerpts, self._max_bytes - size
                return

    def text(self, note: str) -> str:
        """The `note` stands beside the first place."""
        return "".join(self._parts(self._excerpts, note))

    def _with(self, passage: Passage, shown: Whole) -> list[_Excerpt]:
        line = passage.line - self._data.count(b"\n", shown.start, passage.start)
        added = _Excerpt(shown.start, shown.end, line, shown)
        joined = [one for one in self._excerpts if one.joins(added)]
        if not joined:
            return [*self._excerpts, added]
        parts = [*joined, added]
        first = min(parts, key=lambda one: one.start)
        all_of_it = _Excerpt(first.start, max(one.end for one in parts), first.line, first.first)
        return [all_of_it if one is joined[0] else one for one in self._excerpts if one not in joined[1:]]

    def _parts(self, excerpts: list[_Excerpt], note: str) -> Iterator[str]:
        headers = set()
        for one in excerpts:
            first = one.first
            columns = f"columns: {first.columns}" if first.columns else ""
            yield f"[{' · '.join(filter(None, (self._place(one), first.path, columns, note)))}]\n"
            if first.header and first.header not in headers:
                headers.add(first.header)
                yield decode_part(self._shown(*first.header))
            piece = self._shown(one.start, one.end)
            body = decode_part(piece if self._is_text else readable(piece))
            yield body if body.endswith("\n") else body + "\n"
            note = ""

    def _shown(self, start: int, end: int) -> bytes:
        """The stored bytes, with the line numbers that a tool wrote; the data where they hold escapes."""
        if not self._text.is_verbatim:
            return self._data[start:end]
        first, last = self._text.stored_span(start, end)
        return self._text.stored[first:last]

    def _place(self, excerpt: _Excerpt) -> str:
        """The lines of the stored result if they are known and whole, otherwise the bytes, as in `ranges`."""
        data, source, text = self._data, self._source, self._text
        spans = source.located(*text.stored_span(excerpt.start, excerpt.end))
        in_bytes = f"bytes {spans[0].start}-{spans[-1].end}"
        if source.size < source.stored.measure.bytes:
            return in_bytes
        if text.is_verbatim:
            first = excerpt.line + text.stored_line(0) - 1
            last = first + data.count(b"\n", excerpt.start, excerpt.end - 1)
        else:
            first, last = text.line(excerpt.start), text.line(excerpt.end - 1)
        lines = f"line {first}" if first == last else f"lines {first}-{last}"
        if header := excerpt.first.header:
            above = data.count(b"\n", header[0], excerpt.start)
            lines += f" under line {first - above}"
        begins = excerpt.start == 0 or data[excerpt.start - 1] == _NEWLINE
        is_whole = begins and (excerpt.end == len(data) or data[excerpt.end - 1] == _NEWLINE)
        return lines if is_whole else f"{lines}, {in_bytes}"
