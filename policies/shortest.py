"""The shortest text of each outcome for a result of which only the size is known."""

from collections.abc import Iterator
from typing import NamedTuple

from content.text import Preview
from domain.handles import Handle
from domain.outcomes import OutcomeKind, Trigger
from domain.results import ToolResult
from domain.structs import replace
from policies.decide import candidate_outcomes
from policies.facts import Facts
from policies.outcomes import OUTCOMES
from policies.oversized import Oversized, breach_of, has_means
from policies.policy import Policy

_DATA = b"\0"
"""Stands for a byte of the result."""

_MOST_BYTES = 1 << 18
"""The most bytes of a made-up end. Only `cap` shows more, and there the number of bytes is enough."""


class ShortestText(NamedTuple):
    """`text` lacks the bytes of the result that it would show; `shown_bytes` is their number."""

    outcome: OutcomeKind
    text: str
    shown_bytes: int


def shortest_texts(
    trigger: Trigger, facts: Facts, policy: Policy, result: ToolResult, handle: Handle
) -> Iterator[ShortestText]:
    """In the order in which POST /results tries the outcomes. The texts are those for plain text without
    title and structure."""
    plain = replace(policy, preview=Preview.NONE)
    forms = [(policy, True), (plain, True), (plain, False)] if has_means(policy, None) else [(plain, False)]
    measure = facts.measure
    for kind, _ in candidate_outcomes(trigger, policy, facts.rows):
        for form, can_ask in forms:
            ends = OUTCOMES[kind].ends(measure, form)
            needed = min(ends.head, measure.bytes), min(ends.tail, measure.bytes)
            head, tail = (_DATA * min(size, _MOST_BYTES) for size in needed)
            oversized = Oversized(
                result=result,
                measure=measure,
                shown=measure,
                head=head,
                tail=tail,
                policy=form,
                breach=breach_of(trigger, facts, form),
                handle=handle if kind is OutcomeKind.STORE or form.keep else None,
                can_ask=can_ask,
            )
            text = OUTCOMES[kind].text(oversized)
            if text is not None:
                shown = text.count(_DATA.decode())
                if shown == len(head) + len(tail):
                    shown = sum(needed)
                yield ShortestText(kind, text.encode().translate(None, _DATA).decode(), shown)
