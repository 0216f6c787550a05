"""The strategy: ranks the passages of the data and shows the best; data that fits is shown whole."""

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from anyio.to_thread import run_sync

from content.describe import extent, outline, query_of, source_of
from content.formats.binary import File, opaque, readable, readable_runs
from content.formats.format import Passage
from content.kind import Kind
from content.natural_language import language_of_text, may_be_in
from content.source import Source as Text
from content.text import clip, count_of, cut_head, decode_part
from domain.extraction import Answer, Coverage, ExtractStatus, Gap, Mode
from extraction.prompts import NOTHING_FOUND
from extraction.retrieve import meaning
from extraction.retrieve.asking import words_of
from extraction.retrieve.contents import contents
from extraction.retrieve.excerpts import Excerpts
from extraction.retrieve.index import Likeness, PassageIndex, is_pair
from extraction.retrieve.instruction import ParsedInstruction, parse
from extraction.retrieve.literals import Literal, literals
from extraction.retrieve.ranking import Hit, Ranked, rank
from extraction.retrieve.suggested_query import SuggestedQuery, asks_for_rows, may_need_query, suggested_query
from extraction.retrieve.words import stem
from extraction.source import Source
from extraction.task import CUT_WARNING, Progress, StrategyFailed, Task, cap_answer

NEEDS_MODEL = False

MOST_BYTES = 64 << 20
"""Larger data is not read into memory."""

_MOST_ABSENT = 12
_FEW_PAIRS = 4
_ABSENT_BYTES = 300
_EXTENT_BYTES = 400
NOTHING_BYTES = 1100
"""The most bytes of a body that says that nothing was found."""

OUTLINE_BYTES = 500
OUTLINED = 256 * 1024
_SAMPLE_BYTES = 300
_LANGUAGE_BYTES = 8 * 1024
_NOTE_BYTES = 24
_TAIL_BYTES = 400
_SELECTED_BYTES = 1300
_MOST_OF_LITERAL = 4
_BELOW_HEADING = 4

# Shares of the usual bytes of an answer. An answer that has as many gets no further passage. The first share
# holds if one passage leads, the second if none does.
_CLEAR, _UNCLEAR = 0.25, 0.6
_HEADER_BYTES = 1000
_BESIDE = 5
_OF_RECORDS = (Kind.CSV, Kind.JSON, Kind.NDJSON)
_RUNNING = (Kind.TEXT, Kind.CODE, Kind.LOG)
_DATE = re.compile(rb"\b(?:19|20)\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?")
_ABOUT_MARKUP = words_of(
    r"\b(?:links?|urls?|href|src|images?|img|attributes?|markup|html|tags?|css|class(?:es)?|ids?|scripts?|selectors?"
    r"|anchors?|buttons?|forms?|inputs?)\b|[<>=]|://"
)
"""A question whose answer may be in the tags of a page."""

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
        return await _answer_from(task, await source.text())


async def _answer_from(task: Task, text: Text) -> Answer:
    stored = text.stored
    if not stored:
        return _complete(f"{NOTHING_FOUND}\nThe data is empty.", 1, task.max_bytes)
    file = opaque(stored)
    if file and file.is_base64:
        return _unreadable(task.source, file, task.max_bytes)
    instruction = parse(task.extract)
    query_result = _QueryResult() if file else await _query_result(task, text, instruction)
    if query_result.is_answer:
        return _complete(query_result.text, 1, task.max_bytes)
    if len(stored) <= task.max_bytes and not file:
        return _whole(task, text, instruction, query_result.text)
    try:
        index = await task.indexes.of(task.source, text)
        likeness, warnings = await meaning.compare(task, index, text.data)
        search = _Search(task, text, index, instruction, query_result.text)
        find = partial(_search_readable_parts if file else _search_passages, search, likeness)
        reply = await run_sync(find, abandon_on_cancel=True, limiter=task.indexes.threads)
        return replace(reply, warnings=(*reply.warnings, *warnings))
    except sqlite3.Error:
        # The SQLite of some Python builds has no FTS5.
        raise StrategyFailed("the full-text search of this machine's SQLite failed") from None


