"""Answers with the passages that match the instruction best, and with the extent of the data where asked."""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial

from anyio.to_thread import run_sync

from content.kinds import is_binary, opaque
from content.outline import outline
from content.outline.extent import extent
from content.passages.passages import Passage
from content.text import cut_head
from domain.extraction import Answer, Coverage, ExtractStatus, Gap, Mode
from extraction.prompts.prompts import NOTHING_FOUND
from extraction.retrieve.index import PassageIndex
from extraction.retrieve.instruction import ParsedInstruction, parse
from extraction.retrieve.ranking import Ranked, rank
from extraction.task import answer_text
from extraction.task.source import Source
from extraction.task.task import Progress, StrategyFailed, Task

NEEDS_MODEL = False

MOST_BYTES = 64 << 20
"""Larger data is not read into memory."""

_MOST_ABSENT = 12
_EXTENT_BYTES = 400
_OUTLINE_BYTES = 2000
_OUTLINED = 256 * 1024
_SAMPLE_BYTES = 1000
_NO_TEXT = "Much of the data is no text: control characters, or characters lost in decoding."


async def answer(task: Task) -> Answer:
    """Data that fits is shown whole. Raises StrategyFailed for data larger than MOST_BYTES."""
    source = task.source
    task.progress(Progress("plan", {"strategy": Mode.RETRIEVE, "bytes": source.size}))
    if source.size > MOST_BYTES:
        raise StrategyFailed(
            f"{source.size} bytes are too many to search at once; ask about `ranges` of them"
        )
    async with task.indexes.turn(source.size):
        return await _answered(task, await source.read(0, source.size))


async def _answered(task: Task, data: bytes) -> Answer:
    if not data:
        return _complete(f"{NOTHING_FOUND}\nThe data is empty.", 1, task.max_bytes)
    if name := opaque(data):
        return _unreadable(task.source, name, task.max_bytes)
    if len(data) <= task.max_bytes:
        return _whole(task, data)
    try:
        index = await task.indexes.of(task.source, data)
        find = partial(_found, task, data, index)
        return await run_sync(find, abandon_on_cancel=True, limiter=task.indexes.threads)
    except sqlite3.Error:
        # The SQLite of some Python builds has no FTS5.
        raise StrategyFailed("the full-text search of this machine's SQLite failed") from None


def _whole(task: Task, data: bytes) -> Answer:
    """All of the data, after its extent where the instruction asks for that and there is room."""
    body = _text(data)
    if parse(task.extract).about_extent:
        with_extent = f"{_extent(task.source, data)}\n\n{body}"
        body = with_extent if len(with_extent.encode()) <= task.max_bytes else body
    return Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, Coverage(1, 1, 1.0))


def _found(task: Task, data: bytes, index: PassageIndex) -> Answer:
    """All passages are searched, so the coverage is 1 however few of them are shown."""
    source, max_bytes, total = task.source, task.max_bytes, len(index.passages)
    instruction = parse(task.extract)
    ranked = rank(index, instruction, data)
    if not ranked.hits:
        return _complete(_without_hits(source, data, instruction, ranked, max_bytes), total, max_bytes)
    head = f"[{_NO_TEXT}]\n" if is_binary(data) else ""
    if instruction.about_extent:
        head += f"[{_extent(source, data)}]\n"
    tail = _tail(source, data, index, ranked)
    room = max_bytes - len(head.encode()) - len(tail.encode()) - len(GAP)
    best = chosen(source, data, _in_turn(index, ranked, room), room)
    if not best:
        return _too_little_room(data, ranked.hits[0].passage, total, max_bytes)
    return _complete(head + shown(source, data, best) + tail, total, max_bytes)


def _in_turn(index: PassageIndex, ranked: Ranked, room: int) -> Iterable[Passage]:
    """Best first. Where there is room the beginning of the data comes before: it says what the rest is."""
    passages = [hit.passage for hit in ranked.hits]
    first = index.passages[0]
    return dict.fromkeys([first, *passages] if 8 * (first.end - first.start) <= room else passages)


def _tail(source: Source, data: bytes, index: PassageIndex, ranked: Ranked) -> str:
    first = ranked.hits[0].passage
    at = place(source, data, first, first)
    absent = f" Nowhere in it: {_listed(ranked.absent)}." if ranked.absent else ""
    return f"[The best of {len(index.passages)} passages, in their order; first of all: {at}.{absent}]"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:_MOST_ABSENT])


def _too_little_room(data: bytes, best: Passage, total: int, max_bytes: int) -> Answer:
    body = cut_head(data[best.start : best.end], max_bytes)
    coverage = Coverage(total, 0, round(len(body) / len(data), 4))
    return Answer(
        _text(body), Mode.RETRIEVE, ExtractStatus.PARTIAL, coverage, warnings=(answer_text.CUT_WARNING,)
    )


