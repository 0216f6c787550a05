"""Ranks the passages by an instruction: BM25, then neighbours of hits, then words that share a line."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from content.formats.format import Passage
from content.formats.hidden_parts import is_seen
from content.formats.markup import TAG
from content.kind import Kind
from extraction.retrieve.index import Likeness, PassageIndex
from extraction.retrieve.instruction import ParsedInstruction, synonyms
from extraction.retrieve.words import SHORT, Vocabulary, as_spelled, stem

# Weights, measured by `bench.recall` on questions about recorded results. Half or twice a
# weight changes one answer in a hundred.
_PHRASE, _EXACT, _SIMILAR, _ALTERNATIVE, _PATTERN = 0.5, 1.0, 0.5, 0.35, 2.0
_INSTEAD = 0.3
_NEIGHBOURS = ((1, 0.3), (2, 0.15))
_ONE_LINE, _VALUE, _HEAD = 1.0, 0.3, 1.0
_SAME_AGAIN = 0.85
_LEAST_SHARE = 0.15

# Shares of the best score. The best passage leads if no other scores more than _LEAD of it. Another passage
# is shown if it scores at least _NEAR_BEST of it; _NEAR_WEAK if the match is weak; _NEAR_FEWER if the best
# passage is sure and the other one holds only some of its words.
_LEAD, _NEAR_BEST, _NEAR_WEAK, _NEAR_FEWER = 0.7, 0.7, 0.5, 0.8

# The constant of reciprocal rank fusion, which joins the order by words and the order by meaning. 60 is usual
# for long lists. Here few passages are shown, and one that a single order ranks first must be among them.
_FUSION = 5
_OUTSTANDING, _ORDINARY = 1.0, 0.5

# A greedy pattern reads as much as it is given, for each passage: all of a long line would be quadratic. A
# match of up to 4 KiB is found.
_SEARCHED, _LONGEST_MATCH = 8 << 10, 4 << 10

_OF_ROWS = (Kind.CSV, Kind.LISTING)
_POOL = 600
_LOOKED_AT = 200
_LINE_BYTES = 200
_FEW_WORDS = 20

_Form = tuple[str, re.Pattern[str], re.Pattern[str], float]
_NO_LETTERS = bytes(byte for byte in range(128) if not chr(byte).isalpha())


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that is worth showing."""

    passage: Passage
    score: float
    words: frozenset[str]
    """The words of the instruction that it holds, one for all forms and synonyms of a word."""
    exact: frozenset[str] = frozenset()
    """The quoted texts, identifiers and numbers of the instruction that it holds as they are written."""
    is_labelled: bool = False
    """A line of it begins with such a word and the sign of a value, as in `total: 12`."""
    is_short: bool = False
    """It has few words besides markup."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Best first. `absent` are the words of the instruction that the data does not hold, nor similar ones."""

    hits: list[Hit]
    absent: tuple[str, ...]
    word_count: int
    """The number of different words of the instruction."""
    is_by_meaning: bool = False
    """The best passage was found by its meaning, which stands out from that of all others."""
    alone: frozenset[str] = frozenset()
    """Words of the instruction that tell what is asked about, each of which one passage alone holds: names,
    and any word in a table or list."""

    @property
    def leads(self) -> bool:
        """True if the best passage is worth clearly more than any other, or alone holds what is asked
        about."""
        if len(self.hits) < 2 or self.hits[1].score <= _LEAD * self.hits[0].score:
            return True
        return bool(self.hits[0].words & self.alone)

    @property
    def is_weak(self) -> bool:
        """True if the best passage holds at most half of the words, does not lead, and was not found by its
        meaning."""
        has_few = bool(self.hits) and self.word_count > 1 and not self.has_most(self.hits[0])
        return has_few and not self.is_by_meaning and not self.leads

    def has_most(self, hit: Hit) -> bool:
        """True if the passage holds more than half of the words."""
        return 2 * len(hit.words) > self.word_count

    def hit_of(self, passage: Passage) -> Hit | None:
        return next((hit for hit in self.hits if hit.passage == passage), None)

    @property
    def worth_showing(self) -> list[Hit]:
        """The hits up to where their worth falls sharply."""
        if not self.hits:
            return []
        best, *others = self.hits
        least = (_NEAR_WEAK if self.is_weak else _NEAR_BEST) * best.score
        is_sure = self.has_most(best)
        worth = [
            hit
            for hit in others
            if hit.score >= (_NEAR_FEWER * best.score if is_sure and hit.words < best.words else least)
        ]
        if not is_sure and not best.is_labelled:
            worth = [*(hit for hit in others if hit.is_labelled)][:1] + worth
        return [best, *worth, *self._others_exact(worth)]

    def _others_exact(self, worth: list[Hit]) -> list[Hit]:
        """The best hit for each exact text that neither the best passage nor `worth` holds."""
        shown = self.hits[0].exact.union(*(hit.exact for hit in worth))
        others = []
        for hit in self.hits:
            if not hit.exact <= shown:
                others.append(hit)
                shown |= hit.exact
        return others

    def best_for_each(self, words: Iterable[str]) -> list[Hit]:
        """The best hit for each exact text, and for each of `words`, that the best passage does not hold."""
        if not self.hits:
            return []
        shown = self.hits[0].words
        others = self._others_exact([])
        for word in words:
            hit = next((hit for hit in self.hits if word in hit.words), None)
            if hit is not None and word not in shown:
                others.append(hit)
                shown |= hit.words
        return others

    def beside(self, passages: Sequence[Passage]) -> list[Passage]:
        """The nearest of `passages`, around the best one, for each word that it does not hold."""
        best = self.hits[0]
        shown = best.words
        near = sorted(
            (hit for hit in self.hits if hit.passage in passages),
            key=lambda hit: abs(hit.passage.start - best.passage.start),
        )
        beside = []
        for hit in near:
            if not hit.words <= shown:
                beside.append(hit.passage)
                shown |= hit.words
        return beside


