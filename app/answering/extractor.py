"""Answers a question about a stored result, within the session's size cap, its budget and a deadline."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import anyio

from app.answering.reading import DASHBOARD, Subject, entry_about, keep_words, open_subject, path_of
from app.operations.logs import described
from app.runtime import Runtime
from content.text import cut_head
from domain.accounting import AccountingEntry, EntryStatus, EntryType
from domain.errors import Conflict, Incomplete, SessionEnded, SpendReached
from domain.extraction import Answer, Coverage, ExtractStatus, Mode, Question
from domain.handles import SessionKey
from domain.llm import LlmCall
from domain.ports import Ledger, Receipt
from domain.results import StoredResult
from extraction.asked_bytes import AskedBytes
from extraction.models.usage import CallRules
from extraction.prompts import NOTHING_FOUND
from extraction.task import (
    ExtractionLimits,
    Progress,
    Task,
    frame_answer,
    frame_failure,
)
from policies.oversized import query_name

GRACE_SECONDS = 0.4
"""A fallback may run this long past the deadline; then the answer says that the deadline passed."""

SESSION_MODEL = "session"
"""In `extract_models`: the model that the session declares."""

_MOST_ATTEMPTS = 3
_WITHOUT_MODEL = (Mode.RETRIEVE, Mode.TRUNCATE)

_EXHAUSTED = (
    "The answer does not fit what is left of the context budget. Take the final turn, "
    "or report the context's usage and ask again."
)
_LATE = "The deadline passed before the stored result could be read. Ask again, and allow more time."
_UNCONFIRMED = "the deadline passed before the answer's tokens were reserved; they are charged in any case"
_INCOMPLETE = "The answer would not rest on all of the result. Ask about less of it, or allow it."

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Extracted:
    """`text` is framed: what the model reads."""

    text: str
    answer: Answer
    handle: str
    tool_name: str
    entry: AccountingEntry


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the caller requires of the answer. `ends` is the deadline, on the event loop's clock.
    `needs_model`: past the tenant's quota of model spend the question is refused. `reader`: the session that
    asks and pays, if it is not that of the result. `by_person`: a person asks, and no session pays.
    `most_bytes`: of the answer, if they are fewer than the size cap."""

    ends: float
    require_complete: bool = False
    needs_model: bool = False
    watch: OnProgress = lambda step: None
    reader: SessionKey | None = None
    by_person: bool = False
    most_bytes: int | None = None


async def extract(tenant: str, question: Question, required: Requirements, rt: Runtime) -> Extracted:
    """Answers until the deadline + 0.5 s. The answer holds what was found until then. Raises ResultNotFound,
    ResultExpired, SessionEnded, StorageError; Incomplete if the caller required a complete answer,
    SpendReached if the caller required a model."""
    rt.observer.asked(question.handle)
    return await _Extraction(tenant, question, required, rt).run()


