"""A run: one conversation of an agent, in the order in which its model saw it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

MOST_DEPTH = 200
"""JSON that is nested more deeply is left out: it cannot be sent to another process."""


def is_too_deep(value: Any) -> bool:
    """True for a JSON value that is nested more deeply than MOST_DEPTH."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for one in level for inner in _inner(one) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


@dataclass(slots=True)
class BilledTokens:
    """The tokens that a provider billed for one request. `input` are those that were neither written to the
    provider's cache nor read from it."""

    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    @classmethod
    def of_total(cls, total: int, cache_write: int, cache_read: int, output: int) -> Self:
        """`total`: the input with what was written to the cache and read from it."""
        return cls(max(0, total - cache_write - cache_read), cache_write, cache_read, output)

    @property
    def total_input(self) -> int:
        return self.input + self.cache_write + self.cache_read


@dataclass(slots=True)
class Input:
    """A text that entered the context from outside: system prompt, task, message of a user."""

    text: str


@dataclass(slots=True)
class ToolUse:
    """A call of a tool by the model."""

    id: str
    tool: str
    arguments: Any = None


@dataclass(slots=True)
class Turn:
    """One answer of the model. `thinking` is text that the model wrote and that no later request carries."""

    text: str = ""
    calls: list[ToolUse] = field(default_factory=list)
    thinking: str = ""
    model: str | None = None
    usage: BilledTokens | None = None


@dataclass(slots=True)
class Result:
    """What a tool returned, as the model saw it. `whole` is the whole output, where the client had cut it and
    the transcript has both; `is_cut`: the client had cut it."""

    call_id: str
    tool: str
    text: str
    arguments: Any = None
    is_error: bool = False
    is_cut: bool = False
    whole: str | None = None


def returned(
    call: ToolUse | None,
    text: str,
    tool: str = "tool",
    *,
    is_error: bool = False,
    is_cut: bool = False,
    whole: str | None = None,
) -> Result:
    """The result of a call; `tool` is its name where the call is not in the transcript."""
    if call is None:
        return Result("", tool, text, None, is_error, is_cut, whole)
    return Result(call.id, call.tool, text, call.arguments, is_error, is_cut, whole)


RunStep = Input | Turn | Result


@dataclass(slots=True)
class Run:
    """`client` is the name of a door, "" if the transcript names none. `passed` is None if
    the transcript does not say whether the run succeeded."""

    format: str
    client: str = ""
    steps: list[RunStep] = field(default_factory=list)
    passed: bool | None = None
    model: str | None = None

    @property
    def turns(self) -> Iterator[Turn]:
        return (step for step in self.steps if isinstance(step, Turn))

    @property
    def results(self) -> Iterator[Result]:
        return (step for step in self.steps if isinstance(step, Result))

    @property
    def chars(self) -> int:
        return sum(len(step.text) for step in self.steps)

    @property
    def models(self) -> set[str]:
        return {turn.model for turn in self.turns if turn.model} or ({self.model} if self.model else set())


@dataclass(slots=True)
class Notes:
    """What was met beside the runs. `unknown` counts records of a kind that a reader does not know, by
    `format: kind`; `faults` counts files and lines that could not be read, by reason; `named` has a path for
    each of the first of them. `position`: bytes of the current file that were read from the disk."""

    unknown: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=dict)
    formats: Counter[str] = field(default_factory=Counter)
    files: int = 0
    position: int = 0

    def fault(self, reason: str, path: str) -> None:
        self.faults[reason] += 1
        paths = self.named.setdefault(reason, [])
        if len(paths) < MOST_NAMED and path not in paths:
            paths.append(path)


MOST_NAMED = 3