def rank(
    index: PassageIndex, instruction: ParsedInstruction, data: bytes, likeness: Likeness | None = None
) -> Ranked:
    """`data` is what the index was built from. Reads at most a few hundred passages of it; patterns are
    matched against all of it. `likeness` is that of an embedding model, None to rank by words alone."""
    instruction = as_spelled(index, instruction)
    header = data[: index.header_end].decode("utf-8", "replace").lower()
    vocabulary = Vocabulary.of(index, instruction, header)
    scores = _scores(index, instruction, vocabulary, data)
    look = _look(index, data, instruction, vocabulary)
    hits = [look(number, scores[number]) for number in nlargest(_LOOKED_AT, scores, key=scores.__getitem__)]
    hits = _seen(_with_exact(hits, instruction, data), data, index.kind)
    ranked = Ranked(
        _varied(hits, data), vocabulary.missing, vocabulary.size, alone=_alone(index, instruction, vocabulary)
    )
    if likeness is None or not (ranked.hits or likeness.stands_out):
        return ranked
    like = _seen([look(number, 0.0) for number in likeness.near], data, index.kind)
    return _fused(ranked, like, likeness, lambda hits: _with_exact(hits, instruction, data), index)


def _scores(
    index: PassageIndex, instruction: ParsedInstruction, vocabulary: Vocabulary, data: bytes
) -> dict[int, float]:
    """The scores of passages, by their numbers: of words, of patterns, of neighbours."""
    scores: defaultdict[int, float] = defaultdict(float)
    for phrases, weight in (
        ([word for word in instruction.words if word in vocabulary.counts], 1.0),
        (instruction.phrases, _PHRASE),
        (instruction.exact, _EXACT),
        (instruction.alternatives, _ALTERNATIVE),
        ([other for other in synonyms(vocabulary.absent) if index.count(other)], _INSTEAD),
        ([other for others in vocabulary.similar.values() for other in others], _SIMILAR),
    ):
        for number, score in index.rank(phrases, _POOL).items():
            scores[number] += weight * score
    for number, score in _matching(index, instruction, data):
        scores[number] += score
    _spread(scores, len(index.passages))
    if instruction.about_whole and 0 in scores:
        scores[0] *= 1 + _HEAD
    # The header of a table is shown above its rows.
    return {
        number: score for number, score in scores.items() if index.passages[number].end > index.header_end
    }


