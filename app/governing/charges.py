"""What was decided about one result, as the entry and the charge that the ledger writes down."""

from typing import NamedTuple

from app.extracting.known_models import SessionModel
from app.runtime import Runtime
from domain.accounting import AccountingEntry, EntryDetails, EntryStatus, EntryType, split_tool_name
from domain.budget import Session
from domain.decisions import OutcomeKind, Trigger
from domain.handles import Handle
from domain.ports import Charge
from domain.results import Measure, ToolResult


class Decision(NamedTuple):
    """`text` is what the model reads instead of the result and `tokens` are its own; where it passes, the
    result's. `handle` names the whole where it was kept."""

    kind: OutcomeKind
    trigger: Trigger | None = None
    text: str | None = None
    tokens: int = 0
    handle: Handle | None = None
    truncated_bytes: int | None = None
    truncated_total: int | None = None
    observed_outcome: OutcomeKind | None = None
    observed_tokens_saved: int = 0


PASSED = Decision(OutcomeKind.PASS)


class Governing(NamedTuple):
    """One result, and what it is held against."""

    result: ToolResult
    session: Session
    model: SessionModel
    measure: Measure


def charge_of(governing: Governing, decision: Decision, fingerprint: str, rt: Runtime) -> Charge:
    result, session, model, measure = governing
    text, handle = decision.text, decision.handle
    tokens = measure.tokens if text is None else decision.tokens
    server, tool = split_tool_name(result.tool_name, result.tool_namespace)
    entry = AccountingEntry(
        id=rt.new_entry_id(),
        type=EntryType.TOOL,
        timestamp=rt.clock(),
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
        trigger=decision.trigger,
        outcome=decision.kind,
        model=result.model or session.model,
        provider=result.provider,
        tool_call_id=result.call_id,
        turn=session.turn if result.context is None else result.context.turn,
        tool_kind=result.tool_kind,
        details=_details(decision, measure, handle),
    )
    return Charge(
        key=result.key,
        epoch=session.epoch,
        tokens=tokens,
        entry=entry,
        default_window=model.window,
        enforce=model.enforce,
        call_id=result.call_id,
        fingerprint=fingerprint,
        text=text,
    )


def _details(decision: Decision, measure: Measure, handle: Handle | None) -> EntryDetails:
    return EntryDetails(
        tool_output_handle=str(handle) if handle else None,
        tool_output_reason=None if decision.text is None else decision.trigger,
        truncated=decision.text is not None,
        bytes=measure.bytes,
        lines=measure.lines,
        tokens=measure.tokens,
        truncated_bytes=decision.truncated_bytes,
        truncated_total=decision.truncated_total,
        observed_outcome=decision.observed_outcome,
        observed_tokens_saved=decision.observed_tokens_saved,
    )
