"""Log warnings about damaged files and keys: one per path or key."""

import logging
import threading

_MOST_NAMES = 10_000

log = logging.getLogger("spillgate.storage")


class Notices:
    """Thread-safe. Remembers the last 10,000 names that were warned about."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}
        self._lock = threading.Lock()

    def warn(self, path: str, what: str) -> None:
        """`path` is relative to the root, or a key of Redis, and is the subject of the message; `what` is the
        rest of it."""
        with self._lock:
            if path in self._warned:
                return
            self._warned[path] = None
            if len(self._warned) > _MOST_NAMES:
                del self._warned[next(iter(self._warned))]
        log.warning("%s %s", path, what, extra={"fields": {"path": path}})
