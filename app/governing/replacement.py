"""What the model reads instead of a result, made by the outcome that is to take its place."""

from functools import partial

import anyio

from app.governing.body import INLINE_BYTES, Body, Viewed
from app.governing.charges import Decision, Governing
from app.runtime import Runtime
from content.outline import outline, structure
from domain.budget import Budget
from domain.decisions import OutcomeKind, Trigger
from domain.handles import Handle
from domain.ports import Call
from domain.results import Measure
from policies import decide, view
from policies.decide import OUTCOMES, Replacement
from policies.facts import Facts, Policy
from policies.oversized import Ends, Oversized, breach_of
from policies.tool_calls import first_row, name_of, searches

_SQUEEZES = (1.0, 0.6, 0.3, 0.1)
"""Shares of a cap in tokens, tried in turn: what is cut may have more tokens a byte than the whole."""


def candidate_outcomes(
    trigger: Trigger | None, policy: Policy, rows: int
) -> list[tuple[OutcomeKind, Trigger | None]]:
    """The outcomes to try for a result of `rows` rows, in order; the last one always succeeds. A `trigger` of
    None: only the view caps left something out."""
    fired = trigger or Trigger.RESERVE_FAILED
    is_rejected = trigger is Trigger.SIZE_CAP and 0 < policy.reject_rows < rows
    named = [(OutcomeKind.REJECT if is_rejected else policy.on_oversize, fired), (OutcomeKind.STORE, fired)]
    return [(OutcomeKind.CAP, None), *named] if trigger is None else list(named)


class Replacing:
    """Makes the texts for one result. `viewed` is what its view caps leave, None where they leave all."""

    def __init__(
        self, governing: Governing, policy: Policy, body: Body, viewed: Viewed | None, rt: Runtime
    ) -> None:
        self._governing = governing
        self._policy = policy
        self._body = body
        self._viewed = viewed
        self._rt = rt

    async def decision(self, kind: OutcomeKind, trigger: Trigger | None, handle: Handle) -> Decision | None:
        """None where the outcome has nothing to leave out, or no room."""
        stores = kind is OutcomeKind.STORE
        where = handle if stores or self._policy.keep else None
        made = OUTCOMES[kind] if trigger is not None else view
        fitting = await self._fitting(made, trigger, where)
        if fitting is None:
            return None
        text, tokens = fitting
        measure = self._governing.measure
        shown = measure if self._viewed is None else self._viewed.measure
        return Decision(
            kind=kind,
            trigger=trigger,
            text=text,
            tokens=tokens,
            handle=where,
            truncated_bytes=shown.bytes if made.CUTS else None,
            truncated_total=self._rows_before_view() if made.CUTS or trigger is None else None,
        )

    async def _fitting(
        self, made: Replacement, trigger: Trigger | None, handle: Handle | None
    ) -> tuple[str, int] | None:
        """The text and its tokens. The text of an outcome that cuts is within every size cap, or None."""
        tokenizer = self._governing.model.tokenizer
        for squeeze in _SQUEEZES if made.CUTS and self._policy.max_tokens else _SQUEEZES[:1]:
            text = await self._text(made, trigger, handle, squeeze)
            if text is None:
                return None
            tokens = await self._rt.count(text, tokenizer)
            if not made.CUTS or not self._breaks(text, tokens):
                return text, tokens
        return None

    def _rows_before_view(self) -> int | None:
        """None unless rows were left out: lines that were shortened are no rows."""
        most = self._policy.max_rows
        return self._viewed.rows if self._viewed is not None and 0 < most < self._viewed.rows else None

    async def _text(
        self, made: Replacement, trigger: Trigger | None, handle: Handle | None, squeeze: float
    ) -> str | None:
        result, _, _, measure = self._governing
        viewed = made is not OUTCOMES[OutcomeKind.STORE]
        shown = self._viewed.measure if viewed and self._viewed is not None else measure
        facts = Facts(shown, await self._budget(made, trigger), self._body.rows)
        wanted = made.ends(shown, self._policy)
        head, tail = await self._body.ends(wanted, viewed=shown is not measure)
        lines, overview = await self._told(wanted, head, shown.bytes)
        oversized = Oversized(
            result=result,
            measure=measure,
            shown=shown,
            head=head,
            tail=tail,
            policy=self._policy,
            breach=breach_of(trigger or Trigger.SIZE_CAP, facts, self._policy),
            handle=handle,
            structure=lines,
            outline=overview,
            path=self._rt.body_path(result, handle),
            squeeze=squeeze,
        )
        if len(head) + len(tail) <= INLINE_BYTES:
            return made.text(oversized)
        return await anyio.to_thread.run_sync(partial(made.text, oversized), limiter=self._rt.scanning)

    async def _told(self, wanted: Ends, head: bytes, size: int) -> tuple[list[str], str]:
        """Structure and outline of a text of `size` bytes, where the outcome says them."""
        if not wanted.structure and not wanted.outline_bytes:
            return [], ""
        result = self._governing.result
        name, first = name_of(result), first_row(result, self._policy.offset_base)
        if wanted.structure and searches(result):
            return [], ""
        if wanted.structure:
            making = partial(structure, name, head, first_line=first)
            return await anyio.to_thread.run_sync(making, limiter=self._rt.scanning), ""
        outlining = partial(outline, head, wanted.outline_bytes, size, name, first_line=first)
        return [], await anyio.to_thread.run_sync(outlining, limiter=self._rt.scanning)

    async def _budget(self, made: Replacement, trigger: Trigger | None) -> Budget:
        """As the call found it; where an error is to name what others left of it since, as it is now."""
        result, session, model, _ = self._governing
        if trigger is Trigger.RESERVE_FAILED and made is OUTCOMES[OutcomeKind.REJECT]:
            entered = await self._rt.ledger.enter(Call(result.key, model.window, model.enforce))
            session = entered.session
        return session.budget(model.window, model.enforce)

    def _breaks(self, text: str, tokens: int) -> bool:
        """A cap in tokens is turned into bytes by the average: where that went wrong, the text breaks it."""
        size = Measure(len(text.encode()), text.count("\n") + 1, len(text), tokens, True)
        return decide.exceeds(size, self._policy)
