"""JSON bodies: one decode, in a thread if they are large, and their long texts read in pieces.

One call of the decoder holds the interpreter until it returns, an object takes up to 20 times the bytes of
its JSON, and a text up to four times. So the values of a large body are counted before they are built, and
its long strings stay JSON until they are read.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw

from domain.errors import BadRequest, InvalidField, InvalidUtf8
from domain.structs import frozen_struct

T = TypeVar("T")
Data = bytes | bytearray | memoryview | Raw

INLINE_JSON_BYTES = 1 << 16
"""JSON up to this size is decoded on the event loop, whatever it holds."""

WHOLE_JSON_BYTES = 2 << 20
"""JSON up to this size is built with all its texts."""

LONG_BYTES = 512
"""A longer string of larger JSON becomes a LongText. Names, ids and paths can be read where they are."""

SHORT_STRINGS_BYTES = 2 << 20
"""The most that larger JSON may hold beside its long strings."""

MAX_VALUES = 50_000
MAX_DEPTH = 16
"""The most levels of objects and lists that hold more than LONG_BYTES each, in JSON over WHOLE_JSON_BYTES."""

CHUNK_BYTES = 1 << 18

PIECE_BYTES = 1 << 16
"""Long JSON is read in pieces of at most this size: each call holds the interpreter for a short time."""

TOO_MUCH_STRUCTURE = (
    "The body holds too many numbers, names, short strings, brackets and white space. Send such data as one "
    "string, or as text/plain."
)

Path = tuple[str | int, ...]
"""Names of members and numbers of items, from a value on inwards."""

Edit = tuple[Path, Any]
"""Where a value stands, and what comes in its place. DROPPED takes an item out of its list."""

DROPPED = object()

AS_SAID: Callable[[str], str] = "{}.".format

_QUOTE, _BRACKET, _BRACE = b'"[{'
_OBJECT = re.compile(rb"[ \t\r\n]*\{")
_BACKSLASH = re.compile(rb"\\")
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


class LongText(str):
    """A long string of a body, still as JSON: to be passed on, not to be looked into. As a `str` it is one
    NUL."""

    __slots__ = ("literal",)
    literal: Raw

    def __new__(cls, literal: Raw) -> "LongText":
        number = super().__new__(cls, "\0")
        number.literal = literal
        return number


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


async def read_document(body: bytes | bytearray, parsing: anyio.CapacityLimiter) -> Any:
    """The value of a JSON body of any shape. Raises BadRequest, InvalidUtf8, and InvalidField for more values
    than MAX_VALUES in more than INLINE_JSON_BYTES. `parsing` lets one large body at a time be read."""
    if len(body) <= INLINE_JSON_BYTES:
        return decoded(_decode_any, body)[0]
    return await anyio.to_thread.run_sync(_document, body, limiter=parsing)


async def checked_json(body: bytes | bytearray, parsing: anyio.CapacityLimiter) -> bytes:
    """The JSON of a body as it came, with U+FFFD in place of each lone surrogate. Raises BadRequest,
    InvalidUtf8."""

    def check() -> bytes:
        raw, _ = decoded(_decode_raw, body)
        check_utf8(raw)
        return bytes(raw)

    if len(body) <= INLINE_JSON_BYTES:
        return check()
    return await anyio.to_thread.run_sync(check, limiter=parsing)


def _document(body: bytes | bytearray) -> Any:
    raw, _ = decoded(_decode_raw, body)
    if count_values(raw) > MAX_VALUES:
        raise InvalidField(TOO_MUCH_STRUCTURE)
    if len(body) <= WHOLE_JSON_BYTES:
        return checked(_decode_any, raw)
    return _Builder().built(raw, MAX_DEPTH)


class _Builder:
    """Builds a value whose long strings are LongText."""

    def __init__(self) -> None:
        self._built_bytes = 0

    def built(self, raw: Raw, depth: int) -> Any:
        """Raises as `read_document`."""
        view = memoryview(raw)
        if len(view) > LONG_BYTES:
            if is_string(raw):
                return LongText(raw)
            if view[0] in (_BRACKET, _BRACE) and not depth:
                raise InvalidField(TOO_MUCH_STRUCTURE)
            if view[0] == _BRACKET:
                return [self.built(item, depth - 1) for item in checked(decode_list, raw)]
            if view[0] == _BRACE:
                members = checked(_decode_members, raw)
                return {name: self.built(item, depth - 1) for name, item in members.items()}
        self._built_bytes += len(view)
        if self._built_bytes > SHORT_STRINGS_BYTES:
            raise InvalidField(TOO_MUCH_STRUCTURE)
        return checked(_decode_any, raw)


class Listed(NamedTuple):
    """The value of a JSON body, and the items of one of its lists as they came: none without such a list."""

    document: Any
    items: list[Raw]


async def read_listed(body: bytes | bytearray, name: str, parsing: anyio.CapacityLimiter) -> Listed:
    """`name` is the member that is a list. Raises as `read_document`."""
    if len(body) <= INLINE_JSON_BYTES:
        return _listed(body, name)
    return await anyio.to_thread.run_sync(_listed, body, name, limiter=parsing)


def _listed(body: bytes | bytearray, name: str) -> Listed:
    if _OBJECT.match(body) is None:
        return Listed(_document(body), [])
    members, _ = decoded(_decode_members, body)
    if len(body) > INLINE_JSON_BYTES and count_values(body) > MAX_VALUES:
        raise InvalidField(TOO_MUCH_STRUCTURE)
    build = _value if len(body) <= WHOLE_JSON_BYTES else _Builder().built
    listed = members.get(name)
    items = checked(decode_list, listed) if listed is not None and memoryview(listed)[0] == _BRACKET else []
    document = {key: build(one, MAX_DEPTH - 1) for key, one in members.items() if key != name}
    if items:
        document[name] = [build(item, MAX_DEPTH - 2) for item in items]
    elif listed is not None:
        document[name] = build(listed, MAX_DEPTH - 1)
    return Listed(document, items)


def _value(raw: Raw, depth: int) -> Any:
    return checked(_decode_any, raw)


async def edited_items(
    listed: Listed, edits: Mapping[int, Sequence[Edit]], parsing: anyio.CapacityLimiter
) -> list[Raw]:
    """The items as they came but for their edits. Raises BadRequest."""
    if not edits:
        return listed.items

    def edited() -> list[Raw]:
        return [
            _edited(item, edits[number]) if number in edits else item
            for number, item in enumerate(listed.items)
        ]

    if sum(len(memoryview(listed.items[number])) for number in edits) <= INLINE_JSON_BYTES:
        return edited()
    return await anyio.to_thread.run_sync(edited, limiter=parsing)


def _edited(raw: Raw, edits: Sequence[Edit]) -> Raw:
    if not edits[0][0]:
        return Raw(as_json(edits[0][1]))
    inner: dict[str | int, list[Edit]] = {}
    for (step, *path), value in edits:
        inner.setdefault(step, []).append((tuple(path), value))
    if not isinstance(edits[0][0][0], int):
        members = checked(_decode_members, raw)
        return Raw(as_json(members | {step: _edited(members[str(step)], inner[step]) for step in inner}))
    items = checked(decode_list, raw)
    numbered = enumerate(items)
    return Raw(
        as_json(
            [
                _edited(item, inner[number]) if number in inner else item
                for number, item in numbered
                if inner.get(number) != [((), DROPPED)]
            ]
        )
    )


def value_at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def edited_value(document: Any, edits: Sequence[Edit]) -> Any:
    """A copy of a value with its edits; what they leave is not copied."""
    if not edits[0][0]:
        return edits[0][1]
    inner: dict[str | int, list[Edit]] = {}
    for (step, *path), value in edits:
        inner.setdefault(step, []).append((tuple(path), value))
    if isinstance(document, dict):
        return document | {str(step): edited_value(document[step], inner[step]) for step in inner}
    return [
        edited_value(item, inner[number]) if number in inner else item
        for number, item in enumerate(document)
        if inner.get(number) != [((), DROPPED)]
    ]


def as_json(document: Any) -> bytes:
    """A value with strings of a body in it, which are as they came. Raises BadRequest."""
    try:
        return msgspec.json.encode(document, enc_hook=_literal)
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None


def _literal(text: LongText) -> Raw:
    return text.literal


Text = str | bytes
"""A str, one still as JSON, or UTF-8."""


def size_of(text: Text) -> int:
    """About how many bytes it takes as UTF-8."""
    return len(memoryview(text.literal)) if isinstance(text, LongText) else len(text)


def utf8_of(text: Text) -> bytes | bytearray:
    """Raises InvalidUtf8."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, LongText):
        return text.encode()
    literal = memoryview(text.literal)[1:-1]
    if _BACKSLASH.search(literal) is None:
        return literal.tobytes()
    unescaped = bytearray()
    for piece in pieces(literal):
        unescaped += checked(_decode_text, b'"%b"' % piece).encode()
    return unescaped


