"""Progress on a terminal: a bar, runs a second, time left."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 24
_EVERY_SECONDS = 0.2


class ProgressLine:
    """Writes to `stream` if that is a terminal, and clears the line at its end."""

    def __init__(
        self, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`total` is the size of all files in bytes."""
        self._stream = stream or sys.stderr
        self._is_shown = self._stream.isatty()
        self._total = total
        self._clock = clock
        self._started = clock()
        self._latest = 0.0

    def __call__(self, runs: int, size: int) -> None:
        now = self._clock()
        if not self._is_shown or now - self._latest < _EVERY_SECONDS:
            return
        self._latest = now
        self._stream.write(f"\r{self.line(runs, size, now - self._started)}\x1b[K")
        self._stream.flush()

    def line(self, runs: int, size: int, seconds: float) -> str:
        share = min(1.0, size / self._total) if self._total else 1.0
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        speed = runs / seconds if seconds else 0.0
        left = f", {seconds / share * (1 - share):.0f} s left" if share else ""
        return f"[{bar}] {share:4.0%}  {runs:,} runs, {speed:,.0f} runs/s{left}"

    def close(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
