"""The preview of a stored result that its handle message may show."""

from enum import StrEnum

from content.text import cut


class Preview(StrEnum):
    NONE = "none"
    ABOUT = "about"
    HEAD = "head"
    HEAD_TAIL = "head-tail"
    OUTLINE = "outline"


# Room for the marker with the longest number.
_MARKER_BYTES = 48


def preview(kind: Preview, head: bytes, tail: bytes, total_bytes: int, max_bytes: int) -> str:
    """At most `max_bytes` of UTF-8; "" for `about` and `outline`, which content/outline makes. `head` and
    `tail` are the first and last bytes of the result. They may overlap, and may be cut within a character."""
    if kind in (Preview.NONE, Preview.ABOUT, Preview.OUTLINE) or max_bytes <= 0:
        return ""
    if kind == Preview.HEAD or total_bytes <= min(max_bytes, len(head)) or max_bytes < 2 * _MARKER_BYTES:
        return _text(cut.head(head, max_bytes))
    return _head_tail(head, tail, total_bytes, max_bytes)


def _head_tail(head: bytes, tail: bytes, total_bytes: int, max_bytes: int) -> str:
    room = (max_bytes - _MARKER_BYTES) // 2
    first = _text(cut.head(head, room))
    last = _text(cut.tail(tail, min(room, total_bytes - len(first.encode()))))
    omitted = total_bytes - len(first.encode()) - len(last.encode())
    if omitted <= 0:
        return first + last
    return f"{first}\n[... {omitted} bytes omitted ...]\n{last}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "ignore")
