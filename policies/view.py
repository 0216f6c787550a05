"""View caps: the most rows of a result that are shown, and the longest line."""

from dataclasses import replace

from content.text import Utf8Chunks
from domain.results import Measure, ToolResult
from policies.facts import Policy
from policies.oversized import Ends, Oversized, footer
from policies.tool_calls import ToolKind, first_row, kind_of

CUTS = False

MOST_BYTES = 1_000_000
"""The largest size cap."""

_MARK = "… [+{} chars]"
_HELD = 64

_MATCHES = (ToolKind.GREP, ToolKind.GLOB, ToolKind.WEB_SEARCH)


def is_set(policy: Policy) -> bool:
    return bool(policy.max_rows or policy.max_line_chars) and not policy.bypass


def bounded(policy: Policy) -> Policy:
    """The policy, with a size cap of MOST_BYTES if it has none: a view is held in memory."""
    return policy if policy.max_bytes else replace(policy, max_bytes=MOST_BYTES)


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(measure.bytes, 0)


def text(oversized: Oversized) -> str | None:
    """The whole view, for a result that exceeds no other cap."""
    return oversized.head.decode() + footer(oversized)


class View:
    """Applies the view caps to a result that is fed in pieces: text, or bytes cut anywhere.

    A row ends with a newline or with the text. A cut line keeps its first `max_line_chars` characters and
    its end (LF or CRLF). A line that the mark would make longer is not cut.
    """

    __slots__ = ("_at_end", "_line", "_newlines", "_policy", "_result", "_utf8")

    def __init__(self, policy: Policy, result: ToolResult) -> None:
        self._policy = policy
        self._result = result
        self._utf8 = Utf8Chunks()
        self._line = _Line(policy.max_line_chars)
        self._newlines = 0
        self._at_end = True

    @property
    def rows(self) -> int:
        """Rows fed so far."""
        return self._newlines + (not self._at_end)

    @property
    def cuts(self) -> bool:
        """True once something was left out."""
        return self._line.has_cut or 0 < self._policy.max_rows < self.rows

    def feed(self, piece: str | bytes) -> str:
        """Returns what is shown of the piece. Raises InvalidUtf8."""
        text = piece if isinstance(piece, str) else self._utf8.feed(piece)
        if not text:
            return ""
        shown = self._within_rows(text)
        self._newlines += text.count("\n")
        self._at_end = text.endswith("\n")
        return self._line.feed(shown) if self._policy.max_line_chars else shown

    def finish(self) -> str:
        """Returns the rest, and the footer if rows are missing."""
        return self._line.finish() + self._footer()

    def _within_rows(self, text: str) -> str:
        if not self._policy.max_rows:
            return text
        left = self._policy.max_rows - self._newlines
        if left <= 0:
            return ""
        parts = text.split("\n", left)
        return text[: len(text) - len(parts[left])] if len(parts) > left else text

    def _footer(self) -> str:
        shown, total = self._policy.max_rows, self.rows
        if not 0 < shown < total:
            return ""
        if kind_of(self._result.tool_name, self._result.tool_kind) in _MATCHES:
            return f"\n(Showing {shown} of {total} matches.)"
        first = first_row(self._result, self._policy.offset_base)
        return f"\n(Showing lines {first}–{first + shown - 1} of {first + total - 1} total)"


class _Line:
    """Shortens lines. Holds back the first characters of the current line past the cap: if the line ends
    within the length of the mark, they are shown."""

    __slots__ = ("_held", "_last", "_left", "_most", "_over", "has_cut")

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._over = 0
        self._held = ""
        self._last = ""
        self.has_cut = False

    def feed(self, text: str) -> str:
        first, *others = lines = text.split("\n")
        if not self._over and len(first) <= self._left and max(map(len, lines)) <= self._most:
            self._left = (self._most if others else self._left) - len(lines[-1])
            return text
        shown = [self._part(first)]
        for line in others:
            shown += (self._rest("\r"), "\n", self._part(line))
        return "".join(shown)

    def finish(self) -> str:
        return self._rest("")

    def _part(self, piece: str) -> str:
        shown, over = piece[: self._left], piece[self._left :]
        self._left -= len(shown)
        if over:
            self._over += len(over)
            self._held += over[: _HELD - len(self._held)]
            self._last = over[-1]
        return shown

    def _rest(self, ending: str) -> str:
        """Ends the line: returns the mark for the characters past the cap, or those characters. `ending` may
        be one of them."""
        kept = ending if ending and self._last == ending else ""
        missing, held = self._over - len(kept), self._held
        mark = _MARK.format(missing)
        self._left, self._over, self._held, self._last = self._most, 0, "", ""
        if missing <= len(mark.encode()):
            return held
        self.has_cut = True
        return mark + kept
