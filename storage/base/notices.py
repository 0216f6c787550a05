"""What is wrong with files or keys, in the log: one warning a path or key, however often it is met."""

import logging
import threading

_MOST_NAMES = 10_000

log = logging.getLogger("spillgate.storage")


class Notices:
    """Safe from any thread. Remembers the last 10,000 names that it warned of."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}
        self._lock = threading.Lock()

    def warn(self, path: str, what: str) -> None:
        """`path` is relative to the root, or a key of Redis; `what` is the rest of the sentence that begins
        with it."""
        with self._lock:
            if path in self._warned:
                return
            self._warned[path] = None
            if len(self._warned) > _MOST_NAMES:
                del self._warned[next(iter(self._warned))]
        log.warning("%s %s", path, what, extra={"fields": {"path": path}})
