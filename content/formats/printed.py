"""Tables that programs print for people: columns under a header, or between bars, by the width of a
terminal."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from unicodedata import combining, east_asian_width

_LEAST_ROWS = 3
_LEAST_COLUMNS = 3
_ALIGNED = 0.7
_STRAY = 0.02
_BROKEN = 0.3
_SAMPLED = 2000
_WORD = re.compile(r"\S+")
# `1K-blocks` is the name of a column, `12K` is not.
_NO_NAME = re.compile(r"\d(?!\S*[A-Za-z]{4})")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?[-=+]{2}[-=+:| \t]*")
_GAPPED_RULE = re.compile(r"(?:-{2,}|={2,})(?: +(?:-{2,}|={2,}))+\s*")
_BOX_RULE = re.compile(r"\s*[┌├└╔╠╚╒╞╘╭╰┏┡┗┠─━═╪┼│|+][─━═┄╌┬┼┴╤╪╧╦╬╩┯┿┷┳╇┻╂┤├┐┘╗╝╡╮╯┓┩┛│+\-=]{3,}\s*")
_BARS = str.maketrans("│┃║", "|||")
_FOOTER = re.compile(
    r"\s*(?:\(\d[\d,]* rows?(?: affected)?\)|\d[\d,]* rows? (?:in set|selected|returned|affected)\b.*"
    r"|Rows?: \d[\d,]*|Time: .*|\d[\d,]* record\(s\) selected\.?)\s*",
    re.IGNORECASE,
)
_CROSSINGS = frozenset("|+┼│├┌╔╠┬╬╪")
_MARKS = frozenset("●○*×>→!✗✓•↻")


class Printed(NamedTuple):
    """`first` is the line of the header, `body` the first below it and its rule. `cuts` are the places, in
    cells of a terminal, at which columns end, none between bars. `start` is the place of the first column.
    `is_split`: cells are words, and the last column has the rest."""

    first: int
    body: int
    names: Sequence[str]
    cuts: Sequence[int] = ()
    start: int = 0
    has_bars: bool = False
    is_split: bool = False

    def rows(self, lines: Sequence[str]) -> Iterator[list[str]]:
        """The rows below the header, to the end of the table."""
        below = lines[self.body : self.end(lines)]
        if self.is_split:
            return (line.split(None, len(self.names) - 1) for line in below)
        return self._between_bars(below) if self.has_bars else (self._cut(line) for line in below)

    def end(self, lines: Sequence[str]) -> int:
        """The line after the last of the table: a blank line or a footer ends it."""
        at = self.body
        while at < len(lines) and lines[at].strip() and not _FOOTER.fullmatch(lines[at]):
            if self.has_bars and "|" not in lines[at].translate(_BARS) and not is_rule(lines[at]):
                break
            at += 1
        return at

    def _between_bars(self, lines: Sequence[str]) -> Iterator[list[str]]:
        width, row = len(self.names), list[str]()
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


def _goes_on(line: str) -> bool:
    """psql prints + before the bar, or at the end of the line, where a cell goes on."""
    return bool(re.search(r"\+ *(?:\||$)", line))


def is_rule(line: str) -> bool:
    return bool(_RULE.fullmatch(line) or _BOX_RULE.fullmatch(line))


def cells_between_bars(line: str, width: int | None = None) -> list[str]:
    """The cells of a row. A bar behind a backslash belongs to its cell. An outer bar ends no cell."""
    text = line.translate(_BARS).strip()
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
    parts = []
    for char in line:
        if combining(char) or char in "\u200b\u200d\ufe0f":
            continue
        parts.append(f"{char}\0" if east_asian_width(char) in "WF" else char)
    return "".join(parts)


def printed_in(lines: Sequence[str]) -> Printed | None:
    """The table that begins in the first lines, None if there is none. `lines` are the first of it, or
    all."""
    top = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    return _barred(lines, top) or _ruled(lines, top) or _aligned(lines, top) or _in_words(lines, top)


def barred_tables(lines: Sequence[str]) -> Iterator[Printed]:
    """The tables between bars that stand in a text, each with a rule below or above its header."""
    at = 0
    while at < len(lines):
        if _CROSSINGS.isdisjoint(lines[at]) or not is_rule(lines[at]):
            at += 1
            continue
        top = at - 1 if at and "|" in lines[at - 1].translate(_BARS) else at
        made = _barred(lines, top)
        if made is not None:
            yield made
        at = made.end(lines) if made is not None else at + 1


def _barred(lines: Sequence[str], top: int) -> Printed | None:
    """Bars between the cells, and a rule below or above the header."""
    first = top
    while first < len(lines) and is_rule(lines[first]):
        first += 1
    if first >= len(lines):
        return None
    header = lines[first].translate(_BARS)
    has_rule = first > top or (first + 1 < len(lines) and is_rule(lines[first + 1]))
    inside = bars(header.strip().strip("|"))
    if not has_rule or not inside:
        return None
    body = first + 1
    while body < len(lines) and is_rule(lines[body]):
        body += 1
    names = cells_between_bars(header)
    if not header.strip().startswith("|"):
        names = [cell.strip() for cell in re.split(r"(?<!\\)\|", header)]
    made = Printed(first, body, names, has_bars=True)
    rows = [line for line in lines[body : made.end(lines)] if not is_rule(line)]
    fits = sum(bars(line.translate(_BARS)) == bars(header) for line in rows)
    return made if rows and fits >= 0.9 * len(rows) else None


def _ruled(lines: Sequence[str], top: int) -> Printed | None:
    """A rule below the header with a gap between any two columns."""
    if len(lines) < top + _LEAST_ROWS or not _GAPPED_RULE.fullmatch(lines[top + 1].rstrip()):
        return None
    header, rule = spread(lines[top]), lines[top + 1]
    starts = [one.start() for one in _WORD.finditer(rule)]
    if any(header[at - 1 : at].strip() for at in starts[1:]) or not header.strip():
        return None
    cuts = [at - 1 for at in starts[1:]]
    names = [
        header[a:b].replace("\0", "").strip()
        for a, b in zip([starts[0], *cuts], [*cuts, len(header)], strict=True)
    ]
    return Printed(top, top + 2, names, cuts, starts[0])


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
    end = Printed(top, body, ()).end(lines)
    rows = [spread(line) for line in lines[body : min(end, body + _SAMPLED)] if line.strip()]
    if len(rows) < _LEAST_ROWS or set(header.split()) & {word for row in rows[:8] for word in row.split()}:
        return None
    cuts = _cuts(words, rows)
    if cuts is None:
        return None
    starts = [words[0][0], *cuts]
    names = [header[a:b].replace("\0", "").strip() for a, b in zip(starts, [*cuts, len(header)], strict=True)]
    made = Printed(top, body, names, cuts, words[0][0])
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
    if len(rows) < _LEAST_ROWS or set(header.split()) & {word for row in rows[:8] for word in row.split()}:
        return None
    return made if sum(_is_near(words, row) for row in rows) >= 0.95 * len(rows) else None


def _is_near(words: Sequence[re.Match[str]], row: str) -> bool:
    cells = list(_WORD.finditer(row))
    return len(cells) >= len(words) and all(
        cell.start() <= word.end() + _NEAR and cell.end() >= word.start() - _NEAR
        for word, cell in zip(words, cells, strict=False)
    )


def _cuts(words: Sequence[tuple[int, int]], rows: Sequence[str]) -> list[int] | None:
    """For each gap between words of the header the place at which the fewest rows have a character, the
    last of several. A single space is a gap only if no row has one there and cells begin, or end, with the
    word behind it."""
    stray, broken = _STRAY * len(rows), _BROKEN * len(rows)
    cuts = []
    for (_, end), (start, last) in pairwise(words):
        filled = [(sum(row[at : at + 1].strip() != "" for row in rows), -at) for at in range(end, start)]
        count, place = min(filled)
        if start - end == 1:
            under = [row for row in rows if row[start:last].strip()]
            begins = sum(
                row[start - 1 : start] == " " and row[start : start + 1].strip() != "" for row in under
            )
            ends = sum(
                row[last : last + 1].strip() == "" and row[last - 1 : last].strip() != "" for row in under
            )
            if count > stray or not under or max(begins, ends) < 0.9 * len(under):
                continue
        elif count > broken:
            return None
        cuts.append(-place)
    return cuts


def _is_aligned(header: str, made: Printed, rows: Sequence[str]) -> bool:
    starts = [made.start, *made.cuts]
    ends = [*made.cuts, max(map(len, rows))]
    good = 0
    for start, end in zip(starts, ends, strict=True):
        name = header[start:end]
        left = start + len(name) - len(name.lstrip())
        right = start + len(name.rstrip())
        cells = [(start, row[start:end]) for row in rows if row[start:end].strip()]
        begins = sum(at + len(cell) - len(cell.lstrip()) == left for at, cell in cells)
        finish = sum(at + len(cell.rstrip()) == right for at, cell in cells)
        good += bool(cells) and max(begins, finish) >= _ALIGNED * len(cells)
    return good >= _ALIGNED * len(starts)
