"""A breaker: while Redis is down, callers are told so at once instead of waiting for it."""

import time
from collections.abc import Callable
from enum import Enum, auto

from domain.errors import StoreUnavailable

FAILURES = 3
OPEN_SECONDS = 1.0


class Attempt(Enum):
    USUAL = auto()
    PROBE = auto()


class Breaker:
    """Opens after FAILURES in a row. After OPEN_SECONDS one attempt goes through as a probe; the others are
    refused until its outcome is known."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._resumes_at = 0.0
        self._is_probing = False

    def enter(self) -> Attempt:
        """Raises StoreUnavailable while it is open. Every attempt let in must be reported as it ends."""
        if self._failures < FAILURES:
            return Attempt.USUAL
        if self._is_probing or self._clock() < self._resumes_at:
            raise StoreUnavailable("Redis does not answer just now. Try again in a moment.")
        self._is_probing = True
        return Attempt.PROBE

    def succeeded(self, attempt: Attempt) -> None:
        self._failures = 0
        self.left(attempt)

    def failed(self, attempt: Attempt) -> None:
        self._failures += 1
        # Not for stragglers that fail while it is open: they would put off the probe.
        if attempt is Attempt.PROBE or self._failures == FAILURES:
            self._resumes_at = self._clock() + OPEN_SECONDS
        self.left(attempt)

    def left(self, attempt: Attempt) -> None:
        """It ended with nothing learnt: cancelled."""
        if attempt is Attempt.PROBE:
            self._is_probing = False
