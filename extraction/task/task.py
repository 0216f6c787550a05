"""What a strategy is given, and what it may say on the way."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from domain.extraction import LlmUsage
from domain.llm import ModelTerms, Prompt, Reply
from extraction.retrieve.index_cache import IndexCache
from extraction.task.source import Source


class StrategyFailed(Exception):
    """It cannot answer; `reason` is said to the model that asked, in the warning of the fallback."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Asking(Protocol):
    """One extraction's way to the models."""

    @property
    def terms(self) -> ModelTerms:
        """Of the model that is asked first now."""
        ...

    @property
    def concurrency(self) -> int:
        """Calls that all extractions together make at a time."""
        ...

    @property
    def seconds_left(self) -> float:
        """Until this extraction must have answered."""
        ...

    @property
    def calls_left(self) -> int | None:
        """How many calls the session's cap still allows; None if there is no cap."""
        ...

    @property
    def usage(self) -> LlmUsage:
        """Spent so far by this extraction."""
        ...

    def count(self, text: str) -> int:
        """Tokens, by the encoding of the model asked first. Only on the event loop: which model that is
        depends on the loop's clock."""
        ...

    async def count_in_thread(self, text: str) -> int:
        """As `count`; the tokens of a long text are counted in a thread."""
        ...

    async def ask(self, prompt: Prompt, seconds: float | None = None) -> Reply:
        """The reply of the first model that answers within `seconds` (default: all that is left). Raises
        ContextExceeded if the prompt is too long for the model, otherwise the ModelError of the last
        attempt."""
        ...


class Findings(Protocol):
    """What was found out before in this session, kept until it ends."""

    async def find(self, key: str) -> str | None: ...

    async def keep(self, key: str, finding: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """One step, for whoever watches: `plan`, `chunk` or `reduce`. `fields` are JSON values."""

    event: str
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """The policy keys that decide how a result is read."""

    max_chunks: int = 1
    overlap_percent: int = 10
    avg_line_bytes: int = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """One question to one stored result. `asking` is None where no model is configured. The body of the
    answer may have `max_bytes` of UTF-8, and must be there at `ends`, by the event loop's clock. `whole`: an
    answer that rests on a part would not be taken."""

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
