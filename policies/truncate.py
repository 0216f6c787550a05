"""truncate: the head, how much is missing, and how to get at it."""

from domain.results import Measure
from policies.facts import Policy
from policies.oversized import Ends, Oversized, whereabouts
from policies.recovery import recovery

_LOOKED_AT = 1 << 18
"""How much of the head is looked at for its structure."""


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(max(_LOOKED_AT, 4 * policy.head_chars + 4), 0)


def text(oversized: Oversized) -> str | None:
    """None where the head is all of it."""
    head = _head(oversized.head, oversized.policy.head_chars)
    missing = oversized.shown.chars - len(head)
    if missing <= 0:
        return None
    cut = f"{head}\n\n[... {missing} characters truncated ...]\n\n"
    below = whereabouts(oversized.handle)
    return cut + recovery(oversized, head, missing - len(below)) + below


def _head(data: bytes, chars: int) -> str:
    """The first characters, but no half of a CRLF."""
    text = data[: 4 * chars + 4].decode("utf-8", "ignore")
    end = chars - 1 if text[chars - 1 : chars + 1] == "\r\n" else chars
    return text[:end]
