"""The extent of a text: bytes, lines, and records, columns, members or times, by its kind.

Takes linear time and constant memory. Call it in a thread: 64 MiB take a few seconds.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from content.kinds import NAMES, Kind, sniff
from content.text import DOUBLE_QUOTED, clip, count_of
from content.values import first_rows

_BLOCK = 256 * 1024
_ENDS = 64 * 1024
_NEWLINE = b"\n"
_COLUMNS = 40
_ARRAYS = 8

# Scanning more brackets would take more than a second.
_MOST_BRACKETS = 300_000

_QUOTE = b'"'
# A call of `re` holds the interpreter, so a run is as long as 1,000 strings at most.
_RUN = re.compile(rb'((?>(?:[^"{}\[\]]++|%b){0,2000}))([{}\[\]]?+)' % DOUBLE_QUOTED, re.DOTALL)
_STRINGS = re.compile(DOUBLE_QUOTED, re.DOTALL)
_HIT = re.compile(rb"^[\w./@+~-]{1,300}?[:-]\d{1,8}[:-]", re.MULTILINE)
_STAMPS = (
    (re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(rb"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d"), "%d/%b/%Y:%H:%M:%S"),
    (re.compile(rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"), "%b %d %H:%M:%S"),
    (re.compile(rb"\d\d-\d\d \d\d:\d\d:\d\d"), "%m-%d %H:%M:%S"),
    (re.compile(rb"\d\d:\d\d:\d\d"), "%H:%M:%S"),
)


def extent(data: bytes, tool_name: str = "") -> str:
    """Returns, for example, `a table: 2,000 rows below the first line, 3 columns (id, city, total); 45,890
    bytes in 2,002 lines, the last of them empty`. The number of lines is the number of newlines plus one."""
    kind = sniff(data, tool_name)
    known = ", ".join(_COUNTS[kind](data)) if kind in _COUNTS else ""
    breaks = data.count(_NEWLINE)
    size = f"{len(data):,} bytes in {count_of(breaks + 1, 'line')}"
    end = ", the last of them empty" if data.endswith(_NEWLINE) else ""
    return f"{NAMES[kind]}: {known}{'; ' if known else ''}{size}{end}"


def _rows(data: bytes) -> Iterator[str]:
    """Rows and columns of a table. A newline within quotes ends no row."""
    has_quotes = data.count(_QUOTE) % 2 == 0
    yield f"{count_of(_filled_lines(data, has_quotes) - 1, 'row')} below the first line"
    _, rows = first_rows(data[:_ENDS].decode("utf-8", "replace"), 1)
    for names in rows:
        more = ", …" if len(names) > _COLUMNS else ""
        yield f"{count_of(len(names), 'column')} ({', '.join(names[:_COLUMNS])}{more})"


def _words(data: bytes) -> Iterator[str]:
    """The number of words, separated by white space."""
    found = 0
    for at in range(0, len(data), _BLOCK):
        block = data[at : at + _BLOCK]
        found += len(block.split())
        # A word that began in the previous block.
        found -= at > 0 and not data[at - 1 : at].isspace() and not block[:1].isspace()
    yield count_of(found, "word")


def _filled_lines(data: bytes, has_quotes: bool = False) -> int:
    """Counts lines that are not blank. With `has_quotes`, newlines within quotes end no line."""
    found = is_inside = 0
    is_filled = False
    for at in range(0, len(data), _BLOCK):
        block = data[at : at + _BLOCK]
        if has_quotes:
            parts = block.split(_QUOTE)
            block = (b"_" if is_inside else b"") + b"_".join(parts[is_inside::2])
            is_inside = (is_inside + len(parts) - 1) % 2
            block += b"_" if is_inside else b""
        filled = list(map(bool, map(bytes.strip, block.split(_NEWLINE))))
        filled[0] = filled[0] or is_filled
        found += sum(filled[:-1])
        is_filled = filled[-1]
    return found + is_filled


def _times(data: bytes) -> Iterator[str]:
    """The first time of the first line, and of the last line, that has one, and the duration between them.
    The form nearest the beginning of the line is that of the log: messages may have times too."""
    head, ending = data[:_ENDS], data[-_ENDS:].split(_NEWLINE)
    found = []
    for pattern, form in _STAMPS:
        first, last = pattern.search(head), next(filter(None, map(pattern.search, reversed(ending))), None)
        if first and last:
            found.append((last.start(), first[0].decode(), last[0].decode(), form))
    for _, start, end, form in sorted(found)[:1]:
        between = _between(start, end, form)
        yield f"from {start} to {end}" + (f" ({between})" if between else "")


def _between(first: str, last: str, form: str) -> timedelta | None:
    """The duration; None if a time is not valid, or a time without a date starts again at midnight."""
    times, form = [one.replace("/", "-").replace("T", " ") for one in (first, last)], form.replace("/", "-")
    if "%Y" not in form:
        # A leap year, so that 29 February is a date.
        times, form = [f"2000 {one}" for one in times], f"%Y {form}"
    try:
        start, end = (datetime.strptime(one, form) for one in times)
    except ValueError:
        return None
    return end - start if end >= start else None


@dataclass(slots=True)
class _Container:
    """An open array or object, at most two levels deep."""

    name: bytes
    is_array: bool
    commas: int = 0
    filled: bool = False

    def count(self, run: bytes) -> None:
        """Adds the members in `run`, a part without brackets."""
        bare = _STRINGS.sub(b'"', run)
        self.commas += bare.count(b",")
        self.filled = self.filled or bool(bare.strip())

    @property
    def summary(self) -> str:
        """For example `orders: 2,000 items`."""
        name = f"{clip(self.name)}: " if self.name else ""
        members = self.commas + self.filled
        return name + count_of(members, "item" if self.is_array else "key")


def _members(data: bytes) -> Iterator[str]:
    """Counts the members of the outermost array or object, and of the named arrays in it."""
    if data.count(b"{") + data.count(b"[") > _MOST_BRACKETS:
        return
    around: list[_Container] = []
    arrays: list[str] = []
    depth, before = 0, b""
    for run in _RUN.finditer(data):
        text, bracket = run.groups()
        if 0 < depth <= 2:
            around[-1].count(text)
        if bracket in (b"{", b"["):
            if depth < 2:
                is_member = around and not around[0].is_array
                keys = _STRINGS.findall((before + text)[-_ENDS:]) if is_member else []
                around.append(_Container(keys[-1].strip(b'"') if keys else b"", bracket == b"["))
            depth += 1
        elif bracket and depth:
            ended = around.pop() if depth <= 2 else None
            depth -= 1
            if ended and not depth:
                yield from (ended.summary, *arrays)
                return
            if ended and ended.name and ended.is_array and len(arrays) < _ARRAYS:
                arrays.append(ended.summary)
        before = b"" if bracket else (before + text)[-_ENDS:]


_COUNTS: dict[Kind, Callable[[bytes], Iterable[str]]] = {
    Kind.TEXT: _words,
    Kind.MARKDOWN: _words,
    Kind.JSON: _members,
    Kind.NDJSON: lambda data: [f"{count_of(_filled_lines(data), 'record')}, one a line"],
    Kind.CSV: _rows,
    Kind.LOG: _times,
    Kind.GREP: lambda data: [f"{count_of(sum(1 for _ in _HIT.finditer(data)), 'line')} of files"],
}
