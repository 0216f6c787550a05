"""Ranks the passages for a question: BM25 of its words, then the HEURISTICS."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain

from content.formats.format import Passage
from content.formats.hidden_parts import is_seen
from content.formats.markup import TAG
from content.kind import Kind
from content.patterns import Pattern
from extraction.passage_index import Likeness, PassageIndex
from extraction.retrieve.question import ParsedQuestion, Word, parse, stem

_POOL = 600
_LOOKED_AT = 200
_SHORT = 4
_NEARLY = 0.02
_WITHIN = 100
_LEAST_SHARE = 0.15
_BREAK = re.compile(r"[\W_]")

# The constant of reciprocal rank fusion of the order by words and the order by meaning. 60 is usual for long
# lists. Here few passages are shown, and the first of each order must be among them.
_FUSION = 5
_OUTSTANDING, _ORDINARY = 1.0, 0.5


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that is worth showing. `words` are those of the question that it holds, in any form; `exact`
    the exact texts that it holds as whole words."""

    passage: Passage
    score: float
    words: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ranked:
    """Best first. `absent` are words and exact texts of the question that the data does not hold, not even in
    longer words. `weights`: how rare the other words are. `rarest` is the rarest word or text that the data
    holds. `look` reads the passage with this number. `is_by_meaning`: the best passage was found by its
    meaning, which stands out from all others."""

    hits: Sequence[Hit]
    absent: Sequence[str]
    weights: dict[str, float]
    rarest: str
    look: Callable[[int], Hit]
    is_by_meaning: bool = False

    def worth(self, words: Collection[str]) -> float:
        """What the words weigh together."""
        return sum(self.weights.get(word, 0.0) for word in words)


class Ranking:
    """The passages of an index while they are ranked for a question: `scores` by number, then `hits`."""

    def __init__(self, index: PassageIndex, question: ParsedQuestion, data: bytes) -> None:
        self.index = index
        self.question = question
        self.data = data
        counts = {word.text: sum(map(index.count, word.phrases)) for word in question.words}
        total = len(index.passages)
        self.weights = {word: math.log(1 + total / count) for word, count in counts.items() if count}
        places = {text: self._places(text) for text in question.exact}
        self.exact = {text: _as_written(text) for text, numbers in places.items() if numbers}
        having = {text: len(numbers) for text, numbers in places.items()} | counts
        self.rarest = min(filter(having.get, having), key=having.__getitem__, default="")
        self.hits: list[Hit] = []
        lacking = [text for text, count in counts.items() if not count and 3 <= len(text) <= _WITHIN]
        self.within = {text: numbers for text in lacking if (numbers := self._places(text))}
        self._forms = {word.text: _form(word) for word in question.words if word.text in self.weights}
        self.scores = index.rank(self._rare(counts), _POOL)
        for number in chain.from_iterable((*places.values(), *self.within.values())):
            self.scores.setdefault(number, 0.0)

    def _rare(self, counts: Mapping[str, int]) -> list[str]:
        """The phrases of words that at most half of the passages hold; of all words if there are none. BM25
        gives frequent words no weight, and takes long to count them."""
        words = self.question.words
        rare = [word for word in words if 0 < 2 * counts[word.text] <= len(self.index.passages)]
        return [phrase for word in rare or words for phrase in word.phrases]

    def look(self, number: int) -> Hit:
        """Reads a passage."""
        passage = self.index.passages[number]
        text = self._text(passage)
        words = frozenset(word for word, form in self._forms.items() if form.search(text))
        exact = frozenset(one for one, pattern in self.exact.items() if pattern.search(text))
        return Hit(passage, self.scores.get(number, 0.0), words, exact)

    def absent(self, header: str) -> list[str]:
        """Words and exact texts of the question that are neither in the data nor in the names of its
        columns."""
        words = [word.text for word in self.question.words if word.text not in self.weights | self.within]
        texts = [text for text in self.question.exact if text not in self.exact and _BREAK.search(text)]
        whole = " ".join(texts).lower()
        lacking = [*texts, *(word for word in words if word.lower() not in whole)]
        return [one for one in lacking if one.lower() not in header]

    def _places(self, text: str) -> list[int]:
        """The numbers of the first passages that hold the text, in any letter case."""
        pattern = Pattern(text, ignore_case=True, literal=True)
        numbers: list[int] = []
        at = 0
        while len(numbers) < _LOOKED_AT and (at := pattern.find(self.data, at, len(self.data))) >= 0:
            numbers.append(self.index.at(at))
            at = self.index.passages[numbers[-1]].end
        return numbers

    def _text(self, passage: Passage) -> str:
        """The passage in lower case; without the tags of a page, and without the header of a table, which is
        shown in any case."""
        piece = self.data[max(passage.start, self.index.header_end) : passage.end]
        piece = TAG.sub(b" ", piece) if self.index.kind is Kind.HTML else piece
        return piece.decode("utf-8", "replace").lower()


def shared(ranking: Ranking) -> None:
    """A passage scores more the more of the question's weight it holds, however often."""
    weights = ranking.weights
    ranking.hits = [
        replace(hit, score=hit.score + sum(map(weights.__getitem__, hit.words))) for hit in ranking.hits
    ]


