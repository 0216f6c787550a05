"""Questions about stored results, and their answers."""

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
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a stored result, or about `ranges` of it. Without `ranges`: about all of it.
    `max_answer_bytes` replaces the policy's, None if the caller asks for no other size."""

    handle: Handle
    extract: str
    mode: Mode = Mode.AUTO
    ranges: tuple[ByteRange, ...] = ()
    max_answer_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UnreadRange:
    """A byte range that was not read, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the data was read for the answer. `ratio` is the share of bytes, 0 to 1."""

    chunks_total: int
    chunks_ok: int
    ratio: float
    missing: tuple[UnreadRange, ...] = ()


@dataclass(frozen=True, slots=True)
class LlmUsage:
    llm_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: "LlmUsage") -> "LlmUsage":
        return LlmUsage(
            self.llm_calls + other.llm_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """`strategy` is the strategy that made the body. If that is a fallback, `fallback_reason` says why the
    strategy before it failed."""

    body: str
    strategy: Mode
    status: ExtractStatus
    coverage: Coverage
    usage: LlmUsage = field(default_factory=LlmUsage)
    warnings: tuple[str, ...] = ()
    fallback_reason: str | None = None
