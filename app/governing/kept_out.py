"""What of a result its client would have shown to its model, had it not been replaced."""

import re

from app.governing.body import MeasuredResult
from policies.oversized import Ends

_SAMPLE_BYTES = 1 << 16
_PICTURE = re.compile(rb"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)[A-Za-z0-9+/_-]{100,}={0,2}")
"""The base64 of PNG, JPEG, GIF and WebP, by how their files begin."""


async def tokens_otherwise(measured: MeasuredResult) -> int:
    """At most the limit of the door's client or else the session's context window. The base64 of pictures is
    left out, by its share of the first 64 KiB."""
    measure, door = measured.measure, measured.result.door
    head, _ = await measured.body.ends(Ends(_SAMPLE_BYTES, 0), viewed=False)
    pictures = sum(len(found[0]) for found in _PICTURE.finditer(head))
    tokens = measure.tokens - measure.tokens * pictures // max(len(head), 1)
    if door is not None and door.own_limit_bytes:
        return min(tokens, -(-measure.tokens * door.own_limit_bytes // max(measure.bytes, 1)))
    return min(tokens, measured.session.context_window or measured.model.window.context_window)
