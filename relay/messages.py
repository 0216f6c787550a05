"""JSON-RPC messages as bytes. What the relay does not change is never decoded, nor written in other words."""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw

from domain.json_text import without_lone_surrogates
from relay.streams import Buffer, Pieces

_QUOTE, _BRACE = b'"{'
_JOINED_BYTES = 1 << 18

members = msgspec.json.Decoder(dict[str, Raw]).decode
"""The members of a JSON object, each as its own JSON. Raises NOT_JSON."""

elements = msgspec.json.Decoder(list[Raw]).decode
"""The elements of a JSON array, each as its own JSON. Raises NOT_JSON."""

NOT_JSON = (msgspec.DecodeError, ValueError, RecursionError)

Id = str | int | float


def value(raw: Raw | None) -> Any:
    """What a small JSON text says; None for no text. Raises NOT_JSON."""
    return None if raw is None else msgspec.json.decode(raw)


def text(raw: Raw | None) -> str | None:
    """What a JSON string says; None for anything else. Raises NOT_JSON."""
    found = value(raw) if raw is not None and is_string(raw) else None
    return found if isinstance(found, str) else None


def repaired(message: Buffer) -> Buffer | None:
    """The message with U+FFFD in place of each escaped lone surrogate; None if there is none. Servers that
    cut a string within a character send them, and the decoders above take them for a fault."""
    whole = bytes(message)
    if b"\\u" not in whole:
        return None
    found = without_lone_surrogates(whole)
    return None if found == whole else found


def inner(fields: Mapping[str, Raw], name: str) -> dict[str, Raw]:
    """The members of a member that is an object; none for any other. Raises NOT_JSON."""
    raw = fields.get(name)
    return members(raw) if raw is not None and is_object(raw) else {}


def id_of(raw: Raw | None) -> Id | None:
    """The id of a request or a response. Raises NOT_JSON."""
    found = value(raw)
    return found if isinstance(found, str | int | float) else None


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == _QUOTE


def is_object(raw: Raw) -> bool:
    return memoryview(raw)[0] == _BRACE


def is_array(message: Buffer) -> bool:
    return bytes(message[:64]).lstrip()[:1] == b"["


def written(fields: Mapping[str, Pieces]) -> Pieces:
    """A JSON object of members that are JSON already."""
    pieces: Pieces = []
    for name, found in fields.items():
        pieces += [b"," if pieces else b"{", json.dumps(name).encode(), b":", *found]
    return [*pieces, b"}"] if pieces else [b"{}"]


def array(parts: Iterable[Pieces]) -> Pieces:
    """A JSON array of elements that are JSON already."""
    pieces: Pieces = []
    for part in parts:
        pieces += [b"," if pieces else b"[", *part]
    return [*pieces, b"]"] if pieces else [b"[]"]


def as_it_came(raw: Raw) -> Pieces:
    return [memoryview(raw)]


def encoded(found: object) -> Pieces:
    """In ASCII: lone surrogates, which some servers send, cannot be written in UTF-8."""
    return [json.dumps(found).encode()]


def size_of(pieces: Pieces) -> int:
    return sum(len(piece) for piece in pieces)


def joined(pieces: Pieces) -> Pieces:
    """The same bytes in fewer pieces: small ones in a row are put together."""
    found: Pieces = []
    for is_large, row in groupby(pieces, lambda piece: len(piece) >= _JOINED_BYTES):
        some = list(row)
        found += some if is_large else [b"".join(some)]
    return found


def on_one_line(message: bytes) -> bytes:
    """JSON without line ends. A string in JSON holds none, so all of them are white space."""
    return message.replace(b"\r", b" ").replace(b"\n", b" ")