@frozen_struct
class Texts:
    """The content of a result: texts of a JSON body, with a newline between two. They can be read more than
    once. `parsing` lets the texts of one large body at a time be decoded."""

    texts: Sequence[Text]
    parsing: anyio.CapacityLimiter

    @property
    def size(self) -> int:
        return sum(map(size_of, self.texts)) + len(self.texts)

    def governed(self) -> str | AsyncIterator[bytes]:
        """The whole text, or the chunks of a large one."""
        if len(self.texts) == 1 and type(self.texts[0]) is str:
            return self.texts[0]
        return self._joined().decode() if self.size <= INLINE_JSON_BYTES else self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        data = memoryview(await self.joined())
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES].tobytes()

    async def joined(self) -> bytes | bytearray:
        """The whole text as UTF-8."""
        return await self._in_thread(self._joined)

    def _joined(self) -> bytes | bytearray:
        return utf8_of(self.texts[0]) if len(self.texts) == 1 else b"\n".join(map(utf8_of, self.texts))

    async def sha256(self, names: str = "") -> str:
        """SHA-256 of names and text, in hex: the same however the strings in the JSON were written."""

        def digested() -> str:
            digest = sha256(names.encode())
            digest.update(self._joined())
            return digest.hexdigest()

        return await self._in_thread(digested)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self.size <= INLINE_JSON_BYTES:
            return work()
        return await anyio.to_thread.run_sync(work, limiter=self.parsing)
