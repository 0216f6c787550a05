"""Writes the texts that a model reads instead of a result, each by the template of its outcome."""

from typing import NamedTuple

import anyio

from app.governing.body import MeasuredResult
from app.governing.charges import Decision
from app.runtime import Runtime
from content.text import Preview, line_count
from content.threads import in_thread_if_long
from domain.budget import Budget
from domain.handles import Handle
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Call
from domain.results import Measure
from domain.structs import replace
from policies import repeat, view
from policies.decide import exceeds, is_worth
from policies.facts import Facts
from policies.outcomes import OUTCOMES, Template
from policies.outcomes.store import sketch_room
from policies.oversized import Ends, Oversized, breach_of, has_means, names_tool
from policies.repeat import Earlier
from policies.tool_calls import ToolKind, first_row, name_of, searches, tool_kind_of

_SQUEEZES = (1.0, 0.6, 0.3, 0.1)
"""Shares of a cap in tokens, tried in turn. The part that is shown may have more tokens per byte than the
whole result."""


class TextWriter(NamedTuple):
    """Writes the texts for one result."""

    measured: MeasuredResult
    rt: Runtime

    @property
    def plain(self) -> "TextWriter":
        """Writes the handle message without a preview."""
        policy = replace(self.measured.policy, preview=Preview.NONE)
        return TextWriter(replace(self.measured, policy=policy), self.rt)

    async def decision(
        self, kind: OutcomeKind, trigger: Trigger | None, handle: Handle, *, can_ask: bool = True
    ) -> Decision | None:
        """Returns None if the outcome has nothing to leave out, or no room for its text. The text of an
        outcome that cuts is within every size cap. The text names the handle only if the model can ask about
        the result. The handle message has no preview if the budget has no room for one."""
        stores = kind is OutcomeKind.STORE
        where = handle if stores or self.measured.policy.keep else None
        template = OUTCOMES[kind] if trigger is not None else view
        viewed = self.measured.viewed
        can_ask = can_ask and has_means(self.measured.policy, self.measured.result.door)
        for squeeze in _SQUEEZES if template.CUTS and self.measured.policy.max_tokens else _SQUEEZES[:1]:
            text = await self._text(template, trigger, where, squeeze, can_ask)
            if text is None:
                return None
            tokens = await self.rt.count(text, self.measured.model.tokenizer)
            is_sketched = stores and self.measured.policy.preview is Preview.SKETCH
            if is_sketched and not is_worth(kind, tokens, self.measured.shown.tokens):
                # A sketch cannot make a result pass.
                return await self.plain.decision(kind, trigger, handle, can_ask=can_ask)
            budget = self.measured.budget
            if can_ask and where and budget.enforced and tokens >= budget.remaining_tokens:
                # This text will exhaust the budget, and then GET /tools offers no tool.
                has_preview = stores and self.measured.policy.preview is not Preview.NONE
                return await self.plain.decision(kind, trigger, handle, can_ask=has_preview)
            if template.CUTS and self._breaks(text, tokens):
                continue
            return Decision(
                kind=kind,
                trigger=trigger,
                text=text,
                tokens=tokens,
                handle=where,
                can_ask=can_ask,
                truncated_bytes=self.measured.shown.bytes if template.CUTS else None,
                truncated_total=viewed.total if viewed and (template.CUTS or trigger is None) else None,
            )
        return None

    async def repeat(self, earlier: Earlier, handle: Handle) -> Decision:
        """Names the earlier call, and the handle of its result."""
        result, policy = self.measured.result, self.measured.policy
        text = repeat.text(earlier, self.measured.measure, handle, policy, result.door)
        tokens = await self.rt.count(text, self.measured.model.tokenizer)
        return Decision(OutcomeKind.STORE, Trigger.REPEAT, text, tokens, handle, can_ask=True)

    async def _text(
        self,
        template: Template,
        trigger: Trigger | None,
        handle: Handle | None,
        squeeze: float,
        can_ask: bool,
    ) -> str | None:
        result, policy, measure = self.measured.result, self.measured.policy, self.measured.measure
        # The handle message names the whole result, and a file only where no tool is known.
        is_message = template is OUTCOMES[OutcomeKind.STORE]
        body = self.measured.body
        shown = body.masks.measure(measure) if is_message else self.measured.shown
        budget = self.measured.budget
        if trigger is Trigger.RESERVE_FAILED and template is OUTCOMES[OutcomeKind.REJECT]:
            budget = await self._budget_now()
        facts = Facts(shown, budget, measure.lines)
        ends = template.ends(shown, policy)
        head, tail = await body.ends(ends, viewed=shown is not measure and not is_message)

        # Stored bodies have no masks.
        names_file = not body.masks.has_masks and not (is_message and names_tool(policy, result.door))

        def write() -> str | None:
            oversized = Oversized(
                result=result,
                measure=measure,
                shown=shown,
                head=head,
                tail=tail,
                policy=policy,
                breach=breach_of(trigger or Trigger.SIZE_CAP, facts, policy),
                handle=handle,
                path=self.rt.body_path(result.key.tenant, handle) if names_file else None,
                squeeze=squeeze,
                can_ask=can_ask,
            )
            room = sketch_room(oversized) if ends.overview is Preview.SKETCH else policy.preview_bytes
            lines, overview = self._overview(ends, head, tail, shown, room)
            return template.text(replace(oversized, structure=lines, overview=overview))

        if ends.structure or ends.overview is Preview.OUTLINE:
            return await anyio.to_thread.run_sync(write, limiter=self.rt.scanning)
        return await in_thread_if_long(len(head) + len(tail), write, limiter=self.rt.scanning)

    def _overview(
        self, ends: Ends, head: bytes, tail: bytes, shown: Measure, room: int
    ) -> tuple[list[str], str]:
        """Structure and overview of a text, if the outcome shows them, the overview in `room` bytes."""
        # Importing these modules takes 50 ms, a twentieth of the start (bench/README.md, start).
        from content.describe import outline, source_of, structure
        from content.sketch import Origin, sketch

        result, policy = self.measured.result, self.measured.policy
        if ends.overview is Preview.SKETCH:
            source = source_of(head, tail, shown.bytes, shown.lines, result.tool_name, name_of(result))
            origin = Origin(result.is_error, tool_kind_of(result) is ToolKind.SHELL)
            return [], sketch(source, room, origin) if room else ""
        if ends.structure and not searches(result):
            first = first_row(result, policy.offset_base)
            return structure(name_of(result), head, first_line=first), ""
        if ends.structure or ends.overview is None:
            return [], ""
        first = first_row(result, policy.offset_base)
        return [], outline(head, room, shown.bytes, name_of(result), first, tool_name=result.tool_name)

    async def _budget_now(self) -> Budget:
        """Reads the budget again, for an error that names what other results reserved meanwhile."""
        model = self.measured.model
        entered = await self.rt.ledger.enter(Call(self.measured.result.key, model.window, model.enforce))
        return entered.session.budget(model.window, model.enforce)

    def _breaks(self, text: str, tokens: int) -> bool:
        """True if the text exceeds a size cap: a cap in tokens is converted to bytes by an average."""
        size = Measure(len(text.encode()), line_count(text.encode()), len(text), tokens, True)
        return exceeds(size, self.measured.policy)
