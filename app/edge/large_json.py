"""A large JSON body: its long strings are left out before anything is built, and read in pieces."""

import re
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from content.text import decode_utf8
from domain.errors import BadRequest, InvalidField, InvalidUtf8

T = TypeVar("T")
Data = bytes | bytearray | memoryview | Raw

PIECE_BYTES = 1 << 18
"""How much of a body or of a JSON string one call reads. One call holds the interpreter for all of it."""

SHORT_BYTES = 64
"""A string literal up to this size stays in the skeleton."""

SKELETON_BYTES = 2 << 20
"""The most that a body may hold beside its long strings."""

ENVELOPE_BYTES = 2 << 20
"""The most that all fields but `content` may hold."""

MAX_MEMBERS = 250_000
"""The most commas in the skeleton of a list of content blocks: each block becomes an object."""

MAX_BLOCKS = 10_000
TOO_MUCH_STRUCTURE = (
    "The body holds more than 2 MiB of numbers, names, short strings, brackets and white space. Send such "
    "data as one string in `content`, or as text/plain."
)
WRONG_CONTENT = "`content` must be a string or a list of at most 10,000 content blocks."

_QUOTE, _BRACKET = b'"['
_HOLE = re.compile(rb'"\\u0000([0-9]+):([0-9]+)"')


class Block(Struct, frozen=True):
    """An MCP content block, as far as governing needs to know it."""

    type: str
    text: Raw | msgspec.UnsetType = msgspec.UNSET


_decode_text = msgspec.json.Decoder(str).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_block = msgspec.json.Decoder(Block).decode

_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
# Up to a byte that can be no part of an escape (no backslash, no letter that follows one, no hex digit), or
# up to the end of an escape whose backslash has none before it.
_NEAR = 256
_PLAIN = re.compile(
    rb".*(?:[ !#-.:-@G-[\]-`g-mo-qsv-~]"
    rb'|(?<!\\)\\(?:[nrtbf"/]|u(?![dD][89abAB])[0-9a-fA-F]{4}))',
    re.DOTALL,
)
# Whole escapes only; a high surrogate waits for what follows it.
_WHOLE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]))"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+",
)


def checked(decode: Callable[[Data], T], data: Data, rule: Callable[[str], str] = "{}.".format) -> T:
    """Decodes. Raises InvalidField, InvalidUtf8 or BadRequest; no message repeats the input. `rule` words
    what msgspec says of a wrong field."""
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise InvalidField(rule(str(error))) from None
    except UnicodeDecodeError:
        raise InvalidUtf8("The body must be UTF-8.") from None
    except msgspec.DecodeError:
        raise BadRequest("The body is not well-formed JSON.") from None
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None


def decoded(decode: Callable[[Data], T], data: Data, rule: Callable[[str], str]) -> tuple[T, bool]:
    """As `checked`; and True if lone surrogates had to be replaced first."""
    try:
        return checked(decode, data, rule), False
    except BadRequest:
        mended = repaired(bytes(data))
        if mended == data:
            raise
        return checked(decode, mended, rule), True


def split(
    body: bytes | bytearray, decode: Callable[[Data], T], rule: Callable[[str], str]
) -> tuple[T, "Content", bool]:
    """The fields of a large body, decoded with an empty `content`; the content; and as `decoded`. Takes
    milliseconds: call it in a thread."""
    skeleton = Skeleton(body)
    members = checked(_decode_members, skeleton.text, rule)
    content, sizes, parts = members.pop("content", None), 0, []
    for name, value in members.items():
        sizes += skeleton.size(value)
        if sizes > ENVELOPE_BYTES:
            raise InvalidField("All fields but `content` together must be at most 2 MiB.")
        parts.append(b"%b:%b" % (msgspec.json.encode(name), skeleton.restored(value)))
    if content is not None:
        parts.append(b'"content":""')
    fields, is_repaired = decoded(decode, b"{%b}" % b",".join(parts), rule)
    assert content is not None
    return fields, Content(content, skeleton), is_repaired


