"""The task of a strategy, its ports, and its progress."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from domain.extraction import LlmUsage
from domain.llm import ModelTerms, Prompt, Reply
from extraction.retrieve.index import IndexCache
from extraction.task.source import Source


class StrategyFailed(Exception):
    """The strategy cannot answer. The warning of the fallback tells the caller the `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Asking(Protocol):
    """Asks models for one extraction."""

    @property
    def terms(self) -> ModelTerms:
        """The terms of the model that would be asked now."""
        ...

    @property
    def concurrency(self) -> int:
        """The most concurrent calls of all extractions together."""
        ...

    @property
    def seconds_left(self) -> float:
        """Seconds until this extraction must have answered."""
        ...

    @property
    def calls_left(self) -> int | None:
        """Calls that the session's cap still allows; None without a cap."""
        ...

    @property
    def usage(self) -> LlmUsage:
        """Usage of this extraction so far."""
        ...

    def count(self, text: str) -> int:
        """Tokens, by the encoding of the model asked first. Only on the event loop: which model that is
        depends on the loop's clock."""
        ...

    async def count_in_thread(self, text: str) -> int:
        """As `count`; the tokens of a long text are counted in a thread."""
        ...

    async def ask(self, prompt: Prompt, seconds: float | None = None) -> Reply:
        """Returns the reply of the first model that answers within `seconds` (default: all time left). Raises
        ContextExceeded if the prompt is too long for the model, otherwise the ModelError of the last
        attempt."""
        ...


class Findings(Protocol):
    """Keeps findings until the session ends."""

    async def find(self, key: str) -> str | None: ...

    async def keep(self, key: str, finding: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """An event for progress streams: `plan`, `chunk` or `reduce`. `fields` are JSON values."""

    event: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """The policy keys that control how a result is read."""

    max_chunks: int = 1
    overlap_percent: int = 10
    avg_line_bytes: int = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """One question about one stored result. `asking` is None if no model is configured. The body of the
    answer has at most `max_bytes` of UTF-8 and is due at `ends`, a time of the event loop's clock. `whole`:
    the caller accepts only an answer that covers all of the data."""

    source: Source
    extract: str
    max_bytes: int
    limits: ExtractionLimits
    asking: Asking | None
    findings: Findings
    progress: Callable[[Progress], None] = lambda step: None
    indexes: IndexCache = field(default_factory=IndexCache)
    ends: float = math.inf
    whole: bool = False
