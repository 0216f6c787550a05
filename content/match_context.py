"""Lines around a few matches: two on each side, then as many as there is room for, blocks first."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from content.grep import Match

AROUND = 40
"""The most lines on each side of a match."""

_BLOCKS_BYTES, _OTHERS_BYTES = 1500, 1000
"""The most bytes of all lines while blocks grow, and while others do."""

_LINE_BYTES = 250
_NUMBER_BYTES = 6
_TAB = 4
_ITEMS = ("- ", "* ", "• ", "+ ")
_CLOSERS = ("}", ")", "]", "</", "end")


def trimmed(matches: Sequence[Match], context: int, rows: Collection[int] = ()) -> list[Match]:
    """Cuts the context to at most `context` lines on each side. Lines in `rows` get no context, because they
    are records."""
    return [_within(match, *((0, 0) if match.line in rows else (context, context))) for match in matches]


def grown(matches: Sequence[Match], context: int, rows: Collection[int] = ()) -> list[Match]:
    """With `context` lines on each side, and more while there is room: first behind lines that open a block,
    to its end, then as many before others as behind them. Lines of a flat list stay as they are: they say
    nothing of each other."""
    windows = [_Window(match, context) for match in matches if match.line not in rows]
    shown = {match.line: _size(match.text) for match in matches}
    for window in windows:
        shown |= window.lines()
    structured = [window for window in windows if not window.is_flat]
    for room, growing in (
        (_BLOCKS_BYTES, [window for window in structured if window.is_opening]),
        (_OTHERS_BYTES, [window for window in structured if not window.is_opening]),
    ):
        left = room - sum(shown.values())
        while growing:
            for window in tuple(growing):
                added = {line: size for line, size in window.next_lines().items() if line not in shown}
                if not window.can_grow or sum(added.values()) > left:
                    growing.remove(window)
                    continue
                left -= sum(added.values())
                shown |= added
                window.grow()
    sides = {window.match.line: (window.before, window.after) for window in windows}
    return [_within(match, *sides.get(match.line, (0, 0))) for match in matches]


class _Window:
    """The lines that are shown around a match."""

    def __init__(self, match: Match, context: int) -> None:
        self.match = match
        self.before, self.after = min(context, len(match.before)), min(context, len(match.after))
        self._end = _block_end(match)
        self._most = (_to_outermost(match, match.before[::-1]), _to_outermost(match, match.after))

    @property
    def is_opening(self) -> bool:
        """Whether the line opens a block."""
        return self._end > 0

    @property
    def is_flat(self) -> bool:
        """Whether all lines around have one indent, and none is blank."""
        match = self.match
        lines = (*match.before, match.text, *match.after)
        return len({indent_of(line) if line.strip() else -1 for line in lines}) == 1

    @property
    def _wider(self) -> tuple[int, int]:
        if self._end:
            return self.before, max(self.after, min(self.after + 1, self._end))
        above, below = self._most
        return max(self.before, min(self.before + 1, above)), max(self.after, min(self.after + 1, below))

    @property
    def can_grow(self) -> bool:
        return self._wider > (self.before, self.after)

    def lines(self) -> dict[int, int]:
        """The lines of the context by number, and the bytes that each takes."""
        return self._lines(self.before, self.after)

    def next_lines(self) -> dict[int, int]:
        """Returns the lines of the context with one more line on each side."""
        return self._lines(*self._wider)

    def grow(self) -> None:
        self.before, self.after = self._wider

    def _lines(self, before: int, after: int) -> dict[int, int]:
        line = self.match.line
        above = self.match.before[len(self.match.before) - before :]
        numbered = (*enumerate(above, line - before), *enumerate(self.match.after[:after], line + 1))
        return {number: _size(text) for number, text in numbered}


def _within(match: Match, before: int, after: int) -> Match:
    return replace(match, before=match.before[len(match.before) - before :], after=match.after[:after])


def _size(text: str) -> int:
    return min(len(text.encode()), _LINE_BYTES) + _NUMBER_BYTES


def indent_of(line: str) -> int:
    """The mark of an item stands for two spaces."""
    line = line.expandtabs(_TAB)
    bare = line.lstrip()
    return len(line) - len(bare) + 2 * bare.startswith(_ITEMS)


def _to_outermost(match: Match, lines: Sequence[str]) -> int:
    """Returns how many lines, from the match on, belong to the outermost block around it; all lines if there
    is no block."""
    if indent_of(match.text) == 0:
        return len(lines)
    for place, line in enumerate(lines):
        if line.strip() and indent_of(line) == 0:
            return place + (lines is not match.after or line.startswith(_CLOSERS))
    return len(lines)


def _block_end(match: Match) -> int:
    """How many lines behind a match belong to the block that its line opens, as far as they are known; 0 if
    it opens none."""
    indent, count = indent_of(match.text), 0
    for place, line in enumerate(match.after, 1):
        if not line.strip():
            continue
        if indent_of(line) <= indent:
            return place if count and line.lstrip().startswith(_CLOSERS) else count
        count = place
    return count