def seen(ranking: Ranking) -> None:
    """Leaves out passages of scripts, style sheets and base64, unless there are no others."""
    test = is_seen(ranking.data, ranking.index.kind)
    ranking.hits = [hit for hit in ranking.hits if test(hit.passage)] or ranking.hits


def as_written(ranking: Ranking) -> None:
    """Keeps only the passages that hold the most of the question's exact texts, as whole words."""
    most = max((len(hit.exact) for hit in ranking.hits), default=0)
    ranking.hits = [hit for hit in ranking.hits if len(hit.exact) == most]


def quoted(ranking: Ranking) -> None:
    """If no text that the question quotes is in the data, keeps only passages with a word of such a text."""
    texts = ranking.question.quoted
    words = {word for text in texts for word in parse(text).words}
    if texts and not any(text in ranking.exact for text in texts):
        held = {word.text for word in words} & ranking.weights.keys()
        ranking.hits = [hit for hit in ranking.hits if hit.words & held]


HEURISTICS: dict[str, Callable[[Ranking], None]] = {
    "shared": shared,
    "seen": seen,
    "as_written": as_written,
    "quoted": quoted,
}
"""`bench.recall --without NAME` measures what each is worth."""


def rank(
    index: PassageIndex, question: ParsedQuestion, data: bytes, likeness: Likeness | None = None
) -> Ranked:
    """`data` is what the index was built from. Reads at most 200 passages of it. `likeness` is that of an
    embedding model, None to rank by words alone."""
    ranking = Ranking(index, question, data)
    best = nlargest(_LOOKED_AT, ranking.scores, key=ranking.scores.__getitem__)
    # The header of a table is shown above its rows.
    ranking.hits = [ranking.look(number) for number in best if index.passages[number].end > index.header_end]
    for heuristic in HEURISTICS.values():
        heuristic(ranking)
    header = data[: index.header_end].decode("utf-8", "replace").lower()
    absent, hits = ranking.absent(header), _worthwhile(ranking.hits)
    ranked = Ranked(hits, absent, ranking.weights, ranking.rarest, ranking.look)
    if likeness is None or not (ranked.hits or likeness.stands_out):
        return ranked
    return _fused(ranked, ranking, likeness)


def _sorted(hits: Sequence[Hit]) -> list[Hit]:
    """The best first; among scores that are nearly equal, the first in the data."""
    near = _NEARLY * max((hit.score for hit in hits), default=0.0) or 1.0
    return sorted(hits, key=lambda hit: (-round(hit.score / near), hit.passage.start))


def _worthwhile(hits: Sequence[Hit]) -> list[Hit]:
    least = _LEAST_SHARE * max((hit.score for hit in hits), default=0.0)
    return [hit for hit in _sorted(hits) if hit.score >= least]


def _form(word: Word) -> re.Pattern[str]:
    """Matches the word in any English form, in text in lower case. A short stem is a whole word."""
    stems = dict.fromkeys(stem(phrase) for phrase in word.phrases)
    return re.compile("|".join(_bounded(bare) if len(bare) < _SHORT else re.escape(bare) for bare in stems))


def _bounded(bare: str) -> str:
    return rf"(?<![^\W_]){re.escape(bare)}(?![^\W_])" if bare.isascii() else re.escape(bare)


def _as_written(text: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if text[:1].isalnum() and text[:1].isascii() else ""
    after = r"(?!\w)" if text[-1:].isalnum() and text[-1:].isascii() else ""
    return re.compile(before + r"\s+".join(map(re.escape, text.lower().split())) + after)


def _fused(ranked: Ranked, ranking: Ranking, likeness: Likeness) -> Ranked:
    """Reciprocal rank fusion of the order by words and the order by meaning. The order by words weighs as
    much as the share of the question's weight that its best passage holds; the order by meaning weighs more
    if its best passage stands out."""
    index = ranking.index
    by_words = {hit.passage: number for number, hit in enumerate(ranked.hits)}
    lacking = math.log(1 + len(index.passages))
    every_word = sum(ranked.weights.get(word.text, lacking) for word in ranking.question.words)
    share = ranked.worth(ranked.hits[0].words) / every_word if ranked.hits and every_word else 0.0
    weight = _OUTSTANDING if likeness.stands_out else _ORDINARY

    def score(passage: Passage) -> float:
        in_words, in_meaning = by_words.get(passage), likeness.places.get(index.at(passage.start))
        by_word = 0.0 if in_words is None else share / (_FUSION + in_words)
        return by_word if in_meaning is None else by_word + weight / (_FUSION + in_meaning)

    near = (ranking.look(number) for number in likeness.near)
    ranking.hits = [*ranked.hits, *(hit for hit in near if hit.passage not in by_words)]
    seen(ranking)
    as_written(ranking)
    hits = _worthwhile([replace(hit, score=score(hit.passage)) for hit in ranking.hits])
    best = likeness.places.get(index.at(hits[0].passage.start))
    return replace(ranked, hits=hits, is_by_meaning=likeness.stands_out and best == 0)
