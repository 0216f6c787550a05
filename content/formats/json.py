"""JSON and literals of Python: a walk from bracket to bracket, passages with their paths, records, values."""

import json
import re
from collections import deque
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from content.formats import sheets
from content.formats.cuts import AIM, LEAST, MOST, REACH, EdgeFinder, cut, cut_passage, line_end
from content.formats.format import (
    Description,
    Format,
    Part,
    Passage,
    PassageStart,
    Sample,
    SketchForm,
    Whole,
    clipped_columns,
    group_of,
    within,
)
from content.formats.json_tables import (
    cut_off,
    only_data,
    parsed_head,
    tables_of_json,
    tables_of_records,
    tables_of_value,
)
from content.formats.literal import literal_json, value_of
from content.formats.log import STAMP
from content.json_rows import encoded
from content.kind import Kind
from content.source import Source
from content.tables import TablesAndNotes
from content.text import (
    DOUBLE_QUOTED,
    IN_DOUBLE_QUOTES,
    IN_SINGLE_QUOTES,
    SINGLE_QUOTED,
    clip,
    count_of,
)
from domain.errors import NotQueryable

_JSON = re.compile(rb'[\[{]\s*(?:["\[\]{}\d-]|true|false|null|\Z)')
_LITERAL = re.compile(rb"\s*(?:[\[({]\s*[\[({]*\s*['\"]|[\[(]\s*[\[(]\s*-?\d)")
_TUPLES = re.compile(rb"\s*\[\(")
# Members are larger than lines, and shown whole.
_MEMBERS_AIM = 300
_HEAD = 256
_DEEPEST = 64
_LEAST_RECORDS, _RECORDS_SHARE = 5, 0.8
_LONGEST_KEY = 200
_LONGEST_PATH = 200

# More brackets would take too long. Such data is mostly noise or numbers, for which paths are of no use.
_MOST_OPENINGS = 300_000


def _has_too_many_brackets(data: bytes) -> bool:
    return len(data) > _MOST_OPENINGS and sum(map(data.count, _OPENING)) > _MOST_OPENINGS


# The text before a bracket, 1,000 strings at a time: a call of `re` holds the interpreter.
_JSON_RUN = re.compile(rb'(?>(?:[^"{}\[\]]++|%b){0,2000})([{}\[\]]?+)' % DOUBLE_QUOTED, re.DOTALL)
_LITERAL_RUN = re.compile(
    rb"(?>(?:[^\"'{}\[\]()]++|%b|%b){0,2000})([{}\[\]()]?+)" % (DOUBLE_QUOTED, SINGLE_QUOTED), re.DOTALL
)
_STRING = re.compile(rb"%b|%b" % (DOUBLE_QUOTED, SINGLE_QUOTED), re.DOTALL)


_OPENING = (b"{", b"[", b"(")
_COMMA_SIGN = ord(",")


@dataclass(slots=True, eq=False)
class _Open:
    """An open list or object that begins at byte `at`. `member` is its index in the parent, or the place of
    its key. `index` counts the commas in it, as far as its reader counts them."""

    parent: "_Open | None"
    at: int
    member: int | tuple[int, int]
    is_list: bool
    index: int = 0
    path: str | None = None


_Run = tuple[int, int, bytes, int, _Open]
"""The text between two brackets, from where to where; the bracket behind it, b"" at the end; how deep it is,
which may be negative where a walk begins within brackets; and what is open around it."""


def _walk(data: bytes, run: re.Pattern[bytes], start: int = 0, stop: int | None = None) -> Iterator[_Run]:
    """Walks from bracket to bracket. All code that counts, cuts or completes JSON uses this walk. `start` is
    outside every string."""
    stop = len(data) if stop is None else stop
    stack, depth, deeper = [_Open(None, start, 0, is_list=False)], 0, 0
    for match in run.finditer(data, start, stop):
        bracket = match[1]
        if not bracket and match.end() < stop:
            continue
        end, top = match.start(1), stack[-1]
        yield start, end, bracket, depth, top
        if bracket in _OPENING:
            depth += 1
            if len(stack) < _DEEPEST:
                member = top.index if top.is_list else (start, end)
                stack.append(_Open(top, end, member, bracket != b"{"))
            else:
                deeper += 1
        elif bracket:
            depth -= 1
            if deeper:
                deeper -= 1
            elif len(stack) > 1:
                stack.pop()
        start = match.end()


def _is_literal(data: bytes) -> bool:
    return b"(" in data[:3] or b"'" in data[:8]


