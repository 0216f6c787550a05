"""How much processor time the search of a text may take."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

SECONDS = 1.0
SECONDS_A_MIB = 4.0
"""Those of a body. With a password in each 22 bytes a search takes half of this, 40 bytes a quarter."""


class SearchTooLong(Exception):
    """A search took all of its processor time."""


class Allowance:
    """The processor time of one thread, from now on. It depends neither on other threads nor on other
    programs."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.thread_time() + seconds

    def check(self) -> float:
        """Returns the seconds that are left. Raises SearchTooLong if there are none."""
        left = self._ends - time.thread_time()
        if left <= 0:
            raise SearchTooLong
        return left

    def spent_on(self, work: Iterable[T]) -> Iterator[T]:
        """The same items. Raises SearchTooLong."""
        for number, one in enumerate(work):
            if number % 64 == 0:
                self.check()
            yield one
