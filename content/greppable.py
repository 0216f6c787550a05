"""A view with line breaks of data on very long lines, for grep and paging."""

import re
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from content.redaction.masks import MASK, MASK_BYTES
from content.text import DOUBLE_QUOTED, IN_DOUBLE_QUOTES, IN_SINGLE_QUOTES, SINGLE_QUOTED, cut_head

_INDENTS = [b"\n" + b" " * depth for depth in range(9)]
_HELD = 64 * 1024
_MEMO = 4096

_COLON, _COMMA_SIGN = b":,"
_AFTER_COMMA = re.compile(rb",\s*+(?=\S)")
_ODD_BACKSLASH = re.compile(rb"(?<!\\)(?:\\\\)*(\\)\Z")

_START, _OPENED, _COMMA, _CLOSED, _TEXT = range(5)
_BREAKS = frozenset((_OPENED, _COMMA, _CLOSED))

_STRINGS = {
    b'"': re.compile(rb"(%b)" % DOUBLE_QUOTED, re.DOTALL),
    b"\"'": re.compile(rb"(%b|%b)" % (DOUBLE_QUOTED, SINGLE_QUOTED), re.DOTALL),
}
_BRACKETS = {b"{}[]": re.compile(rb"([{}\[\]])"), b"{}[]()": re.compile(rb"([{}\[\]()])")}
_STRING_ENDS = {
    ord('"'): re.compile(IN_DOUBLE_QUOTES + b'"', re.DOTALL),
    ord("'"): re.compile(IN_SINGLE_QUOTES + b"'", re.DOTALL),
}


class Form:
    """Adds newlines where the data has structure. Plain text has no structure."""

    def step(self, block: bytes) -> bytes:
        return block

    def finish(self) -> bytes:
        return b""


class Structure(Form):
    """Adds line breaks after an opening bracket and a comma, and before a closing bracket. Indents by one
    space, up to 8, so that even `[[[[…` grows at most tenfold. Strings are not changed.

    `quotes` is b'"' or b"\\"'"; `brackets` is b"{}[]" or b"{}[]()". Holds at most 64 KiB.
    """

    def __init__(self, quotes: bytes, brackets: bytes) -> None:
        self._strings = _STRINGS[quotes]
        self._brackets = _BRACKETS[brackets]
        self._after = _START
        self._depth = 0
        self._held = b""
        self._inside = 0
        self._memo: dict[tuple[bytes, int, int], tuple[bytes, int, int]] = {}

    def step(self, block: bytes) -> bytes:
        data, self._held = self._held + block, b""
        out: list[bytes] = []
        if self._inside:
            data = self._rest_of_string(data, out)
        if data:
            pieces = self._strings.split(data)
            self._held = self._unfinished(pieces)
            self._put(pieces, out)
        if len(self._held) > _HELD:
            out.append(self._let_go())
        return b"".join(out)

    def finish(self) -> bytes:
        held, self._held = self._held, b""
        if self._inside or self._is_string(held):
            return self._broken(self._after) + held
        return self._outside(held)

    def _put(self, pieces: list[bytes], out: list[bytes]) -> None:
        """Writes pieces, which alternate between text outside strings and a string."""
        memo = self._memo
        for index, piece in enumerate(pieces):
            if index % 2:
                if self._after in _BREAKS:
                    out.append(self._broken(self._after))
                out.append(piece)
                self._after = _TEXT
            elif piece:
                key = (piece, self._after, self._depth)
                if (entry := memo.get(key)) is not None:
                    text, self._after, self._depth = entry
                else:
                    text = self._outside(piece)
                    if len(memo) < _MEMO and len(piece) < 64:
                        memo[key] = (text, self._after, self._depth)
                out.append(text)

    def _outside(self, piece: bytes) -> bytes:
        parts = self._brackets.split(piece)
        if len(parts) == 1:
            return self._text(piece, False)
        out = [self._text(parts[0], True)]
        for index in range(1, len(parts), 2):
            out.append(self._bracket(parts[index]))
            if parts[index + 1]:
                out.append(self._text(parts[index + 1], index + 2 < len(parts)))
        return b"".join(out)

    def _bracket(self, bracket: bytes) -> bytes:
        after = self._after
        if bracket in b"{[(":
            lead = self._broken(after)
            self._depth += 1
            self._after = _OPENED
            return lead + bracket
        self._depth = max(0, self._depth - 1)
        self._after = _CLOSED
        return bracket if after == _OPENED else _INDENTS[min(self._depth, 8)] + bracket

    def _text(self, part: bytes, before_bracket: bool) -> bytes:
        """Writes commas, numbers, words and colons, all at one depth."""
        after, text = self._after, part.strip()
        if not text:
            return (b"\n" if b"\n" in part else b" ") if part and after == _TEXT else b""
        self._after = _TEXT
        lead = b""
        if text[0] == _COLON and after == _TEXT:
            text = b": " + text[1:].lstrip()
        elif text[0] != _COMMA_SIGN:
            lead = self._broken(after) if after in _BREAKS else b" " * part[:1].isspace()
        if b"," in text:
            text = _AFTER_COMMA.sub(b"," + _INDENTS[min(self._depth, 8)], text)
            if text[-1] == _COMMA_SIGN:
                self._after = _COMMA
                return lead + text
        return lead + text if before_bracket or not part[-1:].isspace() else lead + text.rstrip() + b" "

    def _broken(self, after: int) -> bytes:
        return _INDENTS[min(self._depth, 8)] if after in _BREAKS else b""

    def _is_string(self, piece: bytes) -> bool:
        return self._strings.match(piece) is not None

    def _unfinished(self, pieces: list[bytes]) -> bytes:
        """Removes the last token from the pieces, which may continue in the next block, and returns it."""
        if not pieces[-1] and len(pieces) > 1 and not _terminated(pieces[-2]):
            return pieces.pop(-2)
        last = pieces[-1]
        end = max(last.rfind(b"%c" % mark) for mark in b"{}[](),") + 1
        pieces[-1] = last[:end]
        return last[end:]

    def _let_go(self) -> bytes:
        """Writes the held bytes when they become too many. The rest of a string is written as it arrives."""
        held, self._held = self._held, b""
        if not self._is_string(held):
            return self._outside(held)
        self._inside = held[0]
        lead, self._after = self._broken(self._after), _TEXT
        return lead + self._keep_backslash(held)

    def _rest_of_string(self, data: bytes, out: list[bytes]) -> bytes:
        end = _STRING_ENDS[self._inside].match(data)
        if end is None:
            out.append(self._keep_backslash(data))
            return b""
        self._inside = 0
        out.append(end[0])
        return data[end.end() :]

    def _keep_backslash(self, data: bytes) -> bytes:
        odd = _ODD_BACKSLASH.search(data, max(0, len(data) - 64))
        if odd is None:
            return data
        self._held = odd[1]
        return data[: odd.start(1)]


