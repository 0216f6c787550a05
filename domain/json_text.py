"""JSON as bytes, looked at in pieces: each call holds the interpreter for a short time, whatever the size."""

import re
from collections.abc import Iterator

PIECE_BYTES = 1 << 16

_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
# At the end of a piece: an escape or a character that is not complete, or a high surrogate whose low one may
# follow.
_UNFINISHED = re.compile(
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?|[\xc0-\xff][\x80-\xbf]{0,3})?\Z"
)
_UNFINISHED_BYTES = 12


def pieces(data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """Yields `data`, which begins within no escape, in pieces that end within no escape and no character."""
    view, at = memoryview(data), 0
    while at < len(view):
        piece = view[at : at + PIECE_BYTES].tobytes()
        if at + len(piece) < len(view):
            masked = piece.replace(rb"\\", b"__")
            unfinished = _UNFINISHED.search(masked, len(piece) - _UNFINISHED_BYTES)
            assert unfinished is not None
            piece = piece[: unfinished.start()]
        yield piece
        at += len(piece)


def without_lone_surrogates(data: bytes | bytearray | memoryview) -> bytes:
    """`data` with U+FFFD in place of each escaped lone surrogate, which decoders take for a fault."""
    return b"".join(map(_without_lone_surrogates, pieces(data)))


def _without_lone_surrogates(piece: bytes) -> bytes:
    if b"\\u" not in piece or b"\0" in piece:
        return piece  # With a NUL it is no JSON, and NULs mark the escaped backslashes below.
    masked = piece.replace(rb"\\", b"\0\0")
    return _LONE_SURROGATE.sub(rb"\\ufffd", masked).replace(b"\0\0", rb"\\")


def count_values(data: bytes | bytearray | memoryview) -> int:
    """The commas and opening brackets outside strings: about as many objects are built of them. Raises
    UnicodeDecodeError."""
    count, is_within_string = 0, False
    for piece in pieces(data):
        if not piece.isascii():
            piece.decode()
        plain = piece.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in piece else piece
        parts = plain.split(b'"')
        outside = b"".join(parts[is_within_string::2])
        count += len(outside) - len(outside.translate(None, b",[{"))
        is_within_string ^= len(parts) % 2 == 0
    return count
