"""A full-text index of the passages of a source, and their vectors."""

import math
import re
import sqlite3
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import anyio

from content.formats.binary import readable
from content.formats.format import Passage
from content.formats.table import header_end
from content.kind import Kind
from content.passages import split
from content.source_text import SourceText
from content.text import decode_escapes

_OBJECT_BYTES = 160

_MOST_NEAR = 10
_NEAR_SHARE = 0.7
_STEP = 0.25


@dataclass(frozen=True, slots=True)
class Likeness:
    """How similar passages are to an instruction. `near`: the numbers of the passages that are nearly as
    similar as the most similar one, best first. `stands_out`: the best is far more similar than chance
    explains. `places`: the rank of each compared passage by similarity, from 0."""

    near: Sequence[int]
    stands_out: bool
    places: dict[int, int]


class Vectors:
    """The vectors of one result's passages, by passage number, and that of the latest instruction. Each has
    length 1, in float32: a passage takes 4 bytes for each dimension. Hold `lock` while adding vectors."""

    def __init__(self) -> None:
        self.of_passages: dict[int, array[float]] = {}
        self.lock = anyio.Lock()
        self._instruction = ""
        self._of_instruction: array[float] | None = None

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        sample = next(iter(self.of_passages.values()), ())
        return len(self.of_passages) * (_OBJECT_BYTES + 4 * len(sample)) if sample else 0

    def of_instruction(self, instruction: str) -> "array[float] | None":
        return self._of_instruction if instruction == self._instruction else None

    def keep_instruction(self, instruction: str, vector: "array[float]") -> None:
        """Keeps it, and drops the vectors of passages if theirs are longer or shorter: the model was
        replaced."""
        self._instruction, self._of_instruction = instruction, vector
        if any(len(one) != len(vector) for one in self.of_passages.values()):
            self.of_passages = {}

    def forget_all_but(self, numbers: Iterable[int]) -> None:
        """Drops the vectors of other passages: a result keeps only as many as one question compares."""
        self.of_passages = {one: self.of_passages[one] for one in numbers if one in self.of_passages}

    def likeness(self, instruction: "array[float]", numbers: Iterable[int]) -> Likeness | None:
        """Compares the passages of these numbers that have a vector. None if fewer than two have one. Takes
        20 ms for 1,000 passages of 1,536 dimensions."""
        question = tuple(instruction)
        vectors = self.of_passages
        # The cosine of vectors of length 1 is 1 - distance² / 2; math.dist loops in C.
        cosines = {
            number: 1 - math.dist(vectors[number], question) ** 2 / 2
            for number in numbers
            if number in vectors
        }
        if len(cosines) < 2:
            return None
        order = sorted(cosines, key=lambda number: -cosines[number])
        best, others = cosines[order[0]], [cosines[number] for number in order[1:]]
        mean = sum(others) / len(others)
        deviation = math.sqrt(sum((one - mean) ** 2 for one in others) / len(others))
        # The largest of n values by chance is about sqrt(2 ln n) deviations above their mean. Among lines
        # that are nearly the same a deviation is tiny: the best must also be much nearer to 1.
        is_rare = best - mean > (1 + math.sqrt(2 * math.log(len(order)))) * deviation
        stands_out = is_rare and best - mean > _STEP * (1 - mean)
        least = mean + _NEAR_SHARE * (best - mean)
        near = [number for number in order[:_MOST_NEAR] if cosines[number] >= least]
        return Likeness(near, stands_out, {number: place for place, number in enumerate(order)})


_STOP_EVERY = 256
_PAGE = 4096
_ROW = 300

_SCHEMA = f"""
PRAGMA page_size = {_PAGE};
PRAGMA journal_mode = OFF;
CREATE VIRTUAL TABLE passages USING fts5(
    body, path, content='', tokenize='porter unicode61 remove_diacritics 2'
);
"""
_INSERT = "INSERT INTO passages (rowid, body, path) VALUES (?, ?, ?)"
# Words of a path count half as much as words of the passage.
_RANK = """
SELECT rowid, -bm25(passages, 1.0, 0.5) AS score FROM passages WHERE passages MATCH ?
ORDER BY score DESC LIMIT ?
"""
_COUNT = "SELECT count(*) FROM passages WHERE passages MATCH ?"


