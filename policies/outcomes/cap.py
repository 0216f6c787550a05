"""cap: the head and the tail with a marker between them, together within the size cap."""

from content.text import TRUNCATED, cut_head, cut_tail
from domain.results import Measure
from policies.oversized import Ends, Oversized, footer, room_bytes, tokens_of_part
from policies.policy import Policy

CUTS = True
MUST_SAVE = False


def ends(measure: Measure, policy: Policy) -> Ends:
    half = max(0, room_bytes(measure, policy) // 2)
    return Ends(half + 4, half + 4)


def text(oversized: Oversized) -> str | None:
    """Returns None if there is nothing to cut, or no room for both ends, the marker and the footer."""
    size = oversized.shown.bytes
    below = footer(oversized)
    fixed = len(TRUNCATED.format(size).encode()) + len(below.encode())
    room = room_bytes(oversized.shown, oversized.policy, oversized.squeeze)
    half = (room - fixed) // 2
    if half <= 0 or size <= room:
        return None
    head, tail = cut_head(oversized.head, half), cut_tail(oversized.tail, half)
    marker = TRUNCATED.format(size - len(head) - len(tail))
    if len(head) + len(marker) + len(tail) >= size:
        return None
    return f"{head.decode('utf-8', 'ignore')}{marker}{tail.decode('utf-8', 'ignore')}{below}"


def tokens(measure: Measure, policy: Policy, message_tokens: int) -> int:
    caps = (
        (policy.max_bytes, measure.bytes),
        (policy.max_chars, measure.chars),
        (policy.max_tokens, measure.tokens),
    )
    share = min([1.0, *(cap / max(size, 1) for cap, size in caps if cap)])
    return tokens_of_part(share, measure, policy, message_tokens)
