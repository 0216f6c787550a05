"""JSON bodies of any shape, read in bounded steps: a position stands for each long string in their values."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import msgspec
from msgspec import Raw

from app.edge.large_json import (
    AS_SAID,
    HOLE,
    NAME_BYTES,
    TOO_MUCH_STRUCTURE,
    Content,
    JsonContent,
    Skeleton,
    decode_list,
    decode_members,
    decoded,
    pause,
    scanned,
)
from domain.errors import BadRequest, InvalidField

DOCUMENT_VALUES = 50_000
"""The most commas in it: each value becomes an object."""

DOCUMENT_DEPTH = 8
"""The most levels of objects and lists of a document that hold more than BUILT_BYTES each."""

BUILT_BYTES = 1 << 16
"""How much JSON is built at once. The event loop waits: at most 2 ms."""

BUILT_VALUES = 2_000

WHOLE_BYTES = 1 << 20
WHOLE_VALUES = 20_000
"""A body up to this size, with no more commas and opening brackets, is built at once. The event loop
waits: at most 5 ms."""

_BRACKET = ord("[")
_decode_any = msgspec.json.Decoder().decode


class Document(NamedTuple):
    """A JSON body of any shape. In `value`, a position stands for each string of more than 512 bytes, or with
    a NUL: a `str` that begins with a NUL, to be passed on, not to be looked into."""

    value: Any
    skeleton: Skeleton | None
    """None: the body was built at once, and `value` holds every string itself."""

    def text(self, string: str) -> str:
        """What a string of `value` says."""
        content = self.content([string])
        return content if isinstance(content, str) else "".join(content.pieces())

    def written(self, string: str) -> bytes | memoryview:
        """A string of `value` as UTF-8; one that a position stands for as the JSON that came, not copied."""
        if self.skeleton is None or not string.startswith("\0"):
            return string.encode()
        start, _, end = string[1:].partition(":")
        return self.skeleton.body[int(start) : int(end)]

    def content(self, result: list[str] | dict[str, Any]) -> str | Content:
        """The content of a result: strings of `value`, a newline between two; or the JSON of an object."""
        if isinstance(result, dict):
            data = msgspec.json.encode(result)
            return data.decode() if self.skeleton is None else JsonContent(Raw(data), self.skeleton)
        if self.skeleton is None:
            return "\n".join(result)
        blocks = [{"type": "text", "text": text} for text in result]
        return Content(Raw(msgspec.json.encode(result[0] if len(result) == 1 else blocks)), self.skeleton)

    def pieces(self, value: Any) -> Iterable[memoryview]:
        """A value as JSON, in pieces of at most BUILT_BYTES; a list of one if `skeleton` is None. The
        strings in it that are of this document are as they came, and not copied. Raises BadRequest."""
        try:
            data = memoryview(msgspec.json.encode(value))
        except RecursionError:
            raise BadRequest("The body is nested too deeply.") from None
        return [data] if self.skeleton is None else _filled(data, self.skeleton.body)


async def read_document(body: bytes | bytearray, turns: anyio.CapacityLimiter) -> Document:
    """Reads a JSON body of any size on the event loop, as `split` does. Raises BadRequest, InvalidUtf8, and
    InvalidField if the body holds more than 2 MiB beside its long strings."""
    if len(body) <= BUILT_BYTES:
        return Document(decoded(_decode_any, body, AS_SAID)[0], None)
    # A third of the time of three counts.
    if len(body) <= WHOLE_BYTES and len(body) - len(body.translate(None, b",[{")) <= WHOLE_VALUES:
        # What is wrong is told below, and lone surrogates are replaced, in steps.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Document(_decode_any(body), None)
    skeleton = await scanned(Skeleton(body, NAME_BYTES), turns)
    if skeleton.text.count(b",") > DOCUMENT_VALUES:
        raise InvalidField(TOO_MUCH_STRUCTURE)
    async with turns:
        return Document(await _built(Raw(bytes(skeleton.text).strip()), DOCUMENT_DEPTH, turns), skeleton)


def _filled(data: memoryview, body: memoryview) -> Iterator[memoryview]:
    """The JSON with the strings of the body in place of their positions."""
    at = 0
    for hole in HOLE.finditer(data):
        yield from _cut(data[at : hole.start()])
        yield from _cut(body[int(hole[1]) : int(hole[2])])
        at = hole.end()
    yield from _cut(data[at:])


def _cut(data: memoryview) -> Iterator[memoryview]:
    return (data[start : start + BUILT_BYTES] for start in range(0, len(data), BUILT_BYTES))


async def _built(raw: Raw, depth: int, turns: anyio.CapacityLimiter) -> Any:
    """The value, built BUILT_BYTES at a time. Raises as `read_document`."""
    view = memoryview(raw)
    if len(view) <= BUILT_BYTES or view[0] not in b"[{":
        return decoded(_decode_any, raw, AS_SAID)[0]
    if not depth:
        raise InvalidField(TOO_MUCH_STRUCTURE)
    if view[0] == _BRACKET:
        return await _all_built(decoded(decode_list, raw, AS_SAID)[0], depth - 1, turns)
    members, _ = decoded(decode_members, raw, AS_SAID)
    return dict(zip(members, await _all_built(list(members.values()), depth - 1, turns), strict=True))


async def _all_built(values: list[Raw], depth: int, turns: anyio.CapacityLimiter) -> list[Any]:
    """Small values are built together, up to BUILT_BYTES and BUILT_VALUES of them."""
    built: list[Any] = []
    group: list[Raw] = []
    size = 0
    for value in [*values, None]:
        if value is None or size + len(memoryview(value)) > BUILT_BYTES or len(group) == BUILT_VALUES:
            if len(group) == 1:
                built.append(await _built(group[0], depth, turns))
            else:
                built += decoded(_decode_any, b"[%b]" % b",".join(group), AS_SAID)[0]
            group, size = [], 0
            await pause(turns)
        if value is not None:
            group.append(value)
            size += len(memoryview(value))
    return built
