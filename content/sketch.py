"""sketch: the shape of the data with real values. It says nothing of what was not looked at."""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from content.describe import natural_language_of
from content.formats.code import CodeFormat, definitions_in_order, source_noun
from content.formats.format import SketchForm
from content.formats.hidden_parts import hidden_spans, without
from content.formats.json_tables import parsed_head
from content.formats.log import GRAVEST, ends, level_of, levels_of_lines
from content.formats.markup import TAGS_BETWEEN, WHOLE_TAG, page_headings
from content.json_rows import JsonRows, encoded
from content.json_shape import json_shape_of, shape_of_rows
from content.layout import Layout, layout_of
from content.source_text import SourceText
from content.tables import LINES, Column, Table, spelled
from content.text import SAMPLE_BYTES, clip, count_of, cut_head

MAX_BYTES = 700

_SCANNED = 64 << 10
"""The bytes of a page that are looked at for text."""

_CODE_BYTES = 32 << 10
"""The most of source code in which definitions are looked for."""

_KEYED = (SketchForm.VALUE, SketchForm.RECORDS)
"""They show the keys of rows that are objects."""

_LINE, _LONG_LINE = 150, 220
_CELL_WIDTHS = (60, 40, 24, 14, 8)
_NOTE = 160
_VALUED_COLUMNS = 4
_FIRST_RECORDS = 24
_MOST_TEXTS, _TEXTS_BYTES = 80, 8 << 10
_HEADING, _FEW_HEADINGS = 60, 3
_MOST = 200
_LEAST = 40
_END_LINES = 5
_TABLES_BYTES = 180
_MOST_GRAVE = 3
_MOST_LEVELS = 5

_EXIT = re.compile(
    rb"(?i)(?:exit(?:ed|ing)?[ _-]?(?:with )?(?:code|status)|return(?:ed)?[ _]?code)\W{0,4}(-?\d{1,5})\b"
)
_FAULT = re.compile(rb"(?i)\b(?:error|fail(?:ed|ure)?|fatal|panic|exception|[A-Za-z.]+(?:Error|Exception):)")
_NUMBERS = re.compile(r"\d+")
_VARYING = re.compile(rb"\d+|'[^']*'|[\w.-]*/[\w./-]+")
_TRACEBACK = b"Traceback (most recent call last)"
_AFTER_TRACE = re.compile(rb"\n(?=\S)([^\n]{1,400})")
_CONTROL = dict.fromkeys((*range(10), *range(11, 32), *range(127, 160)))


class Origin(NamedTuple):
    """Where a text comes from. `is_error`: the client says that it failed. `is_command`: a
    shell's command printed it."""

    is_error: bool = False
    is_command: bool = False


class Sketched(NamedTuple):
    """The origin of the text, and how `query` reads it."""

    origin: Origin
    layout: Layout

    @property
    def data(self) -> Table:
        return self.layout.tables[0]

    @property
    def is_run(self) -> bool:
        """Whether its last lines say most."""
        return self.origin.is_error or self.origin.is_command


def sketch(source: SourceText, max_bytes: int = MAX_BYTES, origin: Origin = Origin()) -> str:  # noqa: B008
    """Returns at most `max_bytes`. Raises nothing. Takes 1 ms for 100 KiB of ordinary text."""
    most = min(max_bytes, MAX_BYTES)
    form = source.format.sketch_form
    part = source.format.tables_part(source)
    layout = layout_of(part)
    if form is SketchForm.TABLE and _goes_on_otherwise(source, part):
        # `data` are the lines where several tables follow each other. To know that takes all of them.
        *_, lines = layout.tables
        layout = Layout((lines, lines), layout.format)
    lead = [*_lead(source, origin), *(clip(note, _NOTE) for note in layout.notes)]
    last = "" if form is SketchForm.BINARY else _tables_line(layout)
    room = most - sum(_size(line) + 1 for line in (*lead, last))
    body = _OF_FORM[form](source, max(room, _LEAST), Sketched(origin, layout))
    text = "\n".join(filter(None, (*lead, *body))).translate(_CONTROL)
    text = _cut(text, most - _size(last) - 1)
    return _cut(f"{text}\n{last}" if last else text, most)


