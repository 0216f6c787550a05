"""Which chunks of a long document are worth a model's reading: those that hold what the question names."""

import re
import sqlite3
from collections.abc import Sequence
from functools import partial

import anyio
from anyio.to_thread import run_sync

from extraction.chunking import Chunk
from extraction.retrieve import strategy as retrieve
from extraction.retrieve.index import PassageIndex
from extraction.retrieve.instruction import parse
from extraction.task import Task

# So many times `max_chunks` are read without asking whether all are needed: the calls run side by side, and
# what rests on all of the data is worth their price.
_READ_ALL_TIMES = 4

# What stands in more places than this names nothing in particular.
_MOST_PLACES = 200

# Of the time that is left, most is for the models.
_TIME_SHARE = 0.2

_COMPOUND = re.compile(r"[^\W\d_]+(?:[-/][^\W\d_]+)+")

# Who asks so wants to know of the whole, or of what is not there.
_ABOUT_THE_WHOLE = re.compile(
    r"\b(?:all|any\w*|average|both|compar\w+|complete|count\w*|descri\w+|differ\w*|distinct|each|earliest"
    r"|entire|every\w*|except|explain|few\w*|first|full|greatest|highest|how (?:many|much|often)|largest|last"
    r"|latest|least|lists?|longest|lowest|main|max\w*|mean|median|min\w*|missing|most|never|newest|no|none|not"
    r"|number of|oldest|only|other\w*|outline|overall|overview|patterns?|shortest|smallest|structure|sum\w*"
    r"|top|total\w*|trends?|unique|whole|without)\b",
    re.IGNORECASE,
)


async def chosen(task: Task, planned: Sequence[Chunk]) -> Sequence[Chunk]:
    """All, but where the question is not about the whole, every name in it (quoted, or an identifier) is in
    the data, and so few chunks hold one that most need not be read. In doubt, or in a hurry, all."""
    most = _READ_ALL_TIMES * max(task.terms.max_chunks, 1)
    names = [] if _ABOUT_THE_WHOLE.search(task.extract) else _names(task.extract)
    if task.whole or len(planned) <= most or not names or task.source.size > retrieve.MOST_BYTES:
        return planned
    found: list[Chunk] = []
    with anyio.move_on_after(_TIME_SHARE * (anyio.current_effective_deadline() - anyio.current_time())):
        found = await _found(task, names, planned)
    return found if 0 < len(found) <= min(most, len(planned) // 2) else planned


async def _found(task: Task, names: Sequence[str], planned: Sequence[Chunk]) -> list[Chunk]:
    source = task.source
    try:
        async with task.indexes.turn(source.size):
            index = await task.indexes.of(source, await source.read(0, source.size))
        find = partial(_holding, index, names, planned)
        return await run_sync(find, abandon_on_cancel=True, limiter=task.indexes.threads)
    except sqlite3.Error:
        # As in retrieve: not every SQLite has full-text search.
        return []


def _names(extract: str) -> list[str]:
    """Words put together with a hyphen are none."""
    return [name for name in parse(extract).exact if not _COMPOUND.fullmatch(name)]


def _holding(index: PassageIndex, names: Sequence[str], planned: Sequence[Chunk]) -> list[Chunk]:
    """The chunks with a passage that holds a name; nothing where one name is in none, or in too many."""
    places: set[int] = set()
    for name in names:
        found = index.rank([name], _MOST_PLACES)
        if not 0 < len(found) < _MOST_PLACES:
            return []
        places |= found.keys()
    passages = [index.passages[number] for number in places]
    return [
        chunk for chunk in planned if any(one.start < chunk.end and chunk.start < one.end for one in passages)
    ]
