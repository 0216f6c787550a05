"""repeat: one line in place of a result that is byte-equal to an earlier one of its session."""

from domain.doors import Door
from domain.handles import Handle
from domain.results import Measure
from domain.structs import frozen_struct
from policies.oversized import has_means, reading
from policies.policy import NAME, Policy

LEAST_BYTES = 1025
"""The least bytes of a result whose repetition is replaced."""


@frozen_struct
class Earlier:
    """The first call of a session that returned this content. `handle`: where the content is stored, None if
    it is not. `was_shown`: the model was given all of it, not a text in its place."""

    tool_name: str
    call_id: str | None
    handle: str | None
    was_shown: bool


def may_repeat(measure: Measure, policy: Policy, door: Door | None) -> bool:
    """True if a repetition is replaced by a line. The model must be able to ask for the result: it may no
    longer be in its context."""
    is_on = policy.repeat is NAME and not policy.bypass
    return is_on and measure.bytes >= LEAST_BYTES and has_means(policy, door)


def text(earlier: Earlier, measure: Measure, handle: Handle, policy: Policy, door: Door | None) -> str:
    call = f" (call {earlier.call_id})" if earlier.call_id else ""
    return (
        f"The same {measure.bytes} bytes as {earlier.tool_name}{call} returned before; they are not shown "
        f"again. If you need them: {reading(handle, policy, door)}."
    )