def repaired(data: bytes) -> bytes:
    """`data` with each escaped lone surrogate replaced by U+FFFD. Linear; one call holds the interpreter."""
    if b"\0" in data:
        return data  # No JSON, and NUL marks the escaped backslashes below.
    masked = data.replace(rb"\\", b"\0\0")
    return _LONE_SURROGATE.sub(rb"\\ufffd", masked).replace(b"\0\0", rb"\\")


class Yielding:
    """While a large body is read, a busy thread gives way to the event loop after SECONDS. The loop asks for
    the interpreter at each callback, and would wait 5 ms each time. A context manager; may be nested."""

    SECONDS = 0.0005
    _open = 0
    _usual = 0.0

    def __enter__(self) -> None:
        if not Yielding._open:
            Yielding._usual = sys.getswitchinterval()
            sys.setswitchinterval(self.SECONDS)
        Yielding._open += 1

    def __exit__(self, *error: object) -> None:
        Yielding._open -= 1
        if not Yielding._open:
            sys.setswitchinterval(Yielding._usual)


class Skeleton:
    """A JSON body in which `"\\u0000start:end"`, a position in the body, stands for each string literal that
    is longer than 64 bytes, crosses two slices, or holds `\\u0000` itself: no caller can write a position."""

    def __init__(self, body: bytes | bytearray) -> None:
        """Reads the body in slices. Raises InvalidField if more than SKELETON_BYTES would remain."""
        self._body = memoryview(body)
        self._text = bytearray()
        self._start: int | None = None  # of the string literal that a slice ended in
        position = 0
        while position < len(body):
            position = self._scan(bytes(self._body[position : position + PIECE_BYTES]), position)
            if len(self._text) > SKELETON_BYTES:
                raise InvalidField(TOO_MUCH_STRUCTURE)
        if self._start is not None:
            raise BadRequest("The body is not well-formed JSON.")

    @property
    def text(self) -> bytearray:
        return self._text

    def _scan(self, piece: bytes, base: int) -> int:
        """Where the next slice begins: never within an escape."""
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        masked = piece
        if b'"' in piece and b"\\" in piece:
            masked = piece.replace(rb"\\", b"__").replace(rb"\"", b"__")
        text, start, at = self._text, self._start, 0
        while (quote := masked.find(b'"', at)) >= 0:
            if start is None:
                text += piece[at:quote]
                start = base + quote
            else:
                literal = piece[start - base : quote + 1] if base <= start else b""
                if literal and len(literal) <= SHORT_BYTES and rb"\u0000" not in literal:
                    text += literal
                else:
                    text += b'"\\u0000%d:%d"' % (start, base + quote + 1)
                start = None
            at = quote + 1
        self._start = start
        if self._start is None:
            self._text += piece[at:]
        return base + len(piece) + backslashes % 2

    def literal(self, raw: Raw | memoryview) -> memoryview:
        """The string literal that this value of the skeleton stands for."""
        view = memoryview(raw)
        hole = _HOLE.fullmatch(view) if len(view) <= SHORT_BYTES else None
        return view if hole is None else self._body[int(hole[1]) : int(hole[2])]

    def size(self, raw: Raw) -> int:
        """Bytes of a value as it came."""
        holes = sum(int(hole[2]) - int(hole[1]) - len(hole[0]) for hole in _HOLE.finditer(memoryview(raw)))
        return len(memoryview(raw)) + holes

    def restored(self, raw: Raw) -> bytes:
        """A value as it came."""
        return b"".join(bytes(part) for part in self.parts(raw))

    def parts(self, raw: Raw) -> Iterator[memoryview]:
        """A value as it came: long string literals, and what is between them."""
        view = memoryview(raw)
        at = 0
        for hole in _HOLE.finditer(view):
            yield view[at : hole.start()]
            yield self._body[int(hole[1]) : int(hole[2])]
            at = hole.end()
        yield view[at:]


