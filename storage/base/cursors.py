"""Cursors of pages: opaque to the caller. Each contains the name of the list for which it is valid."""

import base64
import binascii
from typing import Literal

from domain.errors import InvalidField

ListName = Literal["entries", "newest", "sessions", "used"]


def encode(kind: ListName, position: str) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{position}".encode()).decode().rstrip("=")


def decode(kind: ListName, cursor: str) -> str:
    """Returns the position. Raises InvalidField for a cursor that `encode` did not make for this kind."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error):
        text = ""
    name, _, position = text.partition(":")
    if name != kind or not position:
        raise foreign()
    return position


def decode_number(kind: ListName, cursor: str) -> int:
    """Returns a position that is the number of a row. Raises InvalidField."""
    return number_in(decode(kind, cursor))


def number_in(position: str) -> int:
    """Returns a number of at most 18 digits: SQLite takes none past 63 bits. Raises InvalidField."""
    if not (position.isascii() and position.isdigit() and len(position) <= 18):
        raise foreign()
    return int(position)


def foreign() -> InvalidField:
    return InvalidField("cursor is not valid. Use next_cursor of the previous page, or leave it out.")
