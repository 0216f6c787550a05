"""Collects a page of matching lines with their context, within a cap of bytes."""

from collections import deque
from dataclasses import dataclass, field

from content.text import cut

LINE_BYTES = 2000
_SIDE_CHARS = 400
SIDE_BYTES = 4 * _SIDE_CHARS


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line, its 1-based number and the lines before and after it, without newlines. Of a line
    longer than 2,000 bytes, `text` holds 400 characters on each side of the start of the match. `truncated`:
    the line was shortened, or a line of the context was cut or left out."""

    line: int
    text: str
    before: list[str]
    after: list[str]
    truncated: bool = False


@dataclass(slots=True)
class _Found:
    line: int
    text: str
    missing: int
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    truncated: bool = False


class MatchPage:
    """Receives every line in order, as a match (`add`) or not (`pass_by`). `full`: takes no more matches."""

    __slots__ = ("_context", "_found", "_left", "_limit", "_open", "_recent", "full")

    def __init__(self, context: int, limit: int, max_bytes: int) -> None:
        self._context = context
        self._limit = limit
        self._left = max_bytes
        self._found: list[_Found] = []
        self._open: list[_Found] = []
        self._recent: deque[bytes] = deque(maxlen=context)
        self.full = limit <= 0

    def __len__(self) -> int:
        return len(self._found)

    def matches(self) -> list[Match]:
        return [Match(f.line, f.text, f.before, f.after, f.truncated) for f in self._found]

    def add(self, number: int, text: bytes, truncated: bool, line: bytes) -> None:
        """Adds a matching line. `text` is shown for it; `line` is shown where it is context of another
        match. Do not call it once `full`."""
        before = [cut.head(recent, LINE_BYTES) for recent in self._recent]
        found = _Found(number, text.decode(), self._context, truncated=truncated)
        found.truncated |= any(map(_too_long, self._recent))
        if len(text) + sum(map(len, before)) > self._left:
            self._close()
            if self._found:
                return
            text, before, found.truncated, found.missing = cut.head(text, self._left), [], True, 0
            found.text = text.decode()
        found.before.extend(recent.decode() for recent in before)
        self._left -= len(text) + sum(map(len, before))
        self._found.append(found)
        self.full = self.full or len(self._found) == self._limit
        self.pass_by(line, 0, len(line))
        if found.missing:
            self._open.append(found)

    def pass_by(self, block: bytes, start: int, stop: int) -> None:
        """Passes the lines of `block[start:stop]`, without its last newline; none if start > stop."""
        if not self._context or start > stop:
            return
        at = start
        while self._open and at <= stop:
            end = block.find(b"\n", at, stop)
            end = stop if end < 0 else end
            self._follow(block[at : min(end, at + LINE_BYTES + 1)])
            at = end + 1
        if not self.full:
            self._remember(block, start, stop)

    def _follow(self, line: bytes) -> None:
        shown = cut.head(line, LINE_BYTES)
        for found in self._open:
            if len(shown) > self._left:
                self._close()
                return
            self._left -= len(shown)
            found.after.append(shown.decode())
            found.truncated |= _too_long(line)
            found.missing -= 1
        self._open = [found for found in self._open if found.missing]

    def _remember(self, block: bytes, start: int, stop: int) -> None:
        lines: list[bytes] = []
        while len(lines) < self._context and start <= stop:
            begin = block.rfind(b"\n", start, stop) + 1 or start
            lines.append(block[begin : min(stop, begin + LINE_BYTES + 1)])
            stop = begin - 1
        self._recent.extend(reversed(lines))

    def _close(self) -> None:
        """Ends the page: no room is left, also not for the context after open matches."""
        self.full = True
        for found in self._open:
            found.truncated = True
        self._open = []


def _too_long(line: bytes) -> bool:
    return len(line) > LINE_BYTES


def around(block: bytes | bytearray, start: int, stop: int, at: int) -> bytes:
    """The text around the match at `at` in a long line, of which `block[start:stop]` is available."""
    # The edges may be within a character: such bytes are left out.
    left = block[max(start, at - SIDE_BYTES) : at].decode("utf-8", "ignore")
    right = block[at : min(stop, at + SIDE_BYTES)].decode("utf-8", "ignore")
    return (left[-_SIDE_CHARS:] + right[:_SIDE_CHARS]).encode()
