"""retrieve: the passages that answer the instruction best, verbatim, without a model."""

import sqlite3
from collections.abc import Iterable
from functools import partial

from anyio.to_thread import run_sync

from content import cut
from content.opaque import is_binary, opaque
from content.outline import outline
from content.passages import Passage
from domain.extraction import Answer, Coverage, ExtractStatus, Mode
from extraction import bodies, excerpts
from extraction.passage_index import PassageIndex
from extraction.prompts import NOTHING_FOUND
from extraction.ranking import Ranked, rank
from extraction.source import Source
from extraction.task import Progress, StrategyFailed, Task
from extraction.wanted import wanted

MOST_BYTES = 64 << 20
"""What is larger is not read whole into memory."""

_MOST_ABSENT = 12
_OUTLINE_BYTES = 2000
_OUTLINED = 256 * 1024
_SAMPLE_BYTES = 1000
_NO_TEXT = "Much of the data is no text: control characters, or characters lost in decoding."


async def answer(task: Task) -> Answer:
    """What fits is shown whole. Raises StrategyFailed for what is too large."""
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
        return _nothing(f"{NOTHING_FOUND}\nThe data is empty.", 1.0, task.max_bytes)
    if name := opaque(data):
        return _nothing(f"{NOTHING_FOUND}\n{_garbage(name, len(data))}", 0.0, task.max_bytes)
    if len(data) <= task.max_bytes:
        return Answer(_text(data), Mode.RETRIEVE, ExtractStatus.COMPLETE, Coverage(1, 1, 1.0))
    try:
        index = await task.indexes.of(task.source, data)
        find = partial(_found, task, data, index)
        return await run_sync(find, abandon_on_cancel=True, limiter=task.indexes.threads)
    except sqlite3.Error:
        # A Python of one's own may come with an SQLite that has no FTS5.
        raise StrategyFailed("the full-text search of this machine's SQLite failed") from None


def _found(task: Task, data: bytes, index: PassageIndex) -> Answer:
    max_bytes = task.max_bytes
    ranked = rank(index, wanted(task.extract), data)
    if not ranked.hits:
        return _nothing(_said_of_nothing(data, ranked, max_bytes), 0.0, max_bytes)
    note = f"[{_NO_TEXT}]\n" if is_binary(data) else ""
    tail = _tail(task.source, data, index, ranked)
    room = max_bytes - len(note.encode()) - len(tail.encode()) - len(excerpts.GAP)
    best = excerpts.chosen(task.source, data, _in_turn(index, ranked, room), room)
    if not best:
        return _too_little_room(data, ranked.hits[0].passage, len(index.passages), max_bytes)
    shown = sum(one.end - one.start for one in best)
    coverage = Coverage(len(index.passages), len(best), round(shown / len(data), 4))
    body = note + excerpts.shown(task.source, data, best) + tail
    return Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, coverage)


def _in_turn(index: PassageIndex, ranked: Ranked, room: int) -> Iterable[Passage]:
    """Best first; but where there is room, the beginning before: it says what the rest is."""
    passages = [hit.passage for hit in ranked.hits]
    first = index.passages[0]
    return dict.fromkeys([first, *passages] if 8 * (first.end - first.start) <= room else passages)


def _tail(source: Source, data: bytes, index: PassageIndex, ranked: Ranked) -> str:
    first = ranked.hits[0].passage
    place = excerpts.place(source, data, first, first)
    absent = f" Nowhere in it: {_listed(ranked.absent)}." if ranked.absent else ""
    return f"[The best of {len(index.passages)} passages, in their order; first of all: {place}.{absent}]"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:_MOST_ABSENT])


def _too_little_room(data: bytes, best: Passage, total: int, max_bytes: int) -> Answer:
    body = cut.head(data[best.start : best.end], max_bytes)
    coverage = Coverage(total, 0, round(len(body) / len(data), 4))
    return Answer(_text(body), Mode.RETRIEVE, ExtractStatus.PARTIAL, coverage, warnings=(bodies.WARNING,))


def _said_of_nothing(data: bytes, ranked: Ranked, max_bytes: int) -> str:
    """What the data holds instead, so that the next instruction can be better; where it is hardly too long,
    most of it."""
    breaks = data.count(b"\n")
    size = f"{len(data)} bytes in " + (f"{breaks + 1} lines" if breaks else "one line")
    said = [NOTHING_FOUND, f"The data has {size}."]
    if ranked.absent:
        said.insert(1, f"Nowhere in the data: {_listed(ranked.absent)}.")
    if is_binary(data):
        return "\n".join((*said, _NO_TEXT))
    said += filter(None, [outline(data[:_OUTLINED], min(_OUTLINE_BYTES, max_bytes // 2), len(data))])
    said.append("It begins:\n")
    text = "\n".join(said)
    room = max_bytes - len(text.encode())
    if len(data) > 2 * max_bytes:
        room = min(room, _SAMPLE_BYTES)
    return text + _text(cut.head(data, max(0, room)))


def _nothing(body: str, ratio: float, max_bytes: int) -> Answer:
    """Not found is an answer."""
    coverage = Coverage(1, 1, ratio)
    found = Answer(body, Mode.RETRIEVE, ExtractStatus.COMPLETE, coverage)
    return bodies.within(found, max_bytes)


def _garbage(name: str, size: int) -> str:
    return f"The data ({size} bytes) is {name}: nothing in it can be read. Use a tool that opens such files."


def _text(data: bytes) -> str:
    # Stored text is valid UTF-8; only a range asked for by the caller may begin or end inside a character.
    return data.decode(errors="ignore")
