"""Full-text indexes of the passages of sources, and the cache that keeps them for later questions."""

import re
import sqlite3
import threading
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import anyio
from anyio.to_thread import run_sync

from content.formats import opaque, readable
from content.kinds import Kind, sniff
from content.passages.passages import Passage, split
from domain.extraction import Span
from domain.ports import ResultStore
from domain.results import StoredResult
from extraction.retrieve.vectors import Vectors
from extraction.task.source import Source

_STOP_EVERY = 256
_PAGE = 4096
_ROW = 300

_SCHEMA = f"""
PRAGMA page_size = {_PAGE};
PRAGMA journal_mode = OFF;
CREATE VIRTUAL TABLE passages USING fts5(
    body, path, content='', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE words USING fts5vocab('passages', 'row');
"""
_INSERT = "INSERT INTO passages (rowid, body, path) VALUES (?, ?, ?)"
# Words of a path count half as much as words of the passage.
_RANK = """
SELECT rowid, -bm25(passages, 1.0, 0.5) AS score FROM passages WHERE passages MATCH ?
ORDER BY score DESC LIMIT ?
"""
_COUNT = "SELECT count(*) FROM passages WHERE passages MATCH ?"
_WORDS = "SELECT term FROM words WHERE term >= ? AND term < ? LIMIT ?"


class Stopped(Exception):
    """The request for the index was cancelled."""


class PassageIndex:
    """Built once, read from any thread. Phrases match in any case, with or without accents, and in any
    English form of their words."""

    def __init__(self, data: bytes, tool_name: str, stop: threading.Event) -> None:
        """Raises Stopped after `stop` is set."""
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.executescript(_SCHEMA)
        self.passages: list[Passage] = []
        self.kind = sniff(data, tool_name)
        self._db.execute("BEGIN")
        self._db.executemany(_INSERT, self._rows(data, tool_name, stop))
        self._db.execute("COMMIT")
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        self._size = int(pages) * _PAGE + sum(_ROW + len(one.path) for one in self.passages)
        self.vectors = Vectors()
        """Of the passages that were embedded, by their numbers."""

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        return self._size + self.vectors.size

    def __del__(self) -> None:
        self._db.close()

    def _rows(self, data: bytes, tool_name: str, stop: threading.Event) -> Iterator[tuple[int, str, str]]:
        is_text = self.kind is not Kind.BINARY and not opaque(data)
        for number, passage in enumerate(split(data, tool_name)):
            if number % _STOP_EVERY == 0 and stop.is_set():
                raise Stopped
            self.passages.append(passage)
            piece = data[passage.start : passage.end]
            body = (piece if is_text else readable(piece)).decode("utf-8", "replace")
            yield number, searchable(body), searchable(passage.path)

    def at(self, offset: int) -> int:
        """The number of the passage that holds this byte."""
        return bisect_right(self.passages, offset, key=lambda passage: passage.start) - 1

    def rank(self, phrases: Sequence[str], most: int) -> dict[int, float]:
        """BM25 scores of the best `most` passages that hold any of the phrases, by passage number."""
        if not phrases:
            return {}
        return dict(self._db.execute(_RANK, (" OR ".join(map(_quoted, phrases)), most)))

    def count(self, phrase: str) -> int:
        """The number of passages that hold the phrase."""
        (count,) = self._db.execute(_COUNT, (_quoted(phrase),)).fetchone()
        return int(count)

    def words_from(self, first: str, last: str, most: int) -> list[str]:
        """At most `most` indexed words from `first` to before `last`. English endings are cut off."""
        return [word for (word,) in self._db.execute(_WORDS, (first, last, most))]


def _quoted(phrase: str) -> str:
    return '"' + searchable(phrase).replace('"', " ").replace("\0", " ") + '"'


MAX_BYTES = 128 << 20

# More threads would not be faster. Each holds its text and the index that it builds.
_AT_A_TIME = 2
_LARGE = 8 << 20
SMALL_AT_A_TIME = 8

