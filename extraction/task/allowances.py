"""What a strategy may use: seconds of the deadline, tokens of the model's window."""

from domain.llm import ModelTerms
from extraction.task.task import Asking, StrategyFailed

DEADLINE_PASSED = "the deadline passed"

FALLBACK_SECONDS = 0.3
"""Time that every strategy leaves for the fallback."""

MARGIN_SECONDS = 0.05
"""Time that a strategy needs after its last call to write its answer."""

_MOST_OUTPUT = 16_384
_MOST_BUFFER = 8_192

# The least data in a prompt. Below it, nearly all of each call would be instructions.
_LEAST_DATA_TOKENS = 256

# The least cap of a finding that is merged with others.
_FINDING_BYTES = 4_096


def seconds_left(asking: Asking) -> float:
    """Seconds that the strategy may still use."""
    return max(0.0, asking.seconds_left - FALLBACK_SECONDS)


def output_tokens(terms: ModelTerms) -> int:
    """The most tokens of one reply."""
    return max(1, min(terms.max_output_tokens, _MOST_OUTPUT, terms.context_window // 4))


def input_tokens(terms: ModelTerms) -> int:
    """The most tokens of one prompt. A buffer stays free: backends add tokens, and count differently."""
    buffer = min(_MOST_BUFFER, terms.context_window * 6 // 100)
    return terms.context_window - output_tokens(terms) - buffer


def data_tokens(terms: ModelTerms, other_tokens: int) -> int:
    """The most tokens of data beside `other_tokens` in one prompt. Raises StrategyFailed below 256."""
    left = input_tokens(terms) - other_tokens
    if left < _LEAST_DATA_TOKENS:
        raise StrategyFailed("the model's window is too small for the instruction")
    return left


def finding_bytes(terms: ModelTerms, max_bytes: int) -> int:
    """The cap of a finding that is merged with others into an answer of `max_bytes`."""
    return min(max(max_bytes, _FINDING_BYTES), 3 * output_tokens(terms))
