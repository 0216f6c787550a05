"""digest: what the data of a result begins and ends with, below `about`, in few bytes."""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from content.describe import about
from content.formats import sheets
from content.formats.hidden_parts import hidden_spans, without
from content.formats.json import parsed_head
from content.formats.log import gravity
from content.formats.markup import TAG
from content.formats.table import dialect_in
from content.kind import Kind
from content.source import Source
from content.text import ABOUT_SAMPLE_BYTES, ABOUT_TAIL_BYTES, clip, cut_head

MAX_BYTES = 500
"""The contract's bound of what stands below `about`."""

_LINE_CHARS = 160
_CELL_CHARS = 48
_TEXT_CHARS = 320
_FIRST, _LAST = 40, 12
"""Lines of the beginning and of the end that may be shown: 500 bytes hold no more."""

_SCANNED = 64 << 10
"""The bytes of the beginning that are looked at."""

_LAST_SHARE = 0.35
_MARKER_BYTES = 24
_GAP_BYTES = len("\n…".encode())
_LEAST_BYTES = 40
_CONTROL = dict.fromkeys((*range(10), *range(11, 32), *range(127, 160)))
"""All but the end of a line."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Lines of the beginning and of the end of the data, which do not overlap, and the header above them.
    `is_all`: nothing is left out between them."""

    first: Sequence[str]
    last: Sequence[str] = ()
    header: str = ""
    is_all: bool = False


def digest(source: Source, max_bytes: int = 1024, *, names_arguments: bool = False) -> str:
    """Returns `about` and, after a blank line, at most 500 bytes more; at most `max_bytes` together. Raises
    nothing."""
    above = about(source, max_bytes, names_arguments=names_arguments).translate(_CONTROL)
    room = min(MAX_BYTES, max_bytes - len(above.encode()) - 2)
    if room < _LEAST_BYTES:
        return above
    ends = _OF_KIND.get(source.format.kind, _lines)(source)
    below = _fitted(ends, room, above)
    return f"{above}\n\n{below}" if below else above


_MARKS = re.compile(r"\s*[|,;\t]\s*")


def _fitted(ends: Ends, room: int, above: str) -> str:
    """The lines that fit, those of the end in about a third of the room."""
    first, last = list(map(_clean, ends.first)), list(map(_clean, ends.last))
    if first:
        first[:1] = _untitled(first[0], above)
    top: list[str] = []
    # The columns may stand above already.
    if ends.header and _MARKS.sub(",", ends.header) not in _MARKS.sub(",", above):
        room = _take(top, [_clean(ends.header)], room - _GAP_BYTES) + _GAP_BYTES
    between = [] if ends.is_all or not last else ["…"]
    size = sum(len(line.encode()) + 1 for line in (*first, *between, *last))
    if size <= room:
        return "\n".join((*top, *first, *between, *last))
    bottom: list[str] = []
    room -= _MARKER_BYTES
    left = _take(bottom, reversed(last), int(room * _LAST_SHARE))
    _take(top, first, room - int(room * _LAST_SHARE) + left)
    return "\n".join((*top, "…", *reversed(bottom)))


def _untitled(line: str, above: str) -> list[str]:
    """The line without its beginning, if that is the title that stands above."""
    titles = (one.partition("” · ")[0].removesuffix("”") for one in above.split("\n") if one.startswith("“"))
    title = next(titles, "")[1:].removesuffix("…")
    if line == title:
        return []
    return [f"…{line[len(title) :]}"] if len(title) > _CELL_CHARS and line.startswith(title) else [line]


def _take(fitting: list[str], lines: Iterable[str], room: int) -> int:
    """Adds the lines that fit to `fitting`, the last of them cut. Returns the room left."""
    for line in lines:
        size = len(line.encode()) + 1
        if size > room:
            if room > _LEAST_BYTES:
                fitting.append(cut_head(line.encode(), room - 4).decode() + "…")
                room = 0
            return room
        fitting.append(line)
        room -= size
    return room


