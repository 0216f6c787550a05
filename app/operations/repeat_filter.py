"""What may be logged again and again is logged once a minute for each reason, with how often it came."""

import math
from collections.abc import Callable, Hashable
from time import monotonic

REPEAT_SECONDS = 60.0
MOST_REASONS = 1000
"""Reasons that are remembered; past them, all are forgotten and may be logged again."""


class RepeatFilter:
    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._logged: dict[Hashable, tuple[float, int]] = {}

    def note(self, reason: Hashable, times: int = 1) -> int | None:
        """How many times the reason was noted without being logged before this one; None: this one is not
        logged either."""
        now = self._now()
        at, count = self._logged.get(reason, (-math.inf, 0))
        if now < at + REPEAT_SECONDS:
            self._logged[reason] = at, count + times
            return None
        if len(self._logged) >= MOST_REASONS:
            self._logged.clear()
        self._logged[reason] = now, 0
        return count
