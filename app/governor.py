"""What happens to one tool result, from measuring it to the line in the accounting."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import NamedTuple

import anyio

from app.body import Body
from app.runtime import Runtime
from app.telemetry import log_stored
from content.paths import path_of
from content.preview import Preview, preview
from domain.accounting import AccountingEntry, EntryDetails, EntryStatus, EntryType, split_tool_name
from domain.budget import Session
from domain.decisions import Outcome, OutcomeKind, Trigger
from domain.errors import Conflict, IdempotencyKeyReused, SpillgateError, StorageError
from domain.handles import Handle, new_handle, parse_handle
from domain.ports import Charge, Receipt
from domain.results import Durability, Measure, StoredResult, ToolResult
from policies import store as store_text
from policies.book import Terms
from policies.decide import decide
from policies.facts import Facts, Policy

_PREVIEWED_BYTES = 1 << 16
"""How much of the head a preview looks at."""


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

    `read_back` is for a caller that does not have the content any more: it is told how many bytes come back
    into memory, and may refuse them.
    """
    started = perf_counter()
    if result.policy is not None:
        rt.policies.check_request(result.policy)
    terms = rt.policies.terms(result.model)
    entered = await rt.ledger.enter(result.key, result.call_id, result.context, terms.window, terms.told)
    session = entered.session
    if session.model is not None and result.model is None:
        terms = rt.policies.terms(session.model)
    policy = rt.policies.policy(result.tool_name, session.policy, result.policy)
    tokenizer = rt.tokenizer(result.model or session.model)
    async with Body(rt.store, tokenizer, policy, rt.counting) as body:
        measure = await body.fill(chunks)
        call = _Call(result, session, terms, policy, measure, body, rt, started, read_back)
        if entered.receipt is not None:
            return await call.replayed(entered.receipt)
        trigger = decide(Facts(measure, session.budget(terms.window, terms.told)), policy)
        if trigger is None:
            receipt = await call.passed()
            if receipt is not None:
                return await call.outcome(receipt)
            trigger = Trigger.RESERVE_FAILED
        return await call.outcome(await call.kept(trigger))