class _QueryResult(NamedTuple):
    """What SQL selects, with the query; the query alone where it cannot be run; "" without one. `is_answer`:
    no passage is shown with it."""

    text: str = ""
    is_answer: bool = False


async def _query_result(task: Task, text: Text, instruction: ParsedInstruction) -> _QueryResult:
    suggested: SuggestedQuery | None = None
    if asks_for_rows(instruction):
        suggest = partial(suggested_query, text, instruction)
        suggested = await run_sync(suggest, limiter=task.indexes.threads)
    if suggested is None:
        return _QueryResult()
    is_sure = suggested.is_sure and not suggested.names
    named = _QueryResult(f"[To answer from all rows, query: {suggested.sql}]\n", is_sure)
    if task.select is None:
        return named._replace(is_answer=False)
    selected = await task.select(suggested.sql, min(_SELECTED_BYTES, task.max_bytes))
    if selected is None:
        return named
    lowered = selected.lower()
    if not all(name in lowered for name in suggested.names) or not selected:
        # A query that leaves out a name answers another question.
        return _QueryResult()
    words = [word for word in suggested.without if stem(word) not in lowered]
    without = f"[Not in the query: {', '.join(words)}.]\n" if words else ""
    return _QueryResult(f"[From all rows, query: {suggested.sql}]\n{selected}\n{without}", suggested.is_sure)


def _whole(task: Task, text: Text, instruction: ParsedInstruction, query_result: str) -> Answer:
    """All of the data, after its extent where the instruction asks for that and there is room."""
    data = text.stored
    is_binary = text.format.kind is Kind.BINARY
    body = f"[{_READABLE}]\n{decode_part(readable(data))}" if is_binary else decode_part(data)
    head = f"{_extent(task.source, text)}\n\n" if instruction.about_extent else ""
    for more in (head, query_result):
        body = more + body if len((more + body).encode()) <= task.max_bytes else body
    return _complete(body, 1, task.max_bytes)


@dataclass(frozen=True, slots=True)
class _Search:
    """A question about a text and the index of it. `query_result` is what stands before the passages."""

    task: Task
    text: Text
    index: PassageIndex
    instruction: ParsedInstruction
    query_result: str

    def query_named(self, ranked: Ranked) -> str:
        """A query over the columns of the data, to be completed, where no query answered a question for rows,
        or the words are in no row; else ""."""
        text, hits = self.text, ranked.hits
        is_of_columns = bool(hits) and not hits[0].words and text.format.kind in _OF_RECORDS
        if self.query_result or not (is_of_columns or may_need_query(self.instruction)):
            return ""
        stored = text.stored
        lines = stored.count(b"\n") + 1
        query = query_of(source_of(stored, stored, len(stored), lines, text.tool_name, text.path))
        return f"\n[To count, group or compare, query: {query}.]" if query else ""


