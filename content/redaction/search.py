"""Searches a body that comes in chunks."""

import time

from content.redaction import allowance
from content.redaction.allowance import SearchTooLong
from content.redaction.detector import Detector
from content.redaction.masks import NOT_SEARCHED, Masks
from content.redaction.spans import SecretSpan

BLOCK = 1 << 18
MARGIN = 1 << 16
"""A body is searched in blocks at fixed places, each with this much before and behind it. A secret is found
wherever the chunks end, unless it is longer than the margin. A larger block would take less time in all, and
hold the interpreter for longer: 80 ms with 1 MiB of secrets."""

AT_ONCE_BYTES = 1 << 14
AT_ONCE_SECONDS = 0.002
"""The search of a short text takes 0.2 ms; with many secrets or escapes more."""


class SecretSearch:
    """Finds the spans of a body, the same wherever its chunks end. `hold` takes a chunk; while `has_block`,
    `look` searches a block. `finish` searches the rest."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._held = bytearray()
        self._base = 0
        self._block = 0
        self._seconds = allowance.SECONDS
        self._masks = Masks()

    def hold(self, chunk: bytes) -> None:
        self._held += chunk

    @property
    def has_block(self) -> bool:
        return self._base + len(self._held) >= self._block + BLOCK + MARGIN

    def look(self) -> None:
        self._look(self._block + BLOCK)

    def finish(self) -> Masks:
        self._look(self._base + len(self._held))
        self._held.clear()
        return self._masks

    def finish_at_once(self) -> Masks | None:
        """None if the rest is long, or its search takes longer than others can wait: call `finish` in a
        thread then."""
        if len(self._held) > AT_ONCE_BYTES or not self._detector.is_loaded:
            return None
        try:
            found = self._detector.find(bytes(self._held), AT_ONCE_SECONDS)
        except SearchTooLong:
            return None
        self._add(found, self._base + len(self._held))
        return self._masks

    def _look(self, end: int) -> None:
        """Searches the block up to `end`, with its margins."""
        window = bytes(self._held[: end + MARGIN - self._base])
        self._seconds += allowance.SECONDS_A_MIB * (end - self._block) / (1 << 20)
        began = time.thread_time()
        try:
            found = self._detector.find(window, self._seconds)
        except SearchTooLong:
            found = [SecretSpan(self._block - self._base, end - self._base, NOT_SEARCHED)]
        self._seconds -= time.thread_time() - began
        self._add(found, end)
        self._block = end
        keep = max(self._base, end - MARGIN)
        del self._held[: keep - self._base]
        self._base = keep

    def _add(self, found: list[SecretSpan], end: int) -> None:
        """Those in the block up to `end`."""
        for span in found:
            start, stop = self._base + span.start, self._base + span.end
            if start < end and stop > self._block:
                self._masks.add(start, stop, span.kind, bytes(self._held[span.start : span.end]))


def masks_of(detector: Detector, data: bytes) -> Masks:
    search = SecretSearch(detector)
    search.hold(data)
    while search.has_block:
        search.look()
    return search.finish()
