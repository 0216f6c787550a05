"""JSON bodies: decoded once, and in a thread if they are long.

A JSON text takes up to four times its bytes as a `str`, and an array or an object up to 20 times those of its
JSON: the values of a long body are counted before they are built.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec import Raw

from content.threads import LONG_BYTES, in_thread_if_long
from domain.errors import BadRequest, InvalidField, InvalidUtf8

T = TypeVar("T")
Data = bytes | bytearray | memoryview | Raw

MAX_VALUES = 50_000

CHUNK_CHARS = 1 << 16

WHOLE_BYTES = 2 << 20
"""A longer string is decoded in pieces."""

PIECE_BYTES = 1 << 16
"""Long JSON is checked in pieces of at most this size: each call holds the interpreter for a short time."""

TOO_MUCH_STRUCTURE = "The body holds too many values. Send such data as one string, or as text/plain."

JsonPath = tuple[str | int, ...]
"""Names of members and numbers of items, from a value on inwards."""

JsonEdit = tuple[JsonPath, Any]
"""Where a value stands, and what comes in its place. DROPPED takes an item out of its list."""

DROPPED = object()

AS_SAID: Callable[[str], str] = "{}.".format

_QUOTE = b'"'[0]
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
_decode_any = msgspec.json.Decoder().decode
_decode_raw = msgspec.json.Decoder(Raw).decode
_decode_text = msgspec.json.Decoder(str).decode
decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == _QUOTE


def checked(decode: Callable[[Data], T], data: Data, rule: Callable[[str], str] = AS_SAID) -> T:
    """Decodes. Raises InvalidField, InvalidUtf8, or BadRequest for all that is no JSON; no message repeats
    the input. `rule` words what msgspec says of a wrong field."""
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        if decode is not _decode_raw:
            # A wrong field ends the decoding: what follows it may be no JSON.
            checked(_decode_raw, data)
        raise InvalidField(rule(str(error))) from None
    except UnicodeDecodeError:
        raise InvalidUtf8("The body must be UTF-8.") from None
    except msgspec.DecodeError:
        raise BadRequest("The body is not well-formed JSON.") from None
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None


def decoded(decode: Callable[[Data], T], data: Data, rule: Callable[[str], str] = AS_SAID) -> tuple[T, bool]:
    """Returns what `checked` returns, and whether lone surrogates had to be replaced first."""
    try:
        return checked(decode, data, rule), False
    except BadRequest:
        replaced = without_lone_surrogates(data)
        if replaced == memoryview(data):
            raise
        return checked(decode, replaced, rule), True


def pieces(data: Data) -> Iterator[bytes]:
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


def without_lone_surrogates(data: Data) -> bytes:
    """`data` with U+FFFD in place of each escaped lone surrogate, which decoders take for a fault."""
    return b"".join(map(_without_lone_surrogates, pieces(data)))


def _without_lone_surrogates(piece: bytes) -> bytes:
    if b"\\u" not in piece or b"\0" in piece:
        return piece  # With a NUL it is no JSON, and NULs mark the escaped backslashes below.
    masked = piece.replace(rb"\\", b"\0\0")
    return _LONE_SURROGATE.sub(rb"\\ufffd", masked).replace(b"\0\0", rb"\\")


def check_utf8(data: Data) -> None:
    """Raises InvalidUtf8."""
    for piece in pieces(data):
        _check_piece(piece)


def _check_piece(piece: bytes) -> None:
    try:
        if not piece.isascii():
            piece.decode()
    except UnicodeDecodeError:
        raise InvalidUtf8("The body must be UTF-8.") from None


def count_values(data: Data) -> int:
    """The commas and opening brackets outside strings: about as many objects are built of them. Raises
    InvalidUtf8."""
    count, is_within_string = 0, False
    for piece in pieces(data):
        _check_piece(piece)
        plain = piece.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in piece else piece
        parts = plain.split(b'"')
        outside = b"".join(parts[is_within_string::2])
        count += len(outside) - len(outside.translate(None, b",[{"))
        is_within_string ^= len(parts) % 2 == 0
    return count


def text_of(literal: Raw) -> str | bytes:
    """The text of a JSON string: of one over WHOLE_BYTES as UTF-8, decoded in pieces. The whole may take four
    times its bytes."""
    view = memoryview(literal)
    if len(view) <= WHOLE_BYTES:
        return checked(_decode_text, literal)
    return b"".join(checked(_decode_text, b'"%b"' % piece).encode() for piece in pieces(view[1:-1]))


async def read_document(body: bytes | bytearray, parsing: anyio.CapacityLimiter) -> Any:
    """The value of a JSON body of any shape. Raises BadRequest, InvalidUtf8, and InvalidField for more values
    than MAX_VALUES in a long body. `parsing` lets one long body at a time be read."""
    return await in_thread_if_long(len(body), _document, body, limiter=parsing)


def _document(body: bytes | bytearray) -> Any:
    if len(body) > LONG_BYTES and count_values(body) > MAX_VALUES:
        raise InvalidField(TOO_MUCH_STRUCTURE)
    return decoded(_decode_any, body)[0]


async def read_listed(
    body: bytes | bytearray, name: str, parsing: anyio.CapacityLimiter
) -> tuple[Any, list[Raw]]:
    """The same, and the items of its member `name` as they came; none if that is no list."""
    return await in_thread_if_long(len(body), _listed, body, name, limiter=parsing)


def _listed(body: bytes | bytearray, name: str) -> tuple[Any, list[Raw]]:
    document = _document(body)
    if not isinstance(document, dict) or not isinstance(document.get(name), list):
        return document, []
    return document, checked(decode_list, decoded(_decode_members, body)[0][name])


async def checked_json(body: bytes | bytearray, parsing: anyio.CapacityLimiter) -> bytes:
    """The JSON of a body as it came, with U+FFFD in place of each lone surrogate. Raises BadRequest,
    InvalidUtf8."""

    def check() -> bytes:
        raw, _ = decoded(_decode_raw, body)
        check_utf8(raw)
        return bytes(raw)

    return await in_thread_if_long(len(body), check, limiter=parsing)


def value_at(document: Any, path: JsonPath) -> Any:
    for step in path:
        document = document[step]
    return document


def edited_value(document: Any, edits: Sequence[JsonEdit]) -> Any:
    """A copy of a value with its edits; what they leave is not copied."""
    if not edits[0][0]:
        return edits[0][1]
    inner: dict[str | int, list[JsonEdit]] = {}
    for (step, *path), value in edits:
        inner.setdefault(step, []).append((tuple(path), value))
    if isinstance(document, dict):
        return document | {str(step): edited_value(document[step], inner[step]) for step in inner}
    return [
        edited_value(item, inner[number]) if number in inner else item
        for number, item in enumerate(document)
        if inner.get(number) != [((), DROPPED)]
    ]


def edited_items(
    values: Sequence[Any], items: Sequence[Raw], edits: Mapping[int, Sequence[JsonEdit]]
) -> list[Any]:
    """The values of a list with the edits of each, by its number; those without edits as they came."""
    return [edited_value(values[n], edits[n]) if n in edits else item for n, item in enumerate(items)]


def as_json(document: Any) -> bytes:
    """Raises BadRequest."""
    try:
        return msgspec.json.encode(document)
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None


def governed_text(texts: Sequence[str]) -> str | AsyncIterator[bytes]:
    """The texts with a newline between two: whole, or in chunks if they are long, without a copy of all."""
    if sum(map(len, texts)) <= LONG_BYTES:
        return "\n".join(texts)
    return _each(_encoded(texts))


async def text_sha256(names: str, texts: Sequence[str]) -> str:
    """SHA-256 of names and texts, in hex: the same however the strings in the JSON were written."""

    def digested() -> str:
        digest = sha256(names.encode())
        for chunk in _encoded(texts):
            digest.update(chunk)
        return digest.hexdigest()

    return await in_thread_if_long(sum(map(len, texts)), digested)


def _encoded(texts: Sequence[str]) -> Iterator[bytes]:
    for number, text in enumerate(texts):
        if number:
            yield b"\n"
        for start in range(0, len(text), CHUNK_CHARS):
            yield text[start : start + CHUNK_CHARS].encode()


async def _each(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