def _key(data: bytes, start: int, end: int) -> str:
    """The key before the colon that ends at `end`; "" if there is none."""
    tail = data[max(start, end - _LONGEST_KEY) : end].rstrip()
    if tail[-1:] != b":":
        return ""
    tail = tail[:-1].rstrip()
    return " ".join(tail[tail.rfind(tail[-1:], 0, -1) + 1 : -1].decode("utf-8", "replace").split())


# This many members without brackets, with their commas.
_MEMBERS = rb"(?:[^%b,]*+(?>(?:(?:%b)[^%b,]*+)*),){%d}"


_STEPS = (64, 8, 1)
_WHOLE_DOUBLE = rb'"%b"' % IN_DOUBLE_QUOTES
_WHOLE_EITHER = rb"%b|'%b'" % (_WHOLE_DOUBLE, IN_SINGLE_QUOTES)
_FEW_JSON, _FEW_LITERAL = (
    [(step, re.compile(_MEMBERS % (quotes, string, quotes, step), re.DOTALL)) for step in _STEPS]
    for quotes, string in ((b'"', _WHOLE_DOUBLE), (b"\"'", _WHOLE_EITHER))
)
_LINE_END = re.compile(rb"[ \t]*\r?\n")
_PLAIN_KEY = re.compile(r"[\w$][\w$-]*\Z")

# The member that names an object, after other short members. An id is the last choice.
_NAME_BYTES = 512
_VALUE = rb"""(?:%b|%b|[^"'{}\[\],]++|\[[^{}\[\]]*+\]|\{[^{}\[\]]*+\})""" % (DOUBLE_QUOTED, SINGLE_QUOTED)
_NAMED = [
    re.compile(
        rb"""\s*+\{\s*+(?:["'][^"'\\\\]{1,40}["']\s*+:\s*+%b\s*+,\s*+)*?["'](?:%b)["']\s*+:\s*+["']([^"'\\]{1,60})["']"""
        % (_VALUE, keys),
        re.DOTALL,
    )
    for keys in (rb"name|key|path|title", rb"id")
]


class _Member(NamedTuple):
    """A member that begins at byte `at`, `depth` levels deep, in `around`. `number` is its index in a
    list."""

    at: int
    depth: int
    around: _Open
    number: int


class _Passages:
    """Chooses places to cut among the members of a walk. Places before `earliest` are too near to the start
    of the passage."""

    def __init__(self, data: bytes) -> None:
        self.pending: list[_Member] = []
        self.earliest = LEAST
        self._data = data
        self._recent = deque([0])
        is_literal = _is_literal(data)
        self._run = _LITERAL_RUN if is_literal else _JSON_RUN
        self._few = _FEW_LITERAL if is_literal else _FEW_JSON

    def members(self) -> Iterator[_Member]:
        for run in _walk(self._data, self._run):
            start, end, _, depth, around = run
            if end - start > AIM:
                yield from self._long(run)
            elif start < end:
                at = self._short(run)
                if at >= self.earliest:
                    yield _Member(at, depth, around, around.index)

    def _short(self, run: _Run) -> int:
        """Returns where a member begins in the run, 0 if no member begins there: the member that opens after
        the run, or the member after the one that closed before the run."""
        data, (start, end, bracket, _, around) = self._data, run
        if end - start <= 2 and data[start] == _COMMA_SIGN:
            around.index += 1
            return end
        if bracket in _OPENING:
            if around.is_list:
                text = data[start:end]
                around.index += (_STRING.sub(b"", text) if b'"' in text or b"'" in text else text).count(b",")
            comma = data.rfind(b",", start, end)
            if comma >= 0:
                return comma + 1
        if data[start] == _COMMA_SIGN:
            return start + 1
        # JSON documents that follow each other.
        return data.find(b"\n", start, end) + 1 if around.parent is None else 0

    def _long(self, run: _Run) -> Iterator[_Member]:
        """Yields members of a long run, many small ones at a time."""
        at, end, _, depth, around = run
        while at < end:
            for count, pattern in self._few:
                match = pattern.match(self._data, at, end if count == 1 else min(end, at + AIM))
                if match:
                    break
            else:
                return
            at = match.end()
            around.index += count
            if at >= self.earliest:
                yield _Member(at, depth, around, around.index)

    def next(self, last: PassageStart) -> PassageStart:
        """Returns the place after the last place."""
        start = last.at
        inside = [one for one in self.pending if LEAST <= one.at - start <= MOST]
        if inside:
            best = min(inside, key=lambda one: (one.depth, abs(one.at - start - _MEMBERS_AIM)))
            line_end = _LINE_END.match(self._data, best.at, start + MOST)
            at = line_end.end() if line_end else best.at
            self.pending = [one for one in self.pending if one.at > at]
            return PassageStart(at, self._path(best), self._opened([best], at))
        at = cut_passage(self._data, start)
        passed = [one for one in self.pending if one.at <= at]
        self.pending = [one for one in self.pending if one.at > at]
        return PassageStart(
            at, self._path(passed[-1]) if passed else last.path, self._opened(passed[-1:], at)
        )

    def _opened(self, members: list[_Member], at: int) -> int:
        """Returns the first place that is known to be outside every string, at most REACH + MOST bytes before
        `at`; or -1."""
        recent = self._recent
        recent.extend(member.at for member in members)
        while recent and at - recent[0] > REACH + MOST:
            recent.popleft()
        return recent[0] if recent else -1

    def _path(self, member: _Member) -> str:
        path = self._around(member.around)
        if member.around.is_list:
            path += self._element(member.at, member.number)
        if len(path) > _LONGEST_PATH:
            path = "…" + path[-_LONGEST_PATH:]
        return "$" + path if path else ""

    def _around(self, around: _Open) -> str:
        if around.path is None:
            place = around.member
            step = self._element(around.at, place) if isinstance(place, int) else self._step(*place)
            around.path = self._around(around.parent) + step if around.parent else ""
        return around.path

    def _element(self, at: int, number: int) -> str:
        """The element of a list that begins at byte `at`: by its name if it has one, else by its number."""
        for pattern in _NAMED:
            if name := pattern.match(self._data, at, at + _NAME_BYTES):
                return f'["{" ".join(name[1].decode("utf-8", "replace").split())}"]'
        return f"[{number}]"

    def _step(self, start: int, end: int) -> str:
        key = _key(self._data, start, end)
        return f".{key}" if _PLAIN_KEY.match(key) else f'["{key}"]' if key else ""


