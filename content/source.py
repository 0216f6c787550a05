"""The data in what a tool returned: without a byte order mark, a wrapper, line numbers and terminal codes."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Self

from content.text import BOM, DOUBLE_QUOTED, SINGLE_QUOTED, TERMINAL_CODE, decode_escapes, line_count

_LOOKED_AT = 16 << 10
_HEAD = 8 << 10
_BLOCK = 64 << 10
_LINES = 60

_NUMBER = re.compile(rb"[ ]{0,8}(\d{1,7})(\t|\xe2\x86\x92|\||:(?!\d))")
_SHARE = 0.5
_RESTARTS = 0.1
_REMARK_BYTES, _REMARKS = 400, 20
_REMARK = re.compile(rb"\s*(?:[(<\[]|Here's the result|\Z)|[^\n]{0,200}:\s*\Z")
"""A line that a tool adds above or below the lines that it numbered. Any other line is a part of the data."""

_JSON_BEGINS = re.compile(rb" ?[\[{]")

# A block of text as MCP and other APIs return it, alone, in a list, or in the list of a member `content`.
_MEMBERS = (
    rb'"type"\s*:\s*"text"\s*,\s*"text"\s*:\s*%(text)s',
    rb'"text"\s*:\s*%(text)s\s*,\s*"type"\s*:\s*"text"',
)
_NULLS = rb'(?:"(?:_meta|annotations|structuredContent)"\s{0,99}+:\s{0,99}+null\s{0,99}+,\s{0,99}+){0,3}'
_BEFORE_BLOCKS = re.compile(
    rb'\s{0,99}+(?:\{\s{0,99}+%b"content"\s{0,99}+:\s{0,99}+)?\[?\s{0,99}+' % _NULLS
    + rb'(?=\{\s{0,99}+"t(?:ype"\s{0,9}:\s{0,9}"text"|ext")\s{0,9}[,:])'
)
_TEXT_BLOCK = re.compile(
    rb'[\s,]*\{\s*(?:%b)\s*(?:,\s*"(?:_meta|annotations)"\s*:\s*null\s*){0,2}(?:\}|\Z)'
    % b"|".join(one % {b"text": b"(" + DOUBLE_QUOTED + b")"} for one in _MEMBERS),
    re.DOTALL,
)
_CUT_BLOCK = re.compile(
    rb'[\s,]*\{\s*"type"\s*:\s*"text"\s*,\s*"text"\s*:\s*("[^"\\]*+(?>(?:\\.[^"\\]*+)*)\\?\Z)', re.DOTALL
)
_AFTER_BLOCKS = re.compile(
    rb'[\s\]]*+(?:,\s*"structuredContent"\s*:\s*null\s*+)?(?:,\s*"isError"\s*:\s*(?:true|false)\s*+)?\}?\s*\Z'
)
_MOST_BLOCKS = 10_000

# The same blocks as the MCP SDK of Python prints an answer.
_BEFORE_PRINTED = re.compile(
    rb"(?:CallToolResult\()?(?:_?meta=None,? )?(?:content=)?\[(?=TextContent\(type='text')"
)
_PRINTED_BLOCK = re.compile(
    rb"[\s,]*TextContent\(type='text', text=(%b|%b)(?:, (?:annotations|_?meta)=None){0,2}(?:\)|\Z)"
    % (SINGLE_QUOTED, DOUBLE_QUOTED),
    re.DOTALL,
)
_AFTER_PRINTED = re.compile(rb"\]?(?:,? structuredContent=None)?(?:,? isError=(?:True|False))?\)?\s*\Z")
_PRINTED_ESCAPE = re.compile(rb"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\"'\\nrt])")
_JSON_ESCAPE = re.compile(
    rb'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}

_FILE = re.compile(
    rb"\s{0,20}(?:<path>[^<\n]{0,400}</path>\s{1,20}<type>file</type>\s{1,20})?<(file|content)>\r?\n(?=\s*[^<\s])"
)
_FILE_END = re.compile(
    rb"\s{0,20}(?:\((?:End of file|File has more lines)[^\n]{0,200}\)\s{0,20})?</(?:file|content)>\s{0,20}\Z"
)


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[0][1:2]
    return decode_escapes(found[0]) if code == b"u" else _ESCAPED.get(code, code)


def _unprinted(found: re.Match[bytes]) -> bytes:
    code = found[0][1:]
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    point = int(code[1:], 16)
    return chr(point if point < 0x110000 else 0xFFFD).encode("utf-8", "replace")


class _Edit:
    """`before` from `start` to `end` with the matches of a pattern replaced. It is made in blocks of 64 KiB,
    which end after `mark`, a byte that no match holds but as its last."""

    def __init__(
        self,
        before: bytes,
        start: int,
        end: int,
        pattern: re.Pattern[bytes] | None = None,
        replace: Callable[[re.Match[bytes]], bytes] | bytes = b"",
        mark: bytes = b"\n",
    ) -> None:
        self.before, self._end = before, end
        self._pattern, self._replace = pattern, replace
        self._from, self._to = [start], [0]
        if pattern is None:
            self.data = before[start:end]
            return
        parts, at, size = [], start, 0
        while at < end:
            until = before.rfind(mark, at, min(at + _BLOCK, end)) + 1 or before.find(mark, at, end) + 1 or end
            parts.append(self._edited(pattern, before[at:until]))
            at, size = until, size + len(parts[-1])
            self._from.append(at)
            self._to.append(size)
        self.data = b"".join(parts)

    def _edited(self, pattern: re.Pattern[bytes], block: bytes) -> bytes:
        if not pattern.pattern.startswith(b"^"):
            return pattern.sub(self._replace, block)
        # A newline is looked for much faster than a beginning of a line.
        return re.sub(b"\n" + pattern.pattern[1:], b"\n", b"\n" + block)[1:]

    def back(self, at: int) -> int:
        """The offset in `before` of the byte at `at` of the data."""
        number = bisect_right(self._to, at) - 1
        start, done = self._from[number], self._to[number]
        if self._pattern is None or number + 1 == len(self._from):
            return min(start + at - done, self._end)
        block, last = self.before[start : self._from[number + 1]], 0
        for found in self._pattern.finditer(block):
            if done + found.start() - last > at or (
                done + found.start() - last == at and found.start() > last
            ):
                break
            done += found.start() - last
            made = self._replace if isinstance(self._replace, bytes) else self._replace(found)
            if done + len(made) > at:
                return start + found.start()
            done, last = done + len(made), found.end()
        return start + last + at - done


class _Joined:
    """Several edits of one text, one after the other, each ended by a newline."""

    def __init__(self, before: bytes, edits: list[_Edit]) -> None:
        self.before, self._edits, self._starts, size = before, edits, [], 0
        parts = []
        for edit in edits:
            self._starts.append(size)
            is_open = edit is not edits[-1] and not edit.data.endswith(b"\n")
            parts.append(edit.data + b"\n" if is_open else edit.data)
            size += len(parts[-1])
        self.data = b"".join(parts) if len(parts) > 1 else edits[0].data

    def back(self, at: int) -> int:
        number = bisect_right(self._starts, at) - 1
        return self._edits[number].back(at - self._starts[number])


class Source:
    """What a tool returned (`stored`), or its beginning, and the data in it (`data`). Offsets count in
    `data`; `stored_at` and `line` lead back to the stored bytes."""

    def __init__(
        self,
        stored: bytes,
        tool_name: str = "",
        path: str | None = None,
        *,
        tail: bytes | None = None,
        total_bytes: int | None = None,
        lines: int | None = None,
    ) -> None:
        """`stored` may be the beginning of `total_bytes` in `lines` lines, which end with `tail`."""
        self.stored = stored
        self.tool_name, self.path = tool_name, path
        self.is_whole = total_bytes is None or len(stored) >= total_bytes
        self._lines = lines
        self._edits: list[_Edit | _Joined] = []
        self._numbered: tuple[re.Pattern[bytes], _Edit] | None = None
        data = stored
        if data.startswith(BOM):
            data = self._edited(_Edit(data, len(BOM), len(data)))
        if b"\0" not in data[:_LOOKED_AT]:
            data = self._bare(data)
        self.data = data
        self.head = data[:_HEAD]
        """What a format is recognised by."""
        self._tail = stored[-_LOOKED_AT:] if tail is None else tail

    def _edited(self, edit: "_Edit | _Joined") -> bytes:
        self._edits.append(edit)
        return edit.data

    def _bare(self, data: bytes) -> bytes:
        if (printed := _printed_blocks(data, self.is_whole)) is not None:
            data = self._edited(printed)
        if (blocks := _text_blocks(data, self.is_whole)) is not None:
            data = self._edited(blocks)
        if b"\x1b" in data:
            data = self._edited(_Edit(data, 0, len(data), TERMINAL_CODE))
        if opening := _FILE.match(data, 0, _LOOKED_AT):
            closing = _FILE_END.search(data, max(opening.end(), len(data) - 400))
            data = self._edited(_Edit(data, opening.end(), closing.start() if closing else len(data)))
        # A search in one file prints the numbers of its matches.
        if "grep" not in self.tool_name and (pattern := _numbers(data)):
            numbered = _Edit(data, *_without_remarks(data, pattern), pattern)
            self._numbered = pattern, numbered
            data = self._edited(numbered)
        return data

    def beginning(self, size: int, start: int = 0) -> Self:
        """The same result, of which only `size` bytes, from those at `start` of the data on, are known."""
        if start == 0 and len(self.data) <= size:
            return self
        first = self.stored_at(start)
        part = type(self)(
            self.stored[first : first + size],
            self.tool_name,
            self.path,
            tail=self.tail,
            total_bytes=len(self.stored) + 1,
            lines=self.lines,
        )
        return part

    @property
    def tail(self) -> bytes:
        """The end of the data of a whole source, else of the stored bytes."""
        return self.data[-_LOOKED_AT:] if self.is_whole else self._tail

    @property
    def lines(self) -> int:
        """The lines of the whole data."""
        if self._lines is not None and not (self._edits and self.is_whole):
            return self._lines
        return line_count(self.data)

    def take_text(self) -> str:
        """The data as text; the bytes are let go, so that it can be parsed in less memory."""
        text = self.data.decode("utf-8", "replace")
        self.stored = self.data = b""
        self._edits.clear()
        return text

    @property
    def is_verbatim(self) -> bool:
        """True if lines of the data are lines of the stored bytes, with no more than numbers before them."""
        return all(isinstance(edit, _Edit) and edit._pattern is not TERMINAL_CODE for edit in self._edits)

    def stored_at(self, at: int) -> int:
        """Where the byte at `at` begins in the stored bytes, with what was taken off before it, such as the
        number of its line: a place to cut."""
        for edit in reversed(self._edits):
            at = edit.back(at)
        return at

    def data_at(self, stored: int) -> int:
        """The first offset in the data whose byte stands at `stored` or behind it."""
        if not self._edits:
            return stored
        return bisect_left(range(len(self.data)), stored, key=self.stored_at)

    def stored_span(self, start: int, end: int) -> tuple[int, int]:
        """The stored bytes of a piece of the data. No byte is in two of adjacent pieces."""
        first = 0 if start == 0 else self.stored_at(start)
        return first, len(self.stored) if end >= len(self.data) else self.stored_at(end)

    def line(self, at: int) -> int:
        """The 1-based line of the stored bytes on which the byte at `at` stands."""
        return self.stored.count(b"\n", 0, self.stored_at(at)) + 1

    def stored_line(self, row: int) -> int:
        """The line of the stored bytes that the 0-based `row` of the data is."""
        if self.is_verbatim:
            return self.line(0) + row
        at = 0
        for _ in range(row):
            at = self.data.find(b"\n", at) + 1
        return self.line(at)

    @cached_property
    def numbers(self) -> list[int] | None:
        """The number that the tool gave each line of the data, that of the line above to a line without one;
        None if it gave none."""
        if self._numbered is None:
            return None
        pattern, edit = self._numbered
        found: list[int] = []
        for line in edit.before[edit._from[0] :].split(b"\n"):
            number = _NUMBER.match(line)
            found.append(int(number[1]) if number and pattern.match(line) else (found[-1] if found else 0))
        return found


def _quoted_texts(data: bytes, at: int, block: re.Pattern[bytes]) -> tuple[list[tuple[int, int]], int]:
    """Where the texts of the blocks from `at` on are, between their quotes, and where the blocks end. The
    last quote may be cut off."""
    spans: list[tuple[int, int]] = []
    while len(spans) < _MOST_BLOCKS and (found := block.match(data, at)):
        start, end = found.span(found.lastindex or 0)
        is_closed = end - start > 1 and data[end - 1] == data[start]
        spans.append((start + 1, end - is_closed))
        at = found.end()
    return spans, at


def _text_blocks(data: bytes, is_whole: bool) -> "_Joined | None":
    """The texts of JSON that is nothing but blocks of text; None for anything else."""
    before = _BEFORE_BLOCKS.match(data, 0, _LOOKED_AT)
    if before is None:
        return None
    spans, at = _quoted_texts(data, before.end(), _TEXT_BLOCK)
    # Cut here, or by the client before.
    if at < len(data) and (cut := _CUT_BLOCK.match(data, at)):
        spans.append((cut.start(1) + 1, cut.end(1)))
        at = len(data)
    if not spans or (is_whole and not _AFTER_BLOCKS.match(data, at)):
        return None
    return _Joined(data, [_Edit(data, start, end, _JSON_ESCAPE, _unescaped, b" ") for start, end in spans])


def _printed_blocks(data: bytes, is_whole: bool) -> "_Joined | None":
    """The texts of an answer of the MCP SDK as Python prints it; None for anything else."""
    before = _BEFORE_PRINTED.match(data)
    if before is None:
        return None
    spans, at = _quoted_texts(data, before.end(), _PRINTED_BLOCK)
    if not spans or (is_whole and not _AFTER_PRINTED.match(data, at)):
        return None
    edits = [_Edit(data, start, end, _PRINTED_ESCAPE, _unprinted, b" ") for start, end in spans]
    return _Joined(data, edits)


def _without_remarks(data: bytes, pattern: re.Pattern[bytes]) -> tuple[int, int]:
    """From where to where the data is: a tool may add remarks above and below the lines that it numbered."""
    first = pattern.search(data, 0, _REMARK_BYTES)
    start, end = first.start() if first else 0, len(data)
    if not all(map(_REMARK.match, data[:start].splitlines())):
        start = 0
    at = end
    while at > max(start, end - _REMARK_BYTES):
        line = data.rfind(b"\n", start, at - 1) + 1
        if line <= start or pattern.match(data, line):
            return start, at
        if not _REMARK.match(data[line:at]):
            break
        at = line
    return start, end


def _numbers(data: bytes) -> re.Pattern[bytes] | None:
    """A pattern for the line numbers that a tool added. Half of the first lines must begin with a number and
    the same mark, and the numbers must ascend, with few restarts. Else None."""
    if not any(map(_NUMBER.match, data[:_REMARK_BYTES].split(b"\n", _REMARKS)[:_REMARKS])):
        return None
    lines = list(filter(bytes.strip, data[:_LOOKED_AT].split(b"\n", _LINES)[:_LINES]))
    found = list(filter(None, map(_NUMBER.match, lines)))
    if len(lines) == 1 and found and int(found[0][1]) == 1 and _JSON_BEGINS.match(lines[0], found[0].end()):
        return _numbers_before(found, found[0][2])
    if len(found) < max(2, _SHARE * len(lines)):
        return None
    mark = found[0][2]
    numbers = [int(one[1]) for one in found if one[2] == mark]
    if len(numbers) < _SHARE * len(lines) or len(numbers) < 2:
        return None
    if sum(b <= a for a, b in pairwise(numbers)) > _RESTARTS * len(numbers):
        return None
    # Sizes that grow stand before a tab, too.
    if mark != b":" and sum(b == a + 1 for a, b in pairwise(numbers)) < _SHARE * (len(numbers) - 1):
        return None
    # A table whose first column counts the rows, with a header or with as many bars in each line.
    if found[0].string is not lines[0] and mark in b"\t|" and mark in lines[0]:
        return None
    bars = {line.count(b"|") for line in lines[:-1]} if mark == b"|" else ()
    if (
        len(bars) == 1
        and max(bars) > 1
        and not any(_OUTER_BAR.match(one.string, one.start(1)) for one in found)
    ):
        return None
    return _numbers_before([one for one in found if one[2] == mark], mark)


_OUTER_BAR = re.compile(rb"0\d|\d+\| ?\|")
"""A number that is padded, or stands before a row with a bar around it, is none of the row."""


def _numbers_before(found: list[re.Match[bytes]], mark: bytes) -> re.Pattern[bytes]:
    texts = [one.string[one.end() :] for one in found]
    # Some tools put a space after the mark.
    space = b" ?" if all(text[:1] == b" " for text in texts if text.strip()) and any(texts) else b""
    return re.compile(rb"^[ ]{0,8}\d{1,7}%b%b" % (re.escape(mark), space), re.MULTILINE)
