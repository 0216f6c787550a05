"""View caps: how many rows of a result are shown, and how much of each line."""

import re
from dataclasses import replace

from content.text import Utf8Chunks
from domain.results import Measure, ToolResult
from policies.oversized import Ends, Oversized, footer
from policies.policy import Policy
from policies.records import LineCounter, rows_of
from policies.search_output import FOOTER_CHARS, LAST_LINES, PREFIX, FileRows, SearchRows, Tally
from policies.tool_calls import ToolKind, first_row, name_of, rows_asked_for, tool_kind_of

CUTS = False

MOST_BYTES = 1_000_000
"""The largest size cap."""

_MARK = "… [+{} chars]"
_SAMPLED_CHARS = 8192
_MATCHES: dict[ToolKind, type[SearchRows | FileRows]] = {ToolKind.GREP: SearchRows, ToolKind.GLOB: FileRows}
_LIMITED = (ToolKind.FILE, ToolKind.GREP, ToolKind.GLOB)

_NUMBER_PREFIX = re.compile(r"\s{0,8}\d{1,9}(?:\t|→|\| )")
_PREFIXES = {ToolKind.GREP: PREFIX, ToolKind.FILE: _NUMBER_PREFIX}
_PREFIX_CHARS = 400

_CUT_BY_TOOL = re.compile(
    r"\s?(?:…|\.\.\.)\s?"
    r"|\s?(?:…|\.\.\.)?\s?[\[(][^\[\]()]{0,40}(?:chars?|characters|bytes|cut|truncated|more)[^\[\]()]{0,20}[\])]"
)
"""The mark at the end of a line that the tool has shortened."""


def is_set(policy: Policy) -> bool:
    return bool(policy.max_rows or policy.max_line_chars) and not policy.bypass


def with_size_cap(policy: Policy) -> Policy:
    """The policy, with a size cap of MOST_BYTES if it has none: a view is held in memory."""
    return policy if policy.max_bytes else replace(policy, max_bytes=MOST_BYTES)


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(measure.bytes, 0)


def text(oversized: Oversized) -> str | None:
    """Returns the whole view, for a result that exceeds no other cap."""
    return oversized.head.decode() + footer(oversized)


class View:
    """Applies the view caps to a result that is fed in pieces: text, or bytes cut anywhere.

    A row ends with a newline or with the text; a row of a CSV or TSV is a record, and the header is not a
    row. Of a file, lines are counted, and a table in it is cut at the end of a record. A footer of the tool
    that names such a cap is not a row, and is kept. If the tool's arguments ask for more rows than
    `max_rows`, that number is the cap. A cut line keeps file and line number, its first `max_line_chars`
    characters and its end (LF or CRLF). A line is left whole if the mark would make it longer, or if the tool
    has cut it there.
    """

    __slots__ = (
        *("_kind", "_lines", "_matches", "_most", "_newlines", "_policy", "_rest", "_result", "_row"),
        *("_rows", "_sample", "_sampled_chars", "_tail", "_utf8"),
    )

    def __init__(self, policy: Policy, result: ToolResult) -> None:
        self._policy = policy
        self._result = result
        self._kind = tool_kind_of(result)
        self._most = _most_rows(policy.max_rows, self._kind, result)
        self._utf8 = Utf8Chunks()
        self._lines = _Lines(policy.max_line_chars, _PREFIXES.get(self._kind))
        self._rows = LineCounter()
        searches = self._kind in _MATCHES
        self._matches = _MATCHES[self._kind]() if self._most and searches else None
        self._newlines = 0
        # The first pieces, until they are long enough to recognise a table.
        self._sample: list[str] | None = [] if self._most and not searches else None
        self._sampled_chars = 0
        # The end of all text so far; the end of the text after the shown rows; the row that has not ended.
        self._tail = self._rest = self._row = ""

    @property
    def cuts(self) -> bool:
        """True if `finish` was called and something was left out."""
        return self._lines.has_cut or self._has_more_rows

    @property
    def total(self) -> int | None:
        """All rows, or all matches of a search, after `finish`: as the caller or the tool's footer says, else
        as counted. None if no rows were left out."""
        if not self._has_more_rows:
            return None
        tally = self._tally
        return self._known_total or (self._ended if tally is None else tally.total)

    def feed(self, piece: str | bytes) -> str:
        """Returns what is shown of the piece. Raises InvalidUtf8."""
        text = piece if isinstance(piece, str) else self._utf8.feed(piece)
        if self._sample is None:
            return self._fed(text)
        self._sample.append(text)
        self._sampled_chars += len(text)
        return self._fed_sample() if self._sampled_chars >= _SAMPLED_CHARS else ""

    def finish(self) -> str:
        """Returns the rest, and the footer if rows are missing."""
        shown = self._fed_sample()
        if self._matches is not None and self._row:
            self._matches.feed(self._row, is_shown=self._newlines < self._most)
            self._row = ""
        return shown + self._lines.finish() + (self._footer() if self._has_more_rows else self._rest)

    def _fed_sample(self) -> str:
        if not self._sample:
            return ""
        text, self._sample = "".join(self._sample), None
        by_lines = self._kind is ToolKind.FILE
        start = text[:_SAMPLED_CHARS]
        self._rows = rows_of(start, self._result.tool_name, name_of(self._result), by_lines=by_lines)
        return self._fed(text)

    def _fed(self, text: str) -> str:
        if not text:
            return ""
        shown = text
        if self._most:
            end = self._rows.fed(text, self._most)
            shown, self._rest = text[:end], (self._rest + text[end:])[-FOOTER_CHARS:]
        if self._matches is not None:
            self._count_matches(self._matches, text)
        self._tail = (self._tail + text[-FOOTER_CHARS:])[-FOOTER_CHARS:]
        return self._lines.feed(shown) if self._policy.max_line_chars else shown

    @property
    def _tally(self) -> Tally | None:
        return self._matches.finish() if self._matches is not None else None

    @property
    def _last_lines(self) -> re.Match[str] | None:
        return LAST_LINES.search(self._tail)

    @property
    def _ended(self) -> int:
        """Rows fed so far, without the footer of the tool."""
        last = self._last_lines
        below = last[0] if last else ""
        is_open = (
            bool(last.start() or below[0] == "\n") if last else bool(self._tail) and self._tail[-1] != "\n"
        )
        return self._rows.counted(below, is_open=is_open)

    @property
    def _has_more_rows(self) -> bool:
        return 0 < self._rows.reached < self._ended

    @property
    def _known_total(self) -> int:
        """The number that the caller or the tool's footer states; 0 if neither states one."""
        last = self._last_lines
        named = last and (last["lines"] or last["matches"])
        return max(self._result.truncated_total or 0, int(named or 0))

    def _count_matches(self, matches: SearchRows | FileRows, text: str) -> None:
        first, *others = text.split("\n")
        self._row += first[: max(0, FOOTER_CHARS - len(self._row))]
        for number, row in enumerate(others, self._newlines):
            matches.feed(self._row, is_shown=number < self._most)
            self._row = row[:FOOTER_CHARS]
        self._newlines += len(others)

    def _footer(self) -> str:
        last = self._last_lines
        # A tool's footer without a total is kept: it says something that Spillgate's footer does not.
        below = f"\n{last['footer']}" if last and not (last["lines"] or last["matches"]) else ""
        if (tally := self._tally) is not None:
            return f"\n(Showing {tally.shown} of {self.total} matches.){below}"
        noun, shown = self._rows.noun, self._rows.reached
        first = first_row(self._result, self._policy.offset_base) if noun == LineCounter.noun else 1
        total = max(first + self._ended - 1, self._known_total)
        return f"\n(Showing {noun} {first}–{first + shown - 1} of {total} total){below}"


