"""truncate: the head, the number of missing characters, and commands that show them."""

from domain.results import Measure
from policies.facts import Policy
from policies.oversized import Ends, Oversized, footer, room_bytes
from policies.recovery import recovery

CUTS = True

_LOOKED_AT = 1 << 18
"""Bytes of the head in which the structure is looked for."""

_TRIES = 8
"""The most attempts to shorten the head until the text is within its caps."""


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(max(_LOOKED_AT, 4 * policy.head_chars + 4), 0, structure=True)


def text(oversized: Oversized) -> str | None:
    """The text within every size cap: first the structure is shortened, then the head; last, the commands are
    left out. None if the head is the whole result, or no text is within the caps."""
    head = _head(oversized.head, oversized.policy.head_chars)
    if oversized.shown.chars <= len(head):
        return None
    for has_commands, least in ((True, len(head) // 4), (False, 0)):
        kept = head
        for _ in range(_TRIES):
            made = _composed(oversized, kept, has_commands=has_commands)
            excess = _excess_chars(made, oversized)
            if excess == 0:
                return made
            if len(kept) <= least:
                break
            kept = _shortened(kept, max(least, len(kept) - excess))
    return None


def _composed(oversized: Oversized, head: str, *, has_commands: bool) -> str:
    missing = oversized.shown.chars - len(head)
    above = f"{head}\n\n[... {missing} characters truncated ...]\n\n"
    below = footer(oversized.handle, oversized.policy)
    room = min(missing, _room_chars(above, oversized)) - len(below)
    return above + recovery(oversized, head, room, has_commands=has_commands) + below


def _room_chars(above: str, oversized: Oversized) -> int:
    """Characters that the caps leave below `above`, for text of mostly one-byte characters."""
    most, policy = _most_bytes(oversized), oversized.policy
    rooms = [most - len(above.encode())] if most else []
    rooms += [policy.max_chars - len(above)] if policy.max_chars else []
    return min(rooms, default=oversized.shown.chars)


def _most_bytes(oversized: Oversized) -> int:
    """Bytes that the caps other than `max_chars` allow; 0 if there is no other cap."""
    policy = oversized.policy.model_copy(update={"max_chars": 0})
    return room_bytes(oversized.shown, policy, oversized.squeeze)


def _excess_chars(made: str, oversized: Oversized) -> int:
    """The least number of characters to remove."""
    most, policy, size = _most_bytes(oversized), oversized.policy, len(made.encode())
    by_bytes = -(-(size - most) * len(made) // size) if 0 < most < size else 0
    return max(by_bytes, len(made) - policy.max_chars if policy.max_chars else 0, 0)


def _head(data: bytes, chars: int) -> str:
    """The first `chars` characters, without half of a CRLF."""
    return _shortened(data[: 4 * chars + 4].decode("utf-8", "ignore"), chars)


def _shortened(text: str, chars: int) -> str:
    end = chars - 1 if text[max(0, chars - 1) : chars + 1] == "\r\n" else chars
    return text[:end]
