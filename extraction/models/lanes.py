"""A lane for each model, which gets no calls for a while after it fails; and what all extractions share."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from content.threads import in_thread_if_long
from content.tokens import count_in_slices
from domain.errors import ModelRefused
from domain.ports import Model, Tokenizer

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
"""A backend that asks for a longer pause gets this one."""

_CLOSING_SECONDS = 5.0

log = logging.getLogger(__name__)


class ModelHealth:
    """Counts the calls of one model and decides when it is left alone. Every call is allowed from `retry_at`
    on, not a single trial: concurrent chunks of one question must not fail because of each other. Times are
    seconds of the event loop's clock."""

    def __init__(self, name: str) -> None:
        self.retry_at = 0.0
        self.in_flight = 0
        self.reason = ""
        self._name = name
        self._pause = FIRST_PAUSE_SECONDS
        self._failed_at: float | None = None
        self._refuses = ""

    def is_available(self, now: float) -> bool:
        return now >= self.retry_at

    def succeeded(self, began: float) -> None:
        """A call that began at `began` was answered. A call that began before the last failure proves
        nothing."""
        self._refuses = ""
        if self._failed_at is None or began < self._failed_at:
            return
        self.retry_at, self._pause, self._failed_at = 0.0, FIRST_PAUSE_SECONDS, None
        log.warning("Model '%s' answers again.", self._name, extra={"fields": {"model": self._name}})

    def refused(self, failure: ModelRefused) -> None:
        """The model refuses every call, for example because the key is wrong. There is no pause, which would
        not help. Logged once for each reason until a call is answered."""
        if failure.detail != self._refuses:
            self._refuses = failure.detail
            fields = {"model": self._name, "reason": failure.detail, "status": failure.status}
            log.warning("Model '%s' refuses every call.", self._name, extra={"fields": fields})

    def failed(self, now: float, reason: str, retry_after: float | None = None) -> None:
        """A call failed, and is no longer counted in `in_flight`. The pause is `retry_after` if the backend
        named one (seconds, at most 60). Else it is 1 s, and doubles up to 30 s once for all calls of a burst:
        while others are in flight, the failure may concern this call alone."""
        pause = FIRST_PAUSE_SECONDS
        if not self.in_flight:
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        if retry_after is not None:
            pause = min(retry_after, LONGEST_RETRY_AFTER_SECONDS)
        self.retry_at = max(self.retry_at, now + pause)
        if self._failed_at is None:
            fields = {"model": self._name, "reason": reason, "pause_seconds": round(pause, 3)}
            log.warning("Model '%s' failed and is left alone.", self._name, extra={"fields": fields})
        self._failed_at, self.reason = now, reason


@dataclass(frozen=True, slots=True, eq=False)
class ModelLane:
    """A model, the tokenizer that counts for it, and its health, which outlives a change of its terms."""

    model: Model
    tokenizer: Tokenizer
    health: ModelHealth


@dataclass(frozen=True, slots=True)
class SharedModelState:
    """What all extractions of a process share: `slots` for calls at a time, a thread that counts tokens, and
    the accounting entries that are being written."""

    concurrency: int
    slots: asyncio.Semaphore
    # The tokenizer holds the GIL: more threads would only compete with the event loop.
    counting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    bookings: set[asyncio.Task[None]] = field(default_factory=set)

    async def close(self) -> None:
        """Waits until every entry is written, at most 5 s."""
        with anyio.move_on_after(_CLOSING_SECONDS):
            while self.bookings:
                await asyncio.wait(self.bookings)

    async def count(self, texts: Sequence[str], tokenizer: Tokenizer) -> int:
        """Counts tokens. Long texts are counted in the thread."""
        size = sum(map(len, texts))
        return await in_thread_if_long(size, count_in_slices, tokenizer, *texts, limiter=self.counting)
