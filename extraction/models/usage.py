"""Calls to models: each attempt is counted, priced and accounted; and a model that fails is left alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from content.tokens import TokenMeter
from domain.extraction import LlmUsage
from domain.llm import LlmCall, LlmTokens, Prompt, Reply, ToolCall
from domain.ports import Clock, Model, Tokenizer

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
"""A backend that asks for a longer pause gets this one."""

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

    def is_available(self, now: float) -> bool:
        return now >= self.retry_at

    def succeeded(self, began: float) -> None:
        """A call that began at `began` was answered. A call that began before the last failure proves
        nothing."""
        if self._failed_at is None or began < self._failed_at:
            return
        self.retry_at, self._pause, self._failed_at = 0.0, FIRST_PAUSE_SECONDS, None
        log.info("Model '%s' answers again.", self._name, extra={"fields": {"model": self._name}})

    def failed(self, now: float, reason: str, retry_after: float | None = None) -> None:
        """A call failed, and is no longer counted in `in_flight`. The pause is `retry_after` if the backend
        named one (seconds, at most 60). Else it is 1 s, and doubles up to 30 s once for all calls of a burst:
        while others are still in flight, one failure may be a single call's bad luck."""
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


BookCall = Callable[[LlmCall], Awaitable[None]]
"""Writes one call into the accounting. Raises StorageError."""

_MS = 1000
_INLINE_CHARS = 1 << 14
_CHARS_A_TOKEN = 3
_PLAUSIBLE = 10


@dataclass(frozen=True, slots=True)
class CallRules:
    """What an extraction sets for its calls to models. `ends` is its deadline, on the event loop's clock.
    `book` is awaited with every attempt, also a cancelled one. `allowed` is called before each attempt and
    returns the reason if it may not begin; `calls_left` returns how many may still begin, None if any number.
    `log_fields` name the extraction in the log."""

    ends: float
    book: BookCall
    clock: Clock
    allowed: Callable[[], str | None] = lambda: None
    calls_left: Callable[[], int | None] = lambda: None
    log_fields: Mapping[str, str] = field(default_factory=dict)


# How long a cancelled call waits for its entry to be written; the writing goes on in any case.
_CANCELLED_SECONDS = 0.2
_CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SharedModelState:
    """What all extractions of a process share: `slots` for calls at a time, a thread that counts tokens, and
    the accounting entries that are being written."""

    concurrency: int
    slots: asyncio.Semaphore
    # The tokenizer holds the GIL: more threads would only fight the event loop for it.
    counting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    bookings: set[asyncio.Task[None]] = field(default_factory=set)

    async def close(self) -> None:
        """Waits until every entry is written, at most 5 s."""
        with anyio.move_on_after(_CLOSING_SECONDS):
            while self.bookings:
                await asyncio.wait(self.bookings)

    async def count(self, texts: Sequence[str], tokenizer: Tokenizer) -> int:
        """Counts tokens; those of long texts in the thread."""
        if sum(map(len, texts)) <= _INLINE_CHARS:
            return count(texts, tokenizer)
        return await anyio.to_thread.run_sync(count, texts, tokenizer, limiter=self.counting)


def count(texts: Sequence[str], tokenizer: Tokenizer) -> int:
    """Counts tokens in slices, because the tokenizer holds the GIL during each."""
    tokens = 0
    for text in texts:
        meter = TokenMeter(tokenizer)
        meter.feed(text)
        tokens += meter.finish()[0]
    return tokens


def prompt_texts(prompt: Prompt) -> list[str]:
    """All texts of a prompt that the model reads."""
    tools = [text for tool in prompt.tools for text in (tool.name, tool.description, tool.parameters)]
    said = (text for one in prompt.messages for text in _texts(one.content, one.tool_calls))
    return [*tools, *said]


def has_more_bytes(texts: Sequence[str], most: int) -> bool:
    """Whether the texts have more than `most` bytes of UTF-8. No text has more tokens than bytes, and bytes
    are quick to count."""
    return sum(len(text.encode(errors="surrogatepass")) for text in texts) > most


def _texts(text: str, calls: Sequence[ToolCall]) -> list[str]:
    return [text, *(part for call in calls for part in (call.name, call.arguments))]


