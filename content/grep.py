"""grep: a page of the lines that match a pattern, with their context, from a body that arrives in chunks."""

from collections import deque
from dataclasses import dataclass
from io import BytesIO

from content.patterns import Pattern
from content.text import TERMINAL_CODE, cut_head

LINE_BYTES = 2000
_SIDE_CHARS = 400
_SIDE_BYTES = 4 * _SIDE_CHARS

MAX_CONTEXT = 50
_MOST_SPANS = 50
_MOST_OCCURRENCES = 100_000
_SLICE = 256 * 1024
_BLOCK = 64 * 1024

# A longer line is searched in pieces. They overlap, so that a match of up to 64 KiB is found.
_PIECE = 1024 * 1024
_STEP = _PIECE - 64 * 1024
_LONGEST_CODE = 410


@dataclass(slots=True)
class Match:
    """A matching line, its 1-based number and the lines before and after it, without newlines. Of a line
    longer than 2,000 bytes, `text` holds 400 characters on each side of the start of the match. `truncated`:
    the line was shortened, or a line of the context was cut or left out."""

    line: int
    text: str
    before: list[str]
    after: list[str]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is shown of a match. `text` stands in place of its line, and of all lines from `first` to `last`.
    `header` are the lines above a table, or the line with which the function around it begins; `columns`
    names the columns of a table where they are no lines."""

    first: int
    last: int
    text: str = ""
    header: tuple[tuple[int, str], ...] = ()
    columns: str = ""


class MatchPage:
    """Receives every line in order, as a match (`add`) or not (`pass_by`). `full`: takes no more matches.
    Lines after a match are added to it while it is open."""

    def __init__(self, context: int, limit: int, max_bytes: int) -> None:
        self._context = context
        self._limit = limit
        self._left = max_bytes
        self.matches: list[Match] = []
        self._open: list[Match] = []
        self._recent: deque[bytes] = deque(maxlen=context)
        self.full = limit <= 0

    def add(self, number: int, text: bytes, truncated: bool, line: bytes) -> None:
        """Adds a matching line. `text` is shown for it; `line` is shown where it is context of another
        match. Do not call it once `full`."""
        before = [cut_head(recent, LINE_BYTES) for recent in self._recent]
        truncated |= any(map(_too_long, self._recent))
        has_room = len(text) + sum(map(len, before)) <= self._left
        if not has_room:
            self._close()
            if self.matches:
                return
            text, before, truncated = cut_head(text, self._left), [], True
        match = Match(number, text.decode(), [recent.decode() for recent in before], [], truncated)
        self._left -= len(text) + sum(map(len, before))
        self.matches.append(match)
        self.full = self.full or len(self.matches) == self._limit
        self.pass_by(line, 0, len(line))
        if has_room and self._context:
            self._open.append(match)

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
        text = cut_head(line, LINE_BYTES)
        for match in self._open:
            if len(text) > self._left:
                self._close()
                return
            self._left -= len(text)
            match.after.append(text.decode())
            match.truncated |= _too_long(line)
        self._open = [match for match in self._open if len(match.after) < self._context]

    def _remember(self, block: bytes, start: int, stop: int) -> None:
        lines: list[bytes] = []
        while len(lines) < self._context and start <= stop:
            begin = block.rfind(b"\n", start, stop) + 1 or start
            lines.append(block[begin : min(stop, begin + LINE_BYTES + 1)])
            stop = begin - 1
        self._recent.extend(reversed(lines))

    def _close(self) -> None:
        """Ends the page because no room is left. Matches that lack context are marked as truncated."""
        self.full = True
        for match in self._open:
            match.truncated = True
        self._open = []


def _too_long(line: bytes) -> bool:
    return len(line) > LINE_BYTES


def around(block: bytes | bytearray, start: int, stop: int, at: int) -> bytes:
    """The text around the match at `at` in a long line, of which `block[start:stop]` is available."""
    # The edges may be within a character: such bytes are left out.
    left = block[max(start, at - _SIDE_BYTES) : at].decode("utf-8", "ignore")
    right = block[at : min(stop, at + _SIDE_BYTES)].decode("utf-8", "ignore")
    return (left[-_SIDE_CHARS:] + right[:_SIDE_CHARS]).encode()


@dataclass(frozen=True, slots=True)
class GrepPage:
    """`next_offset` is the `offset` of the next page, counted in matches; None on the last page. With a
    `limit` of 0 it equals the offset of this page. `has_last`: the last of the matches is the last of all."""

    matches: list[Match]
    total_matches: int
    next_offset: int | None


class Grep:
    """Collects matching lines `offset` (0-based) to before `offset + limit` while they and their context fit
    `max_bytes`, and counts all. As in grep, no line follows a final newline. A CR before the newline, colours
    and movements of a terminal are neither seen nor shown."""

    def __init__(
        self,
        pattern: str,
        *,
        context: int = 0,
        ignore_case: bool = False,
        literal: bool = False,
        limit: int = 100,
        offset: int = 0,
        max_bytes: int = 1_000_000,
    ) -> None:
        """Raises BadPattern."""
        self._pattern = Pattern(pattern, ignore_case, literal)
        self._page = MatchPage(min(max(0, context), MAX_CONTEXT), limit, max_bytes)
        self._offset = max(0, offset)
        self._total = 0
        self._line = 1
        self._buffer = bytearray()
        self._code = b""
        self._long = self._long_found = False
        self._head = b""
        self._searched = 0

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the start and the end, in characters, of the first 50 matches in a line."""
        return self._pattern.spans(text, _MOST_SPANS)

    def occurrences(self, data: bytes) -> int:
        """The number of matches in the data, 0 if there are too many to count."""
        return self._pattern.occurrences(data, _MOST_OCCURRENCES)

    def feed(self, chunk: bytes) -> None:
        for start in range(0, len(chunk), _SLICE):
            piece = self._without_codes(chunk[start : start + _SLICE])
            if piece.startswith(b"\n") and self._buffer.endswith(b"\r"):
                del self._buffer[-1:]
            self._buffer += piece.replace(b"\r\n", b"\n")
            if len(self._buffer) > _PIECE or (len(self._buffer) >= _BLOCK and b"\n" in piece):
                self._drain()

    def _without_codes(self, piece: bytes) -> bytes:
        """Removes terminal codes. A code that may continue in the next piece is kept until then."""
        if self._code:
            piece, self._code = self._code + piece, b""
        last = piece.rfind(b"\x1b")
        if last < 0:
            return piece
        if len(piece) - last < _LONGEST_CODE and not TERMINAL_CODE.match(piece, last):
            piece, self._code = piece[:last], piece[last:]
        return TERMINAL_CODE.sub(b"", piece)

    def finish(self) -> GrepPage:
        self._buffer += self._code
        self._drain()
        if self._long:
            self._end_long(len(self._buffer))
        elif self._buffer:
            self._search(bytes(self._buffer))
        matches = self._page.matches
        end = self._offset + len(matches)
        return GrepPage(matches, self._total, None if self._total <= end else end)

    def _drain(self) -> None:
        while len(self._buffer) > _PIECE and self._buffer.find(b"\n", 0, _PIECE) < 0:
            self._search_long(_PIECE)
            del self._buffer[: _STEP - _SIDE_BYTES]
            self._searched = _SIDE_BYTES
        if self._long:
            end = self._buffer.find(b"\n")
            if end < 0:
                return
            self._end_long(end)
            del self._buffer[: end + 1]
        if end := self._buffer.rfind(b"\n") + 1:
            self._search(bytes(self._buffer[:end]))
            del self._buffer[:end]

    def _search(self, block: bytes) -> None:
        """Searches whole lines; the last may lack its newline."""
        end = len(block) - block.endswith(b"\n")
        start = 0
        if self._total < self._offset and self._skipped(block, end):
            return
        while not self._page.full and start <= end:
            match = self._pattern.find(block, start, end)
            if match < 0:
                break
            begin = block.rfind(b"\n", start, match) + 1 or start
            stop = block.find(b"\n", match, end)
            stop = end if stop < 0 else stop
            self._page.pass_by(block, start, begin - 1)
            self._line += block.count(b"\n", start, begin)
            line = block[begin : min(stop, begin + LINE_BYTES + 1)]
            whole = stop - begin <= LINE_BYTES
            self._matched(line if whole else around(block, begin, stop, match), not whole, line)
            self._line += 1
            start = stop + 1
        if self._page.full:
            self._total += self._pattern.count(block, start, end)
        if start <= end:
            self._page.pass_by(block, start, end)
            self._line += block.count(b"\n", start, end) + 1

    def _skipped(self, block: bytes, end: int) -> bool:
        """Counts a block without a match for this page. False if it may have one."""
        matching = self._pattern.count(block, 0, end)
        if self._page.full or self._total + matching > self._offset:
            return False
        self._total += matching
        self._line += block.count(b"\n", 0, end) + 1
        self._page.pass_by(block, 0, end)
        return True

    def _matched(self, text: bytes, truncated: bool, line: bytes) -> None:
        self._total += 1
        if self._total > self._offset and not self._page.full:
            self._page.add(self._line, text, truncated, line)
        else:
            self._page.pass_by(line, 0, len(line))

    def _search_long(self, end: int) -> None:
        """Searches the first `end` bytes of the buffer, a part of one line, from `_searched` on."""
        if not self._long:
            self._long, self._long_found = True, False
            self._head = bytes(self._buffer[: LINE_BYTES + 1])
        if self._long_found:
            return
        match = self._pattern.find(self._buffer, self._searched, end)
        if match >= 0:
            self._long_found = True
            self._matched(around(self._buffer, 0, end, match), True, self._head)

    def _end_long(self, end: int) -> None:
        self._search_long(end)
        if not self._long_found:
            self._page.pass_by(self._head, 0, len(self._head))
        self._line += 1
        self._long = False
        self._searched = 0


