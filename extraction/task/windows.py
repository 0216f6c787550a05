"""How a model's window is divided: what may be read, what may be answered, what stays free."""

from domain.llm import ModelTerms
from extraction.task.task import StrategyFailed

_MOST_OUTPUT = 16_384
_MOST_BUFFER = 8_192

# Of data in a prompt: with less, nearly all of every call would be what stands around it.
_LEAST_TOKENS = 256

# Of a finding that is to be merged with others, where the answer's own cap is less.
_FINDING_BYTES = 4_096


def output_tokens(terms: ModelTerms) -> int:
    """What one answer may have."""
    return max(1, min(terms.max_output_tokens, _MOST_OUTPUT, terms.context_window // 4))


def input_tokens(terms: ModelTerms) -> int:
    """What one prompt may have. The buffer is for what a backend adds, and for counts unlike its own."""
    buffer = min(_MOST_BUFFER, terms.context_window * 6 // 100)
    return terms.context_window - output_tokens(terms) - buffer


def data_tokens(terms: ModelTerms, around: int) -> int:
    """What one prompt may have of data, with `around` tokens of all else. Raises StrategyFailed where that
    is next to nothing."""
    left = input_tokens(terms) - around
    if left < _LEAST_TOKENS:
        raise StrategyFailed("the model's window is too small for the instruction")
    return left


def finding_bytes(terms: ModelTerms, max_bytes: int) -> int:
    """What a finding may have that is to be merged with others into `max_bytes`."""
    return min(max(max_bytes, _FINDING_BYTES), 3 * output_tokens(terms))
