"""How an extraction's time is divided: the strategy's part of it, and what is kept for the fallback."""

from extraction.task.task import Asking

LATE = "the deadline passed"

FALLBACK_SECONDS = 0.3
"""Kept back from every strategy, so that the fallback can still answer in time."""

MARGIN_SECONDS = 0.05
"""What a strategy keeps for its own last words after its last call."""


def seconds_left(asking: Asking) -> float:
    """Of the strategy's part."""
    return max(0.0, asking.seconds_left - FALLBACK_SECONDS)
