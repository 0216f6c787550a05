"""A page of lines from a body that arrives in chunks."""

from dataclasses import dataclass

from content.text import cut_head


@dataclass(frozen=True, slots=True)
class Line:
    """`number` is 1-based. `text` has no newline. `truncated`: its end is missing."""

    number: int
    text: str
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class LinePage:
    """`total_lines` is the number of newlines, plus one where text follows the last of them. `next_offset` is
    the first line of the next page. A line too long for a whole page is truncated, and the next page starts
    after it."""

    lines: list[Line]
    total_lines: int
    next_offset: int | None


class LinePager:
    """Collects lines `offset` (1-based) to before `offset + limit`, with at most `max_bytes` of UTF-8 in
    all."""

    def __init__(self, offset: int, limit: int, max_bytes: int) -> None:
        self._number = max(1, offset)
        self._end = self._number + max(0, limit)
        self._left = max_bytes
        self._lines: list[Line] = []
        self._part = b""
        self._newlines = 0
        self.is_ended = True
        """True if the data ends in a newline, or is empty."""
        self._stopped = limit <= 0

    def feed(self, chunk: bytes) -> None:
        newlines = chunk.count(b"\n")
        before, self._newlines = self._newlines, self._newlines + newlines
        self.is_ended = chunk.endswith(b"\n") if chunk else self.is_ended
        skip = self._number - 1 - before
        if self._stopped or skip > newlines:
            return
        self._collect(chunk, _after_newline(chunk, skip))

    def finish(self) -> LinePage:
        total = self._newlines + (not self.is_ended)
        if not self._stopped and self._part:
            self._add(self._part)
        return LinePage(self._lines, total, self._number if self._number <= total else None)

    def _collect(self, chunk: bytes, start: int) -> None:
        while not self._stopped:
            end = chunk.find(b"\n", start)
            # A few bytes past the cap show that the line does not fit.
            room = start + max(0, self._left + 4 - len(self._part))
            self._part += chunk[start : min(room, len(chunk) if end < 0 else end)]
            if end < 0:
                if len(self._part) > self._left:
                    self._add(self._part)
                return
            self._add(self._part)
            start = end + 1

    def _add(self, line: bytes) -> None:
        fits = len(line) <= self._left
        if not fits and self._lines:
            self._stopped = True
            return
        part = line if fits else cut_head(line, self._left)
        self._lines.append(Line(self._number, part.decode("utf-8", "replace"), not fits))
        self._left -= len(part)
        self._number += 1
        self._part = b""
        self._stopped = not fits or self._number == self._end


class LastLines:
    """Collects the last `most` lines. Of lines that do not fit
    `max_bytes`, the first ones are left out."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._tail = b""
        self._newlines = 0
        self._size = 0
        self.is_ended = True
        """True if the data ends in a newline, or is empty."""

    def feed(self, chunk: bytes) -> None:
        if chunk:
            self._newlines += chunk.count(b"\n")
            self._size += len(chunk)
            self.is_ended = chunk.endswith(b"\n")
            # A newline at each end: the first line is whole only if one is before it.
            most = self._max_bytes + 2
            self._tail = chunk[-most:] if len(chunk) >= most else (self._tail + chunk)[-most:]

    def finish(self) -> LinePage:
        total = self._newlines + (not self.is_ended)
        texts = self._tail.removesuffix(b"\n").split(b"\n") if self._size else []
        is_cut = len(self._tail) < self._size
        if is_cut and len(texts) > 1:
            texts, is_cut = texts[1:], False
        texts = texts[-self._most :]
        first = total - len(texts) + 1
        lines = [Line(first + at, text.decode("utf-8", "ignore"), is_cut) for at, text in enumerate(texts)]
        return LinePage(lines, total, None)


def _after_newline(data: bytes, count: int) -> int:
    """The offset after the `count`-th newline."""
    at = 0
    for _ in range(count):
        at = data.index(b"\n", at) + 1
    return at
