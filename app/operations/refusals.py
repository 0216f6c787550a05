"""Whether results are refused at this moment, for an alert that ends with the outage."""

from time import monotonic

CODES = ("store_unavailable", "store_full", "internal_error")
"""Errors with which an agent is left with its only copy."""

CALM_SECONDS = 5.0
"""An answer ends it if the last refusal was so long ago: a store may fail for one request of many."""

SILENT_SECONDS = 20.0
"""Without requests, a check that passes ends it."""


class Refusals:
    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    @property
    def codes(self) -> set[str]:
        """The errors with which results are refused now."""
        return set(self._last)

    def note(self, code: str) -> None:
        if code in CODES:
            self._last[code] = monotonic()

    def end(self, *, is_stored: bool) -> None:
        """A result was answered. Only one that is stored shows that the store is not full any more."""
        if self._last:
            self._end(CALM_SECONDS, is_stored=is_stored)

    def end_if_silent(self, *, has_room: bool) -> None:
        """A check of store and ledger has passed."""
        self._end(SILENT_SECONDS, is_stored=has_room)

    def _end(self, seconds: float, *, is_stored: bool) -> None:
        before = monotonic() - seconds
        over = [code for code, at in self._last.items() if at <= before]
        for code in over:
            if is_stored or code != "store_full":
                del self._last[code]
