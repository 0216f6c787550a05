"""Chooses the passages that an answer shows: the best, those that PICKS add, and others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from extraction.passage_index import PassageIndex
from extraction.retrieve.question import ParsedQuestion, parse
from extraction.retrieve.ranking import Hit, Ranked, rank

_RARE = 5
_BESIDE = 5
_MOST_OTHERS = 4
_NEAR_BEST = 0.55
_AS_MUCH = 0.95


@dataclass(frozen=True, slots=True)
class Choice:
    """`first` are shown as far as there is room, `others` while the answer is short: they score nearly as
    much as the best passage. `equal` hold as much of the question as the best passage; if they are few, they
    are among `first` as well."""

    first: Sequence[Hit]
    others: Sequence[Hit]
    equal: Sequence[Hit]


class Choosing:
    """The passages that were chosen so far, the best first."""

    def __init__(self, index: PassageIndex, question: ParsedQuestion, data: bytes, ranked: Ranked) -> None:
        self.index = index
        self.question = question
        self.data = data
        self.ranked = ranked
        self.chosen = list(ranked.hits[:1])

    def add(self, hit: Hit | None) -> None:
        if hit is not None and all(hit.passage != one.passage for one in self.chosen):
            self.chosen.append(hit)

    def holds(self, word: str) -> bool:
        return any(word in hit.words for hit in self.chosen)


def parts(choosing: Choosing) -> None:
    """Adds the best passage for each part of a joined question, unless a chosen passage holds as much of that
    part."""
    for part in map(parse, choosing.question.parts):
        if all(choosing.holds(word.text) for word in part.words if word.text in choosing.ranked.weights):
            continue
        ranked = rank(choosing.index, part, choosing.data)
        best = next(iter(ranked.hits), None)
        held = [ranked.worth(hit.words & ranked.weights.keys()) for hit in choosing.chosen]
        if best is not None and ranked.worth(best.words) > max(held, default=0.0):
            choosing.add(best)


def rare(choosing: Choosing) -> None:
    """Adds the best passage with each rare word that no chosen passage holds."""
    for word in sorted(choosing.ranked.weights, key=choosing.ranked.weights.__getitem__, reverse=True):
        having = [hit for hit in choosing.ranked.hits if word in hit.words]
        if 0 < len(having) <= _RARE and not choosing.holds(word):
            choosing.add(having[0])


def beside(choosing: Choosing) -> None:
    """Adds the passage nearest to the best one, usually in the same record, with each word that no chosen
    passage holds."""
    at = choosing.index.at(choosing.chosen[0].passage.start)
    numbers = range(max(0, at - _BESIDE), min(len(choosing.index.passages), at + _BESIDE + 1))
    near = [choosing.ranked.look(number) for number in sorted(numbers, key=lambda number: abs(number - at))]
    for word in choosing.ranked.weights:
        if not choosing.holds(word):
            choosing.add(next((hit for hit in near if word in hit.words), None))


PICKS: dict[str, Callable[[Choosing], None]] = {"parts": parts, "rare": rare, "beside": beside}
"""`bench.recall --without NAME` measures what each is worth."""


def choose(index: PassageIndex, question: ParsedQuestion, data: bytes, ranked: Ranked) -> Choice:
    choosing = Choosing(index, question, data, ranked)
    if not choosing.chosen:
        return Choice((), (), ())
    for pick in PICKS.values():
        pick(choosing)
    best = ranked.hits[0]
    least = _AS_MUCH * ranked.worth(best.words)
    equal = [hit for hit in ranked.hits if ranked.worth(hit.words) >= least and hit not in choosing.chosen]
    first = [*choosing.chosen, *(equal if len(equal) <= _MOST_OTHERS else ())]
    near = takewhile(lambda hit: hit.score >= _NEAR_BEST * best.score, ranked.hits)
    return Choice(first, [hit for hit in near if hit not in first], equal)