_STEP = re.compile(r'(?:\.[\w$-]+|\["[^"]*"\]|\[\d+\])\Z')
_GRID = re.compile(rb'\[\s*+\[((?:\s*+"[^"\\]{1,100}"\s*+,){1,60}\s*+"[^"\\]{1,100}"\s*+)\]')
_GRID_BYTES = 4096
_LEAD = 32
_LIST = ord("[")


class _Bracketed(NamedTuple):
    """A list, tuple or object from its opening bracket to past its closing one. `is_element`: it is an
    element of a list."""

    start: int
    end: int
    is_list: bool
    is_element: bool

    @property
    def is_record(self) -> bool:
        return self.is_element or not self.is_list


def record_around(data: bytes, passage: Passage) -> Whole:
    """Returns the smallest record around the whole passage, preferably an element of a list. Without such a
    record, completes the records that begin or end in the passage."""
    spans = list(_containers(data, passage))
    start, end = _completed(passage, spans)
    around = [one for one in spans if one.start <= start and end <= one.end and one.end - one.start <= REACH]
    if records := [one for one in around if one.is_element] or [one for one in around if one.is_record]:
        smallest = min(records, key=lambda one: one.end - one.start)
        start, end = smallest.start, smallest.end
    cells = _row_of_cells(data, start, end, spans)
    start, end = within(passage, *cells)
    is_row = data[start : start + _LEAD].lstrip()[:1] == b"["
    # The first row of a list of rows, if it holds text alone.
    grid = _GRID.search(data, 0, _GRID_BYTES) if is_row and start > _GRID_BYTES else None
    return Whole(start, end, _path(passage, start, spans), columns=clipped_columns(grid[1]) if grid else "")


def _containers(data: bytes, passage: Passage) -> Iterator[_Bracketed]:
    """The records that begin at or after the opening of the passage, and end at most REACH bytes after it, in
    the order of their ends."""
    pattern = _LITERAL_RUN if _is_literal(data) else _JSON_RUN
    for _, end, bracket, _, around in _walk(
        data, pattern, passage.opened, min(len(data), passage.end + REACH)
    ):
        if bracket and bracket not in _OPENING and around.parent is not None:
            is_value = data[max(0, around.at - _LEAD) : around.at].rstrip().endswith(b":")
            yield _Bracketed(around.at, end + 1, data[around.at] == _LIST, not is_value)


