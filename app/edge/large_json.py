"""A large JSON body: its long strings are left out before anything is built, and read in pieces."""

import re
from collections.abc import Callable, Collection, Iterator
from time import perf_counter
from typing import TypeVar

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Raw, Struct

from content.text import decode_utf8
from domain.errors import BadRequest, InvalidField, InvalidUtf8

T = TypeVar("T")
Data = bytes | bytearray | memoryview | Raw

SLICE_BYTES = 1 << 14
"""How much of a JSON string in a body is read at once. The event loop waits: at most 3 ms."""

WINDOW_BYTES = 1 << 11
"""How much of a body is read at once outside of long strings. More than NAME_BYTES."""

STEP_SECONDS = 0.0005
"""The event loop serves others after the slice that ends past this time."""

PAUSE_SECONDS = 0.001
"""Between two steps, if there is other work. Without a pause, bodies of hostile JSON kept other requests
waiting for up to 1.3 s."""

IDLE_SECONDS = 0.0001
"""An event loop that comes back sooner has no other work."""

SHORT_BYTES = 64
"""A string literal of a result up to this size stays in the skeleton."""

NAME_BYTES = 512
"""Likewise of a document: its names, ids and paths can be read where they are."""

SKELETON_BYTES = 2 << 20
"""The most that a body may hold beside its long strings."""

ENVELOPE_BYTES = 2 << 20
"""The most that all fields but `content` may hold."""

MAX_MEMBERS = 250_000
"""The most commas in the skeleton of a list of content blocks: each block becomes an object."""

MAX_BLOCKS = 10_000
TOO_MUCH_STRUCTURE = (
    "The body holds too many numbers, names, short strings, brackets and white space: at most 2 MiB. "
    "Send such data as one string in `content`, or as text/plain."
)
WRONG_CONTENT = "`content` must be a string or a list of at most 10,000 content blocks."

_FEW_QUOTES = 8
_QUOTE, _BRACKET, _BACKSLASH = b'"[\\'
HOLE = re.compile(rb'"\\u0000([0-9]+):([0-9]+)"')
# What is between string literals, and the short ones. 1 stands for `\u0000`: raw, JSON holds none.
_KEPT = {
    size: re.compile(rb'(?>(?:[^"]++|"[^"\x01]{0,%d}+")*)' % (size - 2)) for size in (SHORT_BYTES, NAME_BYTES)
}


class Block(Struct, frozen=True):
    """An MCP content block, as far as governing needs to know it."""

    type: str
    text: Raw | msgspec.UnsetType = msgspec.UNSET


_decode_text = msgspec.json.Decoder(str).decode
decode_list = msgspec.json.Decoder(list[Raw]).decode
decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_block = msgspec.json.Decoder(Block).decode

AS_SAID: Callable[[str], str] = "{}.".format

_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
# At the end of a piece: an escape or a character that is not complete, or a high surrogate whose low one may
# follow. At most 12 bytes.
_UNFINISHED = re.compile(
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?|[\xc0-\xff][\x80-\xbf]{0,3})?\Z"
)
_UNFINISHED_BYTES = 12


def checked(decode: Callable[[Data], T], data: Data, rule: Callable[[str], str] = AS_SAID) -> T:
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
    """Returns what `checked` returns, and whether lone surrogates had to be replaced first."""
    try:
        return checked(decode, data, rule), False
    except BadRequest:
        replaced = repaired(bytes(data))
        if replaced == data:
            raise
        return checked(decode, replaced, rule), True


async def split(
    body: bytes | bytearray,
    decode: Callable[[Data], T],
    rule: Callable[[str], str],
    fields: Collection[str],
    turns: anyio.CapacityLimiter,
) -> tuple[T, "Content", bool]:
    """The fields of a large body, decoded with an empty `content`; the content; and as `decoded`.

    Reads on the event loop, which serves others between two slices: a thread would hold the interpreter all
    the same, and be waited for longer. `fields` are the names that `decode` knows."""
    skeleton = await scanned(Skeleton(body), turns)
    members, was_repaired = decoded(decode_members, skeleton.text, rule)
    content, size, parts = members.pop("content", None), 0, []
    for name, value in members.items():
        original = skeleton.original(value)
        size += len(original)
        if size > ENVELOPE_BYTES:
            raise InvalidField("All fields but `content` together must be at most 2 MiB.")
        parts.append(b"%b:%b" % (msgspec.json.encode(name), original.tobytes()))
        if name not in fields:
            break  # Refused below; there may be many more.
    if content is not None:
        parts.append(b'"content":""')
    decoded_fields, is_repaired = decoded(decode, b"{%b}" % b",".join(parts), rule)
    assert content is not None
    return decoded_fields, Content(content, skeleton), was_repaired or is_repaired