def _clean(line: str) -> str:
    """Without control characters and lone surrogates, which JSON may name."""
    return " ".join(line.translate(_CONTROL).encode("utf-8", "replace").decode().split())


def _split_ends(lines: Sequence[str], header: str = "") -> Ends:
    """The lines are all of the data."""
    first, last = lines[:_FIRST], lines[_FIRST:][-_LAST:]
    return Ends(first, last, header, len(lines) <= _FIRST + _LAST)


# Lines of text.

_DIGITS = re.compile(r"\d+")


def _tail_lines(source: Source) -> list[bytes]:
    """The last whole lines behind the beginning."""
    if source.is_whole or not source.is_verbatim:
        return []
    return source.tail.split(b"\n")[1:]


_CELL = re.compile(rb"[\s*-]*%b\s*[:=|\t]\s*(.*)" % sheets.CELL)
_CELLS_SHARE = 0.8


def _lines(source: Source) -> Ends:
    """The lines, or the rows of a sheet whose cells are lines."""
    lines = list(filter(bytes.strip, source.data[:_SCANNED].split(b"\n")))
    is_sheet = sum(map(bool, map(_CELL.match, lines))) >= _CELLS_SHARE * max(1, len(lines))
    render = _sheet_rows if is_sheet else _folded
    first = list(render(lines))
    if source.is_whole and len(source.data) <= _SCANNED:
        return _split_ends(first)
    rest = _tail_lines(source) or source.data[_SCANNED:][-ABOUT_TAIL_BYTES:].split(b"\n")[1:]
    return Ends(first[:_FIRST], list(render(rest))[-_LAST:])


def _sheet_rows(lines: Iterable[bytes]) -> Iterator[str]:
    """Lines of single cells, such as `B7: 12`, joined to rows; other lines as they are."""
    for number, group in groupby(lines, key=lambda line: cell[1] if (cell := _CELL.match(line)) else None):
        if number is None:
            yield from (clip(line, _TEXT_CHARS) for line in group)
        else:
            yield clip(b" | ".join(_CELL.sub(rb"\2", line).strip() for line in group), _TEXT_CHARS)