def _completed(passage: Passage, spans: list[_Bracketed]) -> tuple[int, int]:
    short = [one for one in spans if one.is_record and one.end - one.start <= MOST]
    start = min(
        (one.start for one in short if one.start < passage.start < one.end < passage.end),
        default=passage.start,
    )
    end = max(
        (one.end for one in short if passage.start < one.start < passage.end < one.end), default=passage.end
    )
    return within(passage, start, end)


def _row_of_cells(data: bytes, start: int, end: int, spans: list[_Bracketed]) -> tuple[int, int]:
    """Extends records of single cells to their rows."""
    cells = {
        (one.start, one.end): address[1]
        for one in sorted(spans)
        if not one.is_list
        and (address := sheets.CELL_OBJECT.search(data, one.start, min(one.end, one.start + MOST)))
    }
    rows = [row for (at, until), row in cells.items() if start <= at and until <= end]
    if not rows:
        return start, end
    before = [at for (at, until), row in cells.items() if until <= start and row == rows[0]]
    after = [until for (at, until), row in cells.items() if at >= end and row == rows[-1]]
    return min((start, *before)), max((end, *after))


def _path(passage: Passage, start: int, spans: list[_Bracketed]) -> str:
    """The path of the record that begins at `start`, from the one of the first member in the passage."""
    inside = [one for one in spans if start <= one.start < passage.start < one.end]
    path = passage.path
    for _ in range(len(inside) - (not max(inside).is_list) if inside else 0):
        path = _STEP.sub("", path)
    return path


_QUOTE = re.compile(rb'\\.|"', re.DOTALL)
_COMMA = re.compile(rb"%b|,([ \t]*+\r?\n)?" % DOUBLE_QUOTED, re.DOTALL)
_BEFORE_STRING, _AFTER_STRING = {b"{", b"[", b",", b":"}, {b",", b":", b"]", b"}"}
_VOTERS = 100
_GAP = 16


def _member(window: bytes, low: int, wished: int, high: int) -> int:
    """Returns a place between two members of the outermost JSON array or object that has such a place."""
    start = _out_of_string(window)
    levels: dict[int, list[tuple[int, int]]] = {}
    for first, last, _, depth, _ in _walk(window, _JSON_RUN, start) if start >= 0 else ():
        if first > high:
            break
        if last >= low and first < last:
            levels.setdefault(depth, []).append((first, last))
    for _, runs in sorted(levels.items()):
        places = [place for run in runs for place in _members(window, *run) if low <= place <= high]
        if places:
            return min(places, key=lambda place: abs(place - wished))
    return 0


def _members(window: bytes, first: int, last: int) -> Iterator[int]:
    """Yields the places in a run at which members begin, or at which a line ends between two values."""
    if window[first - 1 : first] in (b"}", b"]") and window[last : last + 1] in (b"{", b"["):
        between = window[first:last]
        if b"\n" in between and between.isspace():
            yield first + between.rfind(b"\n") + 1
    for comma in _COMMA.finditer(window, first, last):
        if window[comma.start()] == _COMMA_SIGN:
            yield comma.end()


def _out_of_string(window: bytes) -> int:
    """Returns the first place outside every JSON string, -1 if unknown. Quotes open and close alternately;
    the characters next to a quote show which it does."""
    matches = (match for match in _QUOTE.finditer(window) if match[0] == b'"')
    quotes = [quote.start() for quote in islice(matches, _VOTERS)]
    if not quotes:
        return -1 if b"\\" in window else 0
    votes = [0, 0]
    for index, quote in enumerate(quotes):
        before = window[max(0, quote - _GAP) : quote].rstrip()[-1:]
        after = window[quote + 1 : quote + 1 + _GAP].lstrip()[:1]
        votes[index % 2] += (before in _BEFORE_STRING) - (after in _AFTER_STRING)
    if votes[0] < votes[1]:
        return quotes[0] + 1
    # A backslash belongs to a string that ends before the first of these quotes.
    return quotes[0] if b"\\" in window[: quotes[0]] else 0


def json_places(data: bytes) -> Iterator[PassageStart]:
    """Yields the outermost places between LEAST and MOST bytes apart; without any, cuts as in text."""
    place = PassageStart(0, "", 0)
    walk = _Passages(data)
    for member in walk.members():
        while member.at - place.at > MOST:
            yield place
            place = walk.next(place)
            walk.earliest = place.at + LEAST
        if member.at >= walk.earliest:
            walk.pending.append(member)
    while len(data) - place.at > MOST:
        yield place
        place = walk.next(place)
    yield place


# What the value is.

