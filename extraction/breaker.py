"""Keeps calls away from a model that failed again and again, until a single one shows that it is back."""

from collections.abc import Callable

_FAILURES = 5
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 60.0


class Breaker:
    """Of one model behind one backend. For one event loop; `clock` in seconds, never backwards."""

    __slots__ = ("_clock", "_failures", "_pause", "_probe", "_until")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._until: float | None = None
        self._probe: Trial | None = None

    @property
    def admits(self) -> bool:
        """A call may begin now. After a pause that is one call only, until it is known how it ended."""
        if self._until is None:
            return True
        return self._probe is None and self._clock() >= self._until

    def begin(self) -> "Trial":
        """A call begins, to be ended by one word on its `Trial`. To be asked for only where it `admits`."""
        trial = Trial(self)
        if self._until is not None and self._probe is None:
            self._probe = trial
        return trial

    def _end(self, trial: "Trial", succeeded: bool | None) -> None:
        is_probe = trial is self._probe
        if is_probe:
            self._probe = None
        if succeeded:
            # Also one that began before the pause: what answers is not broken.
            self._failures, self._pause, self._until = 0, _FIRST_PAUSE, None
        elif succeeded is False and is_probe:
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            self._until = self._clock() + self._pause
        elif succeeded is False and self._until is None:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._until = self._clock() + self._pause


class Trial:
    """One call, as its breaker sees it. Only the first word counts."""

    __slots__ = ("_breaker", "_ended")

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._ended = False

    def succeeded(self) -> None:
        self._end(True)

    def failed(self) -> None:
        self._end(False)

    def dropped(self) -> None:
        """It ended without telling anything about the model: cancelled, or refused for its own sake."""
        self._end(None)

    def _end(self, succeeded: bool | None) -> None:
        if not self._ended:
            self._ended = True
            self._breaker._end(self, succeeded)