class MatchingLines:
    """Collects the lines that match, whole, with their line ends. `is_too_large`: they have more than
    `max_bytes`, or a line of the text has."""

    def __init__(self, pattern: str, max_bytes: int) -> None:
        """Raises BadPattern."""
        self._pattern = Pattern(pattern)
        self._most = self._left = max_bytes
        self._buffer = b""
        self._lines: list[bytes] = []
        self.is_too_large = False

    def feed(self, chunk: bytes) -> None:
        if self.is_too_large:
            return
        self._buffer += chunk
        end = self._buffer.rfind(b"\n") + 1
        block, self._buffer = self._buffer[:end], self._buffer[end:]
        self._search(block)
        self.is_too_large = self.is_too_large or len(self._buffer) > self._most

    def finish(self) -> bytes:
        self._search(self._buffer)
        return b"".join(self._lines)

    def _search(self, block: bytes) -> None:
        block = TERMINAL_CODE.sub(b"", block)
        lines, searched = BytesIO(block).readlines(), block.replace(b"\r\n", b"\n")
        start, end, number = 0, len(searched) - searched.endswith(b"\n"), 0
        while start < len(searched) and not self.is_too_large:
            at = self._pattern.find(searched, start, end)
            if at < 0:
                return
            number += searched.count(b"\n", start, at)
            start = searched.find(b"\n", at, end) + 1 or len(searched)
            self._lines.append(lines[number])
            self._left -= len(lines[number])
            self.is_too_large = self._left < 0
            number += 1
