"""The baseline of savings: the tokens of a result that its client would have shown without Spillgate."""

import re
from itertools import repeat

from app.governing.body import MeasuredResult
from policies.oversized import Ends

_SAMPLE_BYTES = 1 << 16
_PICTURE = re.compile(rb"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)[A-Za-z0-9+/_-]{4200,}={0,2}")
"""The base64 of PNG, JPEG, GIF and WebP, by how their files begin. A smaller one counts as text."""
_PROBE = re.compile(rb"[A-Za-z0-9+/_-]{100}")
_STEP = 4096
"""Every picture has a probe at a multiple of this. A text without one is not searched: the search alone would
take a quarter of the processor time of a stored result of 100 KB."""


async def baseline_tokens(measured: MeasuredResult) -> int:
    """At most the limit of the door's client or else the session's context window. The base64 of pictures is
    left out, by its share of the first 64 KiB."""
    measure, door = measured.measure, measured.result.door
    head, _ = await measured.body.ends(Ends(_SAMPLE_BYTES, 0), viewed=False)
    tokens = measure.tokens - measure.tokens * _picture_bytes(head) // max(len(head), 1)
    if door is not None and door.own_limit_bytes:
        return min(tokens, -(-measure.tokens * door.own_limit_bytes // max(measure.bytes, 1)))
    return min(tokens, measured.session.context_window or measured.model.window.context_window)


def _picture_bytes(head: bytes) -> int:
    if not any(map(_PROBE.match, repeat(head), range(0, len(head), _STEP))):
        return 0
    return sum(len(found[0]) for found in _PICTURE.finditer(head))