def _most_rows(most: int, kind: ToolKind, result: ToolResult) -> int:
    """The cap in rows, 0 if there is none. The tool itself applies a smaller limit in its arguments."""
    wanted = rows_asked_for(result) if most and kind in _LIMITED else None
    if wanted is None:
        return most
    return max(most, wanted) if wanted else 0


class _Lines:
    """Shortens lines. Holds back the beginning of the current line until it ends."""

    __slots__ = ("_held", "_held_chars", "_last", "_length", "_most", "_prefix", "has_cut")

    def __init__(self, most: int, prefix: re.Pattern[str] | None) -> None:
        self._most = most
        self._prefix = prefix
        self._held: list[str] = []
        self._held_chars = self._length = 0
        self._last = ""
        self.has_cut = False

    def feed(self, text: str) -> str:
        first, *others = text.split("\n")
        self._hold(first)
        shown: list[str] = []
        for line in others:
            shown += (self._end(is_last=False), "\n")
            self._hold(line)
        return "".join(shown)

    def finish(self) -> str:
        return self._end(is_last=True)

    def _hold(self, piece: str) -> None:
        rest = piece[: max(0, self._most + FOOTER_CHARS - self._held_chars)]
        if rest:
            self._held.append(rest)
            self._held_chars += len(rest)
        if piece:
            self._length += len(piece)
            self._last = piece[-1]

    def _end(self, *, is_last: bool) -> str:
        """Returns the current line, shortened if it is too long, and starts the next line."""
        line, length = "".join(self._held), self._length
        ending = "\r" if self._last == "\r" and not is_last else ""
        self._held, self._held_chars, self._length, self._last = [], 0, 0, ""
        if length <= self._most:
            return line
        prefix = self._prefix.match(line, 0, _PREFIX_CHARS) if self._prefix else None
        end = self._most + (prefix.end() if prefix else 0)
        missing = length - len(ending) - end
        mark = _MARK.format(missing)
        if missing <= len(mark.encode()) or (missing <= FOOTER_CHARS - _PREFIX_CHARS and _is_done(line, end)):
            return line
        self.has_cut = True
        return line[:end] + mark + ending


def _is_done(line: str, end: int) -> bool:
    """True for a footer, and for a line that after `end` has only the mark of an earlier cut."""
    bare = line.rstrip("\r")
    return _CUT_BY_TOOL.fullmatch(bare, end) is not None or LAST_LINES.fullmatch(bare) is not None
