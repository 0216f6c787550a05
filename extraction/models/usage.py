"""Calls to models: each attempt is counted, priced and accounted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from domain.extraction import LlmUsage
from domain.llm import LlmCall, LlmTokens, Prompt, Reply, ToolCall
from domain.ports import Clock
from extraction.models.lanes import ModelLane, SharedModelState

log = logging.getLogger(__name__)

BookCall = Callable[[LlmCall], Awaitable[None]]
"""Writes one call into the accounting. Raises StorageError."""

_MS = 1000
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


def prompt_texts(prompt: Prompt) -> list[str]:
    """All texts of a prompt that the model reads."""
    tools = [text for tool in prompt.tools for text in (tool.name, tool.description, tool.parameters)]
    messages = (text for one in prompt.messages for text in _texts(one.content, one.tool_calls))
    return [*tools, *messages]


def has_more_bytes(texts: Sequence[str], most: int) -> bool:
    """Whether the texts have more than `most` bytes of UTF-8. No text has more tokens than bytes, and bytes
    are quick to count."""
    return sum(len(text.encode(errors="surrogatepass")) for text in texts) > most


def _texts(text: str, calls: Sequence[ToolCall]) -> list[str]:
    return [text, *(part for call in calls for part in (call.name, call.arguments))]


def _least_tokens(texts: Sequence[str]) -> float:
    """A tenth of the tokens that texts of this length usually have."""
    return sum(map(len, texts)) / _CHARS_A_TOKEN / _PLAUSIBLE


@dataclass(slots=True)
class ExtractionUsage:
    """The calls, tokens and cost of one extraction."""

    shared: SharedModelState
    rules: CallRules
    total: LlmUsage = field(default_factory=LlmUsage)

    def begin(self, lane: ModelLane, prompt: Prompt) -> "ModelCall":
        self.total += LlmUsage(llm_calls=1)
        return ModelCall(self, lane, prompt)


class ModelCall:
    """One call, from its beginning until its entry is written. `answered` or `failed` ends it once."""

    _booking: asyncio.Task[None]
    """Writes the entry of a call that has ended."""

    def __init__(self, usage: ExtractionUsage, lane: ModelLane, prompt: Prompt) -> None:
        self._usage = usage
        self._timestamp = usage.rules.clock()
        self._terms = lane.model.terms
        self._tokenizer = lane.tokenizer
        self._started = anyio.current_time()
        self._prompt = prompt
        self._is_sent = True

    def note_sent(self, is_sent: bool) -> None:
        """Notes whether the backend has the whole request, which is assumed until the model reports
        otherwise."""
        self._is_sent = is_sent

    def answered(self, reply: Reply) -> None:
        self._end(reply, None, was_read=True)

    def failed(self, error: str, *, was_read: bool) -> None:
        """`was_read`: the backend read the prompt if the whole request was sent, so its tokens are spent."""
        self._end(None, error, was_read and self._is_sent)

    async def booked(self) -> None:
        """Waits until the entry is written. Cancelling the wait does not cancel the writing. Raises
        StorageError."""
        await asyncio.shield(self._booking)

    async def booked_after_cancel(self) -> None:
        """Waits for the entry at most 0.2 s, in a task that is cancelled already. Raises nothing."""
        with anyio.move_on_after(_CANCELLED_SECONDS, shield=True):
            await asyncio.wait((self._booking,))

    def _end(self, reply: Reply | None, error: str | None, was_read: bool) -> None:
        latency = round((anyio.current_time() - self._started) * _MS, 3)
        bookings = self._usage.shared.bookings
        self._booking = asyncio.create_task(self._settle(reply, error, was_read, latency))
        bookings.add(self._booking)
        self._booking.add_done_callback(bookings.discard)
        self._booking.add_done_callback(self._log_error)

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
        """The tokens that the backend reported, or Spillgate's count if the report cannot be true."""
        read, said = prompt_texts(self._prompt), _texts(reply.text, reply.tool_calls)
        least, reported = _least_tokens(read), reply.tokens
        # Models may think without showing it: only their window bounds the tokens of a short reply.
        if (
            reported is not None
            and least <= reported.input <= least * _PLAUSIBLE**2
            and _least_tokens(said) <= reported.output <= self._terms.context_window
        ):
            return reported
        return LlmTokens(await self._count(read), await self._count(said))

    async def _count(self, texts: Sequence[str]) -> int:
        return await self._usage.shared.count(texts, self._tokenizer)

    def _log_error(self, booking: asyncio.Task[None]) -> None:
        """Logs why the entry was not written: the accounting then lacks the cost of this call."""
        if not booking.cancelled() and (error := booking.exception()) is not None:
            fields = {**self._usage.rules.log_fields, "model": self._terms.name, "began": self._timestamp}
            log.error("A model call was not accounted.", exc_info=error, extra={"fields": fields})
