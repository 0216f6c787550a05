"""Tables that programs print for people: columns under a header, or between bars, by the width of a
terminal."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import NamedTuple
from unicodedata import combining, east_asian_width

_LEAST_ROWS = 3
_LEAST_COLUMNS = 3
_ALIGNED = 0.7
_STRAY = 0.02
_BROKEN = 0.3
_SHIFTED = 0.15
_SAMPLED = 2000
_WORD = re.compile(r"\S+")
# `1K-blocks` is the name of a column, `12K` is not.
_NO_NAME = re.compile(r"\d(?!\S*[A-Za-z]{4})")
_RULE = re.compile(
    r"[ \t]*+\|?[ \t]*+:?[-=+]{2}[-=+:| \t]*"
    r"|\s*[┌├└╔╠╚╒╞╘╭╰┏┡┗┠─━═╪┼│|+][─━═┄╌┬┼┴╤╪╧╦╬╩┯┿┷┳╇┻╂┤├┐┘╗╝╡╮╯┓┩┛│+\-=]{3,}\s*"
)
_GAPPED_RULE = re.compile(r"\s*(?:-{2,}|={2,})(?: +(?:-{2,}|={2,}))+\s*")
_LINE = re.compile(rf"\s*[-=─]{{5,}}\s*|{_GAPPED_RULE.pattern}")
_BARS = str.maketrans("│┃║┆╎┊", "||||||")
FOOTER = re.compile(
    r"\s*(?:\(\d[\d,]* rows?(?: affected)?\)|\d[\d,]* rows? (?:in set|selected|returned|affected)\b.*"
    r"|Rows?: \d[\d,]*|Time: .*|\d[\d,]* record\(s\) selected\.?)\s*",
    re.IGNORECASE,
)
_CROSSINGS = frozenset("|+┼│├┌╔╠┬╬╪")
_MARKS = frozenset("●○*×>→!✗✓•↻")


class Printed(NamedTuple):
    """`first` is the line of the header, `body` the first below it and its rule. `cuts` are the places, in
    cells of a terminal, at which columns end, none between bars. `start` is the place of the first column.
    `is_split`: cells are words, and the last column has the rest. `last` is the line at which it ends, if
    something else begins there without a blank line. `is_below`: text stands above it."""

    first: int
    body: int
    names: Sequence[str]
    cuts: Sequence[int] = ()
    start: int = 0
    has_bars: bool = False
    is_split: bool = False
    last: int | None = None
    is_below: bool = False

    def rows(self, lines: Sequence[str]) -> Iterator[list[str]]:
        """The rows below the header, to the end of the table. Dots alone stand for rows that the program left
        out, and are none."""
        return (cells for cells in self.every(lines) if not are_dots(cells))

    def every(self, lines: Sequence[str]) -> Iterator[list[str]]:
        """The rows, and those of dots."""
        below = lines[self.body : self.end(lines)]
        if self.is_split:
            return (line.split(None, len(self.names) - 1) for line in below)
        if self.has_bars:
            return self._between_bars(below)
        return (self._cut(line) for line in below if not _LINE.fullmatch(line))

    def end(self, lines: Sequence[str]) -> int:
        """The line after the last of the table: a blank line or a footer ends it."""
        at, most = self.body, len(lines) if self.last is None else min(self.last, len(lines))
        while at < most:
            line = lines[at]
            # A line that begins with a bar is no footer.
            is_row = self.has_bars and line.startswith("|")
            if not is_row and (not line.strip() or FOOTER.fullmatch(line)):
                break
            if self.has_bars and not is_row and "|" not in with_bars(line) and not is_rule(line):
                break
            at += 1
        return at

    def _between_bars(self, lines: Sequence[str]) -> Iterator[list[str]]:
        width, row = len(self.names), list[str]()
        if _is_grid(lines):
            yield from (_joined(group, width) for group in _groups(lines))
            return
        for line in lines:
            if is_rule(line):
                continue
            cells = cells_between_bars(line, width)
            # psql: the cell goes on in the next line.
            goes_on = [
                cell.endswith("+") and line.rstrip().rstrip("|").rstrip().endswith("+") for cell in cells
            ]
            if row:
                cells = [
                    f"{before}\n{cell}" if cell else before for before, cell in zip(row, cells, strict=False)
                ]
                row = []
            if any(goes_on) and _goes_on(line):
                row = [cell.removesuffix("+").rstrip() for cell in cells]
                continue
            yield cells
        if row:
            yield row

    def _cut(self, line: str) -> list[str]:
        shown = spread(line)
        cells, start = [], self.start
        if shown[:start].strip() and not (
            len(shown[:start].strip()) == 1 and shown[:start].strip() in _MARKS
        ):
            start = 0
        for cut in (*self.cuts, len(shown)):
            end = max(start, cut)
            if cut < len(shown) and shown[cut] != " ":
                # The cell is wider than its column.
                before, behind = shown.rfind(" ", start, cut), shown.find(" ", cut)
                end = (
                    before
                    if before > start and shown[start:before].strip()
                    else (behind if behind >= 0 else len(shown))
                )
            cells.append(shown[start:end].replace("\0", "").strip())
            start = end
        return cells


_DOTS = frozenset(("…", "...", "..", "·", "⋮", ":", "┊"))


def are_dots(cells: Sequence[str]) -> bool:
    return cells[0] in _DOTS and all(cell in _DOTS or not cell for cell in cells)


def _groups(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines between rules."""
    group: list[str] = []
    for line in (*lines, None):
        if line is not None and not is_rule(line):
            group.append(line)
        elif group:
            yield group
            group = []


