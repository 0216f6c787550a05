"""Decides when a service that a command has started for its user ends."""

from collections.abc import Callable
from time import monotonic


class IdleWatch:
    """`clock` counts seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._requests = 0
        self._since = clock()

    def is_over(self, requests: int, *, is_busy: bool) -> bool:
        """Returns whether no request arrived or ran for this time. `requests` is the number of requests so
        far."""
        if is_busy or requests != self._requests:
            self._requests, self._since = requests, self._clock()
        return self._clock() - self._since >= self._seconds
