"""Limits repeated log lines to one a minute for each reason, with the number of repetitions."""

import math
from collections.abc import Callable, Hashable
from time import monotonic

REPEAT_SECONDS = 60.0
MOST_REASONS = 1000
"""The most reasons that are remembered. Past this number all are forgotten, and may be logged again."""


class RepeatFilter:
    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._logged: dict[Hashable, tuple[float, int]] = {}

    def note(self, reason: Hashable, times: int = 1) -> int | None:
        """Returns how many times the reason was noted without being logged; None if it is not logged this
        time either."""
        now = self._now()
        at, count = self._logged.get(reason, (-math.inf, 0))
        if now < at + REPEAT_SECONDS:
            self._logged[reason] = at, count + times
            return None
        if len(self._logged) >= MOST_REASONS:
            self._logged.clear()
        self._logged[reason] = now, 0
        return count
