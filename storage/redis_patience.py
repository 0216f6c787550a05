"""Patience: how long one caller waits for a Redis that is slow, all its operations together.

Each operation is bounded by itself, but a request makes several, one after another. What it has waited for
slow answers is kept in the context of its task, which the tasks that it starts share.
"""

from contextvars import ContextVar

from domain.errors import StoreUnavailable

PATIENCE_SECONDS = 1.5
QUICK_SECONDS = 0.2
"""An answer within this costs no patience: distance and large segments are no fault."""

_RECOVERY_SECONDS = 5.0
"""After so long without a slow answer it is whole again, for tasks that live long."""


class Patience:
    """That of one caller. Moments are those of the monotonic clock."""

    __slots__ = ("_spent", "_spent_at")

    def __init__(self) -> None:
        self._spent = 0.0
        self._spent_at = float("-inf")

    def left(self, now: float) -> float:
        """Seconds. Raises StoreUnavailable when there are none."""
        if now > self._spent_at + _RECOVERY_SECONDS:
            self._spent = 0.0
        if self._spent >= PATIENCE_SECONDS:
            raise StoreUnavailable("Redis is too slow just now. Try again in a moment.")
        return PATIENCE_SECONDS - self._spent

    def waited(self, begun: float, now: float) -> None:
        if now - begun > QUICK_SECONDS:
            # What was waited for at the same time counts once.
            self._spent += now - max(begun, self._spent_at)
            self._spent_at = now


_patience: ContextVar[Patience] = ContextVar("patience")


def patience_of_caller() -> Patience:
    """The running task's."""
    try:
        return _patience.get()
    except LookupError:
        _patience.set(made := Patience())
        return made


def renew_patience() -> None:
    """The running task asks as a new caller from here on."""
    _patience.set(Patience())