def _search_passages(search: _Search, likeness: Likeness | None) -> Answer:
    """All passages are searched, so the coverage is 1 however few of them are shown."""
    text, index, instruction = search.text, search.index, search.instruction
    data, max_bytes, total = text.data, search.task.max_bytes, len(index.passages)
    ranked = rank(index, instruction, data, likeness)
    if other := _ask_in(instruction, ranked, data):
        return _complete(search.query_result + other, total, max_bytes)
    headings = contents(text, instruction)
    above = search.query_result + headings
    if headings and ranked.is_weak:
        return _complete(above, total, max_bytes)
    end = _oldest_or_newest(index, instruction, text, ranked)
    quoted = literals(text, index, instruction)
    absent = "".join(f"[“{clip(one.text)}” is nowhere in the data.]\n" for one in quoted if not one.numbers)
    choice = _choice(search, ranked, end, quoted)
    if not choice.first:
        is_told = instruction.about_extent and not ranked.absent
        below = "" if is_told else search.query_named(ranked)
        room = min(NOTHING_BYTES, max_bytes) - len((above + absent + below).encode())
        first, _, rest = _without_hits(search.task.source, text, instruction, ranked, room).partition("\n")
        return _complete(f"{above}{first}\n{absent}{rest}{below}", total, max_bytes)
    has_literal = any(one.numbers for one in quoted)
    is_weak = ranked.is_weak and end is None and not has_literal
    is_clear = ranked.leads or end is not None or has_literal or bool(above)
    head = above + absent + _head(search, ranked, is_weak=is_weak)
    excerpts, passages = _excerpts(search, choice, len(head.encode()), is_weak=is_weak, is_clear=is_clear)
    if excerpts.is_empty:
        return _too_little_room(data, choice.first[0], total, max_bytes)
    tail = _tail(index, ranked, passages) if end is None else _end_tail(index, instruction, end)
    tail = _literals_tail(quoted, index, passages) if has_literal else tail
    body = head + excerpts.text(_note(ranked, passages[0])) + tail
    below = "" if end or has_literal else search.query_named(ranked)
    return _complete(body + below if len((body + below).encode()) <= max_bytes else body, total, max_bytes)


def _head(search: _Search, ranked: Ranked, *, is_weak: bool) -> str:
    """What is said of the match and of the data, before the passages."""
    text, instruction = search.text, search.instruction
    lines = [_weakness(ranked, instruction, text.data)] if is_weak else []
    lines += filter(None, [_binary(text)])
    if instruction.about_extent:
        lines.append(_extent(search.task.source, text))
    return "".join(f"[{line}]\n" for line in lines)