_Key = tuple[str, str, str, tuple[Span, ...]]


class IndexCache:
    """Keeps the indexes used last, up to `max_bytes` together. `sweep` drops those whose result is gone."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.threads = anyio.CapacityLimiter(_AT_A_TIME)
        self._large = anyio.Semaphore(1)
        self._small = anyio.Semaphore(SMALL_AT_A_TIME)
        self._max_bytes = max_bytes
        self._kept: dict[_Key, tuple[StoredResult, PassageIndex]] = {}
        self._building: dict[_Key, anyio.Lock] = {}

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        return sum(index.size for _, index in self._kept.values())

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Waits until a text of `size` bytes may be held: one text above 8 MiB, eight smaller ones."""
        async with self._large if size > _LARGE else self._small:
            yield

    async def of(self, source: Source, data: bytes) -> PassageIndex:
        """Returns the index of `data`, the bytes of the source. Concurrent calls for one source share one
        build. Cancelling the call that builds stops the build."""
        stored = source.stored
        key = (stored.tenant, str(stored.handle), stored.sha256, source.spans)
        try:
            async with self._building.setdefault(key, anyio.Lock()):
                kept = self._kept.pop(key, None)
                index = kept[1] if kept else await self._built(data, stored.tool_name)
                self._keep(key, stored, index)
                return index
        finally:
            self._building.pop(key, None)

    async def _built(self, data: bytes, tool_name: str) -> PassageIndex:
        stop = threading.Event()
        build = partial(PassageIndex, data, tool_name, stop)
        try:
            return await run_sync(build, abandon_on_cancel=True, limiter=self.threads)
        finally:
            stop.set()

    def _keep(self, key: _Key, stored: StoredResult, index: PassageIndex) -> None:
        if index.size > self._max_bytes:
            return
        self._kept[key] = (stored, index)
        self.trim()

    def trim(self) -> None:
        """Drops the indexes that were not used for longest until the others fit. To be called after vectors
        were added to one."""
        while self.size > self._max_bytes:
            del self._kept[next(iter(self._kept))]

    async def sweep(self, store: ResultStore) -> None:
        """Drops the indexes of results that were deleted or have expired."""
        for key, (stored, _) in list(self._kept.items()):
            if await store.find(stored.tenant, stored.handle) is None:
                self._kept.pop(key, None)


_CODES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_ESCAPE = re.compile(r"\\[nrtbf\"'/\\]")
_SHORT = 100
_LEAST_CHARS_A_HUMP = 6

# Begins with the rare part, which makes it four times as fast.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]))")

# Thai to Khmer, kana, Han, Hangul: a word is found as a phrase of its characters.
_CHARACTER = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_RUN = re.compile(f"({_CHARACTER}+)")


def searchable(text: str) -> str:
    """The text with spaces between the parts that should be found separately."""
    if "\\" in text:
        text = _ESCAPE.sub(" ", _CODES.sub(_decoded, text))
    # More of them in a long text are not in identifiers, but in base64 and similar data.
    most = len(text) if len(text) < _SHORT else len(text) // _LEAST_CHARS_A_HUMP
    parted, humps = _HUMP.subn(_parted, text, most + 1)
    if humps <= most:
        text = parted
    return text if text.isascii() else _RUN.sub(_spaced, text)


def pieces(word: str) -> Iterator[str]:
    """Yields the word, or each pair of adjacent characters if its script has no spaces."""
    for index, part in enumerate(_RUN.split(word)):
        if index % 2 and len(part) > 1:
            yield from (first + second for first, second in pairwise(part))
        elif part:
            yield part


def _parted(hump: re.Match[str]) -> str:
    return " " + hump[0]


def _spaced(run: re.Match[str]) -> str:
    return f" {' '.join(run[0])} "


def _decoded(codes: re.Match[str]) -> str:
    """Decodes the UTF-16 escapes of JSON. A lone surrogate becomes U+FFFD."""
    return bytes.fromhex(codes[0].replace("\\u", "")).decode("utf-16-be", "replace")
