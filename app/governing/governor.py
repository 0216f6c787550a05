"""What happens to one tool result, from its measure to its accounting entry."""

from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter

from msgspec import Raw

from app.governing.baseline import baseline_tokens
from app.governing.body import Body, MeasuredResult
from app.governing.charges import PASSED, Decision, charge_of
from app.governing.repeats import Repeats, Repetition
from app.governing.text_writer import TextWriter
from app.models.known_models import SessionModel
from app.runtime import Runtime
from domain.budget import ReportWarning
from domain.doors import Door
from domain.errors import Conflict, IdempotencyKeyReused, ResultExpired, SpillgateError, StorageError
from domain.handles import Handle, new_handle, parse_handle
from domain.outcomes import Outcome, OutcomeKind, Trigger
from domain.ports import Call, Entered, Receipt
from domain.results import StoredResult, ToolResult
from domain.structs import frozen_struct, replace
from policies import view
from policies.decide import candidate_outcomes, decide, is_worth
from policies.facts import Facts
from policies.policy import NAME, OBSERVE, StoredLog, may_reject
from policies.tool_calls import pages


@frozen_struct
class GovernedResult:
    """`content` is the whole result if it passed and the caller did not keep it. `blocks`: the content blocks
    of a result that passed, as JSON, if they have masks; `masked_blocks` those of any result."""

    outcome: Outcome
    content: bytes | None
    blocks: bytes | None = None
    masked_blocks: bytes | None = None


async def govern(
    result: ToolResult,
    content: str | AsyncIterator[bytes | str],
    rt: Runtime,
    hold: Callable[[int], None] | None = None,
    blocks: Raw | None = None,
) -> GovernedResult:
    """Measure, judge, store, charge: each once, in this order. `content` is the whole text, or its chunks;
    `blocks` the JSON of the content blocks that it is the text of.

    `hold` is for a caller that does not keep the content, and needs it again if it passes. It is called with
    the number of bytes that come back into memory, before anything is charged, and may raise Overloaded.
    """
    started = perf_counter()
    if result.policy is not None:
        rt.policies.check_request(result.policy)
    model, entered = await _entered(result, rt)
    policy = rt.policies.policy(result.tool_name, entered.session.policy, result.policy, result.door)
    budget = entered.session.budget(model.window, model.enforce)
    masks = rt.redactions.masks_of(result, policy)
    body = Body(rt.store, model.tokenizer, policy, rt.counting, result, budget, masks)
    try:
        measure = body.fill_at_once(content) or await body.fill(content)
        if blocks is not None:
            await masks.search_blocks(blocks)
        measured = MeasuredResult(result, entered.session, model, policy, body, measure, None, budget)
        if body.is_viewed or masks.has_secrets:
            measured = await _as_shown(measured, rt, is_retry=entered.receipt is not None)
        call = _Governing(measured, rt, started, entered.warning, hold)
        if entered.receipt is not None:
            return await call.answer_retry(entered.receipt)
        return await call.judged()
    finally:
        if body.opened is not None:
            await body.close()


async def _as_shown(measured: MeasuredResult, rt: Runtime, *, is_retry: bool) -> MeasuredResult:
    """Masks the secrets, and measures what the masks and the view caps leave, unless it is a retry."""
    body, policy = measured.body, measured.policy
    if body.masks.has_secrets:
        await body.masks.mask(await rt.redactions.keys.key_of(measured.session), measured.measure.bytes)
    if is_retry or not (body.is_viewed or body.masks.are_in_content):
        return measured
    viewed = await body.viewed()
    return replace(measured, viewed=viewed, policy=view.with_size_cap(policy) if body.is_viewed else policy)


async def _entered(result: ToolResult, rt: Runtime) -> tuple[SessionModel, Entered]:
    """Enters the session. The model is that of the result, else that of its session."""
    model = _through(result.door, await rt.known_models.of_session(result.model))
    call = Call(result.key, model.window, model.enforce, result.call_id, result.context)
    entered = await rt.ledger.enter(call)
    if entered.session.model is not None and result.model is None:
        model = _through(result.door, await rt.known_models.of_session(entered.session.model))
    return model, entered


def _through(door: Door | None, model: SessionModel) -> SessionModel:
    return model if door is None or door.keeps_budget else replace(model, enforce=False)


