"""Uses: literals of later actions that stood in one result, and in nothing else that the model had seen."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from replay.literals import literals, plain, quotes, stands_in, strings, without_line_numbers
from replay.runs import Input, Result, Run, Turn

_WORD = re.compile(r"\w+")
_NO_WORD = re.compile(r"\W")
_PIECE_CHARS = 1 << 16
_MOST_QUESTION_WORDS = 40
_OWN_WORD = re.compile(r"[^\W_]{3,}")


@dataclass(frozen=True, slots=True)
class Use:
    """`step` is the number of the turn among the run's steps, `result` that of the result among its results.
    `is_quote`: the text that an edit of a file names; then `results` are all that it stood in."""

    step: int
    result: int
    literal: str
    is_quote: bool = False
    results: tuple[int, ...] = ()


@dataclass(slots=True)
class Uses:
    """`by_step` has the uses of each turn that has any. `questions` has, for each of these turns, the
    question that could be asked before it: the action's own words and the task, without the literals."""

    by_step: dict[int, list[Use]] = field(default_factory=dict)
    questions: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.by_step.values()))


class _Seen:
    """The texts that a model has seen, by those of their words that are `wanted`. A text's number is that of
    its result, or -1."""

    def __init__(self, wanted: set[str]) -> None:
        self._wanted = wanted
        self._texts: list[tuple[str, int]] = []
        self._by_word: dict[str, set[int]] = defaultdict(set)

    def add(self, text: str, result: int) -> None:
        number = len(self._texts)
        self._texts.append((text, result))
        for piece in _pieces(text):
            for word in self._wanted.intersection(_WORD.findall(piece)):
                self._by_word[word].add(number)

    def results_with(self, literal: str) -> list[int]:
        """The results that hold the literal; empty if something else holds it too, or nothing does."""
        postings = [self._by_word.get(word) for word in set(_WORD.findall(literal))]
        if not postings or not all(postings):
            return []
        first, *others = sorted((one for one in postings if one), key=len)
        results = []
        for number in sorted(first.intersection(*others)):
            text, result = self._texts[number]
            if stands_in(literal, text):
                if result < 0:
                    return []
                results.append(result)
        return results


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of about 64 Ki characters, whose words are in memory at a time. No word is cut."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        end = _NO_WORD.search(text, start + _PIECE_CHARS)
        if end is None:
            break
        yield text[start : end.start()]
        start = end.start()
    yield text[start:]


def uses_of(run: Run) -> Uses:
    actions = {step: _action(part) for step, part in enumerate(run.steps) if isinstance(part, Turn)}
    named = {step: list(literals(action)) for step, action in actions.items()}
    words = {word for of_turn in named.values() for literal in of_turn for word in _WORD.findall(literal)}
    uses, seen, number, task = Uses(), _Seen(words), 0, ""
    texts: list[_ResultText] = []
    for step, part in enumerate(run.steps):
        match part:
            case Input():
                text = plain(part.text)
                task = task or text
                seen.add(text, -1)
            case Result():
                text = plain(part.text)
                texts.append(_ResultText(text))
                seen.add(text, number)
                number += 1
            case Turn():
                action, used = actions[step], []
                for literal in named[step] if number else ():
                    results = seen.results_with(literal)
                    if len(results) == 1:
                        used.append(Use(step, results[0], literal))
                used += _quotes(part, step, texts)
                if used:
                    uses.by_step[step] = used
                    uses.questions[step] = question(action, task, [use.literal for use in used])
                seen.add(action, -1)
    return uses


def _action(turn: Turn) -> str:
    """What the model says, and the arguments of its calls."""
    arguments = (one for call in turn.calls for one in strings(call.arguments))
    return plain("\n".join((turn.text, *arguments)))


class _ResultText:
    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def unnumbered(self) -> str:
        return without_line_numbers(self._text)


def _quotes(turn: Turn, step: int, texts: list[_ResultText]) -> list[Use]:
    uses = []
    for call in turn.calls:
        for quote in quotes(call.arguments):
            wanted = plain(quote).strip()
            results = tuple(
                number for number, text in enumerate(texts) if wanted and wanted in text.unnumbered
            )
            if results:
                uses.append(Use(step, results[-1], wanted, is_quote=True, results=results))
    return uses


def question(action: str, task: str, used: list[str]) -> str:
    """The words of the action, then of the task, without the literals that were used."""
    for literal in used:
        action, task = action.replace(literal, " "), task.replace(literal, " ")
    words = dict.fromkeys(_OWN_WORD.findall(action))
    words.update(dict.fromkeys(_OWN_WORD.findall(task)))
    return " ".join(list(words)[:_MOST_QUESTION_WORDS])
