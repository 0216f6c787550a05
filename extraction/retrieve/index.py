"""A full-text index of the passages of one source: SQLite's FTS5 in memory, without the text."""

import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from content.passages import Passage, split
from content.words import searchable

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
        self._db.execute("BEGIN")
        self._db.executemany(_INSERT, self._rows(data, tool_name, stop))
        self._db.execute("COMMIT")
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        self.size = int(pages) * _PAGE + sum(_ROW + len(one.path) for one in self.passages)
        """Approximate bytes of memory."""

    def __del__(self) -> None:
        self._db.close()

    def _rows(self, data: bytes, tool_name: str, stop: threading.Event) -> Iterator[tuple[int, str, str]]:
        for number, passage in enumerate(split(data, tool_name)):
            if number % _STOP_EVERY == 0 and stop.is_set():
                raise Stopped
            self.passages.append(passage)
            body = data[passage.start : passage.end].decode("utf-8", "replace")
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