def _is_grid(lines: Sequence[str]) -> bool:
    """Whether a rule stands below each row, which may have several lines."""
    groups = list(_groups(lines)) if sum(map(is_rule, lines)) > 1 else []
    return len(groups) > 1 and 2 * sum(len(group) == 1 for group in groups) > len(groups)


def _joined(lines: Sequence[str], width: int) -> list[str]:
    """The cells of a row of several lines."""
    cells = [cells_between_bars(line, width) for line in lines]
    return ["\n".join(filter(None, parts)) for parts in zip_longest(*cells, fillvalue="")]


def _goes_on(line: str) -> bool:
    """psql prints + before the bar, or at the end of the line, where a cell goes on."""
    return bool(re.search(r"\+ *(?:\||$)", line))


def with_bars(line: str) -> str:
    """The line with plain bars for those of a box."""
    return line if line.isascii() else line.translate(_BARS)


def is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None


def cells_between_bars(line: str, width: int | None = None) -> list[str]:
    """The cells of a row. A bar behind a backslash belongs to its cell. An outer bar ends no cell."""
    text = with_bars(line).strip()
    inner = text[1:] if text.startswith("|") and (width is None or bars(text) > width - 1) else text
    parts = re.split(r"(?<!\\)\|", inner) if "\\" in inner else inner.split("|")
    cells = [cell.replace("\\|", "|").strip() for cell in parts]
    if len(cells) > 1 and not cells[-1] and (width is None or len(cells) > width):
        cells.pop()
    return cells


def bars(text: str) -> int:
    return text.count("|") - text.count("\\|")


def spread(line: str) -> str:
    """The line with one character for each cell of a terminal: a wide one is followed by NUL, and what has
    no width is left out."""
    line = line.rstrip("\r\n").expandtabs()
    if line.isascii():
        return line
    return line.translate(_WIDTHS)


class _Widths(dict[int, str]):
    """What a character is spread to, by its number."""

    def __missing__(self, number: int) -> str:
        char = chr(number)
        if combining(char) or char in "\u200b\u200d\ufe0f":
            spread = ""
        else:
            spread = f"{char}\0" if east_asian_width(char) in "WF" else char
        self[number] = spread
        return spread


_WIDTHS = _Widths()


_MOST_ABOVE = 12
_DPKG = "||/ "
_DPKG_RULE = re.compile(r"\+{3}(?:-=+)+-?\s*")


def _has_bars(line: str) -> bool:
    return "|" in with_bars(line)


