"""What was decided about one result, and the charge and the accounting entry that follow from it."""

from app.governing.body import MeasuredResult
from app.operations.logs import described
from app.runtime import Runtime
from content.redaction.masks import masks_in
from domain.accounting import AccountingEntry, EntryDetails, EntryStatus, EntryType
from domain.handles import Handle
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Charge
from domain.structs import frozen_struct
from policies.tool_calls import split_tool_name


@frozen_struct
class Decision:
    """`text` is what the model reads instead of the result, and `tokens` are those of the text: None and 0 if
    the result passes. `handle` is set if the whole result is stored, and with `can_ask` the text names it."""

    kind: OutcomeKind
    trigger: Trigger | None = None
    text: str | None = None
    tokens: int = 0
    handle: Handle | None = None
    truncated_bytes: int | None = None
    truncated_total: int | None = None
    observed_outcome: OutcomeKind | None = None
    observed_tokens_saved: int = 0
    can_ask: bool = False
    tokens_saved: int = 0


PASSED = Decision(OutcomeKind.PASS)


def charge_of(measured: MeasuredResult, decision: Decision, rt: Runtime) -> Charge:
    """`fingerprint` is set for a call with an id: it tells a retry from another call under that id."""
    result, session, measure = measured.result, measured.session, measured.measure
    text = decision.text
    passing = measure if measured.body.is_viewed else measured.shown
    tokens = passing.tokens if text is None else decision.tokens
    server, tool = split_tool_name(result.tool_name, result.tool_namespace)
    turn = None if result.context is None else result.context.turn
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
        charactersOut=passing.chars if text is None else len(text),
        tokens_in=measure.tokens,
        tokens_out=tokens,
        tokens_saved=decision.tokens_saved,
        trigger=decision.trigger,
        outcome=decision.kind,
        model=result.model or session.model,
        provider=result.provider,
        tool_call_id=result.call_id,
        turn=session.turn if turn is None else turn,
        tool_kind=result.tool_kind,
        client=result.client,
        project=result.project,
        key=described("key"),
        details=_details(decision, measured),
    )
    return Charge(
        key=result.key,
        epoch=session.epoch,
        tokens=tokens,
        entry=entry,
        default_window=measured.model.window,
        enforce=measured.model.enforce,
        call_id=result.call_id,
        fingerprint=measured.body.sha256 if result.call_id else "",
        text=text,
    )


def _details(decision: Decision, measured: MeasuredResult) -> EntryDetails:
    measure, sent_total, door = measured.measure, measured.result.truncated_total, measured.result.door
    redacted = measured.body.masks.counts_in_passing
    if decision.text is not None:
        redacted = masks_in(decision.text) if measured.body.masks.has_masks else None
    return EntryDetails(
        tool_output_handle=str(decision.handle) if decision.handle else None,
        tool_output_reason=None if decision.text is None else decision.trigger,
        truncated=decision.text is not None,
        bytes=measure.bytes,
        lines=measure.lines,
        tokens=measure.tokens,
        truncated_bytes=decision.truncated_bytes,
        truncated_total=sent_total if decision.truncated_total is None else decision.truncated_total,
        observed_outcome=decision.observed_outcome,
        observed_tokens_saved=decision.observed_tokens_saved,
        redacted=redacted,
        durability=measured.body.durability if decision.handle else None,
        client_passes=door is not None and measured.result.tool_name in door.reads | door.passes,
    )