async def scanned(skeleton: "Skeleton", turns: anyio.CapacityLimiter) -> "Skeleton":
    more = True
    while more:
        async with turns:
            until = perf_counter() + STEP_SECONDS
            while (more := skeleton.scan()) and perf_counter() < until:
                pass
            if more:
                await pause(turns)
    return skeleton


async def pause(turns: anyio.CapacityLimiter) -> None:
    """Between two steps on the event loop: others are served. Where there are none, it takes microseconds.
    `turns` are those of large bodies."""
    began = perf_counter()
    await anyio.lowlevel.checkpoint()
    if turns.statistics().tasks_waiting or perf_counter() - began > IDLE_SECONDS:
        await anyio.sleep(PAUSE_SECONDS)


def repaired(data: bytes) -> bytes:
    """`data` with each escaped lone surrogate replaced by U+FFFD. Linear; one call holds the interpreter."""
    if b"\0" in data:
        return data  # No JSON, and NUL marks the escaped backslashes below.
    masked = data.replace(rb"\\", b"\0\0")
    return _LONE_SURROGATE.sub(rb"\\ufffd", masked).replace(b"\0\0", rb"\\")


class Skeleton:
    """A JSON body in which `"\\u0000start:end"`, a position in the body, stands for each string literal that
    is longer than `short_bytes` or holds `\\u0000` itself: no caller can write a position."""

    def __init__(self, body: bytes | bytearray, short_bytes: int = SHORT_BYTES) -> None:
        """Starts with an empty slice: `scan` reads the body."""
        self.body = memoryview(body)
        self._find = body.find
        self._short_bytes = short_bytes
        self.at = 0
        """Bytes that were read."""
        self._start: int | None = None  # of the string literal that a slice ended in
        self.text = bytearray()

    def scan(self) -> bool:
        """Reads the next slice; False if there is none. Raises InvalidField if more
        than SKELETON_BYTES would remain, and BadRequest if the body ends within a string."""
        if self.at >= len(self.body):
            if self._start is not None:
                raise BadRequest("The body is not well-formed JSON.")
            return False
        if self._start is None:
            self._read_window()
        else:
            self._read_literal(self._start)
        if len(self.text) > SKELETON_BYTES:
            raise InvalidField(TOO_MUCH_STRUCTURE)
        return True

    def _read_window(self) -> None:
        """Reads what is between long literals. Raises BadRequest for a raw 1."""
        base = self.at
        piece = bytes(self.body[base : base + WINDOW_BYTES])
        if b"\1" in piece:
            raise BadRequest("The body is not well-formed JSON.")
        masked = _masked(piece)
        if b"\\" in piece:
            masked = masked.replace(rb"\u0000", b"\1" * 6)
        at = 0
        while at < len(piece):
            if self._start is None:
                kept = _KEPT[self._short_bytes].match(masked, at)
                assert kept is not None
                self.text += piece[at : kept.end()]
                if kept.end() == len(piece):
                    break
                at, self._start = kept.end() + 1, base + kept.end()
            at = masked.find(b'"', at) + 1
            if not at:
                break
            self._leave_out(self._start, base + at)
        self.at += len(piece)
        if self._start is not None and self.at - self._start < self._short_bytes and self.at < len(self.body):
            # Perhaps a short literal, a name for one: read again, as the beginning of the next window.
            self.at, self._start = self._start, None
        else:
            # The next slice never begins within an escape.
            self.at += _ends_escaping(piece)

    def _read_literal(self, start: int) -> None:
        """Reads on in the long literal from `start`: up to its end, or SLICE_BYTES of it."""
        at, end = self.at, min(self.at + SLICE_BYTES, len(self.body))
        for _ in range(_FEW_QUOTES):
            quote = self._find(b'"', at, end)
            if quote <= at or self.body[quote - 1] != _BACKSLASH:
                break
            if not _ends_escaping(bytes(self.body[at:quote])):
                break
            at = quote + 1
        else:
            quote = _masked(bytes(self.body[at:end])).find(b'"')
            quote += at if quote >= 0 else 0
        if quote >= 0:
            self.at = quote + 1
            self._leave_out(start, self.at)
        else:
            self.at = end + _ends_escaping(bytes(self.body[at:end]))

    def _leave_out(self, start: int, end: int) -> None:
        """A string literal."""
        self.text += b'"\\u0000%d:%d"' % (start, end)
        self._start = None

    def original(self, raw: Raw | memoryview) -> memoryview:
        """A value of the skeleton as it came: one range of the body."""
        view = memoryview(raw)
        first = HOLE.search(view)
        if first is None:
            return view
        last = HOLE.match(view, view.tobytes().rfind(b'"\\u0000'))
        assert last is not None
        return self.body[int(first[1]) - first.start() : int(last[2]) + len(view) - last.end()]


