"""A view with line breaks of data on very long lines, for grep and paging."""

import re
from collections.abc import Iterator
from typing import Protocol

from content.reading.json_lines import Structure
from content.text import cut

LONG_LINE = 2000
_BLOCK = 64 * 1024
_BACKSLASH = ord("\\")

_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*(?:["\[\]{}0-9tfnIN-]|\Z))')
_LITERAL = re.compile(rb"\s*[\[({]\s*[\[({]*\s*['\"]")
_MARKUP = re.compile(rb"\s*<")

_TAG_END = re.compile(rb">(?=[ \t]*<)")
_OPEN_END = re.compile(rb">[ \t]{0,64}\Z")
_ESCAPED_NEWLINE = re.compile(rb"(?<!\\)((?:\\\\)*\\n)(?!\n)")


def needs_view(size: int, lines: int) -> bool:
    """True for data of `size` bytes whose average line has 1,000 bytes or more."""
    return size >= 1000 * max(1, lines)


class Form(Protocol):
    """Adds newlines by the structure of the data."""

    def step(self, block: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class Greppable:
    """Adds newlines and indentation; removes only white space between tokens of JSON-like data. The view does
    not depend on the chunks: it is made in blocks of 64 KiB."""

    __slots__ = ("_buffer", "_form", "_lines")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._form: Form | None = None
        self._lines = _Breaker()

    def feed(self, chunk: bytes) -> bytes:
        self._buffer += chunk
        whole = len(self._buffer) - len(self._buffer) % _BLOCK
        blocks = [bytes(self._buffer[start : start + _BLOCK]) for start in range(0, whole, _BLOCK)]
        del self._buffer[:whole]
        return b"".join([self._step(block) for block in blocks])

    def finish(self) -> bytes:
        last = self._step(bytes(self._buffer))
        self._buffer.clear()
        rest = self._form.finish() if self._form else b""
        return last + self._lines.step(rest) + self._lines.finish()

    def _step(self, block: bytes) -> bytes:
        if self._form is None:
            self._form = _form_of(block[:256])
        return self._lines.step(self._form.step(block))


def _form_of(head: bytes) -> Form:
    if _JSON.match(head):
        return Structure(quotes=b'"', brackets=b"{}[]")
    if _LITERAL.match(head):
        return Structure(quotes=b"\"'", brackets=b"{}[]()")
    return _Markup() if _MARKUP.match(head) else _Plain()


class _Plain:
    def step(self, block: bytes) -> bytes:
        return block

    def finish(self) -> bytes:
        return b""


class _Markup:
    """Puts adjacent tags on lines of their own."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def step(self, block: bytes) -> bytes:
        data = self._held + block
        held = _OPEN_END.search(data, max(0, len(data) - 65))
        end = held.start() if held else len(data)
        self._held = data[end:]
        # The lookahead sees past `end`, where the held bytes begin.
        return _TAG_END.sub(b">\n", data[:end])

    def finish(self) -> bytes:
        return self._held


class _Breaker:
    """Breaks long lines: after an escaped newline, at a space, or between characters."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def step(self, data: bytes) -> bytes:
        data = _short_lines(self._rest + data)
        # The last line may still grow.
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end]

    def finish(self) -> bytes:
        return _short_lines(self._rest)


def _short_lines(data: bytes) -> bytes:
    out = []
    done = start = 0
    while len(data) - start > LONG_LINE:
        newline = data.rfind(b"\n", start, start + LONG_LINE + 1)
        if newline >= 0:
            start = newline + 1
            continue
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        out.append(data[done:start])
        long = _ESCAPED_NEWLINE.sub(rb"\1\n", data[start:end])
        out.append(b"\n".join(piece for line in long.split(b"\n") for piece in _pieces(line)))
        done = start = end
    return b"".join((*out, data[done:]))


def _pieces(line: bytes) -> Iterator[bytes]:
    start = 0
    while len(line) - start > LONG_LINE:
        end = line.rfind(b" ", start + LONG_LINE // 2, start + LONG_LINE) + 1
        end = end or start + len(cut.head(line[start : start + LONG_LINE + 1], LONG_LINE))
        # Never between a backslash and the escaped character.
        if line[end - 1] == _BACKSLASH and line[end - 2] != _BACKSLASH:
            end -= 1
        yield line[start:end]
        start = end
    yield line[start:]
