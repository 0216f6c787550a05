"""Log warnings about files under the root: one per path."""

import logging
import threading

_MOST_PATHS = 10_000

log = logging.getLogger("spillgate.disk")


class Notices:
    """Thread-safe. Remembers the last 10,000 paths that were warned about."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}
        self._lock = threading.Lock()

    def warn(self, path: str, what: str) -> None:
        """`path` is relative to the root and is the subject of the message; `what` is the rest of it."""
        with self._lock:
            if path in self._warned:
                return
            self._warned[path] = None
            if len(self._warned) > _MOST_PATHS:
                del self._warned[next(iter(self._warned))]
        log.warning("%s %s", path, what, extra={"fields": {"path": path}})