class Content:
    """The `content` of a request, as JSON: a string or a list of content blocks."""

    def __init__(self, raw: Raw, skeleton: Skeleton | None = None) -> None:
        """`skeleton`: that of the body, if `raw` is of a skeleton."""
        self._raw = raw
        self._skeleton = skeleton
        self.had_surrogates = False
        """True once lone surrogates were found and replaced."""

    def as_it_came(self) -> Raw:
        return self._raw if self._skeleton is None else Raw(self._skeleton.restored(self._raw))

    def small_text(self) -> str | None:
        """All of the text at once. None if it is not a string, or belongs to a large body."""
        if self._skeleton is not None or memoryview(self._raw)[0] != _QUOTE:
            return None
        try:
            return _decode_text(self._raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def pieces(self) -> Iterator[str]:
        """The text, a piece at a time, so that a large one is never held decoded. A string is unescaped; of
        blocks, text is taken as it is and any other block as its JSON, one to a line.

        Raises InvalidField, BadRequest, InvalidUtf8."""
        first = memoryview(self._raw)[0]
        if first == _QUOTE:
            yield from self._unescaped(self._raw)
        elif first == _BRACKET:
            yield from self._blocks()
        else:
            raise InvalidField(WRONG_CONTENT)

    def _blocks(self) -> Iterator[str]:
        if bytes(self._raw).count(b",") > MAX_MEMBERS:
            raise InvalidField(WRONG_CONTENT)
        blocks = checked(_decode_list, self._raw)
        if len(blocks) > MAX_BLOCKS:
            raise InvalidField(WRONG_CONTENT)
        for number, block in enumerate(blocks):
            if number:
                yield "\n"
            yield from self._block(block, number)

    def _block(self, raw: Raw, number: int) -> Iterator[str]:
        place = f"`content[{number}]`"
        block = checked(_decode_block, raw, lambda _: f"{place} must be an object with a `type`, a string.")
        if block.type != "text":
            yield from self._as_json(raw)
        elif block.text is msgspec.UNSET or memoryview(block.text)[0] != _QUOTE:
            raise InvalidField(f"{place} is of type text and lacks the field `text`, a string.")
        else:
            yield from self._unescaped(block.text)

    def _unescaped(self, raw: Raw) -> Iterator[str]:
        literal = memoryview(raw) if self._skeleton is None else self._skeleton.literal(raw)
        if len(literal) <= PIECE_BYTES:
            yield self._decoded(literal.tobytes())[0]
            return
        for piece in _cut(literal):
            yield self._decoded(b'"%b"' % piece)[0]

    def _as_json(self, raw: Raw) -> Iterator[str]:
        if self._skeleton is None:
            yield decode_utf8(bytes(raw))
            return
        for number, part in enumerate(self._skeleton.parts(raw)):
            if number % 2 == 0:
                yield decode_utf8(bytes(part))
                continue
            yield '"'
            for piece in _cut(part):
                yield self._decoded(b'"%b"' % piece)[1].decode()[1:-1]
            yield '"'

    def _decoded(self, literal: bytes) -> tuple[str, bytes]:
        """What a string literal says, and the literal; both without lone surrogates."""
        try:
            return checked(_decode_text, literal), literal
        except BadRequest:
            mended = repaired(literal)
            if mended == literal:
                raise
            self.had_surrogates = True
            return checked(_decode_text, mended), mended


def _cut(literal: memoryview) -> Iterator[bytes]:
    """What is between the quotes, in pieces that end neither within an escape nor within a character."""
    position, end = 1, len(literal) - 1
    while position < end:
        stop = min(position + PIECE_BYTES, end)
        if stop < end:
            stop = _safe_cut(literal, position, stop)
        yield literal[position:stop].tobytes()
        position = stop


def _safe_cut(literal: memoryview, position: int, stop: int) -> int:
    if near := _PLAIN.match(literal, stop - _NEAR, stop):
        return near.end()
    match = _WHOLE.match(literal, position, stop)
    return _character_end(literal, match.end() if match and match.end() > position else stop)


def _character_end(literal: memoryview, stop: int) -> int:
    """The end of the last whole UTF-8 character before `stop`."""
    start = stop
    while start > stop - 4 and literal[start] & 0xC0 == 0x80:
        start -= 1
    return start
