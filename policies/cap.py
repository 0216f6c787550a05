"""cap: head and tail around a marker, within the size cap in all."""

from content import cut
from domain.results import Measure
from policies.facts import Policy
from policies.oversized import Ends, Oversized, whereabouts

_MARKER = "\n... [{} bytes truncated; head + tail kept] ...\n"

_LEAST_CUT = 80
SPARED_BYTES = _LEAST_CUT - 1 - len(_MARKER.format(_LEAST_CUT))
"""How much longer than `max_bytes` a text may be that would lose fewer than 80 bytes: it is not cut."""

_SHARE = 0.9
"""Of a cap in characters or tokens, turned into bytes by the text's own average: its ends may differ."""


def ends(measure: Measure, policy: Policy) -> Ends:
    half = max(0, _room(measure, policy) // 2)
    return Ends(half + 4, half + 4)


def text(oversized: Oversized) -> str | None:
    """None where there is nothing to cut, or no room for both ends and what is said between and below."""
    size = oversized.shown.bytes
    below = whereabouts(oversized.handle)
    fixed = len(_MARKER.format(size).encode()) + len(below.encode())
    room = _room(oversized.shown, oversized.policy)
    half = (room - fixed) // 2
    if half <= 0 or size <= room:
        return None
    head, tail = cut.head(oversized.head, half), cut.tail(oversized.tail, half)
    marker = _MARKER.format(size - len(head) - len(tail))
    if len(head) + len(marker) + len(tail) >= size:
        return None
    return f"{head.decode('utf-8', 'ignore')}{marker}{tail.decode('utf-8', 'ignore')}{below}"


def _room(measure: Measure, policy: Policy) -> int:
    """Bytes that satisfy every size cap in force; 0 where there is none."""
    rooms = [policy.max_bytes] if policy.max_bytes else []
    if policy.max_chars:
        uniform = measure.bytes == measure.chars
        rooms.append(policy.max_chars if uniform else _scaled(policy.max_chars, measure.bytes, measure.chars))
    if policy.max_tokens:
        rooms.append(_scaled(policy.max_tokens, measure.bytes, measure.tokens))
    return min(rooms, default=0)


def _scaled(most: int, size: int, count: int) -> int:
    return int(most * size / max(count, 1) * _SHARE)
