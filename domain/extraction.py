"""An answer taken out of a stored result without showing all of it."""

from dataclasses import dataclass, field
from enum import StrEnum

from domain.handles import Handle


class Mode(StrEnum):
    AUTO = "auto"
    FULL_CHUNKED = "full-chunked"
    READ_GREP = "read-grep"
    TRUNCATE = "truncate"
    RETRIEVE = "retrieve"


class ExtractStatus(StrEnum):
    COMPLETE = "complete"
    PARTIAL = "partial"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a stored result. No `ranges` means all of it."""

    handle: Handle
    extract: str
    mode: Mode = Mode.AUTO
    ranges: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """A byte range that the answer does not rest on, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what was asked about the answer rests on; `ratio` is of bytes, 0 to 1."""

    chunks_total: int
    chunks_ok: int
    ratio: float
    missing: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class LlmUsage:
    llm_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a strategy found. `strategy` is the one that made the body, not the one asked for;
    `fallback_reason` says why another one could not."""

    body: str
    strategy: Mode
    status: ExtractStatus
    coverage: Coverage
    usage: LlmUsage = field(default_factory=LlmUsage)
    warnings: tuple[str, ...] = ()
    fallback_reason: str | None = None