_WHOLE = 256 << 10
_PART = 16 << 10
_ELEMENTS = {
    b"{": "object", b'"': "string", b"[": "array", b"t": "boolean", b"f": "boolean", b"n": "null"
}  # fmt: skip
_MOST_ELEMENTS = 100
_COMPARED = 12
_MOST_STEPS = 4
_NESTED = 12
_INNER_BYTES = 110
_STRINGS = re.compile(DOUBLE_QUOTED, re.DOTALL)
_ADJACENT = re.compile(rb"\}\s*\{|\]\s*\[")
_NEXT_ON_LINE = re.compile(rb'\}[ \t]*+\{[ \t]*+"(?=[^"\n]{0,200}"[ \t]*:)')
_RECORD_LINE = re.compile(rb'^\{[ \t]*"[^\n]*\}[ \t\r]*$', re.MULTILINE)
_RECORD = re.compile(rb'\{\s*".*\}\s*\Z|\[.*\]\s*\Z')


class JsonFormat(Format):
    kind = Kind.JSON
    noun = "JSON"
    sketch_form = SketchForm.VALUE
    syntax = "JSON"
    finds: tuple[EdgeFinder, ...] = (_member,)
    # Passages of JSON with too many brackets for a walk.
    passage_finds = ()

    def matches(self, sample: Sample) -> bool:
        # A log may begin with a bracket and a date too.
        return _JSON.match(sample.head) is not None and STAMP.match(sample.head) is None

    def shape(self, source: Source) -> Description:
        data = source.data
        if source.is_whole and len(data) <= _WHOLE:
            try:
                return _described(msgspec.json.decode(data, type=Raw))
            except (msgspec.DecodeError, RecursionError):
                pass
        value, _ = parsed_head(data[:_PART])
        counts = _counted(data) if source.is_whole else ()
        return _described_head(value, counts)

    def outline(self, source: Source) -> Iterator[str]:
        value, is_whole = parsed_head(source.data)
        if value is not None:
            yield from _lines_of("" if is_whole else "(cut off) ", value, 0)

    def places(self, data: bytes) -> Iterator[PassageStart]:
        if _has_too_many_brackets(data):
            return super().places(data)
        return json_places(data)

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        if passage.opened >= 0:
            return record_around(data, passage)
        return Whole(passage.start, passage.end, passage.path)

    is_lines = False

    def value(self, source: Source) -> object:
        documents = _documents(source.take_text())
        return documents[0] if len(documents) == 1 else documents

    def tables(self, source: Source) -> TablesAndNotes:
        return tables_of_json(source)

    def tables_part(self, source: Part) -> Part:
        return source

    def row_noun(self, source: Source) -> str:
        return "JSON"


def _are_most_bytes(head: bytes) -> bool:
    """True for several records that make up nearly all of the bytes, such as records below a request."""
    records = [*filter(_RECORD.match, head.split(b"\n"))]
    return len(records) >= _LEAST_RECORDS and sum(map(len, records)) >= _RECORDS_SHARE * len(head)


class RecordsFormat(JsonFormat):
    kind = Kind.NDJSON
    is_records = True
    noun = "JSON lines"
    sketch_form = SketchForm.RECORDS
    syntax = "NDJSON"

    def matches(self, sample: Sample) -> bool:
        """Records, one on each line, with few other lines between or before them; or documents that follow
        each other."""
        lines, is_json = sample.lines, _JSON.match(sample.head) is not None
        if STAMP.match(sample.head) or not (is_json or b"{" in sample.head):
            return False
        if not is_json and b"\n{" in sample.head and _are_most_bytes(sample.head):
            return True
        if not is_json and not _RECORD.match(next((line for line in lines if line[:1] == b"{"), b"")):
            return False
        records = len([*filter(_RECORD.match, lines)])
        return (records >= 2 and records >= 0.8 * len(lines)) or (is_json and _has_documents(sample.head))

    def shape(self, source: Source) -> Description:
        """Counts records by their opening brackets: other lines may be between them, and a line may have
        several."""
        data = source.data
        bracket = b"{" if data.lstrip()[:1] != b"[" else b"["
        keys: dict[str, Raw] = {}
        records: list[dict[str, bytes]] = []
        below = _RECORD_LINE.search(source.head)
        start = below.start() if below else max(0, data.find(bracket))
        for members in _first_documents(data[start : start + _PART]):
            keys |= members
            records.append({key: bytes(raw) for key, raw in members.items()})
        counts = []
        if source.is_whole:
            count = data.count(b"\n" + bracket) + data.startswith(bracket) + len(_NEXT_ON_LINE.findall(data))
            counts.append(count_of(count, "record"))
            if b"\n" + bracket not in data[:_PART] and b"}{" in data[:_PART]:
                counts = []
        names = _names(keys)
        group = group_of(names, records)
        return Description("JSON lines", counts, names, " with keys " if keys else "", group=group)

    def outline(self, source: Source) -> Iterator[str]:
        shape = self.shape(source)
        yield from shape.counts
        data = source.data
        types: dict[str, str] = {}
        for value in _first_documents(data[max(0, data.find(b"{")) :][:_PART]):
            if isinstance(value, dict):
                types |= {
                    key: _type(msgspec.json.decode(item)) for key, item in value.items() if key not in types
                }
        yield from (f"  {clip(key, _KEY_CHARS)}: {kind}" for key, kind in list(types.items())[:_KEYS])

    def boundary(self, data: bytes, low: int, wished: int, high: int) -> int:
        return cut(data, low, wished, high, (line_end, _member))

    def value(self, source: Source) -> object:
        return _records(source.take_text())

    def tables(self, source: Source) -> TablesAndNotes:
        return tables_of_records(source)


