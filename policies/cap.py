"""cap: head and tail around a marker, within the size cap in all."""

from content import cut
from domain.results import Measure
from policies.facts import Policy
from policies.oversized import Ends, Oversized, room_bytes, whereabouts

_MARKER = "\n... [{} bytes truncated; head + tail kept] ...\n"

_LEAST_CUT = 80
SPARED_BYTES = _LEAST_CUT - 1 - len(_MARKER.format(_LEAST_CUT))
"""How much longer than `max_bytes` a text may be that would lose fewer than 80 bytes: it is not cut."""


def ends(measure: Measure, policy: Policy) -> Ends:
    half = max(0, room_bytes(measure, policy) // 2)
    return Ends(half + 4, half + 4)


def text(oversized: Oversized) -> str | None:
    """None where there is nothing to cut, or no room for both ends and what is said between and below."""
    size = oversized.shown.bytes
    below = whereabouts(oversized.handle, oversized.policy)
    fixed = len(_MARKER.format(size).encode()) + len(below.encode())
    room = room_bytes(oversized.shown, oversized.policy, oversized.squeeze)
    half = (room - fixed) // 2
    if half <= 0 or size <= room:
        return None
    head, tail = cut.head(oversized.head, half), cut.tail(oversized.tail, half)
    marker = _MARKER.format(size - len(head) - len(tail))
    if len(head) + len(marker) + len(tail) >= size:
        return None
    return f"{head.decode('utf-8', 'ignore')}{marker}{tail.decode('utf-8', 'ignore')}{below}"
