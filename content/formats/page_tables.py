"""The tables of an HTML page, as rows of texts. A cell that spans several places occurs in each of them."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MOST_COVERED = 400
_FIRST_ROWS = 24
_MOST_CELLS = 200_000

# Each alternative ends at the next "<" or reads to the end of the text once: no part is looked at twice.
_MARKUP = re.compile(
    r"""<!--.*?(?:-->|\Z)|<(?:script|style)\b[^<>]*>.*?(?:</(?:script|style)\b[^<>]*>|\Z)"""
    r"""|<(?P<end>/?)(?P<tag>[a-zA-Z][a-zA-Z0-9]*)(?P<more>(?>(?:[^<>"']+|"[^"<]*"|'[^'<]*')*))>""",
    re.DOTALL | re.IGNORECASE,
)
_SPAN = re.compile(r"""\b(col|row)span\s*=\s*["']?\s*(\d{1,6})""", re.IGNORECASE)


class PageTable(NamedTuple):
    """`names` are the names in the header, "" for a column without a name. All rows have the same width."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_named: bool = True

    def read(self) -> Iterable[Sequence[str]]:
        return self.rows


def page_tables(text: str) -> list[PageTable]:
    """Returns the tables with at least two columns and a row below their header, in the order of their
    beginnings."""
    made = map(_table, _read(text).grids)
    return [one for one in made if one is not None]


def first_page_tables(text: str) -> list[PageTable]:
    """Returns the first of the tables of a page that continues after `text`. The last table may have more
    rows."""
    reader = _read(text, _FIRST_ROWS)
    found = []
    for grid in reader.grids:
        table = _table(grid)
        found += [table] if table else []
        if any(grid is one for one, _ in reader.open):
            # Whether it counts is unknown without its other rows.
            break
    return found


def _read(text: str, most_rows: int | None = None) -> "_Reader":
    reader = _Reader()
    at = 0
    for found in _MARKUP.finditer(text):
        reader.say(text[at : found.start()])
        if tag := found["tag"]:
            reader.take(tag.lower(), found["more"], is_end=bool(found["end"]))
            if most_rows is not None and reader.grids and reader.grids[-1].row >= most_rows:
                break
        at = found.end()
    return reader


def _table(grid: "_Grid") -> PageTable | None:
    rows = [row for row in grid.rows() if any(row)]
    width = max(map(len, rows), default=0)
    if width < 2 or len(rows) < 2:
        return None
    rows = [[*row, *[""] * (width - len(row))] for row in rows]
    is_named = grid.has_header
    names = rows[0] if is_named else [""] * width
    return PageTable(names, rows[1:] if is_named else rows, is_named)


class _Grid:
    """The cells of a table by row and column."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], str] = {}
        self.row = -1
        self._column = 0
        self._heads: list[bool] = []

    @property
    def has_header(self) -> bool:
        """True if all cells of the first row are headers of columns."""
        return bool(self._heads) and all(self._heads)

    def begin_row(self) -> None:
        self.row += 1
        self._column = 0

    def take(self, text: str, columns: int, rows: int, *, is_head: bool) -> None:
        """A cell that covers more places than a table of this kind may have occurs in one place only."""
        if self.row == 0:
            self._heads.append(is_head)
        while (self.row, self._column) in self._cells:
            self._column += 1
        if len(self._cells) >= _MOST_CELLS:
            return
        if columns * rows > _MOST_COVERED:
            columns = rows = 1
        for down in range(rows):
            for right in range(columns):
                self._cells.setdefault((self.row + down, self._column + right), text)

    def rows(self) -> list[list[str]]:
        rows: list[list[str]] = [[] for _ in range(self.row + 1)]
        for (row, column), text in sorted(self._cells.items()):
            if row <= self.row:
                rows[row] += [""] * (column - len(rows[row]))
                rows[row].append(text)
        return rows


class _Cell:
    """An open cell: its texts, and the numbers of columns and rows that it covers."""

    def __init__(self, attributes: str, *, is_head: bool) -> None:
        spans = (
            {found[1].lower(): int(found[2]) for found in _SPAN.finditer(attributes)} if attributes else {}
        )
        self.columns, self.rows = (max(1, spans.get(name, 1)) for name in ("col", "row"))
        self.texts: list[str] = []
        self.is_head = is_head


class _Reader:
    """Collects the grids of a page. A table within a cell is a separate table, and not text of the cell."""

    def __init__(self) -> None:
        self.grids: list[_Grid] = []
        self.open: list[tuple[_Grid, _Cell | None]] = []

    def take(self, tag: str, attributes: str, *, is_end: bool) -> None:
        if tag == "table":
            if not is_end:
                self.grids.append(_Grid())
                self.open.append((self.grids[-1], None))
            elif self.open:
                self._close_cell()
                self.open.pop()
        elif not self.open:
            return
        elif tag in ("td", "th", "tr"):
            self._close_cell()
            if not is_end:
                self._begin(tag, attributes)
        elif tag in ("br", "p", "li", "div"):
            self.say(" ")

    def _begin(self, tag: str, attributes: str) -> None:
        grid, _ = self.open[-1]
        if tag == "tr" or grid.row < 0:
            grid.begin_row()
        if tag != "tr":
            self.open[-1] = (grid, _Cell(attributes, is_head=tag == "th"))

    def say(self, text: str) -> None:
        if self.open and (cell := self.open[-1][1]) is not None:
            cell.texts.append(text)

    def _close_cell(self) -> None:
        grid, cell = self.open[-1] if self.open else (None, None)
        if grid is not None and cell is not None:
            text = " ".join(html.unescape("".join(cell.texts)).split())
            grid.take(text, cell.columns, cell.rows, is_head=cell.is_head)
            self.open[-1] = (grid, None)