class LiteralFormat(JsonFormat):
    """A list of tuples or another literal of Python, as clients of databases print it."""

    kind = Kind.TEXT
    is_doubtful = True
    is_written = True
    noun = "plain text"
    sketch_form = SketchForm.TEXT
    syntax = "Python"
    has_structure = False
    finds = ()

    def matches(self, sample: Sample) -> bool:
        return _LITERAL.match(sample.head[:_HEAD]) is not None

    def shape(self, source: Source) -> Description:
        data = source.data
        if not _TUPLES.match(data):
            return Description("Python literal", title=clip(data[:80]))
        count = f" of {count_of(data.count(b'), (') + 1, 'tuple')}" if source.is_whole else " of tuples"
        return Description(f"Python list{count}", title=clip(data[:80]), group="column_1")

    def outline(self, source: Source) -> Iterator[str]:
        yield from ()

    def value(self, source: Source) -> object:
        return value_of(source.take_text())

    def tables(self, source: Source) -> TablesAndNotes:
        if source.is_whole:
            return tables_of_value(encoded(self.value(Source(source.data))))
        text = source.data.decode("utf-8", "ignore")
        return only_data(tables_of_value(encoded(cut_off(literal_json(text)))))

    def tables_part(self, source: Part) -> Part:
        return Format.tables_part(self, source)

    def row_noun(self, source: Source) -> str:
        return "Python literal"


def _has_documents(head: bytes) -> bool:
    """True if a document follows another with only white space in between."""
    if not _ADJACENT.search(head):
        return False
    bare = _STRINGS.sub(b'""', head)
    between = _ADJACENT.search(bare)
    return between is not None and bare.count(b"{", 0, between.start() + 1) == bare.count(
        b"}", 0, between.start() + 1
    )


def _first_documents(data: bytes) -> Iterator[dict[str, Raw]]:
    """At most five records of a beginning that may be cut; the values of their members are not decoded."""
    lines = [line for line in data.split(b"\n", 12)[:12] if line[:1] in (b"{", b"[")][:5]
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=dict[str, Raw])
        except (msgspec.DecodeError, RecursionError):
            value, _ = parsed_head(data[: data.find(b"\n}") + 2] if line.strip() == b"{" else line)
            if isinstance(value, dict):
                yield {key: Raw(encoded(item)) for key, item in value.items()}
            if line.strip() == b"{":
                return


def _described(raw: Raw) -> Description:
    """`248 objects with keys id, name`, or `object with keys total, items; items: 248 objects with …`."""
    data = bytes(raw)
    table = sheets.rows_in(data)
    if table is not None:
        names = list(table[0]) if table else []
        counts = [count_of(len(table), "row"), count_of(len(names), "column")]
        return Description("JSON", counts, names, group=group_of(names, _scalars(table)))
    title = _title(data)
    if data[:1] != b"{":
        count, names, rows = _value(data)
        group = group_of(names, rows)
        return Description("JSON", [count], names, " with keys " if names else "", title=title, group=group)
    members = msgspec.json.decode(data, type=dict[str, Raw])
    path, inside = _most_of(data)
    if path:
        count, names, rows = _value(inside)
        keys = f"object with keys {_few(members)}; {clip('.'.join(path), 60)}: {count}"
        group = group_of(names, rows) if inside[:1] == b"[" else ""
        return Description("JSON", [keys], names, " with keys " if names else "", title=title, group=group)
    if not members:
        return Description("JSON", ["empty object"])
    return Description("JSON", ["object"], _names(members), " with keys ", title=title)