class _Call(NamedTuple):
    """One result with all that is known of it once it is measured."""

    result: ToolResult
    session: Session
    terms: Terms
    policy: Policy
    measure: Measure
    body: Body
    rt: Runtime
    started: float
    read_back: Callable[[int], None] | None

    async def passed(self) -> Receipt | None:
        """Charged and booked if it fits; a bypassed tool's result is charged past the limit."""
        charge = self._charge(OutcomeKind.PASS, None, None, None)
        if self.policy.bypass:
            return await self.rt.ledger.settle(charge)
        return await self.rt.ledger.reserve(charge)

    async def kept(self, trigger: Trigger) -> Receipt:
        """Body, then info, then the ledger: a handle is spoken only after its body is durable."""
        result, rt = self.result, self.rt
        stored = self._stored()
        handle = stored.handle
        text = store_text.text(handle, self.measure, await self._preview())
        await self.body.publish(stored)
        try:
            receipt = await rt.ledger.settle(self._charge(OutcomeKind.STORE, trigger, handle, text))
        except SpillgateError as error:
            # Two sends of one named call share the body: the other may have been answered with it.
            if result.call_id is None or not isinstance(error, StorageError):
                await rt.store.delete(result.key.tenant, handle)
            raise
        if receipt.replayed and receipt.entry.details.tool_output_handle != str(handle):
            # Another send of the same call came first, and passed.
            await rt.store.delete(result.key.tenant, handle)
            raise Conflict("Another send of this call was answered in the meantime. Send it again.")
        if not receipt.replayed:
            log_stored(result, handle, self.measure, trigger)
        return receipt

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
        budget = self.session.budget(self.terms.window, self.terms.told)
        return await self.outcome(replace(receipt, budget=budget))

    async def _ensure_stored(self, handle: Handle) -> None:
        """Deleted or expired since, it is kept again: a handle is never spoken without its body."""
        if await self.rt.store.find(self.result.key.tenant, handle) is None:
            await self.body.publish(replace(self._stored(), handle=handle))

    async def outcome(self, receipt: Receipt) -> Governed:
        entry = receipt.entry
        handle = entry.details.tool_output_handle
        outcome = Outcome(
            kind=entry.outcome or OutcomeKind.PASS,
            text=receipt.text,
            trigger=entry.trigger,
            handle=parse_handle(handle) if handle else None,
            measure=self.measure,
            budget=receipt.budget,
            entry_id=entry.id,
            replayed=receipt.replayed,
            durability=self._durability(handle),
            degraded=receipt.degraded or self.rt.is_spooled(self.body.durability),
        )
        self.rt.metrics.governed(outcome, entry.tokens_out, perf_counter() - self.started)
        if receipt.text is not None or self.read_back is None:
            return Governed(outcome, None)
        self.read_back(self.measure.bytes)
        return Governed(outcome, await self.body.content())

    def _durability(self, handle: str | None) -> Durability | None:
        """Of what was stored now, or, where that is the same for all, at the first try of this call."""
        return self.body.durability or (self.rt.store.constant_durability if handle else None)

    async def _preview(self) -> str:
        if self.policy.preview is Preview.NONE:
            return ""
        size = self.policy.preview_bytes
        head, tail = await self.body.ends(_PREVIEWED_BYTES, size)
        shown = partial(preview, self.policy.preview, head, tail, self.measure.bytes, size)
        return await anyio.to_thread.run_sync(shown, path_of(self.result.tool_arguments))

    def _stored(self) -> StoredResult:
        result, now = self.result, self.rt.clock()
        handle = new_handle(result.key, self.session.epoch, result.call_id, self.body.sha256)
        return StoredResult(
            tenant=result.key.tenant,
            handle=handle,
            tool_name=result.tool_name,
            tool_arguments=result.tool_arguments,
            tool_kind=result.tool_kind,
            provider=result.provider,
            is_error=result.is_error,
            measure=self.measure,
            sha256=self.body.sha256,
            stored_at=now,
            expires_at=now + self.rt.retention_ms,
        )

    def _charge(
        self, kind: OutcomeKind, trigger: Trigger | None, handle: Handle | None, text: str | None
    ) -> Charge:
        result, measure = self.result, self.measure
        tokens = measure.tokens
        if text is not None:
            tokens = self.rt.tokenizer(result.model or self.session.model).count(text)
        server, tool = split_tool_name(result.tool_name)
        entry = AccountingEntry(
            id=self.rt.new_entry_id(),
            type=EntryType.TOOL,
            timestamp=self.rt.clock(),
            tenant=result.key.tenant,
            session_id=result.key.session_id,
            tool_name=result.tool_name,
            status=EntryStatus.FAILED if result.is_error else EntryStatus.OK,
            latency=result.latency_ms or 0,
            mcpServer=server,
            command=tool,
            charactersIn=len(result.tool_arguments or ""),
            charactersOut=measure.chars if text is None else len(text),
            tokens_in=measure.tokens,
            tokens_out=tokens,
            tokens_saved=measure.tokens - tokens,
            trigger=trigger,
            outcome=kind,
            model=result.model or self.session.model,
            provider=result.provider,
            details=EntryDetails(
                tool_output_handle=str(handle) if handle else None,
                tool_output_reason=trigger,
                truncated=False,
                bytes=measure.bytes,
                lines=measure.lines,
                tokens=measure.tokens,
            ),
        )
        return Charge(
            key=result.key,
            epoch=self.session.epoch,
            tokens=tokens,
            entry=entry,
            fallback=self.terms.window,
            required=self.terms.told,
            call_id=result.call_id,
            fingerprint=self.body.sha256 if result.call_id else "",
            text=text,
        )