@dataclass(slots=True)
class Usage:
    """The calls, tokens and cost of one extraction."""

    shared: SharedModelState
    rules: CallRules
    total: LlmUsage = field(default_factory=LlmUsage)

    def begin(self, lane: ModelLane, prompt: Prompt) -> "Attempt":
        self.total += LlmUsage(llm_calls=1)
        return Attempt(self, lane, prompt)


class Attempt:
    """One call, from its beginning until its entry is written. `answered` or `failed` ends it once."""

    def __init__(self, usage: Usage, lane: ModelLane, prompt: Prompt) -> None:
        self._usage = usage
        self._timestamp = usage.rules.clock()
        self._terms = lane.model.terms
        self._tokenizer = lane.tokenizer
        self._started = anyio.current_time()
        self._booking: asyncio.Task[None] | None = None
        self._prompt = prompt
        self._is_sent = True

    def note_sent(self, is_sent: bool) -> None:
        """Called by the model: whether its backend has the whole request. True if it is never called."""
        self._is_sent = is_sent

    def answered(self, reply: Reply) -> None:
        self._end(reply, None, was_read=True)

    def failed(self, error: str, *, was_read: bool) -> None:
        """`was_read`: the backend read the prompt if the whole request was sent, so its tokens are spent."""
        self._end(None, error, was_read and self._is_sent)

    async def booked(self) -> None:
        """Waits until the entry is written. Cancelling the wait does not cancel the writing, whose error is
        then logged. Raises StorageError."""
        if self._booking is None:
            return
        try:
            await asyncio.shield(self._booking)
        except asyncio.CancelledError:
            self._booking.add_done_callback(self._log_error)
            raise

    async def booked_after_cancel(self) -> None:
        """Waits for the entry at most 0.2 s, in a task that is cancelled already. Raises nothing; an error is
        logged."""
        if self._booking is not None:
            self._booking.add_done_callback(self._log_error)
            with anyio.move_on_after(_CANCELLED_SECONDS, shield=True):
                await asyncio.wait((self._booking,))

    def _end(self, reply: Reply | None, error: str | None, was_read: bool) -> None:
        latency = round((anyio.current_time() - self._started) * _MS, 3)
        bookings = self._usage.shared.bookings
        self._booking = asyncio.create_task(self._settle(reply, error, was_read, latency))
        bookings.add(self._booking)
        self._booking.add_done_callback(bookings.discard)

    async def _settle(self, reply: Reply | None, error: str | None, was_read: bool, latency: float) -> None:
        if reply is not None:
            tokens = await self._spent(reply)
        else:
            tokens = LlmTokens(await self._count(prompt_texts(self._prompt)) if was_read else 0)
        cost = self._terms.price.cost(tokens)
        self._usage.total += LlmUsage(0, tokens.input, tokens.output, cost)
        call = LlmCall(
            provider=self._terms.provider,
            model=self._terms.name,
            timestamp=self._timestamp,
            latency=latency,
            stop_reason=None if reply is None else reply.stop_reason,
            tokens=tokens,
            cost_usd=cost,
            error=error,
        )
        await self._usage.rules.book(call)

    async def _spent(self, reply: Reply) -> LlmTokens:
        """The tokens that the backend reported, or our own count if the report cannot be true."""
        texts = prompt_texts(self._prompt)
        expected = sum(map(len, texts)) / _CHARS_A_TOKEN
        reported = reply.tokens
        if reported is not None and expected / _PLAUSIBLE <= reported.input <= expected * _PLAUSIBLE:
            return reported
        return LlmTokens(await self._count(texts), await self._count(_texts(reply.text, reply.tool_calls)))

    async def _count(self, texts: Sequence[str]) -> int:
        return await self._usage.shared.count(texts, self._tokenizer)

    def _log_error(self, booking: asyncio.Task[None]) -> None:
        """Logs why the entry was not written. The caller was cancelled, so nothing else reports it."""
        if not booking.cancelled() and (error := booking.exception()) is not None:
            fields = {**self._usage.rules.log_fields, "model": self._terms.name, "began": self._timestamp}
            log.error("A model call was not accounted.", exc_info=error, extra={"fields": fields})
