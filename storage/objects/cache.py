"""Segments in memory, those that were read last. A segment never changes, so none is ever stale."""

import threading


class SegmentCache:
    """Holds at most `max_bytes`. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        with self._lock:
            found = self._held.pop(path, None)
            if found is not None:
                self._held[path] = found
            return found

    def put(self, path: str, segment: bytes) -> None:
        with self._lock:
            self._forget(path)
            self._held[path] = segment
            self._bytes += len(segment)
            while self._bytes > self._max_bytes:
                self._forget(next(iter(self._held)))

    def forget(self, paths: list[str]) -> None:
        with self._lock:
            for path in paths:
                self._forget(path)

    def _forget(self, path: str) -> None:
        self._bytes -= len(self._held.pop(path, b""))
