"""Answers a question about a stored result, within the session's size cap and what its budget still holds."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial

import anyio

from app.entries import entry_about
from app.lookup import look_up
from app.model_calls import SessionFindings, book_call
from app.runs import Watch
from app.runtime import Runtime
from content import cut
from domain.accounting import EntryStatus, EntryType
from domain.errors import Conflict, Incomplete, SessionEnded, SpillgateError, StoreUnavailable
from domain.extraction import Answer, Coverage, ExtractStatus, LlmUsage, Mode, Question
from domain.llm import LlmCall
from domain.ports import Charge, Entered, Receipt
from domain.results import StoredResult
from extraction import frames, ladder
from extraction import task as extraction
from extraction.source import Source
from policies.book import Terms
from policies.facts import Policy

UNCAPPED_BYTES = 12_288
"""How long an answer may be where the policy sets no size cap."""

GRACE_SECONDS = 0.4
"""What may pass after the deadline until the answer of the last resort is out."""

_TRIES = 3

_EXHAUSTED = (
    "The answer does not fit what is left of the context budget. Take the final turn, "
    "or report the context's usage and ask again."
)


@dataclass(frozen=True, slots=True)
class Extracted:
    """`text` is framed: what the model reads."""

    text: str
    answer: Answer
    stored: StoredResult
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Wish:
    """How the answer is wanted. `deadline_ms` counts from now."""

    deadline_ms: int
    require_complete: bool = False
    watch: Watch = lambda step: None


async def extract(tenant: str, question: Question, wish: Wish, rt: Runtime) -> Extracted:
    """Raises ResultNotFound, ResultExpired, SessionEnded; Incomplete where all was required;
    StoreUnavailable past the deadline."""
    started = rt.clock()
    ends = asyncio.get_running_loop().time() + wish.deadline_ms / 1000
    try:
        with anyio.fail_after(wish.deadline_ms / 1000 + GRACE_SECONDS):
            stored = await look_up(rt, tenant, str(question.handle))
            terms = rt.policies.terms(None)
            entered = await rt.ledger.enter(stored.key, None, None, terms.window, terms.told)
            policy = rt.policies.policy(stored.tool_name, entered.session.policy)
            terms = rt.policies.terms(entered.session.model)
            asking = _Asking(question, wish, stored, entered, policy, terms, started, ends, rt)
            try:
                return await asking.answered()
            except (Incomplete, SessionEnded, Conflict) as error:
                await asking.book_failure(error)
                raise
    except TimeoutError:
        raise StoreUnavailable("The deadline passed before the result was read. Allow more time.") from None


@dataclass(frozen=True, slots=True)
class _Asking:
    question: Question
    wish: Wish
    stored: StoredResult
    entered: Entered
    policy: Policy
    terms: Terms
    started: int
    ends: float
    rt: Runtime

    async def answered(self) -> Extracted:
        """A shorter answer while the budget refuses; the last resort is a failure that says so."""
        source = Source(self.rt.store, self.stored, self.question.ranges)
        if self.entered.session.budget(self.terms.window, self.terms.told).exhausted:
            # Nothing that a model could say would fit.
            return await self._exhausted(LlmUsage())
        cap = self.policy.max_bytes or UNCAPPED_BYTES
        room = max(0, cap - len(self._framed(Mode.FULL_CHUNKED, "").encode()))
        answer = await self._found(source, room)
        for _ in range(_TRIES):
            if self.wish.require_complete and answer.status is not ExtractStatus.COMPLETE:
                raise Incomplete(
                    "The answer would not rest on all of the result. Ask about less of it, or allow it."
                )
            # Only a cap below the frame's own size cuts here.
            text = cut.head(self._framed(answer.strategy, answer.body).encode(), cap).decode()
            tokens = await self._count(text)
            receipt = await self.rt.ledger.reserve(self._charge(answer, text, tokens))
            if receipt is not None:
                return self._done(text, answer, receipt)
            room = await self._smaller(len(answer.body.encode()), tokens)
            if room <= 0:
                break
            answer = await ladder.shorter(answer, self._task(source, room), room)
        return await self._exhausted(answer.usage)

    async def _found(self, source: Source, room: int) -> Answer:
        """The same question asked at the same time, to be answered as long, is answered by one run."""
        question = self.question
        key: Hashable = (self.stored.tenant, question, self.wish.require_complete, room, self.policy)
        return await self.rt.runs.join(key, self.ends, partial(self._run, source, room), self.wish.watch)

    async def _run(self, source: Source, room: int, watch: Watch) -> Answer:
        task = replace(self._task(source, room), progress=watch)
        find = partial(
            ladder.answer, mode=self.question.mode, fallback=Mode(self.rt.settings.extract_fallback)
        )
        if self.rt.models is None:
            return await find(task)
        async with self.rt.purses.open(self.stored.key, self.policy) as purse:

            async def book(call: LlmCall) -> None:
                purse.booked(call)
                await book_call(self.rt, self.stored, call)

            asker = self.rt.models.asker(
                self.policy.extract_models,
                ends=self.ends,
                book=book,
                allowed=purse.take,
                clock=self.rt.clock,
            )
            return await find(replace(task, asking=asker))

    def _task(self, source: Source, room: int) -> extraction.Task:
        policy = self.policy
        return extraction.Task(
            source,
            self.question.extract,
            room,
            extraction.Terms(policy.max_chunks, policy.overlap_percent, policy.avg_line_bytes),
            asking=None,
            findings=SessionFindings(self.rt.ledger, self.stored.key, self.entered.session.epoch),
            indexes=self.rt.indexes,
            ends=self.ends,
            whole=self.wish.require_complete,
        )

    async def _smaller(self, size: int, tokens: int) -> int:
        """Bytes that should fit what remains, from what this answer's bytes cost in tokens."""
        key, terms = self.stored.key, self.terms
        now = await self.rt.ledger.enter(key, None, None, terms.window, terms.told)
        remaining = now.session.budget(terms.window, terms.told).remaining_tokens
        frame = await self._count(self._framed(Mode.FULL_CHUNKED, ""))
        return int((remaining - frame) * (size / max(tokens, 1)) * 0.9)

    async def _exhausted(self, usage: LlmUsage) -> Extracted:
        if self.wish.require_complete:
            raise Incomplete("What is left of the context budget does not hold the answer.")
        nothing = Coverage(1, 0, 0.0)
        partial_answer = ExtractStatus.PARTIAL
        answer = Answer(_EXHAUSTED, Mode.TRUNCATE, partial_answer, nothing, usage, (_EXHAUSTED,))
        text = frames.failed(self.stored.tool_name, str(self.stored.handle), self.question.mode, _EXHAUSTED)
        charge = self._charge(answer, text, await self._count(text))
        failed = replace(charge.entry, status=EntryStatus.FAILED, error="budget exhausted")
        receipt = await self.rt.ledger.settle(replace(charge, entry=failed))
        return self._done(text, answer, receipt)

    async def book_failure(self, error: SpillgateError) -> None:
        """An extraction that was not answered is a line of the accounting all the same."""
        answer = Answer("", self.question.mode, ExtractStatus.PARTIAL, Coverage(0, 0, 0.0))
        entry = self._charge(answer, "", 0).entry
        await self.rt.ledger.append(replace(entry, status=EntryStatus.FAILED, error=error.code))

    def _done(self, text: str, answer: Answer, receipt: Receipt) -> Extracted:
        self.rt.metrics.extracted(answer)
        self.rt.metrics.spent(receipt.entry.tokens_out)
        return Extracted(text, answer, self.stored, receipt)

    def _framed(self, strategy: Mode, body: str) -> str:
        return frames.abstract(self.stored.tool_name, str(self.stored.handle), strategy, body)

    async def _count(self, text: str) -> int:
        return await self.rt.count(text, self.entered.session.model)

    def _charge(self, answer: Answer, text: str, tokens: int) -> Charge:
        stored, now = self.stored, self.rt.clock()
        about = entry_about(self.rt, stored, EntryType.EXTRACT, now)
        entry = replace(
            about,
            latency=now - self.started,
            charactersIn=len(self.question.extract),
            charactersOut=len(text),
            tokens_out=tokens,
            tokens_saved=-tokens,
            model=self.entered.session.model,
            strategy=answer.strategy,
            details=replace(
                about.details,
                truncated=answer.coverage.ratio < 1,
                bytes=len(text.encode()),
                lines=text.count("\n") + 1,
                tokens=tokens,
            ),
        )
        return Charge(
            stored.key, self.entered.session.epoch, tokens, entry, self.terms.window, self.terms.told
        )
