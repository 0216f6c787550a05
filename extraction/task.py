"""The input of a strategy: the task, its time and tokens; and the text of its answer."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio

from content.text import cut_head
from domain.extraction import Answer, ExtractStatus, LlmUsage, Mode
from domain.llm import ModelTerms, Prompt, Reply
from extraction.asked_bytes import AskedBytes
from extraction.index_cache import IndexCache


class StrategyFailed(Exception):
    """The strategy cannot answer. The warning of the fallback tells the caller the `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Asking(Protocol):
    """What asks models on behalf of one extraction."""

    @property
    def terms(self) -> ModelTerms:
        """The terms of the model that would be asked now."""
        ...

    @property
    def concurrency(self) -> int:
        """The most concurrent calls of all extractions together."""
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
        """Counts like `count`, but a long text in a thread."""
        ...

    def has_model_without(self, names: Collection[str]) -> bool:
        """Whether there is another model than these, one that does not refuse every call."""
        ...

    def leave_out(self, name: str, reason: str) -> None:
        """No later call of this extraction goes to the model."""
        ...

    async def ask(self, prompt: Prompt, seconds: float | None = None, without: Collection[str] = ()) -> Reply:
        """Returns the reply of the first model, of those not named in `without`, that answers within
        `seconds` (default: all time left). Raises ContextExceeded if the prompt is too long for the model,
        otherwise the ModelError of the last attempt."""
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
    """One question about one stored result. `asking` is None if no model is configured, `embedder`, whose
    replies hold vectors, if no embedding model is. The body of the answer has at most `max_bytes` of UTF-8
    and is due at `ends`, a time of the event loop's clock. `whole`: the caller accepts only an answer that
    covers all of the data. `usual_bytes`: the size that an answer of passages seldom exceeds. `query`: the
    name of the argument or tool by which the asking model sends queries, "" if it has none."""

    asked: AskedBytes
    extract: str
    max_bytes: int
    limits: ExtractionLimits
    asking: Asking | None
    findings: Findings
    progress: Callable[[Progress], None] = lambda step: None
    indexes: IndexCache = field(default_factory=IndexCache)
    ends: float = math.inf
    whole: bool = False
    usual_bytes: int = 2560
    embedder: Asking | None = None
    query: str = "query"

    @property
    def usage(self) -> LlmUsage:
        """What this question has cost so far."""
        return sum((one.usage for one in (self.asking, self.embedder) if one is not None), LlmUsage())

    @property
    def seconds_left(self) -> float:
        """Seconds that the strategy may still use. The rest is kept for a fallback: FALLBACK_SECONDS; without
        a model, when the fallback is fast, at most half of what is left."""
        left = max(0.0, self.ends - anyio.current_time())
        return max(0.0, left - FALLBACK_SECONDS) if self.asking else left - min(FALLBACK_SECONDS, left / 2)


DEADLINE_PASSED = "the deadline passed"

FALLBACK_SECONDS = 0.3
"""Time that every strategy leaves for the fallback."""

MARGIN_SECONDS = 0.05
"""Time that a strategy needs after its last call to write its answer."""

_MOST_OUTPUT = 16_384
_MOST_BUFFER = 8_192

# The least tokens of data in a prompt. With fewer, nearly all of each call would be instructions.
_LEAST_DATA_TOKENS = 256

# The smallest cap, in bytes, of a finding that is merged with others.
_FINDING_BYTES = 4_096


def output_tokens(terms: ModelTerms) -> int:
    """The most tokens of one reply."""
    return max(1, min(terms.max_output_tokens, _MOST_OUTPUT, terms.context_window // 4))


def input_tokens(terms: ModelTerms) -> int:
    """The most tokens of one prompt."""
    return terms.context_window - output_tokens(terms) - buffer_tokens(terms)


def buffer_tokens(terms: ModelTerms) -> int:
    """Tokens of the window that are kept free: backends add tokens, and count differently."""
    return min(_MOST_BUFFER, terms.context_window * 6 // 100)


def data_tokens(terms: ModelTerms, other_tokens: int) -> int:
    """The most tokens of data beside `other_tokens` in one prompt. Raises StrategyFailed below 256."""
    left = input_tokens(terms) - other_tokens
    if left < _LEAST_DATA_TOKENS:
        raise StrategyFailed("the model's window is too small for the instruction")
    return left


def finding_bytes(terms: ModelTerms, max_bytes: int) -> int:
    """The cap in bytes of a finding that is merged with others into an answer of `max_bytes`."""
    return min(max(max_bytes, _FINDING_BYTES), 3 * output_tokens(terms))


CUT_WARNING = "the answer was cut: it was longer than its cap"

_CUT = b"\n[The rest was cut: it was longer than its cap.]"
_CUT_LINE = _CUT.decode()


def frame_answer(tool_name: str, handle: str, strategy: Mode, body: str) -> str:
    return f"ABSTRACT FROM TOOL OUTPUT {tool_name} WITH HANDLE {handle}, STRATEGY:{strategy}:\n\n{body}"


def frame_failure(tool_name: str, handle: str, strategy: Mode, error: str) -> str:
    return f"TOOL_OUTPUT FAILED FOR {tool_name} WITH HANDLE {handle}, STRATEGY:{strategy}:\n\n{error}"


def cap_answer(answer: Answer, max_bytes: int) -> Answer:
    """Returns the answer with a body of at most `max_bytes`. An answer whose body is cut, here or before, is
    partial and carries CUT_WARNING."""
    body = cap_text(answer.body, max_bytes)
    if body == answer.body and not body.endswith(_CUT_LINE):
        return answer
    status = ExtractStatus.PARTIAL if answer.status is ExtractStatus.COMPLETE else answer.status
    is_warned = CUT_WARNING in answer.warnings
    warnings = answer.warnings if is_warned else (*answer.warnings, CUT_WARNING)
    return replace(answer, body=body, status=status, warnings=warnings)


def cap_text(text: str, max_bytes: int) -> str:
    """Returns the text if it fits `max_bytes` of UTF-8, else its beginning and a line that says so."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    if max_bytes < len(_CUT):
        return cut_head(data, max_bytes).decode()
    return (cut_head(data, max_bytes - len(_CUT)) + _CUT).decode()


def marked_cut(text: str, max_bytes: int) -> str:
    """Adds the line which says that the text's end is missing. Returns at most `max_bytes` of UTF-8."""
    return cap_text(f"{text}{' ' * (len(_CUT) + 1)}", min(max_bytes, len(text.encode()) + len(_CUT)))


def cap_texts(texts: Sequence[str], max_bytes: int) -> list[str]:
    """Caps each text at an equal share of `max_bytes`. Long texts share what short texts leave."""
    capped = list(texts)
    left = max(0, max_bytes)
    by_size = sorted(range(len(capped)), key=lambda index: len(capped[index].encode()))
    for served, index in enumerate(by_size):
        capped[index] = cap_text(capped[index], left // (len(capped) - served))
        left -= len(capped[index].encode())
    return capped