def _goes_on_otherwise(source: SourceText, part: SourceText) -> bool:
    """Whether a table of which a part is read ends before the text does."""
    if part is source:
        return False
    rest = source.data[len(part.data) :].rstrip()
    return b"\n\n" in rest or b"\n\r\n" in rest


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _cut(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= most else cut_head(data, max(0, most - 3)).decode().rstrip() + "…"


def _lead(source: SourceText, origin: Origin) -> Iterator[str]:
    """Whether it failed, and the language."""
    status = _exit_status(source)
    failed = origin.is_error or (status not in (None, "0"))
    if failed:
        yield "The tool failed" + (f": exit status {status}." if status else ".")
    elif status is not None:
        yield f"Exit status {status}."
    language = natural_language_of(source)
    if language:
        yield f"Mostly {language}."
    if "\ufffd" in source.head.decode("utf-8", "ignore"):
        yield "Some characters could not be decoded (\ufffd)."


def _exit_status(source: SourceText) -> str | None:
    """The status that a client or a shell wrote into the first or last lines."""
    if source.format.sketch_form is SketchForm.BINARY:
        return None
    ends = source.tail[-2000:], source.stored[:2000]
    if not any(word in end for end in map(bytes.lower, ends) for word in (b"exit", b"return")):
        return None
    last = ends[0].rstrip().split(b"\n")[-_END_LINES:]
    first = ends[1].lstrip().split(b"\n")[:_END_LINES]
    found = [one for line in (*reversed(last), *first) if (one := _EXIT.search(line[:400]))]
    return found[0][1].decode() if found else None


# What `query` has.


def _tables_line(layout: Layout, room: int = _TABLES_BYTES) -> str:
    """Names and counts of the tables; the columns of those that the sketch does not show."""
    data, *others, lines = layout.tables
    tables = [] if data.read is None else [_named(data, has_columns=not _is_shown(data, layout))]
    left = room - sum(map(_size, tables))
    for place, table in enumerate(others):
        text = _named(table, has_columns=_has_own_names(table, layout))
        if _size(text) > left // 2:
            text = _named(table, has_columns=False)
        left -= _size(text) + 2
        if left < 0:
            tables.append(f"… {len(others) - place} more")
            break
        tables.append(text)
    return f"query: {', '.join((*tables, _named(lines)))}"


def _has_own_names(table: Table, layout: Layout) -> bool:
    """Whether the columns of a table of a text or page are named where they stand."""
    return table.is_named and layout.format.sketch_form not in _KEYED and not layout.tables[0].read


def _with_levels(table: Table) -> list[str]:
    """The columns; of a log the levels as the column has them, which need not be those of the text."""
    *names, last = list(_names(table.columns))
    levels = table.columns[-1].values if table.columns[-1].name == last == "level" else ()
    return [*names, f"level such as {', '.join(levels[:_MOST_LEVELS])}"] if levels else [*names, last]


def _named(table: Table, *, has_columns: bool = True) -> str:
    rows = "" if table.rows is None or table.name == LINES else count_of(table.rows, "row")
    where = table.path.removeprefix("$").lstrip(".")
    rows += f" of {where}" if rows and where else ""
    columns = ", ".join(_with_levels(table)) if has_columns else ""
    inside = ": ".join(filter(None, (rows, columns)))
    return f"{table.name}({inside})" if inside else table.name


def _names(columns: Sequence[Column], room: int = _TABLES_BYTES) -> Iterator[str]:
    for column in columns:
        name = spelled(column.name)
        room -= _size(name) + 2
        if room < 0:
            yield "…"
            return
        yield name


def _is_shown(data: Table, layout: Layout) -> bool:
    """Whether the columns stand in the sketch: as keys, or over a row."""
    if layout.format.sketch_form in _KEYED:
        return not (isinstance(data.read, JsonRows) and _is_keyed(data)) or _is_made(data)
    return layout.format.has_row_in_sketch and layout.tables[1].name != "table1"


def _is_keyed(data: Table) -> bool:
    """Whether the keys of an object are the first column."""
    return isinstance(data.read, JsonRows) and data.columns[0].name in ("key", "_key") and not data.read.array


def _is_made(data: Table) -> bool:
    """Whether the rows are not objects in the text, but cells or lists."""
    read = data.read
    is_own = isinstance(read, JsonRows) and not read.array and data.path == "$" and read.size > 1
    return is_own and not _is_keyed(data)


# JSON and rows.


def _json(source: SourceText, room: int, seen: Sketched, prefix: str = "JSON ") -> list[str]:
    if _is_made(seen.data):
        return _rows(seen.data, room, source.format.row_noun(source))
    value, is_whole = _parsed(source)
    if not isinstance(value, dict | list):
        return _lines(source, room, seen)
    return [json_shape_of(value, room, is_whole=is_whole, prefix=prefix)]


def _parsed(source: SourceText) -> tuple[object, bool]:
    if not source.is_whole:
        return parsed_head(source.data[:SAMPLE_BYTES])[0], False
    try:
        return msgspec.json.decode(source.data), True
    except (msgspec.DecodeError, RecursionError):
        return parsed_head(source.data)


def _records(source: SourceText, room: int, seen: Sketched) -> list[str]:
    lines = islice(filter(bytes.strip, source.data[:SAMPLE_BYTES].split(b"\n")), _FIRST_RECORDS)
    rows = []
    for line in lines:
        with suppress(msgspec.DecodeError, RecursionError):
            rows.append(msgspec.json.decode(line))
    if not rows:
        return _json(source, room, seen, "JSON documents, the first: ")
    cut = ", the last is cut off" if _is_cut(source) else ""
    return [shape_of_rows(rows, room, prefix=f"JSON lines{cut}: ")]


def _is_cut(source: SourceText) -> bool:
    """Whether the last record does not end."""
    last = source.tail.rstrip().rpartition(b"\n")[2]
    return last[:1] in (b"{", b"[") and last[-1:] not in (b"}", b"]")


def _table(source: SourceText, room: int, seen: Sketched) -> list[str]:
    if seen.data.read is None:
        return _lines(source, room, seen, source.format.tables_part(source))
    return _rows(seen.data, room, source.format.row_noun(source))


def _rows(data: Table, room: int, noun: str) -> list[str]:
    """The columns over the values of a real row: values before more names."""
    names, row = [spelled(column.name) for column in data.columns], data.sample or ()
    has_names = "" if data.is_named else ", names are ours"
    above = f"{noun}{has_names}; one row of data:"
    room -= _size(above) + 1
    for width in _CELL_WIDTHS:
        cells = [f"{name}: {_cell(value, width)}" for name, value in zip(names, row, strict=False)]
        if _size(text := ", ".join(cells)) <= room:
            return [above, text, *_fit([_values(data.columns)], room - _size(text) - 1)]
    shown = _joined(cells or names, room, ", ")
    return [above, shown]


def _values(columns: Sequence[Column]) -> str:
    """The values of columns that have few."""
    named = (f"{spelled(one.name)} {' | '.join(one.values)}" for one in columns if one.values)
    values = "; ".join(islice(named, _VALUED_COLUMNS))
    return f"values such as: {values}" if values else ""


def _cell(value: object, width: int) -> str:
    if isinstance(value, str):
        # Its spaces stay, so that it is found as it is shown.
        return value if len(value) <= width and value.isprintable() else clip(value, width)
    return "" if value is None else clip(encoded(value), width)


# Logs.


def _log(source: SourceText, room: int, seen: Sketched) -> list[str]:
    """First and last time, levels, tracebacks; the last lines of the gravest kind; the last line."""
    said = ["log"]
    if times := ends(source):
        said.append(f"first time {times[0]}, last {times[1]}")
    counts = levels_of_lines(source.data) if source.is_whole else Counter[str]()
    if counts:
        said.append(", ".join(f"{name} {count:,}" for name, count in counts.most_common(_END_LINES)))
        if without_level := source.lines - counts.total():
            said.append(f"without a level {without_level:,}")
    traces = source.data.count(_TRACEBACK)
    if source.is_whole and traces:
        said.append(f"{traces:,} tracebacks" if traces > 1 else "1 traceback")
    text = "; ".join(said)
    grave = list(_grave(source, counts))
    shown: list[tuple[int, str]] = []
    room -= _size(text)
    traced = _last_trace(source) if traces else ()
    for row, data in [*_last_lines(source, 1), *grave, *traced]:
        line = clip(data, _LONG_LINE)
        if row not in (one[0] for one in shown) and _size(line) + 12 < room:
            room -= _size(line) + 12
            shown.append((row, line))
    return [text, *(_numbered(source, row, line) for row, line in sorted(shown))]


def _grave(source: SourceText, counts: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """The last lines of the gravest level that there is, each kind once."""
    data, seen = source.data, set[bytes]()
    level = next((name for name in GRAVEST if counts[name]), "") if counts else ""
    end = len(data)
    places = {form.encode(): end for form in (level, level.lower(), f" {level[:1]} ")}
    for _ in range(_MOST if level else 0):
        # A form whose last place is still ahead is not looked for again: what there is none of takes longest.
        places = {form: at if at < end else data.rfind(form, 0, end) for form, at in places.items()}
        at = max(places.values())
        if at < 0 or len(seen) == _MOST_GRAVE:
            return
        start, stop = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        line = data[start : stop if stop >= 0 else len(data)]
        end = start
        if level_of(line) == level:
            kind = re.sub(rb"\d+", b"0", line)
            if kind not in seen:
                seen.add(kind)
                yield data.count(b"\n", 0, start), line


def _last_trace(source: SourceText) -> Iterator[tuple[int, bytes]]:
    at = source.data.rfind(_TRACEBACK)
    if at >= 0 and (last := _AFTER_TRACE.search(source.data, at)):
        yield source.data.count(b"\n", 0, last.start(1)), last[1]


# Lines.


def _numbered(source: SourceText, row: int, line: str) -> str:
    if row < 0:
        return line
    return f"{source.stored_line(row)}: {line}" if source.is_verbatim else line


def _last_lines(source: SourceText, count: int) -> list[tuple[int, bytes]]:
    """The last lines that are not blank, with their rows."""
    tail, row = source.tail, source.lines - 1
    found: list[tuple[int, bytes]] = []
    start = end = len(tail) - tail.endswith(b"\n")
    while start and len(found) < count:
        start = tail.rfind(b"\n", 0, end) + 1
        line = tail[start:end]
        # The first line is cut, unless this is all of the data.
        if line.strip() and (start or tail is source.data):
            found.append((row if source.is_verbatim else -1, line))
        row, end = row - 1, start - 1
    return found[::-1]


def _first_lines(source: SourceText, count: int) -> Iterator[tuple[int, bytes]]:
    start = 0
    data = source.data
    for row in range(_MOST):
        end = data.find(b"\n", start)
        line = data[start : len(data) if end < 0 else end]
        if line.strip():
            yield row, line
            count -= 1
        if end < 0 or count <= 0:
            return
        start = end + 1


def _lines(source: SourceText, room: int, seen: Sketched, part: SourceText | None = None) -> list[str]:
    """Headings, or first and last lines; of a command its last lines before the first. `part` tells what the
    text is, if not all of it does."""
    noun = source.format.shape(part or source).noun
    if seen.is_run and source.format.is_taken_for_output:
        # What a command prints begins like one now and then.
        noun = "text"
    last = _last_lines(source, 2)
    faults = _faults(source) if seen.is_run else []
    ending = sorted(dict((*faults, *last)).items())
    below = [_numbered(source, row, clip(line, _LINE)) for row, line in ending]
    left = room - sum(_size(line) + 1 for line in below) - _size(noun) - 20
    above = list(_fitting(source, left, {row for row, _ in ending}))
    if seen.is_run and above and below:
        return [f"{noun}; its last lines:", *below, "its first lines:", *above]
    return [noun, *above, *(["…"] if above and below else []), *below]


def _fitting(source: SourceText, room: int, shown: set[int]) -> Iterator[str]:
    """The first lines; of those that differ only in numbers and names of files the first."""
    kinds = set[bytes]()
    for row, line in _first_lines(source, _MOST):
        kind = _VARYING.sub(b"0", line[:_LONG_LINE])
        if row in shown or kind in kinds:
            continue
        kinds.add(kind)
        text = _numbered(source, row, clip(line, _LINE))
        room -= _size(text) + 1
        if room < 0:
            return
        yield text


def _faults(source: SourceText) -> list[tuple[int, bytes]]:
    """The last lines that tell of a fault, each kind once."""
    if not source.is_whole:
        return []
    data, end = source.data, len(source.data)
    low = max(0, end - SAMPLE_BYTES)
    found: dict[bytes, tuple[int, bytes]] = {}
    for fault in reversed(list(islice(_FAULT.finditer(data, low), _MOST))):
        start, stop = data.rfind(b"\n", 0, fault.start()) + 1, data.find(b"\n", fault.start())
        line = data[start : stop if stop >= 0 else end]
        found.setdefault(_VARYING.sub(b"0", line[:_LONG_LINE]), (data.count(b"\n", 0, start), line))
        if len(found) == _MOST_GRAVE:
            break
    return list(found.values())


def _text(source: SourceText, room: int, seen: Sketched) -> list[str]:
    read, others = seen.data.read, seen.layout.tables[1:]
    if isinstance(read, JsonRows) or (callable(read) and others[0].name == LINES):
        return _rows(seen.data, room, source.format.row_noun(source))
    if seen.is_run:
        return _lines(source, room, seen)
    headings = _headings(source)
    first = list(islice(headings, _FEW_HEADINGS))
    if len(first) < _FEW_HEADINGS:
        return _lines(source, room, seen)
    return [f"headings: {_joined(chain(first, headings), room - 12)}"]


def _headings(source: SourceText) -> Iterator[str]:
    for row, text in islice(source.format.headings(source), _MOST):
        yield _numbered(source, row, clip(text.lstrip("# "), _HEADING))


def _joined(parts: Iterable[str], room: int, mark: str = " · ") -> str:
    """The parts that fit; no more are made."""
    shown: list[str] = []
    for part in parts:
        room -= _size(part) + _size(mark)
        if room < _size("…") and shown:
            shown.append("…")
            break
        shown.append(part)
    return mark.join(shown)


# Pages, code.


def _page(source: SourceText, room: int, seen: Sketched) -> list[str]:
    """Title, headings, and the first sentences of the text."""
    title = source.format.shape(source).title
    above = f"page “{clip(title, 100)}”" if title else "page"
    headings = [text.strip() for _, text in islice(page_headings(source.data), _MOST)]
    heads = f"headings: {_joined(headings[1:], room // 2)}" if len(headings) > 1 else ""
    left = room - _size(above) - _size(heads) - 2
    return [above, heads, *_fit(_texts_of(source), left)]


def _fit(lines: Iterable[str], room: int) -> Iterator[str]:
    for line in lines:
        room -= _size(line) + 1
        if room < 0:
            return
        yield line


_BEGINS = re.compile(rb"<(?:main|article|h1)\b", re.IGNORECASE)
_BODY = re.compile(rb"<body\b[^<>]{0,300}>", re.IGNORECASE)
_WORD = re.compile(r"\w.*\w.*\w")


def _texts_of(source: SourceText) -> Iterator[str]:
    """The lines of text of a page from its first heading on, without what no reader sees."""
    data = source.data[:_SCANNED]
    data = without(hidden_spans(data), data, 0, len(data))
    begin = _BEGINS.search(data) or _BODY.search(data)
    data = data[begin.start() if begin else 0 :][:_TEXTS_BYTES]
    seen = set[str]()
    if len(data) == _TEXTS_BYTES:
        # The last tag may be cut.
        data = data[: data.rfind(b"<") + 1].removesuffix(b"<")
    lines = WHOLE_TAG.sub(b"", TAGS_BETWEEN.sub(b"\n", data)).split(b"\n")
    for line in islice((line for line in lines if len(line) > 3), _MOST_TEXTS):
        text = html.unescape(clip(line, _LONG_LINE)).strip(" |")
        kind = _NUMBERS.sub("0", text)
        if len(text) > 3 and _WORD.search(text) and kind not in seen:
            seen.add(kind)
            yield text


def _outline(source: SourceText, room: int, seen: Sketched) -> list[str]:
    """What source code defines, which files a diff changes, in which files a search found how much."""
    if seen.origin.is_command and source.format.is_taken_for_output:
        return _lines(source, room, seen)
    is_code = isinstance(source.format, CodeFormat)
    most = _CODE_BYTES if is_code else len(source.data) if source.is_whole else SAMPLE_BYTES
    part = SourceText(source.data[:most], source.tool_name, source.path)
    noun = source_noun(source) if is_code else source.format.shape(source).noun
    items = definitions_in_order(part) if is_code else part.format.outline(part)
    shown = (_item(source, one) for one in items)
    rest = ["…"] if is_code and not (source.is_whole and len(source.data) <= most) else []
    found = _joined(chain(shown, rest), room - _size(noun) - 1)
    return [noun, found] if found not in ("", "…") else _lines(source, room, seen)


def _item(source: SourceText, one: str | tuple[int, str]) -> str:
    return one.strip() if isinstance(one, str) else _numbered(source, one[0], clip(one[1].strip(), _HEADING))


_OF_FORM: dict[SketchForm, Callable[[SourceText, int, Sketched], list[str]]] = {
    SketchForm.VALUE: _json,
    SketchForm.RECORDS: _records,
    SketchForm.TABLE: _table,
    SketchForm.LOG: _log,
    SketchForm.PAGE: _page,
    SketchForm.OUTLINE: _outline,
    SketchForm.TEXT: _text,
    SketchForm.LINES: _lines,
    SketchForm.BINARY: lambda source, room, seen: ["binary data"],
}