def _alone(index: PassageIndex, instruction: ParsedInstruction, vocabulary: Vocabulary) -> frozenset[str]:
    concepts = vocabulary.concepts
    is_of_rows = index.kind in _OF_ROWS
    names = set(concepts.values()) if is_of_rows else {name.lower() for name in instruction.names}
    return frozenset(
        concept for word, concept in concepts.items() if concept in names and vocabulary.counts.get(word) == 1
    )


def _matching(
    index: PassageIndex, instruction: ParsedInstruction, data: bytes
) -> Iterator[tuple[int, float]]:
    """Numbers of passages that match a pattern, with a weight that grows as matches get rarer. A pattern that
    matches more than half of the passages is ignored."""
    for pattern in instruction.patterns:
        numbers = []
        at = 0
        while at < len(data):
            end = min(at + _SEARCHED, len(data))
            match = pattern.find(data, at, end)
            if match >= 0:
                numbers.append(index.at(match))
                at = index.passages[numbers[-1]].end
            else:
                at = end if end == len(data) else end - _LONGEST_MATCH
        if 2 * len(numbers) > len(index.passages):
            continue
        weight = _PATTERN * math.log(1 + len(index.passages) / max(1, len(numbers)))
        yield from ((number, weight) for number in numbers)


def _spread(scores: defaultdict[int, float], count: int) -> None:
    """Gives the neighbours of each hit a share of its score."""
    own = dict(scores)
    for number, score in own.items():
        for distance, share in _NEIGHBOURS:
            for other in (number - distance, number + distance):
                if 0 <= other < count:
                    scores[other] = max(scores[other], own.get(other, 0.0) + share * score)


def _look(
    index: PassageIndex, data: bytes, instruction: ParsedInstruction, vocabulary: Vocabulary
) -> Callable[[int, float], Hit]:
    """Returns what scores a passage: by the words that share a line, by a word that labels the value behind
    it, and by a value of the kind that the instruction asks for."""
    total, value, is_page = len(index.passages), instruction.value, index.kind is Kind.HTML
    is_text = index.kind is Kind.TEXT
    concept_of = vocabulary.concept_of
    words: list[tuple[_Form, str]] = [
        ((*_forms(word), math.log(1 + total / count)), concept_of.get(word, ""))
        for word, count in vocabulary.counts.items()
    ]

    def hit(number: int, score: float) -> Hit:
        passage = index.passages[number]
        piece = data[max(passage.start, index.header_end) : passage.end]
        text = (TAG.sub(b" ", piece) if is_page else piece).decode("utf-8", "replace").lower()
        present = [(word, concept) for word, concept in words if word[0] in text]
        forms = [word for word, _ in present]
        score += _ONE_LINE * max(_worth(line, forms) for line in text.split("\n"))
        if value is not None and value.search(text):
            score *= 1 + _VALUE
        concepts = frozenset(concept for word, concept in present if concept and word[1].search(text))
        is_labelled = is_text and _is_labelled(text, present)
        return Hit(passage, score, concepts, frozenset(), is_labelled, len(text.split()) < _FEW_WORDS)

    return hit


def _worth(line: str, words: list[_Form]) -> float:
    """Sums the weights of the words in a line. A word that labels the value behind it counts twice."""
    weights = sum(
        weight * (2 if label.search(line) else 1)
        for bare, form, label, weight in words
        if bare in line and form.search(line)
    )
    return weights / (1 + len(line) / _LINE_BYTES)


def _is_labelled(text: str, words: list[tuple[_Form, str]]) -> bool:
    labels = [word[2] for word, concept in words if concept]
    return any(label.match(line.lstrip()) for line in text.split("\n") for label in labels)


def _forms(word: str) -> tuple[str, re.Pattern[str], re.Pattern[str]]:
    """The stem of a word, a pattern for its forms, and a pattern for a form used as a label: `stems: 3`,
    `"stem" = 3`. All three are for text in lower case."""
    bare = stem(word)
    form = re.escape(bare)
    if len(bare) < SHORT and bare.isascii():
        form = rf"(?<![^\W_]){form}(?![^\W_])"
    return bare, re.compile(form), re.compile(rf"{form}\w{{0,4}}[\"'\]]{{0,2}}\s{{0,3}}[:={{]")


