"""The calls of one extraction to its models: in order, two tries each, within the deadline, all accounted."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace

import anyio

from content.tokens import count_in_slices
from domain.errors import (
    ContextExceeded,
    ModelBadReply,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptDeclined,
    PromptRefused,
)
from domain.extraction import LlmUsage
from domain.llm import ModelTerms, Prompt, Reply
from extraction.models.lanes import ModelLane, SharedModelState
from extraction.models.usage import CallRules, ExtractionUsage, ModelCall, has_more_bytes, prompt_texts

TRIES = 2
"""Tries of one prompt at one model."""

_LEAST_SECONDS = 0.02
"""No model answers in less time: a call would cost tokens and be cancelled."""

_OUTAGE_SECONDS = 10.0
"""A model that is silent for this long is left alone. A shorter silence may be due to a short deadline."""

_WAIT_SECONDS = 10.0
"""The longest wait for a model that this extraction has asked before."""

_FIRST_WAIT_SECONDS = 2.0
"""The longest wait for a model that was left alone before this extraction asked it."""

_WAIT_SHARE = 2 / 3
"""The part of the time left that a wait may take."""

MOST_REPLY_BYTES = 64 << 20
"""The most bytes of replies that one extraction reads."""

_LATE = "the deadline passed"
_LEFT_ALONE = "the model is left alone for a moment"
_TOO_LONG = "the prompt is longer than the model's window"
_TOO_MUCH = "the replies to this extraction have more than 64 MiB"


class _Silence(ModelUnavailable):
    """No answer within the attempt's time."""


@dataclass(slots=True)
class _PromptCall:
    """One prompt, until a model has answered it. Each attempt is a ModelCall."""

    prompt: Prompt
    ends: float
    without: Collection[str] = ()
    tries: Counter[ModelLane] = field(default_factory=Counter)
    failure: ModelError | None = None
    # The prompt's tokens, by the name of the encoding.
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.ends - anyio.current_time())

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Raises ModelUnavailable when the call's time is up."""
        try:
            with anyio.fail_after(self.seconds_left):
                yield
        except TimeoutError:
            raise ModelUnavailable(_LATE) from None