def _folded(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines that are not blank; of those in a row that differ only in their numbers the first, and their
    number. The last line of all is shown."""
    texts = filter(None, (clip(line, _TEXT_CHARS) for line in lines))
    groups = [list(group) for _, group in groupby(texts, key=lambda line: _DIGITS.sub("0", line))]
    for group in groups:
        first, *others = group
        last = others[-1:] if group is groups[-1] else []
        others = others[: len(others) - len(last)]
        yield first
        yield from others if len(others) < 2 else [f"… {len(others):,} more lines like it"]
        yield from last


def _log(source: Source) -> Ends:
    """The gravest lines, each kind of them once, then the last ones."""
    lines = [line for line in source.data[:_SCANNED].split(b"\n") if line.strip()]
    last = [clip(line, _LINE_CHARS) for line in (_tail_lines(source) or lines)[-3:] if line.strip()]
    kinds: dict[str, tuple[int, int, str]] = {}
    for place, line in enumerate((*lines, *_tail_lines(source))):
        rank = gravity(line)
        if rank is not None:
            text = clip(line, _LINE_CHARS)
            kinds.setdefault(_DIGITS.sub("0", text), (rank, place, text))
    gravest = sorted(kinds.values())[:_FIRST]
    texts = [text for _, _, text in gravest if text not in last]
    return Ends(texts or [clip(line, _LINE_CHARS) for line in lines[:3]], last)


def _table(source: Source) -> Ends:
    """The first and last rows under the header."""
    data = source.data.lstrip(b"\r\n")
    dialect = dialect_in(source)
    above = max(dialect.first, 1)
    lines = data[:_SCANNED].split(b"\n")
    header = clip(dialect.header or lines[above - 1], _LINE_CHARS)
    rows = [clip(line, _LINE_CHARS) for line in lines[above:] if line.strip()]
    if source.is_whole and len(data) <= _SCANNED:
        return _split_ends(rows, header)
    rest = _tail_lines(source) or data[-4096:].split(b"\n")[1:]
    return Ends(rows[:_FIRST], [clip(row, _LINE_CHARS) for row in rest if row.strip()][-_LAST:], header)


def _outline(source: Source) -> Ends:
    """What source code defines, or which files a diff changes."""
    part = Source(source.data[:ABOUT_SAMPLE_BYTES], source.tool_name, source.path)
    items = islice(source.format.outline(part), _FIRST)
    names = [one if isinstance(one, str) else one[1] for one in items]
    return Ends(names, is_all=len(part.data) == len(source.data)) if names else _lines(source)


_BEGINS = re.compile(rb"<(?:main|article|h1)\b", re.IGNORECASE)
_BODY = re.compile(rb"<body\b[^<>]{0,300}>", re.IGNORECASE)
_BREAKS = re.compile(
    rb"</?(?:h[1-6]|p|div|section|article|table|tr|ul|ol|li|pre|form|br|dt|dd)\b[^<>]{0,300}>", re.IGNORECASE
)
_WORD = re.compile(r"\w")
_CELLS = re.compile(rb"</t[hd]\s*>\s*(?=<t[hd])", re.IGNORECASE)


def _page(source: Source) -> Ends:
    """The text of a page from its first heading on, without what no reader sees."""
    data = source.data[:_SCANNED]
    data = without(hidden_spans(data), data, 0, len(data))
    begin = _BEGINS.search(data) or _BODY.search(data)
    data = data[begin.start() if begin else 0 :]
    return Ends(list(islice(_texts_of(data), _FIRST)), is_all=source.is_whole and len(data) < _SCANNED)


def _texts_of(markup: bytes) -> Iterator[str]:
    """The lines of text in markup; a line that was there is not shown again."""
    marked = _BREAKS.sub(b"\n", _CELLS.sub(b" | ", markup.replace(b"\n", b" ")))
    seen = set()
    for line in TAG.sub(b"", marked).split(b"\n"):
        text = html.unescape(clip(line, _TEXT_CHARS)).strip(" |")
        if _WORD.search(text) and text not in seen:
            seen.add(text)
            yield text


def _xml(source: Source) -> Ends:
    """The texts of an XML document."""
    texts = TAG.sub(b"\n", source.data[:_SCANNED]).split(b"\n")
    return Ends([clip(line, _LINE_CHARS) for line in texts if line.strip()][:_FIRST])


# Values of JSON.

Rows = Sequence[dict[str, object]]

_DEEPEST = 4
_ITEMS = 60
_COLUMNS = 40
_PART = 16 << 10


def _json(source: Source) -> Ends:
    data = source.data
    is_all = source.is_whole and len(data) <= _SCANNED
    value, _ = parsed_head(data if is_all else data[:_PART])
    if value is None:
        return _lines(source)
    return _ends_of(value, () if is_all else _last_elements(source), is_all=is_all)


def _last_elements(source: Source) -> Rows:
    """The last elements of the list that ends the data, if they begin within what is known of the end."""
    if not source.is_verbatim and not source.is_whole:
        return []
    text = source.tail[-ABOUT_TAIL_BYTES:].decode("utf-8", "ignore")
    for begin in islice(re.finditer(r"\{", text), _ITEMS):
        elements, at = _elements_from(text, begin.start())
        if elements and not text[at:].strip(" \t\r\n]},"):
            return elements[-_LAST:]
    return []


_DECODE = json.JSONDecoder().raw_decode
_BETWEEN = re.compile(r"\s*,\s*(?=\{)")


def _elements_from(text: str, at: int) -> tuple[Rows, int]:
    """The objects from `at` on, with commas between them, and where they end."""
    elements: list[dict[str, object]] = []
    while True:
        try:
            value, at = _DECODE(text, at)
        except (ValueError, RecursionError):
            return [], at
        elements.append(value)
        comma = _BETWEEN.match(text, at)
        if comma is None:
            return elements, at
        at = comma.end()


def _records(source: Source) -> Ends:
    """The first and last records as the rows of a table."""
    data = source.data
    lines = [line for line in data[:_SCANNED].split(b"\n") if line.strip()]
    is_all = source.is_whole and len(data) <= _SCANNED
    first = _parsed(lines[:_FIRST])
    last = _parsed((lines[_FIRST:] if is_all else _tail_lines(source))[-_LAST:])
    if not first:
        return _json(source)
    ends = _table_ends(first, last, is_all=True)
    return replace(ends, is_all=is_all and len(lines) <= _FIRST + _LAST)


def _parsed(lines: Iterable[bytes]) -> Rows:
    records: list[dict[str, object]] = []
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            records.append(value)
    return records


def _ends_of(value: object, last: Rows = (), *, is_all: bool = True) -> Ends:
    """A table as its rows, an object as its members with the longest table in it as rows. `last` are rows
    behind those of the value, which is only a beginning unless `is_all`."""
    rows = sheets.table_of(value) or _objects(value)
    if rows is not None:
        return _table_ends(rows, last, is_all=is_all)
    if isinstance(value, dict):
        table, rest = _longest_table(value)
        if table is not None:
            ends = _table_ends(table, last, is_all=is_all)
            beside = _flat(
                {key: item for key, item in rest.items() if not isinstance(item, list)}, _LINE_CHARS
            )
            first = [one for one in (beside, ends.header) if one]
            return Ends([*first, *ends.first], ends.last, is_all=ends.is_all)
        return Ends([_flat(value)], is_all=is_all)
    if isinstance(value, list):
        texts = [_text_of(item, _LINE_CHARS) for item in value[:_ITEMS]]
        ending = [_text_of(item, _LINE_CHARS) for item in value[_ITEMS:][-_LAST:]]
        if max(map(len, texts), default=0) <= _CELL_CHARS:
            texts, ending = [", ".join(texts)], [", ".join(ending)] if ending else []
        return Ends(texts, ending, is_all=is_all and len(value) <= _ITEMS)
    return Ends([_text_of(value, MAX_BYTES)], is_all=is_all)


def _objects(value: object) -> Rows | None:
    if isinstance(value, list) and len(value) > 1 and all(isinstance(one, dict) for one in value):
        return [one for one in value if isinstance(one, dict)]
    return None


def _longest_table(value: dict[str, object], depth: int = 0) -> tuple[Rows | None, dict[str, object]]:
    """The list of the most objects in an object, and the rest of it."""
    best: tuple[int, str, Rows, dict[str, object] | None] | None = None
    for key, item in islice(value.items(), _ITEMS):
        rows, rest = _objects(item), None
        if rows is None and isinstance(item, dict) and depth < _DEEPEST:
            rows, rest = _longest_table(item, depth + 1)
        if rows is not None and (best is None or len(rows) > best[0]):
            best = len(rows), key, rows, rest
    if best is None:
        return None, value
    _, name, rows, rest = best
    others = {key: rest if key == name else item for key, item in value.items()}
    return rows, {key: item for key, item in others.items() if item not in (None, {}, "")}


def _table_ends(rows: Rows, ending: Rows, *, is_all: bool) -> Ends:
    if not is_all:
        # The last row may be cut.
        rows = rows[:-1] or rows
    # What ends the data may be another list.
    ending = [one for one in ending if rows and 2 * len(one.keys() & rows[0].keys()) >= len(one)]
    first, last = rows[:_FIRST], [*rows[_FIRST:], *ending][-_LAST:]
    names = _columns([*first, *last])
    return Ends(
        [_row(one, names) for one in first],
        [_row(one, names) for one in last],
        " | ".join(names),
        is_all and len(rows) <= _FIRST + _LAST,
    )


def _columns(rows: Rows) -> list[str]:
    """The names of the columns that most of these rows fill, as many as fit on a line."""
    sizes: dict[str, list[int]] = {}
    for row in rows:
        for name, cell in _cells_of(row).items():
            if cell:
                sizes.setdefault(name, []).append(len(cell))
    names, room = list[str](), _LINE_CHARS
    for name, filled in sizes.items():
        if 2 * len(filled) >= len(rows):
            room -= max(sum(filled) // len(filled), len(name) // 2) + len(" | ")
            if room < 0 and names:
                break
            names.append(name)
    return names


def _row(row: dict[str, object], names: Sequence[str]) -> str:
    cells = _cells_of(row)
    return " | ".join(cells.get(name, "") for name in names)


def _cells_of(row: dict[str, object]) -> dict[str, str]:
    """The cells of a record; the members of an object in it as `outer.inner`."""
    cells: dict[str, str] = {}
    for name, item in islice(row.items(), _COLUMNS):
        if isinstance(item, dict):
            cells |= {
                f"{name}.{key}": _text_of(one, _CELL_CHARS) for key, one in islice(item.items(), _COLUMNS)
            }
        else:
            cells[name] = _text_of(item, _CELL_CHARS)
    return cells


def _text_of(value: object, most: int, depth: int = 0) -> str:
    """A value in at most `most` characters, without quotes and braces. Nothing for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clip(_TEXT_TAG.sub("", value[: 8 * most]), most)
    if isinstance(value, dict):
        return _flat(value, most, depth + 1)
    if isinstance(value, list):
        items = value[:_LAST] if depth < _DEEPEST else []
        each = max(_CELL_CHARS, most // max(1, len(items)))
        return clip("; ".join(filter(None, (_text_of(item, each, depth + 1) for item in items))), most)
    return json.dumps(value)


_TEXT_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>")


def _flat(value: dict[str, object], most: int = MAX_BYTES, depth: int = 0) -> str:
    """`key: value, key: value` of what is not empty."""
    items = list(islice(value.items(), _COLUMNS)) if depth < _DEEPEST else []
    each = max(_CELL_CHARS, most // max(1, len(items)))
    texts = ((key, _text_of(item, each, depth)) for key, item in items)
    return clip(", ".join(f"{clip(key, _CELL_CHARS)}: {text}" for key, text in texts if text), most)


_LINK = re.compile(rb"!?\[([^\[\]]{0,300})\]\([^()\s]{0,500}\)")
_LINKS_ALONE = re.compile(rb"[\s*+>|-]*(?:!?\[[^\[\]]{0,300}\]\([^()\s]{0,500}\)[\s|,-]*)+\Z")


def _markdown(source: Source) -> Ends:
    """Lines without the targets of links, and without those that are nothing but links."""
    if b"](" not in source.data[:_SCANNED]:
        return _lines(source)
    lines = source.data[:_SCANNED].split(b"\n")
    texts = [clip(_LINK.sub(rb"\1", line), _TEXT_CHARS) for line in lines if not _LINKS_ALONE.match(line)]
    ends = _split_ends(list(filter(None, texts)))
    if source.is_whole and len(source.data) <= _SCANNED:
        return ends
    return Ends(ends.first, [clip(line, _LINE_CHARS) for line in _tail_lines(source)[-_LAST:]])


_OF_KIND: dict[Kind, Callable[[Source], Ends]] = {
    Kind.JSON: _json,
    Kind.NDJSON: _records,
    Kind.CSV: _table,
    Kind.LOG: _log,
    Kind.HTML: _page,
    Kind.XML: _xml,
    Kind.CODE: _outline,
    Kind.DIFF: _outline,
    Kind.MARKDOWN: _markdown,
    Kind.BINARY: lambda source: Ends(()),
}
"""Any other kind is shown by its lines."""