def _seen(hits: list[Hit], data: bytes, kind: Kind) -> list[Hit]:
    """The hits that a reader of the data sees; all of them if there are none."""
    test = is_seen(data, kind)
    return [hit for hit in hits if test(hit.passage)] or hits


def _with_exact(hits: list[Hit], instruction: ParsedInstruction, data: bytes) -> list[Hit]:
    """Returns the hits that hold every quoted phrase, identifier and number of the instruction as a whole
    word: `test-20` does not hold `test-2`. If no hit holds all of them, returns the hits that hold one; if
    none holds one, returns all hits. Also keeps a hit that holds more words than any of these, since an
    instruction may ask for two things, and the neighbours of the best hit, which may hold the answer."""
    if not hits or not instruction.exact:
        return hits
    exact = {one: _as_written(one) for one in instruction.exact}
    texts = (data[hit.passage.start : hit.passage.end].decode("utf-8", "replace") for hit in hits)
    hits = [
        replace(hit, exact=frozenset(one for one, pattern in exact.items() if pattern.search(text)))
        for hit, text in zip(hits, texts, strict=True)
    ]
    every = frozenset[str]().union(*(hit.exact for hit in hits))
    least = len(every) if any(hit.exact == every for hit in hits) else 1
    holding = [hit for hit in hits if len(hit.exact) >= least]
    words = max(len(hit.words) for hit in holding)
    best = max(holding, key=lambda hit: hit.score)
    narrowed = [hit for hit in hits if len(hit.exact) >= least or len(hit.words) > words]
    beside = (
        hit for hit in hits if best.passage.start == hit.passage.end or hit.passage.start == best.passage.end
    )
    share = _NEIGHBOURS[0][1] * best.score
    return [*narrowed, *(replace(hit, score=max(hit.score, share)) for hit in beside if hit not in narrowed)]


def _as_written(text: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if text[:1].isalnum() and text[:1].isascii() else ""
    after = r"(?!\w)" if text[-1:].isalnum() and text[-1:].isascii() else ""
    return re.compile(before + r"\s+".join(map(re.escape, text.split())) + after, re.IGNORECASE)


def _varied(hits: list[Hit], data: bytes) -> list[Hit]:
    """Best first. A passage that differs from better ones only in digits and signs loses score each time.
    Passages with less than 0.15 of the best score are left out."""
    times: Counter[bytes] = Counter()
    varied = []
    for hit in sorted(hits, key=lambda hit: -hit.score):
        letters = data[hit.passage.start : hit.passage.end].translate(None, _NO_LETTERS)
        varied.append(replace(hit, score=hit.score * _SAME_AGAIN ** times[letters]))
        times[letters] += 1
    least = _LEAST_SHARE * max((hit.score for hit in varied), default=0.0)
    return sorted((hit for hit in varied if hit.score >= least), key=lambda hit: -hit.score)


def _fused(
    ranked: Ranked,
    like: list[Hit],
    likeness: Likeness,
    narrowed: Callable[[list[Hit]], list[Hit]],
    index: PassageIndex,
) -> Ranked:
    """Reciprocal rank fusion of the order by words and the order by meaning, `like`. Each order weighs as
    much as its best is worth: the share of the words that it holds, and whether it stands out."""
    by_words = {hit.passage: number for number, hit in enumerate(ranked.hits)}
    share = len(ranked.hits[0].words) / ranked.word_count if ranked.hits else 0.0
    weight = _OUTSTANDING if likeness.stands_out else _ORDINARY

    def score(passage: Passage) -> float:
        in_words, in_meaning = by_words.get(passage), likeness.places.get(index.at(passage.start))
        by_word = 0.0 if in_words is None else share / (_FUSION + in_words)
        return by_word if in_meaning is None else by_word + weight / (_FUSION + in_meaning)

    every = narrowed([*ranked.hits, *(hit for hit in like if hit.passage not in by_words)])
    hits = sorted((replace(hit, score=score(hit.passage)) for hit in every), key=lambda hit: -hit.score)
    hits = [hit for hit in hits if hit.score >= _LEAST_SHARE * hits[0].score]
    best = likeness.places.get(index.at(hits[0].passage.start))
    return replace(ranked, hits=hits, is_by_meaning=likeness.stands_out and best == 0)
