"""What of a result its client would have shown to its model, had it not been replaced."""

import re

from app.governing.body import MeasuredResult
from policies.oversized import Ends

_SAMPLE_BYTES = 1 << 14
_BEGINNINGS = (b"iVBORw0KGgo", b"/9j/", b"R0lGOD", b"UklGR")
"""Beginnings of the base64 of PNG, JPEG, GIF and WebP files."""
_PICTURE = re.compile(rb"(?:%b)[A-Za-z0-9+/_-]{100,}={0,2}" % b"|".join(_BEGINNINGS))


async def tokens_otherwise(measured: MeasuredResult) -> int:
    """At most the limit of the door's client or else the session's context window. The base64 of pictures is
    left out, by its share of the first 16 KiB."""
    measure, door = measured.measure, measured.result.door
    head, _ = await measured.body.ends(Ends(_SAMPLE_BYTES, 0), viewed=False)
    # Four plain searches: the pattern alone takes a quarter of the time of 100 KB (bench/README.md).
    has_pictures = any(beginning in head for beginning in _BEGINNINGS)
    pictures = sum(len(match[0]) for match in _PICTURE.finditer(head)) if has_pictures else 0
    tokens = measure.tokens - measure.tokens * pictures // max(len(head), 1)
    if door is not None and door.own_limit_bytes:
        return min(tokens, -(-measure.tokens * door.own_limit_bytes // max(measure.bytes, 1)))
    return min(tokens, measured.session.context_window or measured.model.window.context_window)