def _excerpts(
    search: _Search, choice: "_Choice", head_bytes: int, *, is_weak: bool, is_clear: bool
) -> tuple[Excerpts, list[Passage]]:
    """The passages that are shown. If none fits the usual size of an answer, the first alone."""
    task, text = search.task, search.text
    fixed = head_bytes + min(_TAIL_BYTES, task.max_bytes // 4) + _NOTE_BYTES
    most = min(task.usual_bytes, task.max_bytes) - fixed
    has_markup = _ABOUT_MARKUP.search(task.extract) is not None
    # A prose passage that is not sure to answer is shown without its neighbours: more passages help more.
    excerpts = Excerpts(task.source, text, most, not is_weak, task.shown_before, has_markup)
    aim = (_CLEAR if is_clear else _UNCLEAR) * task.usual_bytes
    passages = list(takewhile(excerpts.add, choice.first))
    others = choice.others if passages else ()
    passages += [passage for passage in others if excerpts.size < aim and excerpts.add(passage)]
    if excerpts.is_empty:
        excerpts = Excerpts(task.source, text, task.max_bytes - fixed)
        passages = choice.first[:1]
        excerpts.add(passages[0])
    return excerpts, passages


def _note(ranked: Ranked, first: Passage) -> str:
    hit = ranked.hit_of(first)
    held = _words_held(ranked, hit) if hit and hit.words else ""
    meant = "by meaning" if hit and ranked.is_by_meaning and hit is ranked.hits[0] else ""
    return ", ".join(filter(None, (held, meant)))


class _Choice(NamedTuple):
    """The first passages are shown as far as there is room; the others while the answer is short."""

    first: list[Passage]
    others: Sequence[Passage] = ()


def _choice(
    search: _Search, ranked: Ranked, end: "_OldestOrNewest | None", quoted: Sequence[Literal]
) -> _Choice:
    choice = _chosen_hits(search.index, search.instruction, ranked, end, search.text.format.kind)
    if end is None and not ranked.is_weak:
        choice = _with_joined_questions(choice, search)
    return _with_literals(choice, quoted, search.index)


def _chosen_hits(
    index: PassageIndex,
    instruction: ParsedInstruction,
    ranked: Ranked,
    end: "_OldestOrNewest | None",
    kind: Kind,
) -> _Choice:
    """`end` is the oldest or newest of what is asked for: it is shown alone unless the best passage holds
    more words. The end or the beginning of the data, where it is asked for, comes before a weak match and
    after any other."""
    if end is not None:
        best = ranked.hits[0] if ranked.hits else None
        more = [best.passage] if best and len(best.words) > max(len(end.words), 1) else []
        return _Choice(list(dict.fromkeys((index.passages[end.number], *more))))
    if ranked.absent and not (ranked.hits and (ranked.hits[0].words or kind not in _OF_RECORDS)):
        return _Choice([])
    worth = [hit.passage for hit in ranked.worth_showing]
    first = [*worth[:1], *_related_passages(index, ranked, worth[0], kind)] if worth else []
    first += [hit.passage for hit in ranked.best_for_each(instruction.enumerated)]
    ends = [index.passages[0]] if instruction.about_first else []
    ends += [index.passages[-1]] if instruction.about_last else []
    if worth and ranked.leads:
        # "Start" and "end" may be no places of the data.
        ends = []
    first = [*ends, *first] if ranked.is_weak else [*first, *ends]
    return _Choice(list(dict.fromkeys(first)), [one for one in worth[1:] if one not in first])


def _related_passages(index: PassageIndex, ranked: Ranked, best: Passage, kind: Kind) -> Sequence[Passage]:
    """The passages beside the best one that may belong to the answer: those of the same record that hold
    other words of the question; in running text, the one below a name that the question contains."""
    at = index.at(best.start)
    if kind in (Kind.JSON, Kind.NDJSON):
        return ranked.beside(index.passages[max(0, at - _BESIDE) : at + _BESIDE + 1])
    if kind in _RUNNING and ranked.hits[0].exact and ranked.leads:
        return index.passages[at + 1 : at + 2]
    if kind is Kind.HTML and ranked.hits[0].is_short:
        # What stands below a heading.
        return index.passages[at + 1 : at + 1 + _BELOW_HEADING]
    return ()


def _with_joined_questions(choice: _Choice, search: _Search) -> _Choice:
    """Adds the best passage for each of the questions that `and` joins, if the match is sure."""
    first = list(choice.first)
    for part in map(parse, search.instruction.parts):
        ranked = rank(search.index, part, search.text.data)
        if part.words and ranked.hits and not ranked.is_weak and ranked.has_most(ranked.hits[0]):
            first.append(ranked.hits[0].passage)
    first = list(dict.fromkeys(first))
    return _Choice(first, [one for one in choice.others if one not in first])


def _with_literals(choice: _Choice, quoted: Sequence[Literal], index: PassageIndex) -> _Choice:
    """Passages with the literals come first: those that were chosen for other words too before the others; of
    several literals one passage each."""
    before = [*choice.first, *choice.others]
    first: list[Passage] = []
    for one in quoted:
        having = [index.passages[number] for number in one.numbers]
        ordered = [*(passage for passage in before if passage in having), *having]
        first += list(dict.fromkeys(ordered))[: 1 if len(quoted) > 1 else _MOST_OF_LITERAL]
    return _Choice(list(dict.fromkeys(first)), ()) if first else choice


def _literals_tail(quoted: Sequence[Literal], index: PassageIndex, passages: list[Passage]) -> str:
    numbers = {index.at(passage.start) for passage in passages}
    sentences = [one.told(len(numbers.intersection(one.numbers))) for one in quoted if one.numbers]
    return f"[{' '.join(sentences)}]"


class _OldestOrNewest(NamedTuple):
    """The number of the oldest or newest passage that holds the words."""

    number: int
    words: Sequence[str]


def _oldest_or_newest(
    index: PassageIndex, instruction: ParsedInstruction, text: Text, ranked: Ranked
) -> _OldestOrNewest | None:
    """The passage with the oldest or the newest of what is asked for. None if the question asks for neither,
    or if the order of the data is unknown."""
    if instruction.about_oldest == instruction.about_newest or (ranked.absent and not ranked.hits):
        return None
    is_ascending = text.format.is_ascending(text)
    if is_ascending is None:
        return _by_date(index, text, ranked, is_newest=instruction.about_newest)
    is_last = instruction.about_newest == is_ascending
    exact = [one for one in instruction.exact if one in instruction.text and index.count(one)]
    inside = " ".join(exact).lower()
    ordered = (word for word in instruction.ordered_words if word not in inside)
    words = [*exact, *(word for word in ordered if index.count(word))]
    if text.format.kind is Kind.CSV:
        # The names of its columns are in every row.
        header = text.data[:_HEADER_BYTES].partition(b"\n")[0].decode("utf-8", "replace").lower()
        words = [word for word in words if stem(word) not in header]
    if not words:
        return _OldestOrNewest(len(index.passages) - 1 if is_last else 0, ())
    for alternatives in ([words], [sorted(one) for one in {hit.words for hit in _best(ranked)}]):
        numbers = [(index.at_end(one, is_last=is_last), one) for one in alternatives]
        ends = [_OldestOrNewest(number, one) for number, one in numbers if number is not None]
        if ends:
            return max(ends) if is_last else min(ends)
    return None


def _by_date(index: PassageIndex, text: Text, ranked: Ranked, *, is_newest: bool) -> _OldestOrNewest | None:
    """The passage with the latest or earliest date of those that hold as many words as the best one."""
    best = _best(ranked)
    dated = [
        (max(dates) if is_newest else min(dates), hit.passage.start, sorted(hit.words))
        for hit in best
        if (dates := _DATE.findall(text.data[hit.passage.start : hit.passage.end]))
    ]
    if len(dated) < 2 or 2 * len(dated) < len(best):
        return None
    _, start, words = max(dated) if is_newest else min(dated)
    return _OldestOrNewest(index.at(start), words)


def _best(ranked: Ranked) -> list[Hit]:
    """The hits that hold as many words as the best one."""
    return [hit for hit in ranked.hits if len(hit.words) == len(ranked.hits[0].words)]


def _weakness(ranked: Ranked, instruction: ParsedInstruction, data: bytes) -> str:
    sentence = f"Weak match: {_words_held(ranked, ranked.hits[0])}."
    return f"{sentence} {other}" if (other := _other_language(instruction, data)) else sentence


def _words_held(ranked: Ranked, hit: Hit) -> str:
    return f"{len(hit.words)} of {ranked.word_count} words"


def _ask_in(instruction: ParsedInstruction, ranked: Ranked, data: bytes) -> str:
    """The whole answer, in under 400 bytes, if the data is in another language and holds no word of the
    question. Returns "" if the language of the data is unknown, or if the question can be answered without
    its words."""
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


def _tail(index: PassageIndex, ranked: Ranked, passages: list[Passage]) -> str:
    """How many of the passages with the words of the first one are shown, and which words are in none."""
    total = f"out of {len(index.passages):,}"
    first = ranked.hit_of(passages[0])
    words = first.words if first else frozenset[str]()
    is_sure = ranked.leads or (first is not None and ranked.has_most(first))
    having = index.count(*words) if words and is_sure else 0
    together = sum(hit.passage in passages and hit.words >= words for hit in ranked.hits)
    is_all = 0 < having <= together
    if is_all:
        which = "The only passage" if having == 1 else f"All {having} passages"
        sentences = [f"{which} with {_listed(sorted(words))}, {total}."]
    elif having:
        sentences = [f"{together:,} of {having:,} passages with {_listed(sorted(words))}, {total}."]
    else:
        sentences = [f"Best first, {total}."]
    if ranked.absent:
        sentences.append(f"Not in the data: {_listed(ranked.absent)}.")
    if not (is_all or ranked.leads):
        sentences.append("For more: ask in other words, or read the lines around a place.")
    return f"[{' '.join(sentences)}]"


def _end_tail(index: PassageIndex, instruction: ParsedInstruction, end: _OldestOrNewest) -> str:
    which = "newest" if instruction.about_newest else "oldest"
    if not end.words:
        return f"[The {which} of all.]"
    return f"[The {which} of {count_of(index.count(*end.words), 'passage')} with {_listed(end.words)}.]"


def _listed(words: Sequence[str]) -> str:
    """The words. Of several pairs of characters, which are parts of words, only the number is given."""
    pairs = sum(map(is_pair, words))
    return f"{len(words)} of the words" if pairs > _FEW_PAIRS else ", ".join(words[:_MOST_ABSENT])


def _too_little_room(data: bytes, best: Passage, total: int, max_bytes: int) -> Answer:
    body = cut_head(data[best.start : best.end], max_bytes)
    coverage = Coverage(total, 0, round(len(body) / len(data), 4))
    return Answer(decode_part(body), Mode.RETRIEVE, ExtractStatus.PARTIAL, coverage, warnings=(CUT_WARNING,))


def _without_hits(
    source: Source, text: Text, instruction: ParsedInstruction, ranked: Ranked, max_bytes: int
) -> str:
    """What the data is, in at most NOTHING_BYTES. That answers a question about the extent. Otherwise nothing
    was found, and it helps to ask again."""
    lines = [] if instruction.about_extent and not ranked.absent else [NOTHING_FOUND]
    if ranked.absent:
        lines.append(f"Nowhere in the data: {_listed(ranked.absent)}.")
    if other := _other_language(instruction, text.data):
        lines.append(other)
    lines.append(_extent(source, text))
    if binary := _binary(text):
        sample = decode_part(cut_head(readable(text.data[:OUTLINED]), _SAMPLE_BYTES))
        lines.append(binary + (_READABLE_BEGIN + sample if sample else ""))
    else:
        lines += filter(None, [_outline(text, min(OUTLINE_BYTES, max_bytes // 2))])
    return decode_part(cut_head("\n".join(lines).encode(), max_bytes))


def _outline(text: Text, most: int) -> str:
    return outline(text.stored[:OUTLINED], most, len(text.stored), text.path, tool_name=text.tool_name)


def _extent(source: Source, text: Text) -> str:
    """One sentence of at most 400 bytes."""
    subject = "The data" if source.size == source.stored.measure.bytes else "The part asked about"
    sentence = f"{subject}: {extent(text)}."
    cut = decode_part(cut_head(sentence.encode(), _EXTENT_BYTES))
    return sentence if cut == sentence else f"{cut} …"


def _complete(body: str, passages: int, max_bytes: int) -> Answer:
    """The answer rests on all of the data. A body that has to be cut makes it partial."""
    coverage = Coverage(passages, passages, 1.0)
    return cap_answer(Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, coverage), max_bytes)


def _binary(text: Text) -> str:
    """What is said of data that is mostly binary; "" for text."""
    if file := opaque(text.stored):
        return f"The data is {file.name} read as text. {_READABLE} For the rest use {file.opener}."
    return _READABLE if text.format.kind is Kind.BINARY else ""


def _search_readable_parts(search: _Search, likeness: Likeness | None) -> Answer:
    """The answer rests on the readable parts of a file."""
    stored = search.text.stored
    size = sum(len(run) + 1 for run in readable_runs(stored))
    share = round(max(0, size - 1) / len(stored), 4)
    return _in_part(search.task.source, _search_passages(search, likeness), share)


def _in_part(source: Source, answer: Answer, share: float) -> Answer:
    missing = tuple(Gap(span.start, span.end, "not text") for span in source.spans)
    coverage = replace(answer.coverage, ratio=share, missing=missing)
    return replace(answer, status=ExtractStatus.PARTIAL, coverage=coverage)


def _unreadable(source: Source, file: File, max_bytes: int) -> Answer:
    """The answer rests on none of the data."""
    body = (
        f"{NOTHING_FOUND}\nThe data ({source.size} bytes) is {file.name}: nothing in it can be read. "
        f"Use {file.opener}."
    )
    answer = Answer(body, Mode.RETRIEVE, ExtractStatus.PARTIAL, Coverage(1, 0, 0.0))
    return cap_answer(_in_part(source, answer, 0.0), max_bytes)
