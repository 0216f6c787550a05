"""What happens to one tool result, from measuring it to the line in the accounting."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

from app.governing.body import Body, Viewed
from app.governing.charges import PASSED, Decision, Governing, charge_of
from app.governing.replacement import Replacing, candidate_outcomes
from app.operations.logs import log_stored
from app.runtime import Runtime
from domain.budget import ReportWarning
from domain.decisions import Outcome, OutcomeKind, Trigger
from domain.errors import Conflict, IdempotencyKeyReused, SpillgateError, StorageError
from domain.handles import Handle, new_handle, parse_handle
from domain.ports import Call, Charge, Receipt
from domain.results import Durability, Measure, StoredResult, ToolResult
from policies import view
from policies.decide import decide
from policies.facts import Facts, Policy, PolicyMode


class Governed(NamedTuple):
    """`content` is the whole result where it passed and the caller wants it back."""

    outcome: Outcome
    content: bytes | None


async def govern(
    result: ToolResult,
    chunks: AsyncIterator[bytes | str],
    rt: Runtime,
    read_back: Callable[[int], None] | None = None,
) -> Governed:
    """Measure, judge, reserve, keep, book: each once, in this order.

    `read_back` is for a caller that does not have the content any more. It is called with the number of bytes
    that come back into memory, before anything is charged, and may raise Overloaded.
    """
    started = perf_counter()
    if result.policy is not None:
        rt.policies.check_request(result.policy)
    model = await rt.known_models.of_session(result.model)
    begun = Call(result.key, model.window, model.enforce, result.call_id, result.context)
    entered = await rt.ledger.enter(begun)
    session = entered.session
    if session.model is not None and result.model is None:
        model = await rt.known_models.of_session(session.model)
    policy = rt.policies.policy(result.tool_name, session.policy, result.policy)
    async with Body(rt.store, model.tokenizer, policy, rt.counting, result) as body:
        measure = await body.fill(chunks)
        governing = Governing(result, session, model, measure)
        viewed = None
        if body.is_viewed and entered.receipt is None:
            viewed, policy = await body.viewed(), view.bounded(policy)
        call = _Call(governing, policy, body, viewed, rt, started, entered.warning, read_back)
        if entered.receipt is not None:
            return await call.replayed(entered.receipt)
        shown = measure if viewed is None else viewed.measure
        trigger = decide(Facts(shown, session.budget(model.window, model.enforce), body.rows), policy)
        observes = policy.mode is PolicyMode.OBSERVE
        receipt, content = None, None
        if observes or (trigger is None and viewed is None):
            # Before the ledger is written: an answer that fails must not be charged.
            content = await call.content()
        if trigger is None and viewed is None:
            receipt = await call.passed()
            trigger = Trigger.RESERVE_FAILED
        if receipt is None:
            receipt = await (call.observed(trigger) if observes else call.replaced(trigger))
        return await call.outcome(receipt, content)


class _Call(NamedTuple):
    """One result with all that is known of it once it is measured."""

    governing: Governing
    policy: Policy
    body: Body
    viewed: Viewed | None
    rt: Runtime
    started: float
    report_warning: ReportWarning | None
    read_back: Callable[[int], None] | None

    async def passed(self) -> Receipt | None:
        """Charged and booked if it fits; a bypassed tool's result is charged past the limit."""
        charge = self._charge(PASSED)
        if self.policy.bypass:
            return await self.rt.ledger.settle(charge)
        return await self.rt.ledger.reserve(charge)

    async def replaced(self, trigger: Trigger | None) -> Receipt:
        """The first replacement that fits what remains; the handle message always goes out."""
        rt, call_id = self.rt, self.governing.result.call_id
        stored = self._stored()
        try:
            receipt = await self._first_fitting(trigger, stored)
        except SpillgateError as error:
            # Two sends of one named call share the body: the other may have been answered with it.
            if self.body.is_published and (call_id is None or not isinstance(error, StorageError)):
                await rt.store.delete(stored.tenant, stored.handle)
            raise
        if not self.body.is_published:
            return receipt
        if receipt.replayed and receipt.entry.details.tool_output_handle != str(stored.handle):
            # Another send of the same call came first, and kept nothing.
            await rt.store.delete(stored.tenant, stored.handle)
            raise Conflict("Another send of this call was answered in the meantime. Send it again.")
        if receipt.replayed:
            await self._confirm_alive(stored.handle)
        else:
            entry = receipt.entry
            kind = entry.outcome or OutcomeKind.STORE
            log_stored(self.governing.result, stored.handle, stored.measure, entry.trigger, kind)
        return receipt

    async def _first_fitting(self, trigger: Trigger | None, stored: StoredResult) -> Receipt:
        """Body, then info, then the ledger: a handle is spoken only after its body is durable."""
        replacing, ledger = self._replacing(), self.rt.ledger
        receipt = None
        for kind, fired in candidate_outcomes(trigger, self.policy, self.body.rows):
            decision = await replacing.decision(kind, fired, stored.handle)
            if decision is None:
                continue
            if decision.handle is not None:
                await self.body.publish(stored)
            charge = self._charge(decision)
            receipt = await (ledger.settle if kind is OutcomeKind.STORE else ledger.reserve)(charge)
            if receipt is not None:
                break
        assert receipt is not None
        return receipt

    async def observed(self, trigger: Trigger | None) -> Receipt:
        """It passes whatever fired, charged past the limit; its entry says what would have become of it."""
        session, model, measure = self.governing[1:]
        budget = session.budget(model.window, model.enforce)
        replacing, handle = self._replacing(), self._stored().handle
        would_be = None
        for kind, fired in candidate_outcomes(trigger, self.policy, self.body.rows):
            would_be = await replacing.decision(kind, fired, handle)
            if would_be is not None and (kind is OutcomeKind.STORE or budget.fits(would_be.tokens)):
                break
        assert would_be is not None
        passed = PASSED._replace(
            trigger=would_be.trigger,
            observed_outcome=would_be.kind,
            observed_tokens_saved=measure.tokens - would_be.tokens,
        )
        return await self.rt.ledger.settle(self._charge(passed))

    async def replayed(self, receipt: Receipt) -> Governed:
        """The same call again answers what it answered first."""
        if receipt.fingerprint != self.body.sha256:
            raise IdempotencyKeyReused(
                "This tool_call_id was used for other content in this session. "
                "Send each call under an id of its own; retry a call with the same content."
            )
        named = receipt.entry.details.tool_output_handle
        if named is not None:
            await self._ensure_stored(parse_handle(named))
        _, session, model, _ = self.governing
        budget = session.budget(model.window, model.enforce)
        return await self.outcome(replace(receipt, budget=budget))

    async def _ensure_stored(self, handle: Handle) -> None:
        """Stores the body again if it was deleted or has expired since the first answer."""
        if await self.rt.store.find(self.governing.result.key.tenant, handle) is None:
            await self.body.publish(replace(self._stored(), handle=handle))
            await self._confirm_alive(handle)

    async def _confirm_alive(self, handle: Handle) -> None:
        """A replayed receipt may be of a life of the session that is over by now, whose results are deleted
        already. Raises Conflict then, with nothing stored."""
        key, epoch = self.governing.result.key, self.governing.session.epoch
        session = await self.rt.ledger.session(key)
        if session is not None and session.first_live_epoch > epoch:
            await self.rt.store.delete(key.tenant, handle)
            raise Conflict("The session ended or was emptied during the request. Send the call again.")

    async def content(self) -> bytes | None:
        """The whole result, for a caller that does not have it any more. Raises Overloaded, StorageError."""
        if self.read_back is None:
            return None
        self.read_back(self.governing.measure.bytes)
        return await self.body.content()

    async def outcome(self, receipt: Receipt, content: bytes | None = None) -> Governed:
        """`content` where it was read already; that of a call that was settled before is read here."""
        entry = receipt.entry
        handle = entry.details.tool_output_handle
        outcome = Outcome(
            kind=entry.outcome or OutcomeKind.PASS,
            text=receipt.text,
            trigger=entry.trigger,
            handle=parse_handle(handle) if handle else None,
            measure=self._measure(entry.details.tokens),
            budget=receipt.budget,
            entry_id=entry.id,
            truncated_bytes=entry.details.truncated_bytes,
            truncated_total=entry.details.truncated_total,
            replayed=receipt.replayed,
            durability=self._durability(handle),
            degraded=receipt.degraded or self.rt.is_spooled(self.body.durability),
            report_warning=self.report_warning,
        )
        self.rt.metrics.governed(outcome, entry.tokens_out, perf_counter() - self.started)
        if receipt.text is not None:
            return Governed(outcome, None)
        return Governed(outcome, content or await self.content())

    def _measure(self, tokens: int) -> Measure:
        """With the tokens of the first answer: another policy may count where that one estimated."""
        measure = self.governing.measure
        return measure if measure.tokens == tokens else replace(measure, tokens=tokens, tokens_exact=False)

    def _durability(self, handle: str | None) -> Durability | None:
        """Of what was stored now, or, where that is the same for all, at the first try of this call."""
        return self.body.durability or (self.rt.store.constant_durability if handle else None)

    def _replacing(self) -> Replacing:
        return Replacing(self.governing, self.policy, self.body, self.viewed, self.rt)

    def _charge(self, decision: Decision) -> Charge:
        fingerprint = self.body.sha256 if self.governing.result.call_id else ""
        return charge_of(self.governing, decision, fingerprint, self.rt)

    def _stored(self) -> StoredResult:
        result, session, _, measure = self.governing
        now = self.rt.clock()
        handle = new_handle(result.key, session.epoch, result.call_id, self.body.sha256)
        return StoredResult(
            tenant=result.key.tenant,
            handle=handle,
            tool_name=result.tool_name,
            tool_arguments=result.tool_arguments,
            tool_kind=result.tool_kind,
            provider=result.provider,
            is_error=result.is_error,
            measure=measure,
            sha256=self.body.sha256,
            stored_at=now,
            expires_at=now + self.rt.retention_ms,
            epoch=session.epoch,
            tool_namespace=result.tool_namespace,
        )
