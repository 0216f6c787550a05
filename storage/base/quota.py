"""The bytes that a store holds, drafts included, and their upper bound. Raises StoreFull (507)."""

import threading

from domain.errors import StoreFull


class Quota:
    """Counts in this process. Thread-safe. `max_bytes` 0 means no bound."""

    def __init__(self, max_bytes: int, used: int = 0) -> None:
        self.max_bytes = max_bytes
        self.used = used
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Adds `size`. Raises StoreFull if it does not fit; then nothing is added."""
        with self._lock:
            if self.max_bytes and self.used + size > self.max_bytes:
                raise _full()
            self.used += size

    def give(self, size: int) -> None:
        with self._lock:
            self.used = max(0, self.used - size)

    def check(self) -> None:
        if self.max_bytes and self.used >= self.max_bytes:
            raise _full()


def _full() -> StoreFull:
    return StoreFull(
        "The store holds all that SPILLGATE_STORAGE_MAX_BYTES allows. Delete results or end sessions that "
        "are done with, or raise it, and try again."
    )