def _masked(piece: bytes) -> bytes:
    """With other characters in place of escaped backslashes and quotes."""
    return piece.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in piece else piece


def _ends_escaping(piece: bytes) -> bool:
    """True if the last backslash escapes what follows. `piece` does not begin within an escape."""
    return (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1


class Content:
    """The `content` of a request, as JSON: a string or a list of content blocks."""

    def __init__(self, raw: Raw, skeleton: Skeleton | None = None) -> None:
        """`skeleton`: that of the body, if `raw` is of a skeleton."""
        self._raw = raw
        self._skeleton = skeleton
        self.had_surrogates = False
        """True once lone surrogates were found and replaced."""

    def as_it_came(self) -> Raw:
        return self._raw if self._skeleton is None else Raw(self._skeleton.original(self._raw).tobytes())

    def repaired_pieces(self) -> Iterator[str]:
        """The JSON as it came, a piece at a time, with U+FFFD in place of each lone surrogate."""
        return self._as_json(self._raw)

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
        blocks = checked(decode_list, self._raw)
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
        literal = memoryview(raw) if self._skeleton is None else self._skeleton.original(raw)
        if len(literal) <= SLICE_BYTES:
            yield self._decoded(literal.tobytes())[0]
            return
        for piece in _cut(literal):
            yield self._decoded(b'"%b"' % piece)[0]

    def _as_json(self, raw: Raw) -> Iterator[str]:
        if self._skeleton is None:
            yield decode_utf8(bytes(raw))
            return
        view, at = memoryview(raw), 0
        for hole in HOLE.finditer(view):
            yield decode_utf8(view[at : hole.start()].tobytes()) + '"'
            for piece in _cut(self._skeleton.original(view[hole.start() : hole.end()])):
                yield self._decoded(b'"%b"' % piece)[1].decode()[1:-1]
            at = hole.end() - 1
        yield decode_utf8(view[at:].tobytes())

    def _decoded(self, literal: bytes) -> tuple[str, bytes]:
        """What a string literal says, and the literal; both without lone surrogates."""
        try:
            return checked(_decode_text, literal), literal
        except BadRequest:
            replaced = repaired(literal)
            if replaced == literal:
                raise
            self.had_surrogates = True
            return checked(_decode_text, replaced), replaced


class JsonContent(Content):
    """A value in a body whose JSON is the text."""

    def pieces(self) -> Iterator[str]:
        return self._as_json(self._raw)


def _cut(literal: memoryview) -> Iterator[bytes]:
    """Yields the text between the quotes in pieces that end neither within an escape nor a character."""
    position, end = 1, len(literal) - 1
    while position < end:
        piece = literal[position : min(position + SLICE_BYTES, end)].tobytes()
        if position + len(piece) < end:
            masked = piece.replace(rb"\\", b"__")
            unfinished = _UNFINISHED.search(masked, len(piece) - _UNFINISHED_BYTES)
            assert unfinished is not None
            piece = piece[: unfinished.start()]
        yield piece
        position += len(piece)