class LaneAsker:
    """Implements extraction.task.Asking over at least one lane, in the lanes' order."""

    def __init__(self, lanes: Sequence[ModelLane], shared: SharedModelState, rules: CallRules) -> None:
        self._lanes = lanes
        self._shared = shared
        self._rules = rules
        self._usage = ExtractionUsage(shared, rules)
        # Models that refuse whatever they are asked, with the reason.
        self._refusals: dict[ModelLane, str] = {}
        self._asked: set[ModelLane] = set()
        self._received_bytes = 0
        # Prompts on which a model failed in every try, since its last answer to this extraction.
        self._lost: Counter[ModelLane] = Counter()

    @property
    def terms(self) -> ModelTerms:
        return self._first.model.terms

    @property
    def concurrency(self) -> int:
        return self._shared.concurrency

    @property
    def calls_left(self) -> int | None:
        return self._rules.calls_left()

    @property
    def usage(self) -> LlmUsage:
        return self._usage.total

    def count(self, text: str) -> int:
        return count_in_slices(self._first.tokenizer, text)

    async def count_in_thread(self, text: str) -> int:
        return await self._shared.count((text,), self._first.tokenizer)

    def has_model_without(self, names: Collection[str]) -> bool:
        return any(lane not in self._refusals and lane.model.terms.name not in names for lane in self._lanes)

    def leave_out(self, name: str, reason: str) -> None:
        self._refusals |= {lane: reason for lane in self._lanes if lane.model.terms.name == name}

    async def ask(self, prompt: Prompt, seconds: float | None = None, without: Collection[str] = ()) -> Reply:
        ends = self._rules.ends
        ends = ends if seconds is None else min(ends, anyio.current_time() + seconds)
        call = _PromptCall(prompt, ends, without)
        while True:
            await self._wait(call)
            async with self._slot(call):
                # While this call waited for the slot, a model may have failed for another one.
                if (lane := next(self._available(call), None)) is None:
                    continue
                await self._check_window(lane, call)
                outcome, attempt = await self._attempt(lane, call)
                # Within the slot: the caps on tokens and cost count a call before another takes its place.
                await attempt.booked()
            if isinstance(outcome, Reply):
                return outcome
            self._note_failure(lane, call, outcome)

    @property
    def _first(self) -> ModelLane:
        """The lane that would be asked now."""
        now = anyio.current_time()
        lanes = [lane for lane in self._lanes if lane not in self._refusals] or self._lanes
        return next((lane for lane in lanes if lane.health.is_available(now)), lanes[0])

    def _open(self, call: _PromptCall) -> Iterator[ModelLane]:
        """The lanes that may still answer this call, now or later."""
        for lane in self._lanes:
            is_wanted = lane not in self._refusals and lane.model.terms.name not in call.without
            if is_wanted and call.tries[lane] < TRIES:
                yield lane

    def _available(self, call: _PromptCall) -> Iterator[ModelLane]:
        now = anyio.current_time()
        return (lane for lane in self._open(call) if lane.health.is_available(now))

    async def _wait(self, call: _PromptCall) -> None:
        """Waits until a model may be asked. Raises ModelError if there will be none in time."""
        if call.seconds_left < _LEAST_SECONDS:
            raise ModelUnavailable(_LATE)
        if next(self._available(call), None) is not None:
            return
        now = anyio.current_time()
        pauses = [lane.health.retry_at - now for lane in self._open(call) if self._waits_for(lane, now)]
        if pauses and (pause := min(pauses)) <= _WAIT_SHARE * call.seconds_left:
            await anyio.sleep(max(0.0, pause))
        elif call.failure is not None:
            # A copy: a raised error refers to its frames, which would refer to the error.
            raise copy(call.failure)
        elif len(self._refusals) == len(self._lanes):
            raise ModelRefused(next(reversed(self._refusals.values())))
        else:
            reasons = (lane.health.reason for lane in self._lanes if lane not in self._refusals)
            raise ModelUnavailable(f"{_LEFT_ALONE}: {next(reasons)}")

    def _waits_for(self, lane: ModelLane, now: float) -> bool:
        """False if the model failed on two prompts of this extraction in a row and has no other call open."""
        if self._lost[lane] >= TRIES and not lane.health.in_flight:
            return False
        return lane.health.retry_at - now <= (_WAIT_SECONDS if lane in self._asked else _FIRST_WAIT_SECONDS)

    @asynccontextmanager
    async def _slot(self, call: _PromptCall) -> AsyncIterator[None]:
        """Holds one of the calls that the process makes at a time."""
        with call.in_time():
            await self._shared.slots.acquire()
        try:
            yield
        finally:
            self._shared.slots.release()

    async def _check_window(self, lane: ModelLane, call: _PromptCall) -> None:
        """Raises ContextExceeded if the prompt is too long for the model: some backends silently read only
        what fits."""
        terms, encoding = lane.model.terms, lane.tokenizer.name
        room = terms.context_window - min(call.prompt.max_output_tokens, terms.max_output_tokens)
        texts = prompt_texts(call.prompt)
        if not has_more_bytes(texts, room):
            return
        if encoding not in call.sizes:
            with call.in_time():
                call.sizes[encoding] = await self._shared.count(texts, lane.tokenizer)
        if call.sizes[encoding] > room:
            raise ContextExceeded(_TOO_LONG)

    async def _attempt(self, lane: ModelLane, call: _PromptCall) -> tuple[Reply | ModelError, ModelCall]:
        """Makes one attempt. Raises ModelRefused if it may not begin."""
        if reason := self._rules.allowed():
            raise ModelRefused(reason)
        if self._received_bytes > MOST_REPLY_BYTES:
            raise ModelRefused(_TOO_MUCH)
        seconds, began = self._seconds(lane, call), anyio.current_time()
        attempt = self._usage.begin(lane, call.prompt)
        self._asked.add(lane)
        lane.health.in_flight += 1
        outcome: Reply | ModelError
        try:
            with anyio.fail_after(seconds):
                reply = await lane.model.complete(call.prompt, attempt.note_sent)
            self._received_bytes += reply.received_bytes
            outcome = replace(reply, model=lane.model.terms.name)
            del reply
        except TimeoutError:
            outcome = _Silence("no answer in time")
        except ModelError as failure:
            # Without its frames and its cause, which hold the reply.
            outcome = copy(failure)
        except BaseException as fault:
            is_cancelled = isinstance(fault, anyio.get_cancelled_exc_class())
            attempt.failed("cancelled" if is_cancelled else "internal error", was_read=True)
            await attempt.booked_after_cancel()
            raise
        finally:
            lane.health.in_flight -= 1
        self._judge(lane, outcome, began, seconds)
        if isinstance(outcome, Reply):
            attempt.answered(outcome)
        else:
            attempt.failed(outcome.detail, was_read=isinstance(outcome, _Silence | ModelBadReply))
        return outcome, attempt

    def _seconds(self, lane: ModelLane, call: _PromptCall) -> float:
        """The attempt's time: half of what is left if another model could still answer, else all of it."""
        others = any(one is not lane for one in self._available(call))
        return call.seconds_left / 2 if others else call.seconds_left

    def _judge(self, lane: ModelLane, outcome: Reply | ModelError, began: float, seconds: float) -> None:
        """Updates the model's health by what the attempt says about the model, and not about the prompt."""
        match outcome:
            case Reply() | ContextExceeded() | PromptRefused() | PromptDeclined():
                lane.health.succeeded(began)
                self._lost[lane] = 0
            case _Silence() if seconds < _OUTAGE_SECONDS:
                pass
            case ModelUnavailable():
                lane.health.failed(anyio.current_time(), outcome.detail, outcome.retry_after)

    def _note_failure(self, lane: ModelLane, call: _PromptCall, failure: ModelError) -> None:
        """Decides whether this lane is tried again for the call. Raises ContextExceeded: the caller splits
        the prompt."""
        if isinstance(failure, ContextExceeded):
            raise copy(failure)
        call.failure = failure
        match failure:
            case ModelRefused():
                self._refusals[lane] = failure.detail
                lane.health.refused(failure)
            case PromptRefused() | PromptDeclined() | _Silence():
                call.tries[lane] = TRIES
            case _:
                call.tries[lane] += 1
                if call.tries[lane] == TRIES and isinstance(failure, ModelUnavailable):
                    self._lost[lane] += 1