def _most_of(data: bytes) -> tuple[list[str], bytes]:
    """Returns the keys that lead to the list or object that makes up most of an object, and that value."""
    path: list[str] = []
    while data[:1] == b"{" and len(path) < _MOST_STEPS:
        members = msgspec.json.decode(data, type=dict[str, Raw])
        largest = max(members, key=lambda name: len(bytes(members[name])), default="")
        inside = bytes(members[largest]) if largest else b""
        if 2 * len(inside) <= len(data) or inside[:1] not in (b"[", b"{"):
            break
        path.append(largest)
        data = inside
    return path, data


class _Value(NamedTuple):
    """What a list or an object is, the keys of its first element, and the first rows of objects."""

    noun: str
    names: list[str] = []  # noqa: RUF012
    rows: list[dict[str, bytes]] = []  # noqa: RUF012


def _value(data: bytes, deeper: int = 1) -> _Value:
    if data[:1] == b"[":
        items = msgspec.json.decode(data, type=list[Raw])
        elements = {_ELEMENTS.get(bytes(item)[:1], "number") for item in items[:_MOST_ELEMENTS]}
        if not items:
            return _Value("empty array")
        if len(elements) != 1:
            return _Value(f"array of {len(items):,}")
        counted = count_of(len(items), *elements)
        if elements == {"object"}:
            first, *others = (msgspec.json.decode(item, type=dict[str, Raw]) for item in items[:_COMPARED])
            rows = [{key: bytes(raw) for key, raw in members.items()} for members in (first, *others)]
            return _Value(counted, _names(first), rows)
        if deeper and elements == {"array"}:
            inner = _value(bytes(items[0]), 0)
            return inner._replace(noun=f"array of {counted}; first: {inner.noun}")
        return _Value(f"array of {counted}")
    members = msgspec.json.decode(data, type=dict[str, Raw])
    return _Value("object", _names(members)) if members else _Value("empty object")


def _names(members: dict[str, Raw]) -> list[str]:
    """Returns the keys of a record; those of a small inner object as `outer.inner`."""
    names = []
    for name, raw in members.items():
        item = bytes(raw)
        if item[:1] == b"{" and len(item) < 16 * 1024:
            inner = msgspec.json.decode(item, type=dict[str, Raw])
            if 0 < len(inner) <= _NESTED and all(
                bytes(one)[:1] not in (b"{", b"[") for one in inner.values()
            ):
                names += [f"{name}.{key}" for key in inner]
                continue
        names.append(name)
    return names


def _few(names: Collection[str]) -> str:
    """Returns the names that fit. No name is cut."""
    fitting: list[str] = []
    room = _INNER_BYTES
    for name in names:
        name = clip(name, 60)
        room -= len(name.encode("utf-8", "replace")) + 2
        if room < 0 and fitting:
            return ", ".join((*fitting, "…"))
        fitting.append(name)
    return ", ".join(fitting)


def _title(data: bytes) -> str:
    """The title or name of an object."""
    if data[:1] != b"{":
        return ""
    members = msgspec.json.decode(data, type=dict[str, Raw])
    values = (bytes(members[name]) for name in ("title", "name") if name in members)
    titles = (clip(msgspec.json.decode(one, type=str).encode()) for one in values if one[:1] == b'"')
    return next(filter(None, titles), "")


def _described_head(value: object, counts: Collection[tuple[str, str]]) -> Description:
    """The shape of a value whose beginning is known; `counts` are those of all of it, if they are known."""
    sizes = dict(counts)
    if isinstance(value, list):
        rows = _rows(value)
        many = sizes.get("", "")
        noun = "objects" if rows else "elements"
        count = f"{many} {noun}" if many else f"array{' of objects' if rows else ''}"
        group = group_of(rows, _scalars(value)) if rows else ""
        return Description("JSON", [count], rows, " with keys " if rows else "", group=group)
    if isinstance(value, dict):
        inner = max(_arrays_in(value), key=lambda one: len(one[1]), default=None)
        arrays = [
            f"{key}: {size} items"
            for key, size in sizes.items()
            if key and (inner is None or key != inner[0])
        ]
        keys = f"object with keys {_few([*value, *(() if sizes else ('…',))])}"
        if inner is None:
            return Description("JSON", [keys, *arrays[:8]])
        size = sizes.get(inner[0])
        count = f"{inner[0]}: " + (f"{size} objects" if size else "array of objects")
        names = _rows(inner[1])
        summary = ["; ".join((keys, *arrays[:8], count))]
        return Description("JSON", summary, names, " with keys ", group=group_of(names, _scalars(inner[1])))
    return Description("JSON")