def _without_hits(
    source: Source, data: bytes, instruction: ParsedInstruction, ranked: Ranked, max_bytes: int
) -> str:
    """The extent, the outline and the beginning of the data. They answer a question about the extent.
    Otherwise nothing was found, and they help to ask again. Data hardly longer than the cap is shown for the
    most part."""
    said = [] if instruction.about_extent and not ranked.absent else [NOTHING_FOUND]
    if ranked.absent:
        said.append(f"Nowhere in the data: {_listed(ranked.absent)}.")
    said.append(_extent(source, data))
    if is_binary(data):
        return "\n".join((*said, _NO_TEXT))
    said += filter(None, [outline(data[:_OUTLINED], min(_OUTLINE_BYTES, max_bytes // 2), len(data))])
    said.append("It begins:\n")
    text = "\n".join(said)
    room = max_bytes - len(text.encode())
    if len(data) > 2 * max_bytes:
        room = min(room, _SAMPLE_BYTES)
    return text + _text(cut_head(data, max(0, room)))


def _extent(source: Source, data: bytes) -> str:
    """One sentence of at most 400 bytes."""
    subject = "The data" if source.size == source.stored.measure.bytes else "The part asked about"
    said = f"{subject} is {extent(data, source.stored.tool_name)}."
    return (
        said if len(said.encode()) <= _EXTENT_BYTES else _text(cut_head(said.encode(), _EXTENT_BYTES)) + " …"
    )


def _complete(body: str, passages: int, max_bytes: int) -> Answer:
    """The answer rests on all of the data. A body that has to be cut makes it partial."""
    coverage = Coverage(passages, passages, 1.0)
    return answer_text.cap_answer(Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, coverage), max_bytes)


def _unreadable(source: Source, name: str, max_bytes: int) -> Answer:
    """The answer rests on none of the data."""
    body = (
        f"{NOTHING_FOUND}\nThe data ({source.size} bytes) is {name}: nothing in it can be read. "
        "Use a tool that opens such files."
    )
    missing = tuple(Gap(span.start, span.end, "not text") for span in source.spans)
    coverage = Coverage(1, 0, 0.0, missing)
    return answer_text.cap_answer(Answer(body, Mode.RETRIEVE, ExtractStatus.PARTIAL, coverage), max_bytes)


def _text(data: bytes) -> str:
    # Stored text is valid UTF-8; only a range asked for by the caller may begin or end inside a character.
    return data.decode(errors="ignore")


GAP = "[...]\n"

_NEWLINE = ord("\n")


def chosen(source: Source, data: bytes, passages: Iterable[Passage], max_bytes: int) -> list[Passage]:
    """Takes passages in turn while they fit `max_bytes`, and returns them in the order of the data. `data` is
    all of the source."""
    found = []
    for passage in passages:
        cost = passage.end - passage.start + len(_head(source, data, [passage]).encode()) + len(GAP) + 1
        if cost <= max_bytes:
            max_bytes -= cost
            found.append(passage)
    return sorted(found, key=lambda one: one.start)


def shown(source: Source, data: bytes, passages: Sequence[Passage]) -> str:
    """At most the bytes that `chosen` was given, and a last gap. Adjacent passages share one heading."""
    text = []
    end = 0
    for run in _runs(passages):
        if run[0].start > end:
            text.append(GAP)
        end = run[-1].end
        body = data[run[0].start : end].decode("utf-8", "ignore")
        text += [_head(source, data, run), body, "" if body.endswith("\n") else "\n"]
    return "".join(text) + (GAP if end < len(data) else "")


def _runs(passages: Iterable[Passage]) -> list[list[Passage]]:
    """Groups adjacent passages with the same path."""
    runs: list[list[Passage]] = []
    for one in passages:
        if runs and runs[-1][-1].end == one.start and runs[-1][-1].path == one.path:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _head(source: Source, data: bytes, run: Sequence[Passage]) -> str:
    at, path = place(source, data, run[0], run[-1]), run[0].path
    return f"[{at} · {path}]\n" if path else f"[{at}]\n"


def place(source: Source, data: bytes, first: Passage, last: Passage) -> str:
    """The lines of the stored result if they are known and whole, otherwise the bytes, as in `ranges`."""
    spans = source.located(first.start, last.end)
    in_bytes = f"bytes {spans[0].start}-{spans[-1].end}"
    if source.size < source.stored.measure.bytes:
        return in_bytes
    lines = f"line {first.line}" if first.line == last.last_line else f"lines {first.line}-{last.last_line}"
    return lines if _are_lines(data, first.start, last.end) else f"{lines}, {in_bytes}"


def _are_lines(data: bytes, start: int, end: int) -> bool:
    begins = start == 0 or data[start - 1] == _NEWLINE
    return begins and (end == len(data) or data[end - 1] == _NEWLINE)