def printed_in(lines: Sequence[str]) -> Printed | None:
    """The table that begins in the first lines, or is most of them below a few lines of text; None if there
    is none."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    if not filled:
        return None
    if made := printed_at(lines, filled[0]):
        return made
    for top in filled[1:_MOST_ABOVE]:
        if "  " not in lines[top].strip() or (_has_bars(lines[top]) and not lines[top].startswith(_DPKG)):
            continue
        made = _ruled(lines, top) or _aligned(lines, top)
        size = made.end(lines) - made.body if made else 0
        is_most = made and (filled[-1] < made.end(lines) or 2 * size >= len(lines))
        if made and is_most and size >= max(_LEAST_ROWS, top):
            return made._replace(is_below=True)
    return None


def printed_at(lines: Sequence[str], top: int) -> Printed | None:
    """The table whose first line is the one at `top`, or the first filled below it."""
    top = next((at for at in range(top, len(lines)) if lines[at].strip()), len(lines))
    return _barred(lines, top) or _ruled(lines, top) or _aligned(lines, top) or _in_words(lines, top)


def printed_tables(lines: Sequence[str], top: int) -> tuple[list[Printed], int]:
    """The tables that follow each other from the line at `top` on, with footers and at most a title between
    them, and the first line that is in none."""
    found: list[Printed] = []
    at = top
    while len(found) < _MOST_TABLES and (made := _next(lines, at)) is not None:
        found.append(made)
        at = made.end(lines)
        while at < len(lines) and (not lines[at].strip() or FOOTER.fullmatch(lines[at])):
            at += 1
    return found, at


_MOST_TABLES = 24


def _next(lines: Sequence[str], at: int) -> Printed | None:
    if made := printed_at(lines, at):
        return made
    filled = next((number for number in range(at + 1, len(lines)) if lines[number].strip()), len(lines))
    return printed_at(lines, filled) if filled < len(lines) else None


def barred_tables(lines: Sequence[str]) -> Iterator[Printed]:
    """The tables between bars that stand in a text, each with a rule below or above its header."""
    at = 0
    while at < len(lines):
        if _CROSSINGS.isdisjoint(lines[at]) or not is_rule(lines[at]):
            at += 1
            continue
        top = at - 1 if at and "|" in with_bars(lines[at - 1]) else at
        made = _barred(lines, top)
        if made is not None:
            yield made
        at = made.end(lines) if made is not None else at + 1


_MOST_HEAD = 4
_TYPE = re.compile(
    r"-{3}|(?:big|huge|small|tiny|u?)int(?:eger)?\d*|[iuf]\d{1,3}|varchar|str|double|float\d*|bool(?:ean)?"
    r"|date|time|timestamp|interval|blob|json|uuid|cat|decimal\(.*\)|(?:datetime|duration|list|struct)\[.*\]|.*\[\]|"
)


def _barred(lines: Sequence[str], top: int) -> Printed | None:
    """Bars between the cells, and a rule below or above the header."""
    first = top
    while first < len(lines) and is_rule(lines[first]):
        first += 1
    if first >= len(lines):
        return None
    header = with_bars(lines[first])
    has_rule = first > top or (first + 1 < len(lines) and is_rule(lines[first + 1]))
    inside = bars(header.strip().strip("|"))
    if not has_rule or not inside:
        return None
    names = cells_between_bars(header)
    if not header.strip().startswith("|"):
        names = [cell.strip() for cell in re.split(r"(?<!\\)\|", header)]
    body = first + 1
    if first > top:
        body = next(
            (at for at in range(body, min(body + _MOST_HEAD, len(lines))) if is_rule(lines[at])), body
        )
        # Below the names may stand their types, or words that found no room beside the others.
        below = [cells_between_bars(line, len(names)) for line in lines[first + 1 : body]]
        names = [
            " ".join((name, *(cell for cell in cells if not _TYPE.fullmatch(cell)))).strip()
            for name, *cells in zip_longest(names, *below, fillvalue="")
        ]
    while body < len(lines) and is_rule(lines[body]):
        body += 1
    made = Printed(first, body, names, has_bars=True)
    rows = [line for line in lines[body : made.end(lines)] if not is_rule(line)]
    wanted = bars(header)
    fits = sum(bars(with_bars(line)) == wanted for line in rows)
    return made if rows and fits >= 0.9 * len(rows) else None


def _ruled(lines: Sequence[str], top: int) -> Printed | None:
    """A rule below the header with a gap between any two columns."""
    if len(lines) < top + _LEAST_ROWS:
        return None
    if _GAPPED_RULE.fullmatch(lines[top]) and lines[top] == lines[min(top + 2, len(lines) - 1)]:
        # A rule stands above the header, too.
        top += 1
    header, rule = spread(lines[top]), lines[top + 1]
    if _DPKG_RULE.fullmatch(rule):
        rule = rule.replace("-", " ").replace("+", "=")
    if not _GAPPED_RULE.fullmatch(rule.rstrip()):
        return None
    starts = [one.start() for one in _WORD.finditer(rule)]
    if any(header[at - 1 : at].strip() for at in starts[1:]) or not header.strip():
        return None
    rows = _sampled(lines, top + 2)
    # The rule of a column that ends with its header may be shorter than its cells.
    cuts = _cuts([one.span() for one in _WORD.finditer(rule)], rows, are_columns=True)
    cuts = cuts or [at - 1 for at in starts[1:]]
    names = [
        header[a:b].replace("\0", "").strip()
        for a, b in zip([starts[0], *cuts], [*cuts, len(header)], strict=True)
    ]
    return Printed(top, top + 2, names, cuts, starts[0])


def _sampled(lines: Sequence[str], body: int) -> list[str]:
    end = Printed(body - 1, body, ()).end(lines)
    sample = lines[body : min(end, body + _SAMPLED)]
    return [spread(line) for line in sample if not _LINE.fullmatch(line)]


def _next_header(lines: Sequence[str], body: int) -> int | None:
    """The line of a title, below which another table begins with a header of its own."""
    end = min(Printed(body - 1, body, ()).end(lines), body + _SAMPLED, len(lines) - 1)
    for at in range(body + 1, end):
        if "  " not in lines[at].strip() and "  " in lines[at + 1].strip():
            words = spread(lines[at + 1]).split()
            are_names = all(re.search(r"[^\W\d_]", word) and not _NO_NAME.match(word) for word in words)
            if len(lines[at].split()) > 1 and len(words) > _LEAST_COLUMNS and are_names:
                return at if _aligned(lines, at + 1) else None
    return None


def _is_told_again(header: str, rows: Sequence[str]) -> bool:
    """Whether a word of the header stands in the first rows: it is none then."""
    words = {word for word in header.split() if len(word) > 1 and any(map(str.isalnum, word))}
    return any(not words.isdisjoint(row.split()) for row in rows[:8])


def _aligned(lines: Sequence[str], top: int) -> Printed | None:
    """Cells begin or end where the words of the header do."""
    if top >= len(lines):
        return None
    header = spread(lines[top])
    words = [word.span() for word in _WORD.finditer(header)]
    if (
        len(words) < _LEAST_COLUMNS
        or any(_NO_NAME.match(header[a:b]) for a, b in words)
        or "  " not in header.strip()
    ):
        return None
    body = top + 1
    last = _next_header(lines, body)
    rows = _sampled(lines[:last], body)
    if len(rows) < _LEAST_ROWS or _is_told_again(header, rows):
        return None
    cuts = _cuts(words, rows)
    if cuts is None:
        return None
    start = words[0][0]
    if (gap := _unnamed_column(start, rows)) is not None:
        start, cuts = 0, [gap, *cuts]
    starts = [start, *cuts]
    names = [header[a:b].replace("\0", "").strip() for a, b in zip(starts, [*cuts, len(header)], strict=True)]
    made = Printed(top, body, names, cuts, start, last=last)
    return made if len(names) >= _LEAST_COLUMNS and _is_aligned(header, made, rows) else None


_NEAR = 3


def _in_words(lines: Sequence[str], top: int) -> Printed | None:
    """The last resort: each row has a word near each word of the header, though none stands right below
    it."""
    if top >= len(lines):
        return None
    header = spread(lines[top])
    words = list(_WORD.finditer(header))
    if (
        len(words) <= _LEAST_COLUMNS
        or "  " not in header.strip()
        or any(_NO_NAME.match(word[0]) for word in words)
    ):
        return None
    made = Printed(top, top + 1, [word[0] for word in words], is_split=True)
    rows = [spread(line) for line in lines[made.body : min(made.end(lines), made.body + _SAMPLED)]]
    if len(rows) < _LEAST_ROWS or _is_told_again(header, rows):
        return None
    return made if sum(_is_near(words, row) for row in rows) >= 0.95 * len(rows) else None


def _is_near(words: Sequence[re.Match[str]], row: str) -> bool:
    cells = list(_WORD.finditer(row))
    return len(cells) >= len(words) and all(
        cell.start() <= word.end() + _NEAR and cell.end() >= word.start() - _NEAR
        for word, cell in zip(words, cells, strict=False)
    )


def _unnamed_column(start: int, rows: Sequence[str]) -> int | None:
    """Where a column ends that stands before the first word of the header, at `start`, as a row's number
    does; None without one. Marks are no cells."""
    gaps = [at for at in range(1, start + 1) if not any(row[at : at + 1].strip() for row in rows)]
    before = [row[: gaps[-1]].strip() for row in rows] if gaps else []
    filled = [cell for cell in before if cell]
    is_column = 2 * len(filled) > len(rows) and any(cell not in _MARKS for cell in filled)
    return gaps[-1] if is_column else None


def _cuts(
    words: Sequence[tuple[int, int]], rows: Sequence[str], *, are_columns: bool = False
) -> list[int] | None:
    """For each gap between words of the header the place at which the fewest rows have a character, the
    last of several. A single space is a gap only if few rows have a character there, cells stand on both
    sides of it, and those on one side begin or end with their word. `are_columns`: each word is one."""
    stray, broken = _STRAY * len(rows), _BROKEN * len(rows)
    filled = _filled(rows)
    cuts = []
    for (first, end), (start, last) in pairwise(words):
        count, place = min((filled[at] if at < len(filled) else 0, -at) for at in range(end, start))
        if are_columns:
            if count > broken:
                return None
        elif start - end == 1:
            if count > stray and _is_next(start, rows):
                place = -start
            elif count > _SHIFTED * len(rows) or not _is_gap(first, end, start, last, rows):
                continue
        elif count > broken:
            return None
        cuts.append(-place)
    return cuts


def _filled(rows: Sequence[str]) -> list[int]:
    """How many rows have a character at each place."""
    steps = [0] * (max(map(len, rows), default=0) + 1)
    for row in rows:
        for word in _WORD.finditer(row):
            steps[word.start()] += 1
            steps[word.end()] -= 1
    return list(accumulate(steps))


def _is_gap(first: int, end: int, start: int, last: int, rows: Sequence[str]) -> bool:
    """Whether the space between the words of the header from `first` to `end` and from `start` to `last`
    parts two columns. Cells that are too wide shift those behind them in a few rows."""
    rows = [row for row in rows if not row[end:start].strip()]
    right = [row for row in rows if row[start:last].strip()]
    left = [row for row in rows if row[first:end].strip()]
    # `1kB / 2kB` under `NET I/O` is one cell.
    if not left or not right or all(row[start : start + 2] == "/ " for row in right):
        return False
    sides = (
        (left, sum(_begins(row, first) for row in left)),
        (left, sum(_ends(row, end) for row in left)),
        (right, sum(_begins(row, start) for row in right)),
        (right, sum(_ends(row, last) for row in right)),
    )
    return any(count >= 0.9 * len(under) for under, count in sides)


def _is_next(start: int, rows: Sequence[str]) -> bool:
    """Whether cells one character wider than their word stand before the place, and cells begin behind it."""
    return sum(not row[start : start + 1].strip() and _begins(row, start + 1) for row in rows) >= 0.9 * len(
        rows
    )


def _begins(row: str, at: int) -> bool:
    return not row[max(0, at - 1) : at].strip() and row[at : at + 1].strip() != ""


def _ends(row: str, at: int) -> bool:
    return not row[at : at + 1].strip() and row[at - 1 : at].strip() != ""


def _is_aligned(header: str, made: Printed, rows: Sequence[str]) -> bool:
    """Whether cells begin or end where the words of the header do. Some columns, such as addresses with a
    port, are centred: no cell of them reaches into another column."""
    starts = [made.start, *made.cuts]
    ends = [*made.cuts, max(map(len, rows))]
    stray, filled = _STRAY * len(rows), _filled(rows)
    good = clean = 0
    for start, end in zip(starts, ends, strict=True):
        name = header[start:end]
        left = start + len(name) - len(name.lstrip())
        right = start + len(name.rstrip())
        cells = [(start, row[start:end]) for row in rows if row[start:end].strip()]
        begins = sum(at + len(cell) - len(cell.lstrip()) == left for at, cell in cells)
        finish = sum(at + len(cell.rstrip()) == right for at, cell in cells)
        if not name.strip() or (cells and max(begins, finish) >= _ALIGNED * len(cells)):
            good += 1
        else:
            edges = (start, end) if end < ends[-1] else (start,)
            clean += all(filled[at] <= stray for at in edges if at < len(filled))
    return 2 * good >= len(starts) and good + clean >= _ALIGNED * len(starts)