def _terminated(string: bytes) -> bool:
    end = _STRING_ENDS[string[0]].match(string, 1)
    return end is not None and end.end() == len(string)


LONG_LINE = 2000
_BLOCK = 64 * 1024
_BACKSLASH = ord("\\")

_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*(?:["\[\]{}0-9tfnIN-]|\Z))')
_LITERAL = re.compile(rb"\s*[\[({]\s*[\[({]*\s*['\"]")
_MARKUP = re.compile(rb"\s*<")

_TAG_END = re.compile(rb">(?=[ \t]*<)")
_OPEN_END = re.compile(rb">[ \t]{0,64}\Z")
_MASK = re.compile(MASK.pattern.encode())
# Begins with a literal, and looks behind it: 80 times as fast where there is none.
_ESCAPED_NEWLINE = re.compile(rb"(\\(?<!\\\\)(?>(?:\\\\)*)n)(?!\n)")


def needs_view(size: int, lines: int) -> bool:
    """True for data of `size` bytes whose average line has 1,000 bytes or more."""
    return size >= 1000 * max(1, lines)


class Greppable:
    """Adds newlines and indentation; removes only white space between tokens of JSON-like data. The view does
    not depend on the chunks: it is made in blocks of 64 KiB."""

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


Found = TypeVar("Found")
_Found_co = TypeVar("_Found_co", covariant=True)


class Scanner(Protocol[_Found_co]):
    def feed(self, chunk: bytes) -> None: ...
    def finish(self) -> _Found_co: ...


class Scan(Generic[Found]):
    """Feeds a body, or its greppable view, to a scanner. A block of 64 KiB takes up to 60 ms: call it in a
    thread."""

    def __init__(self, scanner: Scanner[Found], *, greppable: bool) -> None:
        self._scanner = scanner
        self._view = Greppable() if greppable else None

    def feed(self, chunk: bytes) -> None:
        self._scanner.feed(self._view.feed(chunk) if self._view else chunk)

    def finish(self) -> Found:
        if self._view:
            self._scanner.feed(self._view.finish())
        return self._scanner.finish()


def _form_of(head: bytes) -> Form:
    if _JSON.match(head):
        return Structure(quotes=b'"', brackets=b"{}[]")
    if _LITERAL.match(head):
        return Structure(quotes=b"\"'", brackets=b"{}[]()")
    return _Markup() if _MARKUP.match(head) else Form()


class _Markup(Form):
    """Puts each of several adjacent tags on its own line."""

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
    """Breaks long lines: after an escaped newline, at a space, or between characters. Leaves masks whole."""

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
        end = end or start + len(cut_head(line[start : start + LONG_LINE + 1], LONG_LINE))
        # Never between a backslash and the escaped character.
        if line[end - 1] == _BACKSLASH and line[end - 2] != _BACKSLASH:
            end -= 1
        for mask in _MASK.finditer(line, end - MASK_BYTES, end + MASK_BYTES):
            if mask.start() < end < mask.end():
                end = mask.start()
        yield line[start:end]
        start = end
    yield line[start:]
