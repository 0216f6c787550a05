"""What may be tried again, how often, and after which pause."""

import random
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

_LEAST_BUDGET = 3
_SHARE = 0.2
_FIRST_PAUSE = 0.25
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


class Retries:
    """What one extraction may try again: a share of its calls, so that a broken backend is not flooded."""

    __slots__ = ("_jitter", "_taken")

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        """`jitter` answers a number from 0 to 1."""
        self._jitter = jitter
        self._taken = 0

    def remain(self, calls: int) -> bool:
        """One more is allowed, `calls` having begun so far."""
        return self._taken < max(_LEAST_BUDGET, int(_SHARE * calls))

    def take(self) -> None:
        self._taken += 1

    def pause(self, before: int) -> float:
        """Seconds until the next try, `before` of the same call having been made again already."""
        return self._jitter() * _FIRST_PAUSE * 2.0**before


def asked_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that a backend asks to wait, however many they are; None where it says nothing of sense."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    wanted = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(wanted):
        return float(wanted)
    try:
        date = parsedate_to_datetime(wanted)
        # A header's date without a zone is meant as UTC too.
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def told_to_retry(headers: Mapping[str, str]) -> bool | None:
    """What the backend itself says of trying again, if it does."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())
