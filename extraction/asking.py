"""One extraction's way to the models: which is asked, how long, and what is done when it fails."""

import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio

from domain.errors import (
    ContextExceeded,
    ModelBadReply,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptDeclined,
)
from domain.extraction import LlmUsage
from domain.llm import ModelTerms, Prompt, Reply
from domain.ports import Clock, Model, Tokenizer
from extraction.breaker import Breaker, Trial
from extraction.retries import Retries
from extraction.spending import Attempt, Book, Commons, Spending, count, has_more_bytes, prompt_texts

# Of what is left, for an attempt after which another model may still help; but so long in any case.
_SHARE = 0.6
_LEAST_SHARE_SECONDS = 1.0

# No model answers within it: a call would be paid for in vain.
_LEAST_SECONDS = 0.02

# A silence shorter than this tells of the caller's hurry, not of the model: it must not shut out others.
_TELLING_SECONDS = 10.0

_LATE = "the deadline passed"
_LEFT_ALONE = "the model failed too often and is left alone for a while"
_LONGER = "the prompt is longer than the model's window"


class _Silence(ModelUnavailable):
    """The attempt's time was up."""


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One model, and what the process knows of it."""

    model: Model
    breaker: Breaker
    tokenizer: Tokenizer


@dataclass(slots=True)
class _Course:
    """Of one prompt past the models, until one of them answers."""

    prompt: Prompt
    ends: float
    passed: set[Lane] = field(default_factory=set)
    failure: ModelError | None = None
    retries: int = 0
    had_bad_reply: bool = False
    # The prompt's tokens, by the name of the encoding.
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.ends - anyio.current_time())


class Asker:
    """Implements extraction.task.Asking over lanes in their order, one at least."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        commons: Commons,
        *,
        ends: float,
        book: Book,
        allowed: Callable[[], str | None],
        clock: Clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`ends` is an instant of the event loop's time. `allowed` is asked before every attempt and answers
        why there may be none. `book` is told of every attempt, also of one that was cancelled."""
        self._lanes = lanes
        self._commons = commons
        self._ends = ends
        self._allowed = allowed
        self._spending = Spending(commons, book, clock)
        self._retries = Retries(jitter)
        self._refusals: dict[Lane, str] = {}

    @property
    def terms(self) -> ModelTerms:
        return self._first.model.terms

    @property
    def concurrency(self) -> int:
        return self._commons.concurrency

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._ends - anyio.current_time())

    @property
    def usage(self) -> LlmUsage:
        return self._spending.usage

    def count(self, text: str) -> int:
        return count((text,), self._first.tokenizer)

    async def ask(self, prompt: Prompt, seconds: float | None = None) -> Reply:
        ends = self._ends if seconds is None else min(self._ends, anyio.current_time() + seconds)
        course = _Course(prompt, ends)
        while True:
            async with self._slot(course):
                lane = await self._fitting(course)
                outcome, attempt = await self._attempt(lane, course)
            await attempt.booked()
            if isinstance(outcome, Reply):
                return outcome
            await self._go_on(lane, course, outcome)

    @property
    def _first(self) -> Lane:
        """The one that would be asked now."""
        lanes = [lane for lane in self._lanes if lane not in self._refusals] or self._lanes
        return next((lane for lane in lanes if lane.breaker.admits), lanes[0])

    @asynccontextmanager
    async def _slot(self, course: _Course) -> AsyncIterator[None]:
        """One of the calls that the process makes at a time."""
        try:
            with anyio.fail_after(course.seconds_left):
                await self._commons.slots.acquire()
        except TimeoutError:
            raise ModelUnavailable(_LATE) from None
        try:
            yield
        finally:
            self._commons.slots.release()

    def _open(self, course: _Course) -> Iterator[Lane]:
        for lane in self._lanes:
            if lane not in course.passed and lane not in self._refusals and lane.breaker.admits:
                yield lane

    def _next(self, course: _Course) -> Lane:
        """Raises why there is none."""
        if course.seconds_left < _LEAST_SECONDS:
            raise ModelUnavailable(_LATE)
        for lane in self._open(course):
            return lane
        if course.failure is not None:
            raise course.failure
        if len(self._refusals) == len(self._lanes):
            raise ModelRefused(next(reversed(self._refusals.values())))
        raise ModelUnavailable(_LEFT_ALONE)

    async def _fitting(self, course: _Course) -> Lane:
        """The next one. Raises why there is none, and ContextExceeded where the prompt is too long for it:
        some backends read what fits, and do not say that there was more."""
        texts = prompt_texts(course.prompt)
        while True:
            lane = self._next(course)
            terms, encoding = lane.model.terms, lane.tokenizer.name
            room = terms.context_window - min(course.prompt.max_output_tokens, terms.max_output_tokens)
            if not has_more_bytes(texts, room) or course.sizes.get(encoding, room + 1) <= room:
                return lane
            if encoding in course.sizes:
                raise ContextExceeded(_LONGER)
            course.sizes[encoding] = await self._size(course, texts, lane.tokenizer)
            # That took a while: whether this lane is still the next is asked anew.

    async def _size(self, course: _Course, texts: Sequence[str], tokenizer: Tokenizer) -> int:
        try:
            with anyio.fail_after(course.seconds_left):
                return await self._commons.count(texts, tokenizer)
        except TimeoutError:
            raise ModelUnavailable(_LATE) from None

    async def _attempt(self, lane: Lane, course: _Course) -> tuple[Reply | ModelError, Attempt]:
        """How it ended. Raises ModelError only where no attempt may begin."""
        if reason := self._allowed():
            raise ModelRefused(reason)
        seconds = self._seconds(lane, course)
        outcome: Reply | ModelError
        attempt = self._spending.begin(lane.model.terms, lane.tokenizer, course.prompt)
        trial = lane.breaker.begin()
        try:
            with anyio.fail_after(seconds):
                outcome = replace(await lane.model.complete(course.prompt), model=lane.model.terms.name)
        except TimeoutError:
            outcome = _Silence("no answer in time")
        except ModelError as failure:
            outcome = failure
        except BaseException as fault:
            trial.dropped()
            is_cancelled = isinstance(fault, anyio.get_cancelled_exc_class())
            attempt.failed("cancelled" if is_cancelled else "internal error", was_read=True)
            await attempt.booked_in_parting()
            raise
        _end(outcome, trial, attempt, seconds)
        return outcome, attempt

    def _seconds(self, lane: Lane, course: _Course) -> float:
        """Shared only with another model: what is slow but healthy would be cut off, and paid for again."""
        left = course.seconds_left
        if any(one is not lane for one in self._open(course)):
            return min(left, max(_SHARE * left, _LEAST_SHARE_SECONDS))
        return left

    async def _go_on(self, lane: Lane, course: _Course, failure: ModelError) -> None:
        """The same model again after a pause, or the next one at once. Raises ContextExceeded."""
        if isinstance(failure, ContextExceeded):
            raise failure
        course.failure = failure
        if isinstance(failure, ModelRefused):
            self._refusals[lane] = failure.detail
        elif (pause := self._pause(lane, course, failure)) is not None:
            self._retries.take()
            course.retries += 1
            await anyio.sleep(pause)
        else:
            course.passed.add(lane)

    def _pause(self, lane: Lane, course: _Course, failure: ModelError) -> float | None:
        """Until the same model is tried again; None if it is not."""
        if isinstance(failure, PromptDeclined):
            return None
        if not lane.breaker.admits or not self._retries.remain(self._spending.calls):
            return None
        pause = self._retries.pause(course.retries)
        if isinstance(failure, ModelBadReply):
            if course.had_bad_reply:
                return None
            course.had_bad_reply = True
            pause = 0.0
        elif isinstance(failure, _Silence):
            # What is left is better spent on another model.
            if any(one is not lane for one in self._open(course)):
                return None
        elif isinstance(failure, ModelUnavailable) and failure.retry_after is not None:
            pause = failure.retry_after
        return pause if pause + _LEAST_SECONDS < course.seconds_left else None


def _end(outcome: Reply | ModelError, trial: Trial, attempt: Attempt, seconds: float) -> None:
    """Tells breaker and books; of `seconds` that the attempt had."""
    if isinstance(outcome, Reply):
        trial.succeeded()
        attempt.answered(outcome)
        return
    attempt.failed(outcome.detail, was_read=isinstance(outcome, _Silence | ModelBadReply))
    if isinstance(outcome, ContextExceeded):
        trial.succeeded()
    elif _tells_of_the_model(outcome, seconds):
        trial.failed()
    else:
        trial.dropped()


def _tells_of_the_model(failure: ModelError, seconds: float) -> bool:
    if isinstance(failure, _Silence):
        return seconds >= _TELLING_SECONDS
    if isinstance(failure, ModelUnavailable):
        # Who says when it will be back is busy, not broken.
        return failure.retry_after is None
    return isinstance(failure, ModelBadReply) and not isinstance(failure, PromptDeclined)
