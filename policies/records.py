"""Counts the rows of a text: its lines, the records of a CSV or TSV, or the elements of a JSON array."""

import re
from collections.abc import Iterator

_QUOTE_OR_END = re.compile(r'["\n]')
_JSON_SIGN = re.compile(r'["\\{}\[\]\n]')
_ARRAY_OF_OBJECTS = re.compile(r"\s*\[\s*\n\s*\{")
_MOST_CHARS = 1 << 16
"""The longest record. A longer one probably contains a quote that does not begin a quoted cell: from its next
line on, each line counts as a record."""


class LineCounter:
    """Counts the rows of a text that is fed in pieces, and finds the end of the last row that is shown."""

    noun = "lines"

    def __init__(self) -> None:
        self.ended = 0
        self.reached = 0
        """The number of rows at which the cap was reached; 0 before."""

    def counted(self, below: str, *, is_open: bool) -> int:
        """All rows, without the lines of the footer `below`. `is_open`: the text does not end with a line
        end."""
        return self.ended + is_open - below.count("\n")

    def fed(self, text: str, most: int) -> int:
        """Returns the number of characters of the text that are in the first `most` rows."""
        if self.reached:
            self.ended += text.count("\n")
            return 0
        parts = text.split("\n", most - self.ended)
        self.ended += text.count("\n")
        if self.ended < most:
            return len(text)
        self.reached = most
        return len(text) - len(parts[-1])


class RecordCounter(LineCounter):
    """A newline in quotes does not end a record, and a quote counts only at the start of a cell. `skipped`
    records, such as the header, are not rows. `by_lines`: counts lines, but cuts at the end of a record."""

    def __init__(self, mark: str, skipped: int, *, by_lines: bool) -> None:
        super().__init__()
        self.ended = 0 if by_lines else -skipped
        self.noun = "lines" if by_lines else "rows"
        self._by_lines = by_lines
        self._before_quote = ("", "\n", "\r", mark)
        self._chars = self._began = 0
        self._last = ""
        self._is_quoted = self._has_closed = self._gave_up = False

    def fed(self, text: str, most: int) -> int:
        shown, seen = 0 if self.reached else len(text), 0
        for end in self._ends(text):
            self.ended += text.count("\n", seen, end) if self._by_lines else 1
            seen = end
            if not self.reached and self.ended >= most:
                self.reached, shown = self.ended, end
        if self._by_lines:
            self.ended += text.count("\n", seen)
        self._chars += len(text)
        self._last = text[-1:] or self._last
        return shown

    def _ends(self, text: str) -> Iterator[int]:
        for sign in _QUOTE_OR_END.finditer(text):
            at = sign.start()
            before = text[at - 1] if at else self._last
            if sign[0] == '"':
                self._quote(before)
            elif self._is_quoted and self._chars + at - self._began <= _MOST_CHARS:
                continue
            else:
                self._gave_up = self._gave_up or self._is_quoted
                self._is_quoted = False
                self._began = self._chars + at + 1
                yield at + 1

    def _quote(self, before: str) -> None:
        if self._is_quoted:
            self._is_quoted = False
            self._has_closed = True
        elif not self._gave_up:
            # Two quotes in a quoted cell stand for one.
            self._is_quoted = before in self._before_quote or (before == '"' and self._has_closed)
            self._has_closed = False


class Elements(LineCounter):
    """Counts the elements of an array of objects that stands on several lines. Cuts at the end of a line."""

    noun = "rows"

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._is_quoted = self._is_escaped = False

    def counted(self, below: str, *, is_open: bool) -> int:
        return self.ended

    def fed(self, text: str, most: int) -> int:
        shown, skipped = 0 if self.reached else len(text), -1
        if self._is_escaped and text:
            skipped, self._is_escaped = 0, False
        for sign in _JSON_SIGN.finditer(text):
            at = sign.start()
            if at == skipped:
                continue
            if sign[0] == "\\":
                skipped = at + 1
                self._is_escaped = self._is_quoted and skipped == len(text)
            elif sign[0] == "\n":
                if not self.reached and self.ended >= most and self._depth <= 1:
                    self.reached, shown = self.ended, at + 1
            else:
                self._look(sign[0])
        return shown

    def _look(self, sign: str) -> None:
        if sign == '"':
            self._is_quoted = not self._is_quoted
        elif not self._is_quoted:
            self._depth += 1 if sign in "{[" else -1
            self.ended += self._depth == 1 and sign == "}"


def rows_of(text: str, tool_name: str, path: str | None, *, by_lines: bool) -> LineCounter:
    """Returns the counter for the rows of a text with this beginning."""
    if not by_lines and _ARRAY_OF_OBJECTS.match(text):
        return Elements()
    # Imported late: these take 50 ms, and only view caps need them.
    from content.layout import layout_of
    from content.source_text import SourceText
    from content.tables import Delimited

    data = text.encode()
    source = SourceText(data, tool_name, path)
    read = layout_of(source).tables[0].read
    if not isinstance(read, Delimited) or not data.startswith(source.data[: read.start]):
        return LineCounter()
    header = RecordCounter(read.mark, 0, by_lines=False)
    header.fed(data[: read.start].decode("utf-8", "ignore"), 1 << 30)
    return RecordCounter(read.mark, header.ended, by_lines=by_lines)