class _Extraction:
    def __init__(self, tenant: str, question: Question, required: Requirements, rt: Runtime) -> None:
        self._tenant = tenant
        self._question = question
        self._requires = required
        self._rt = rt
        self._started = rt.clock()
        self._entry_id = rt.new_entry_id()
        self._latest = required.ends + GRACE_SECONDS
        self._subject: Subject | None = None
        # The answer whose tokens are being reserved.
        self._reserving: Extracted | None = None
        self._is_sent = False

    async def run(self) -> Extracted:
        try:
            with anyio.CancelScope(deadline=self._latest):
                self._subject = subject = await open_subject(
                    self._rt,
                    self._tenant,
                    self._question.handle,
                    self._requires.reader,
                    by_person=self._requires.by_person,
                )
                return self._done(await self._answered(subject))
            return self._done(await self._late())
        except (Incomplete, SessionEnded, Conflict, SpendReached) as error:
            if self._subject is not None or isinstance(error, Incomplete):
                await self._rt.background.finish(self._append_failure(error.code))
            raise
        except asyncio.CancelledError:
            if self._subject is not None and self._reserving is None:
                self._rt.background.start(self._append_failure("cancelled"))
            raise

    async def _answered(self, subject: Subject) -> Extracted:
        """Shortens the answer until the budget holds it, else answers that the budget is spent."""
        # All strategies together take 50 ms to import, a twentieth of the start (bench/README.md, start).
        from extraction import ladder

        shown, tokenizer = subject.shown, subject.model.tokenizer
        asked = AskedBytes(shown.store, shown.result, self._question.ranges, path_of(subject.stored))
        if subject.is_exhausted:
            # No answer of a model would fit in the budget.
            return await self._exhausted(subject, _nothing(self._question.mode, _EXHAUSTED))
        cap = min(subject.most_bytes, self._requires.most_bytes or subject.most_bytes)
        room = max(0, cap - len(_framed(subject.stored, Mode.FULL_CHUNKED, "").encode()))
        answer, task = await self._answer_from_ladder(subject, self._task(subject, asked, room))
        for _ in range(_MOST_ATTEMPTS):
            if self._requires.require_complete and answer.status is not ExtractStatus.COMPLETE:
                raise Incomplete(_INCOMPLETE)
            # Only a cap below the frame's own size cuts here.
            text = cut_head(_framed(subject.stored, answer.strategy, answer.body).encode(), cap).decode()
            tokens = await self._rt.count(text, tokenizer)
            if (extracted := await self._reserved(subject, answer, text, tokens)) is not None:
                return extracted
            frame = await self._rt.count(_framed(subject.stored, Mode.FULL_CHUNKED, ""), tokenizer)
            room = await subject.room(self._rt, len(answer.body.encode()), tokens, frame)
            if room <= 0:
                break
            answer = await ladder.shorter(answer, task, room)
        return await self._exhausted(subject, answer)

    async def _answer_from_ladder(self, subject: Subject, task: Task) -> tuple[Answer, Task]:
        """Returns the answer, and the task with the models that it may call."""
        from extraction import ladder

        rt, mode = self._rt, self._question.mode
        fallback = Mode(rt.settings.extract_fallback)
        if not rt.model_pool and rt.model_pool.embedding_model is None:
            return await ladder.answer(task, mode, fallback), task
        names, warnings = self._model_names(subject)
        # A person may use what the session of the result has left. The persons of a tenant are not a session.
        async with rt.spend_caps.open(subject.session.key, subject.policy) as cap:
            if self._requires.needs_model and rt.model_pool and mode not in _WITHOUT_MODEL:
                rt.spend_caps.daily.check(self._tenant)

            async def account(call: LlmCall) -> None:
                try:
                    await _account_call(rt, subject, self._entry_id, call)
                finally:
                    cap.add(call)

            log_fields = {"handle": str(subject.stored.handle), "extract_id": self._entry_id}
            rules = CallRules(
                self._requires.ends, account, rt.clock, cap.try_start_call, cap.calls_left, log_fields
            )
            asking = rt.model_pool.asker(names, rules) if rt.model_pool else None
            task = replace(task, asking=asking, embedder=rt.model_pool.embedder(rules))
            answer = await ladder.answer(task, mode, fallback)
            return replace(answer, warnings=(*answer.warnings, *warnings)), task

    def _model_names(self, subject: Subject) -> tuple[list[str], tuple[str, ...]]:
        """Returns the models that the policy names, with `session` replaced by the session's own model, and
        warnings."""
        session_model, models = subject.session.model, self._rt.model_pool
        policy_models = subject.policy.extract_models
        names = [session_model if name == SESSION_MODEL else name for name in policy_models]
        known = [name for name in names if name is not None and name in models]
        if SESSION_MODEL in policy_models and session_model not in known and models:
            return known, ("the session's own model has no backend here; another one was asked",)
        return known, ()

    def _task(self, subject: Subject, asked: AskedBytes, room: int) -> Task:
        policy = subject.policy
        return Task(
            asked,
            self._question.extract,
            room,
            ExtractionLimits(policy.max_chunks, policy.overlap_percent, policy.avg_line_bytes),
            asking=None,
            findings=_SessionFindings(self._rt.ledger, subject.session.key, subject.session.epoch),
            progress=self._requires.watch,
            indexes=self._rt.indexes,
            ends=self._requires.ends,
            whole=self._requires.require_complete,
            usual_bytes=self._question.max_answer_bytes or policy.max_answer_bytes,
            query=query_name(policy),
        )

    async def _reserved(self, subject: Subject, answer: Answer, text: str, tokens: int) -> Extracted | None:
        """Reserves the answer's tokens. None if the budget does not hold them."""
        entry = self._entry(subject, answer, text, tokens)
        self._reserving = self._extracted(subject, answer, text, entry)
        # In its own task: a slow ledger must not delay the answer, and the charge must not be lost.
        receipt = await self._rt.background.finish(self._reserve(subject, entry, text))
        extracted, self._reserving = self._reserving, None
        return None if receipt is None else extracted

    async def _reserve(self, subject: Subject, entry: AccountingEntry, text: str) -> Receipt | None:
        receipt = await subject.reserve(self._rt, entry, text)
        if receipt is None and self._is_sent:
            return await subject.settle(self._rt, entry, text)
        return receipt

    async def _exhausted(self, subject: Subject, answer: Answer) -> Extracted:
        if self._requires.require_complete:
            raise Incomplete("The rest of the context budget is too small for the answer.")
        self._reserving, settling = self._failed(subject, answer, _EXHAUSTED, "budget exhausted")
        await self._rt.background.finish(settling)
        return self._reserving

    def _failed(
        self, subject: Subject, answer: Answer, reason: str, code: str
    ) -> tuple[Extracted, Coroutine[Any, Any, Receipt]]:
        """Returns the text that says why there is no answer, and the coroutine that charges it."""
        stored = subject.stored
        answer = replace(_nothing(answer.strategy, reason), usage=answer.usage)
        text = frame_failure(stored.tool_name, str(stored.handle), answer.strategy, reason)
        text = cut_head(text.encode(), subject.most_bytes).decode()
        entry = self._entry(subject, answer, text, subject.model.tokenizer.count(text))
        entry = replace(entry, status=EntryStatus.FAILED, error=code)
        return self._extracted(subject, answer, text, entry), subject.settle(self._rt, entry)

    async def _late(self) -> Extracted:
        """The answer once the deadline and GRACE_SECONDS have passed: store, ledger or machine are slow."""
        if self._requires.require_complete:
            raise Incomplete(_INCOMPLETE)
        if (extracted := self._reserving) is not None:
            self._is_sent = True
            answer = replace(extracted.answer, warnings=(*extracted.answer.warnings, _UNCONFIRMED))
            return replace(extracted, answer=answer)
        answer = _nothing(self._question.mode, _LATE)
        if self._subject is not None:
            extracted, settling = self._failed(self._subject, answer, _LATE, "deadline")
            self._rt.background.start(settling)
            return extracted
        handle = str(self._question.handle)
        text = frame_failure("unknown", handle, answer.strategy, _LATE)
        entry = self._failure("deadline", answer, text)
        self._rt.background.start(self._rt.ledger.append(entry))
        return Extracted(text, answer, handle, "unknown", entry)

    def _done(self, extracted: Extracted) -> Extracted:
        if self._subject is not None and not self._subject.by_person:
            keep_words(self._rt, self._subject, extracted.entry.id, self._question.extract)
        self._rt.observer.extracted(self._question, extracted.answer, extracted.entry)
        return extracted

    def _extracted(self, subject: Subject, answer: Answer, text: str, entry: AccountingEntry) -> Extracted:
        return Extracted(text, answer, str(subject.stored.handle), subject.stored.tool_name, entry)

    async def _append_failure(self, code: str) -> None:
        """Writes the entry of an extraction that was not answered."""
        entry = self._failure(code, _nothing(self._question.mode, ""), "")
        self._rt.observer.extracted(self._question, None, entry)
        await self._rt.ledger.append(entry)

    def _failure(self, code: str, answer: Answer, text: str) -> AccountingEntry:
        if self._subject is not None:
            entry = self._entry(self._subject, answer, text, 0)
        else:
            handle = self._question.handle
            entry = AccountingEntry(
                id=self._entry_id,
                type=EntryType.EXTRACT,
                timestamp=self._rt.clock(),
                tenant=self._tenant,
                session_id=DASHBOARD if self._requires.by_person else handle.session_id,
                tool_name="unknown",
                latency=self._rt.clock() - self._started,
                mode=self._question.mode,
                strategy=answer.strategy,
                coverage=0.0,
                client=DASHBOARD if self._requires.by_person else None,
                key=described("key"),
            )
        return replace(entry, status=EntryStatus.FAILED, error=code)

    def _entry(self, subject: Subject, answer: Answer, text: str, tokens: int) -> AccountingEntry:
        spent = answer.usage.input_tokens + answer.usage.output_tokens
        entry = subject.entry(self._rt, EntryType.EXTRACT, text, tokens, self._started, spent=spent)
        # The entry of a person's question would be counted among the answers to models.
        found_nothing = not subject.by_person and NOTHING_FOUND in answer.body.partition("\n")[0]
        return replace(
            entry,
            id=self._entry_id,
            charactersIn=len(self._question.extract),
            mode=self._question.mode,
            strategy=answer.strategy,
            fallback_reason=answer.fallback_reason,
            coverage=answer.coverage.ratio,
            details=replace(entry.details, truncated=answer.coverage.ratio < 1, found_nothing=found_nothing),
        )