class Stopped(Exception):
    """The request for the index was cancelled."""


class PassageIndex:
    """Built once, read from any thread. Phrases match in any case, with or without accents, and in any
    English form of their words."""

    def __init__(self, text: SourceText, stop: threading.Event) -> None:
        """Raises Stopped after `stop` is set."""
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.executescript(_SCHEMA)
        self.passages: list[Passage] = []
        self.kind = text.format.kind
        self._db.execute("BEGIN")
        self._db.executemany(_INSERT, self._rows(text, stop))
        self._db.execute("COMMIT")
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        self._size = int(pages) * _PAGE + sum(_ROW + len(one.path) for one in self.passages)
        self.header_end = header_end(text.data) if self.kind is Kind.CSV else 0
        """The offset at which a table's header ends; 0 if the data does not begin with a table."""
        self.vectors = Vectors()
        """The vectors of the passages that were embedded, by their numbers."""

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        return self._size + self.vectors.size

    def __del__(self) -> None:
        self._db.close()

    def _rows(self, text: SourceText, stop: threading.Event) -> Iterator[tuple[int, str, str]]:
        is_text = self.kind is not Kind.BINARY
        path = parted = ""
        for number, passage in enumerate(split(text)):
            if number % _STOP_EVERY == 0 and stop.is_set():
                raise Stopped
            self.passages.append(passage)
            piece = text.data[passage.start : passage.end]
            body = (piece if is_text else readable(piece)).decode("utf-8", "replace")
            if passage.path != path:
                path, parted = passage.path, searchable(passage.path)
            yield number, searchable(body), parted

    def at(self, offset: int) -> int:
        """The number of the passage that holds the byte at `offset`."""
        return bisect_right(self.passages, offset, key=lambda passage: passage.start) - 1

    def rank(self, phrases: Sequence[str], most: int) -> dict[int, float]:
        """BM25 scores of the best `most` passages that hold any of the phrases, by passage number."""
        if not phrases:
            return {}
        return dict(self._db.execute(_RANK, (" OR ".join(map(_quoted, phrases)), most)))

    def count(self, *phrases: str) -> int:
        """The number of passages that hold all of the phrases."""
        (count,) = self._db.execute(_COUNT, (_all(phrases),)).fetchone()
        return int(count)


def _all(phrases: Iterable[str]) -> str:
    return " AND ".join(map(_quoted, phrases))


def _quoted(phrase: str) -> str:
    return '"' + searchable(phrase).replace('"', " ").replace("\0", " ") + '"'


_CODES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_ESCAPE = re.compile(r"\\[nrtbf\"'/\\]")
_SHORT = 100
_LEAST_CHARS_A_HUMP = 6

# The first letter of a word in camelCase. The rare part stands first: that is four times as fast.
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
        text = _ESCAPE.sub(" ", _CODES.sub(lambda codes: decode_escapes(codes[0].encode()).decode(), text))
    # A long text with more humps than that is base64 or the like, not identifiers.
    most = len(text) if len(text) < _SHORT else len(text) // _LEAST_CHARS_A_HUMP
    parted, humps = _HUMP.subn(r" \g<0>", text, most + 1)
    if humps <= most:
        text = parted
    return text if text.isascii() else _RUN.sub(lambda run: f" {' '.join(run[0])} ", text)


def pieces(word: str) -> Iterator[str]:
    """Yields the word, or each pair of adjacent characters if its script has no spaces."""
    for index, part in enumerate(_RUN.split(word)):
        if index % 2 and len(part) > 1:
            yield from (first + second for first, second in pairwise(part))
        elif part:
            yield part
