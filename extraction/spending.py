"""What calls to models cost: every attempt is counted, priced and booked, however it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from content.tokens import TokenMeter
from domain.extraction import LlmUsage
from domain.llm import LlmCall, LlmTokens, Message, ModelTerms, Prompt, Reply
from domain.ports import Clock, Tokenizer

Book = Callable[[LlmCall], Awaitable[None]]

_MS = 1000
_INLINE_CHARS = 1 << 14
_CHARS_A_TOKEN = 3
_PLAUSIBLE = 10
_BYTES_A_CHAR = 4

# What a cancelled call waits for its booking, which goes on in any case.
_PARTING_SECONDS = 0.2
_CLOSING_SECONDS = 5.0


@dataclass(slots=True)
class _Sending:
    """Of the request of one attempt. A model that says nothing of it is taken to have sent it."""

    is_done: bool = True


# Of the attempt under way in this task: who is cancelled has no other way to tell.
_SENDING: ContextVar[_Sending] = ContextVar("sending")


def note_sent(is_sent: bool) -> None:
    """For a model to say whether its backend has all of the request."""
    if sending := _SENDING.get(None):
        sending.is_done = is_sent


@dataclass(frozen=True, slots=True)
class Commons:
    """What all extractions of a process share: calls at a time, a thread that counts, open bookings."""

    concurrency: int
    slots: asyncio.Semaphore
    # The tokenizer holds the GIL: more threads would only fight the event loop for it.
    counting: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    bookings: set[asyncio.Task[None]] = field(default_factory=set)

    async def close(self) -> None:
        """Waits for the bookings."""
        with anyio.move_on_after(_CLOSING_SECONDS):
            while self.bookings:
                await asyncio.wait(self.bookings)

    async def count(self, texts: Sequence[str], tokenizer: Tokenizer) -> int:
        """Tokens; of long texts in the thread."""
        if sum(map(len, texts)) <= _INLINE_CHARS:
            return count(texts, tokenizer)
        return await anyio.to_thread.run_sync(count, texts, tokenizer, limiter=self.counting)


def count(texts: Sequence[str], tokenizer: Tokenizer) -> int:
    """Tokens, in slices: no longer at a time than a thread may hold the GIL."""
    tokens = 0
    for text in texts:
        meter = TokenMeter(tokenizer)
        meter.feed(text)
        tokens += meter.finish()[0]
    return tokens


def prompt_texts(prompt: Prompt) -> list[str]:
    """All that the model reads of it."""
    tools = [text for tool in prompt.tools for text in (tool.name, tool.description, tool.parameters)]
    return [*tools, *(text for message in prompt.messages for text in _message_texts(message))]


def has_more_bytes(texts: Sequence[str], most: int) -> bool:
    """In UTF-8. No text has more tokens than bytes, and bytes are known at once."""
    chars = sum(map(len, texts))
    # Only where the number of characters does not tell they are encoded, and then no more than `most`.
    if chars > most or all(text.isascii() for text in texts) or chars * _BYTES_A_CHAR <= most:
        return chars > most
    return sum(len(text.encode(errors="surrogatepass")) for text in texts) > most


def _message_texts(message: Message) -> list[str]:
    calls = [text for call in message.tool_calls for text in (call.name, call.arguments)]
    return [message.content, *calls]


def _reply_texts(reply: Reply) -> list[str]:
    return [reply.text, *(text for call in reply.tool_calls for text in (call.name, call.arguments))]


class Spending:
    """Of one extraction."""

    def __init__(self, commons: Commons, book: Book, clock: Clock) -> None:
        self.commons = commons
        self.book = book
        self._clock = clock
        self._calls = 0
        self._tokens = LlmTokens()
        self._cost_usd = 0.0

    @property
    def calls(self) -> int:
        """Attempts begun."""
        return self._calls

    @property
    def usage(self) -> LlmUsage:
        return LlmUsage(self._calls, self._tokens.input, self._tokens.output, self._cost_usd)

    def begin(self, terms: ModelTerms, tokenizer: Tokenizer, prompt: Prompt) -> "Attempt":
        self._calls += 1
        return Attempt(self, self._clock(), terms, tokenizer, prompt)

    def add(self, tokens: LlmTokens, cost_usd: float) -> None:
        spent = self._tokens
        self._tokens = LlmTokens(spent.input + tokens.input, spent.output + tokens.output)
        self._cost_usd += cost_usd


class Attempt:
    """One call from its beginning until it is booked. To be ended once, by `answered` or `failed`."""

    def __init__(
        self, spending: Spending, timestamp: int, terms: ModelTerms, tokenizer: Tokenizer, prompt: Prompt
    ) -> None:
        self._spending = spending
        self._timestamp = timestamp
        self._terms = terms
        self._tokenizer = tokenizer
        self._started = anyio.current_time()
        self._booking: asyncio.Task[None] | None = None
        self._prompt = prompt
        self._sending = _Sending()
        _SENDING.set(self._sending)

    def answered(self, reply: Reply) -> None:
        self._end(reply, None, was_read=True)

    def failed(self, error: str, *, was_read: bool) -> None:
        """`was_read`: the backend had the prompt if all of it was sent, so that its tokens are spent."""
        self._end(None, error, was_read and self._sending.is_done)

    async def booked(self) -> None:
        """Until it is. Being cancelled leaves the booking to itself. Raises StorageError."""
        if self._booking is not None:
            await asyncio.shield(self._booking)

    async def booked_in_parting(self) -> None:
        """As `booked` for one that is cancelled already: waits a little, and raises nothing."""
        if self._booking is not None:
            with anyio.move_on_after(_PARTING_SECONDS, shield=True):
                await asyncio.wait((self._booking,))

    def _end(self, reply: Reply | None, error: str | None, was_read: bool) -> None:
        latency = round((anyio.current_time() - self._started) * _MS, 3)
        bookings = self._spending.commons.bookings
        self._booking = asyncio.create_task(self._settle(reply, error, was_read, latency))
        bookings.add(self._booking)
        self._booking.add_done_callback(bookings.discard)
        self._booking.add_done_callback(_hear)

    async def _settle(self, reply: Reply | None, error: str | None, was_read: bool, latency: float) -> None:
        if reply is not None:
            tokens = await self._spent(reply)
        else:
            tokens = LlmTokens(await self._count(prompt_texts(self._prompt)) if was_read else 0)
        cost = self._terms.price.cost(tokens)
        self._spending.add(tokens, cost)
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
        await self._spending.book(call)

    async def _spent(self, reply: Reply) -> LlmTokens:
        """As reported, unless that cannot be true; then as counted: a long prompt takes a while to count."""
        texts = prompt_texts(self._prompt)
        expected = sum(map(len, texts)) / _CHARS_A_TOKEN
        told = reply.tokens
        if told is not None and expected / _PLAUSIBLE <= told.input <= expected * _PLAUSIBLE:
            return told
        return LlmTokens(await self._count(texts), await self._count(_reply_texts(reply)))

    async def _count(self, texts: Sequence[str]) -> int:
        return await self._spending.commons.count(texts, self._tokenizer)


def _hear(booking: asyncio.Task[None]) -> None:
    # Where its caller was cancelled nobody else takes its error.
    if not booking.cancelled():
        booking.exception()