def _charged(
    measured: MeasuredResult, decision: Decision, rt: Runtime, *, must_fit: bool
) -> Awaitable[Receipt | None]:
    charge = charge_of(measured, decision, rt)
    return rt.ledger.reserve(charge) if must_fit else rt.ledger.settle(charge)


@frozen_struct
class _Governing:
    """A request to govern one result, with its measure."""

    measured: MeasuredResult
    rt: Runtime
    started: float
    report_warning: ReportWarning | None
    hold: Callable[[int], None] | None

    async def judged(self) -> GovernedResult:
        """Decides, stores and charges."""
        measured, rt, policy = self.measured, self.rt, self.measured.policy
        is_page = may_reject(policy) and pages(measured.result)
        facts = Facts(measured.shown, measured.budget, measured.measure.lines, is_page)
        trigger = decide(facts, policy)
        observes = policy.mode is OBSERVE
        repeats = Repeats(measured, rt) if policy.repeat is NAME else None
        repeat = await repeats.find() if repeats else None
        receipt, whole = None, None
        passes = trigger is None and not measured.body.is_viewed and repeat is None
        if self.hold is not None and (observes or passes):
            # Before the ledger is written: a request that fails must not be charged.
            whole = await self.content(self.hold)
        if passes:
            receipt = await _charged(measured, PASSED, rt, must_fit=not policy.bypass)
            if receipt is None:
                trigger = Trigger.RESERVE_FAILED
        if receipt is None and observes:
            receipt = await self.observed(trigger, repeat)
        if receipt is None:
            receipt, whole = await self.replaced(trigger, repeat)
        if repeats and receipt.is_recorded:
            await repeats.remember(receipt, repeat)
        return await self.outcome(receipt, whole)

    async def replaced(
        self, trigger: Trigger | None, repeat: Repetition | None
    ) -> tuple[Receipt, bytes | None]:
        """Replaces the result by the first candidate text that fits the remaining budget; `store` always
        fits. A result that the text would not make smaller passes. Returns the receipt; and the whole content
        if the result passes and the caller did not keep it. Raises Conflict, StorageError, Overloaded."""
        rt, result, body = self.rt, self.measured.result, self.measured.body
        stored = self._stored_result()
        try:
            receipt, whole = await self._first_fitting(trigger, repeat, stored)
        except SpillgateError as error:
            # A concurrent retry may have been answered with the handle of this body: then it is kept.
            if body.is_published and (result.call_id is None or not isinstance(error, StorageError)):
                await rt.store.delete(stored.tenant, stored.handle)
            raise
        if not body.is_published:
            return receipt, whole
        entry = receipt.entry
        if not receipt.is_retry and entry.details.tool_output_handle is None:
            # A candidate was stored and did not fit. The next candidate would not be smaller.
            await rt.store.delete(stored.tenant, stored.handle)
        elif not receipt.is_retry:
            warns = self.measured.policy.stored_log is StoredLog.WARNING
            rt.observer.stored(result, stored, entry, warns=warns)
        elif entry.details.tool_output_handle == str(stored.handle):
            await self._confirm_alive(stored.handle)
        else:
            # A concurrent retry of this call won, and its outcome stored no body.
            await rt.store.delete(stored.tenant, stored.handle)
            raise Conflict("A concurrent retry of this call was answered first. Send the call again.")
        return receipt, whole

    async def _first_fitting(
        self, trigger: Trigger | None, repeat: Repetition | None, stored: StoredResult
    ) -> tuple[Receipt, bytes | None]:
        """Body, then info, then the ledger: a text names a handle only after its body is durable."""
        async for candidate, must_fit in self._candidates(trigger, repeat, stored.handle):
            measured, decision = await self._worthwhile(candidate, stored.handle)
            charged = await self._stored_and_charged(measured, decision, stored, must_fit=must_fit)
            if charged is not None:
                return charged
        raise AssertionError("`store` always has a text")

    async def _candidates(
        self, trigger: Trigger | None, repeat: Repetition | None, handle: Handle
    ) -> AsyncIterator[tuple[Decision, bool]]:
        """The decisions to try, in turn, and whether each must fit the remaining budget: all but the last."""
        writer = TextWriter(self.measured, self.rt)
        if repeat is not None:
            yield await writer.repeat(repeat.earlier, repeat.handle or handle), True
            trigger = trigger or Trigger.RESERVE_FAILED
        for kind, fired in candidate_outcomes(trigger, self.measured.policy, self.measured.measure.lines):
            stores = kind is OutcomeKind.STORE
            forms = [(writer, True)]
            if stores:
                forms += [(writer.plain, True), (writer.plain, False)]
            for texts, can_ask in forms:
                decision = await texts.decision(kind, fired, handle, can_ask=can_ask)
                if decision is None:
                    break
                # If the message does not fit without its preview, the budget is exhausted, and GET /tools
                # offers no tool. Then the text that names no tool is charged past the limit.
                yield decision, not stores or decision.can_ask

    async def _worthwhile(self, decision: Decision, handle: Handle) -> tuple[MeasuredResult, Decision]:
        """The decision; or to pass the result, as the view caps leave it, if the text would not make it
        smaller. The size is exact if that decides."""
        measured = self.measured
        if decision.trigger is None or is_worth(decision.kind, decision.tokens, measured.shown.tokens):
            return measured, decision
        # The estimate of a large result's tokens may be wrong by half.
        measured = await self._exactly()
        if is_worth(decision.kind, decision.tokens, measured.shown.tokens):
            return measured, decision
        viewed = None
        if measured.body.is_viewed:
            viewed = await TextWriter(self.measured, self.rt).decision(OutcomeKind.CAP, None, handle)
        return measured, viewed or replace(PASSED, trigger=decision.trigger)

    async def _stored_and_charged(
        self, measured: MeasuredResult, decision: Decision, stored: StoredResult, *, must_fit: bool
    ) -> tuple[Receipt, bytes | None] | None:
        """Stores the body if the decision says so, then asks the ledger. None if it does not fit."""
        whole = None
        if decision.text is None and self.hold is not None:
            # Before the ledger is written: a request that fails must not be charged.
            whole = await self.content(self.hold)
        if decision.text is not None:
            decision = replace(decision, tokens_saved=await baseline_tokens(measured) - decision.tokens)
        if decision.handle == stored.handle and not measured.body.is_published:
            began = perf_counter()
            await measured.body.publish(replace(stored, tokens_saved=decision.tokens_saved))
            self.rt.metrics.published(perf_counter() - began)
        receipt = await _charged(measured, decision, self.rt, must_fit=must_fit)
        return None if receipt is None else (receipt, whole)

    async def _exactly(self) -> MeasuredResult:
        """Returns the result with the exact token count, if the result has no view."""
        measured = self.measured
        if measured.body.is_viewed or measured.shown.tokens_exact:
            return measured
        text = (await measured.body.content()).decode()
        tokens = await self.rt.count(text, measured.model.tokenizer)
        if measured.viewed is not None:
            exact = replace(measured.viewed.measure, tokens=tokens, tokens_exact=True)
            return replace(measured, viewed=measured.viewed._replace(measure=exact))
        return replace(measured, measure=replace(measured.measure, tokens=tokens, tokens_exact=True))

    async def observed(self, trigger: Trigger | None, repeat: Repetition | None) -> Receipt:
        """Passes the result and charges it past the limit. The entry says what `enforce` would have done."""
        handle = self._stored_result().handle
        async for candidate, must_fit in self._candidates(trigger, repeat, handle):
            measured, would_be = await self._worthwhile(candidate, handle)
            passes = would_be.text is None
            tokens = measured.shown.tokens if passes else would_be.tokens
            if not must_fit or measured.budget.fits(tokens):
                break
        passed = replace(
            PASSED,
            trigger=would_be.trigger,
            observed_outcome=would_be.kind,
            observed_tokens_saved=0 if passes else await baseline_tokens(measured) - tokens,
        )
        receipt = await _charged(self.measured, passed, self.rt, must_fit=False)
        assert receipt is not None
        return receipt

    async def answer_retry(self, receipt: Receipt) -> GovernedResult:
        """Answers a retry that `Ledger.enter` found with the answer to the first call. A retry that arrives
        while the first call is being governed is found by `Ledger.reserve` or `settle`. Raises
        IdempotencyKeyReused if the contents differ, and Conflict."""
        if receipt.fingerprint != self.measured.body.sha256:
            raise IdempotencyKeyReused
        handle = receipt.entry.details.tool_output_handle
        if handle is not None:
            await self._ensure_stored(parse_handle(handle), receipt.entry.tokens_saved)
        redaction = self.rt.redactions.of_result(self.measured.session, self.measured.policy)
        text = receipt.text if redaction is None else await redaction.masked_text(receipt.text)
        return await self.outcome(replace(receipt, budget=self.measured.budget, text=text))

    async def _ensure_stored(self, handle: Handle, tokens_saved: int) -> None:
        """Stores the body again if the body was deleted, lost or has expired since the first answer."""
        if not await self._is_readable(handle):
            stored = replace(self._stored_result(), handle=handle, tokens_saved=tokens_saved)
            await self.measured.body.publish(stored)
            await self._confirm_alive(handle)

    async def _is_readable(self, handle: Handle) -> bool:
        """Whether the store has the info of the result and the end of its body."""
        stored = await self.rt.store.find(self.measured.result.key.tenant, handle)
        if stored is None:
            return False
        try:
            async for _ in self.rt.store.read(stored, max(0, stored.measure.bytes - 1)):
                pass
        except ResultExpired:
            return False
        return True

    async def _confirm_alive(self, handle: Handle) -> None:
        """Deletes the body and raises Conflict if the session was ended, emptied or forgotten since the first
        answer: its results are deleted."""
        key, epoch = self.measured.result.key, self.measured.session.epoch
        session = await self.rt.ledger.session(key)
        if session is None or session.first_live_epoch > epoch:
            await self.rt.store.delete(key.tenant, handle)
            raise Conflict("The session ended or was emptied during the request. Send the call again.")

    async def content(self, hold: Callable[[int], None]) -> bytes:
        """Returns the whole result, for a caller that did not keep it. Raises Overloaded, StorageError."""
        hold(self.measured.measure.bytes)
        return await self.measured.body.content()

    async def outcome(self, receipt: Receipt, content: bytes | None = None) -> GovernedResult:
        """Builds the answer from the receipt, and counts it. `content` is the whole result if it was read
        before; otherwise it is read here if the answer needs it."""
        entry, details, body = receipt.entry, receipt.entry.details, self.measured.body
        handle, measure = details.tool_output_handle, self.measured.measure
        if measure.tokens != details.tokens:
            # The token count of the first answer: the policy of this retry may count differently.
            measure = replace(measure, tokens=details.tokens, tokens_exact=False)
        text = receipt.text
        if text is None and (content is None and self.hold is not None):
            content = await self.content(self.hold)
        if text is None and body.masks.are_in_passing:
            text = (await body.content() if content is None else content).decode()
        outcome = Outcome(
            kind=entry.outcome or OutcomeKind.PASS,
            text=text,
            trigger=entry.trigger,
            handle=parse_handle(handle) if handle else None,
            measure=measure,
            budget=receipt.budget,
            entry_id=entry.id,
            truncated_bytes=details.truncated_bytes,
            truncated_total=details.truncated_total,
            is_retry=receipt.is_retry,
            durability=body.durability or details.durability,
            report_warning=self.report_warning,
            is_recorded=receipt.is_recorded,
            has_no_window=self.rt.known_models.warns(self.measured.session, self.measured.model),
            redacted=details.redacted,
            redacts=bool(self.measured.policy.redact),
        )
        seconds = perf_counter() - self.started
        self.rt.observer.governed(self.measured.result, outcome, entry.tokens_out, seconds)
        if text is None:
            return GovernedResult(outcome, content)
        masked = body.masks.blocks
        return GovernedResult(outcome, None, masked if receipt.text is None else None, masked)

    def _stored_result(self) -> StoredResult:
        """The info that is published with the body, if the body is stored. Stores nothing."""
        result, session, sha256 = self.measured.result, self.measured.session, self.measured.body.sha256
        now = self.rt.clock()
        return StoredResult(
            tenant=result.key.tenant,
            handle=new_handle(result.key, session.epoch, result.call_id, sha256),
            tool_name=result.tool_name,
            tool_arguments=result.tool_arguments,
            tool_kind=result.tool_kind,
            provider=result.provider,
            is_error=result.is_error,
            measure=self.measured.measure,
            sha256=sha256,
            stored_at=now,
            expires_at=now + self.rt.retention_ms,
            epoch=session.epoch,
            tool_namespace=result.tool_namespace,
            redact=self.measured.policy.redact,
        )