def _arrays_in(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The arrays of objects in an object and in objects in it, with the keys that lead to them."""
    for key, item in value.items():
        if isinstance(item, list) and _rows(item):
            yield path + key, item
        elif isinstance(item, dict) and path.count(".") < _MOST_STEPS - 1:
            yield from _arrays_in(item, f"{path}{key}.")


def _scalars(rows: list[dict[str, Any]]) -> list[dict[str, Hashable]]:
    """Returns the first rows, without nested values."""
    return [
        {key: cell for key, cell in row.items() if not isinstance(cell, dict | list)}
        for row in rows[:_COMPARED]
    ]


def _rows(items: list[Any]) -> list[str]:
    """The keys of the first of a list of objects."""
    if not items or not isinstance(items[0], dict) or not all(isinstance(item, dict) for item in items):
        return []
    return _names(msgspec.json.decode(encoded(items[0]), type=dict[str, Raw]))


def _counted(data: bytes) -> list[tuple[str, str]]:
    """The number of members of the outermost value, under "", and of each named array in it; nothing where
    counting would take more than a second."""
    if _has_too_many_brackets(data):
        return []
    arrays: list[tuple[str, str]] = []
    for start, end, bracket, depth, around in _walk(data, _JSON_RUN):
        if 0 < depth <= 2:
            around.index += _STRINGS.sub(b"", data[start:end]).count(b",")
        if not bracket or bracket in _OPENING or depth > 2:
            continue
        members = around.index + (around.index > 0 or bool(data[around.at + 1 : end].strip()))
        if depth <= 1:
            return [("", f"{members:,}"), *arrays] if depth == 1 else []
        if around.is_list and isinstance(around.member, tuple) and (name := _key(data, *around.member)):
            arrays.append((name, f"{members:,}"))
    return []


_DEPTH = 3
_KEYS = 24
_KEY_CHARS = 60
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def _lines_of(label: str, value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}{label}{_type(value)}"
    if depth == _DEPTH:
        return
    if isinstance(value, dict):
        for key in list(value)[:_KEYS]:
            yield from _lines_of(f"{clip(key, _KEY_CHARS)}: ", value[key], depth + 1)
        if len(value) > _KEYS:
            yield f"{indent}  … {len(value) - _KEYS} more keys"
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        yield from _lines_of("first item: ", value[0], depth + 1)


def _type(value: object) -> str:
    if isinstance(value, dict):
        return f"object with {len(value)} keys"
    if isinstance(value, list):
        return f"array of {len(value)}"
    return _TYPES[type(value)]


# The value.

_NO_SPACE = re.compile(r"[^ \t\r\n]")


def _records(text: str) -> object:
    # Read as one array, the records share the strings of their keys: half the memory.
    lines = list(filter(str.strip, text.split("\n")))
    try:
        return json.loads("[" + ",".join(lines) + "]", parse_constant=_null)
    except (ValueError, RecursionError):
        pass
    # Other lines may be between the records, and a request with JSON of its own above them.
    below = dropwhile(lambda line: not _is_record(line), lines)
    records = [line for line in below if line[:1] in ("{", "[")]
    if 0 < len(records) < len(lines) and all(map(_is_record, records)):
        return _documents("\n".join(records))
    return _documents(text)


def _is_record(line: str) -> bool:
    return _RECORD.match(line.encode("utf-8", "replace")) is not None


def _documents(text: str) -> list[object]:
    """Parses JSON documents with only white space between them."""
    decode = json.JSONDecoder(parse_constant=_null).raw_decode
    documents: list[object] = []
    at = 0
    try:
        while begin := _NO_SPACE.search(text, at):
            value, at = decode(text, begin.start())
            documents.append(value)
    except json.JSONDecodeError as error:
        raise _malformed(f"is not well-formed at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed("is nested too deeply") from None
    except ValueError:
        raise _malformed("holds a number with too many digits") from None
    return documents


def _null(constant: str) -> None:
    """Reads NaN and Infinity, which JSON does not have, as null."""


def _malformed(what: str) -> NotQueryable:
    return NotQueryable(f"The result looks like JSON, but {what}. Use `lines` or `pattern`.")
