"""The tables of an HTML page: rows of texts. A cell that spans stands in each place that it covers."""

from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

from content.formats.table import unique

_MOST_SPAN = 200
_MOST_CELLS = 2_000_000


class PageTable(NamedTuple):
    """`names` are of the header, or column_1, column_2, … where there is none. All rows are as wide."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_named: bool = True

    def read(self) -> Iterable[Sequence[str]]:
        return self.rows


def page_tables(text: str) -> list[PageTable]:
    """The tables with at least two columns and a row below their header, in the order in which they begin."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    made = (_table(grid) for grid in reader.grids)
    return [one for one in made if one is not None]


def _table(grid: "_Grid") -> PageTable | None:
    rows = [row for row in grid.rows() if any(row)]
    width = max(map(len, rows), default=0)
    if width < 2 or len(rows) < 2:
        return None
    rows = [[*row, *[""] * (width - len(row))] for row in rows]
    is_named = grid.has_header
    names = rows[0] if is_named else [""] * width
    spelled = (" ".join(name.split()) or f"column_{number}" for number, name in enumerate(names, 1))
    return PageTable(unique(spelled, fold=str.lower), rows[1:] if is_named else rows, is_named)


class _Grid:
    """The cells of a table by row and column."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], str] = {}
        self.row = -1
        self._heads: list[bool] = []

    @property
    def has_header(self) -> bool:
        """The first row has nothing but heads of columns."""
        return bool(self._heads) and all(self._heads)

    def take(self, text: str, columns: int, rows: int, *, is_head: bool) -> None:
        if self.row == 0:
            self._heads.append(is_head)
        column = 0
        while (self.row, column) in self._cells:
            column += 1
        if len(self._cells) < _MOST_CELLS:
            for down in range(rows):
                for right in range(columns):
                    self._cells.setdefault((self.row + down, column + right), text)

    def rows(self) -> list[list[str]]:
        rows: list[list[str]] = [[] for _ in range(self.row + 1)]
        for (row, column), text in sorted(self._cells.items()):
            if row <= self.row:
                rows[row] += [""] * (column - len(rows[row]))
                rows[row].append(text)
        return rows


class _Reader(HTMLParser):
    """Collects the grids of a page. A table within a cell is a table of its own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.grids: list[_Grid] = []
        self._open: list[_Grid] = []
        self._cells: list[tuple[list[str], int, int, bool] | None] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        match tag:
            case "table":
                grid = _Grid()
                self.grids.append(grid)
                self._open.append(grid)
                self._cells.append(None)
            case "tr" if self._open:
                self._close_cell()
                self._open[-1].row += 1
            case "td" | "th" if self._open:
                self._close_cell()
                if self._open[-1].row < 0:
                    self._open[-1].row = 0
                spans = dict(attrs)
                columns, rows = _span(spans.get("colspan")), _span(spans.get("rowspan"))
                self._cells[-1] = ([], columns, rows, tag == "th")
            case "script" | "style":
                self._hidden += 1
            case "br" | "p" | "li" | "div":
                self._say(" ")

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "table" if self._open:
                self._close_cell()
                self._open.pop()
                self._cells.pop()
            case "td" | "th" | "tr" if self._open:
                self._close_cell()
            case "script" | "style":
                self._hidden = max(0, self._hidden - 1)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._say(data)

    def _say(self, text: str) -> None:
        for cell in self._cells:
            if cell is not None:
                cell[0].append(text)

    def _close_cell(self) -> None:
        cell = self._cells[-1]
        if cell is not None:
            parts, columns, rows, is_head = cell
            self._open[-1].take(" ".join("".join(parts).split()), columns, rows, is_head=is_head)
            self._cells[-1] = None


def _span(written: str | None) -> int:
    return min(_MOST_SPAN, max(1, int(written))) if written and written.isdecimal() else 1