def _nothing(strategy: Mode, reason: str) -> Answer:
    """Returns an answer that holds only the reason, and nothing of the result."""
    warnings = (reason,) if reason else ()
    return Answer(reason, strategy, ExtractStatus.FAILED, Coverage(1, 0, 0.0), warnings=warnings)


def _framed(stored: StoredResult, strategy: Mode, body: str) -> str:
    return frame_answer(stored.tool_name, str(stored.handle), strategy, body)


async def _account_call(rt: Runtime, subject: Subject, extract_id: str, call: LlmCall) -> None:
    """Writes the entry of one call of the extraction `extract_id`. Its tokens are subtracted from what was
    saved, whichever model they were spent on, unless a person asked."""
    tokens = call.tokens.input + call.tokens.output
    rt.observer.called(call, embeds=call.model == rt.model_pool.embedding_model)
    await rt.ledger.append(
        replace(
            entry_about(rt, subject.stored, EntryType.LLM, call.timestamp, subject.reader.session_id),
            status=EntryStatus.OK if call.error is None else EntryStatus.FAILED,
            latency=call.latency,
            tokens_in=call.tokens.input,
            tokens_out=call.tokens.output,
            tokens_saved=0 if subject.by_person else -tokens,
            client=DASHBOARD if subject.by_person else None,
            model=call.model,
            provider=call.provider,
            stop_reason=call.stop_reason,
            tokens=call.tokens,
            cost_usd=call.cost_usd,
            error=call.error,
            extract_id=extract_id,
        ),
    )


class _SessionFindings:
    """The findings of one life of one session."""

    def __init__(self, ledger: Ledger, key: SessionKey, epoch: int) -> None:
        self._ledger = ledger
        self._key = key
        self._epoch = epoch

    async def find(self, key: str) -> str | None:
        return await self._ledger.finding(self._key, self._epoch, key)

    async def keep(self, key: str, finding: str) -> None:
        await self._ledger.keep_finding(self._key, self._epoch, key, finding)
