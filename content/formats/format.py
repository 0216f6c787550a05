"""What a format of text does: recognises and describes data, cuts it, completes a passage, and reads
values."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeVar

from content.formats.cuts import AIM, LEAST, REACH, EdgeFinder, cut, cut_passage
from content.kind import Kind
from content.source import Source
from content.tables import Readers, TablesAndNotes, table_of_lines
from content.text import cut_head
from domain.errors import NotQueryable


@dataclass(frozen=True, slots=True)
class Description:
    """What a text is. `noun` is the kind in words, `counts` how much there is of what, `names` all of its
    columns or keys after `naming`, `facts` what else is known, `title` its title or first line. `group` is
    the column by which its rows are best counted, "" where it has no rows."""

    noun: str
    counts: Sequence[str] = ()
    names: Sequence[str] = ()
    naming: str = ": "
    facts: Sequence[str] = ()
    title: str = ""
    group: str = ""


_A_GROUP = re.compile(
    r"(?:^|[_. ])(?:status|state|level|severity|type|kind|category|categories|group|class|role|method|country"
    r"|language|brand|department)$|(?<=[a-z])(?:Status|State|Level|Severity|Type|Kind|Category|Group|Class|Role)$",
    re.IGNORECASE,
)
_AN_ID = re.compile(r"(?:^|[_. ])(?:id|index|key|uuid|no|nr|number|url)$|Id$", re.IGNORECASE)


def group_of(names: Sequence[str], rows: Sequence[Mapping[str, Hashable]] = ()) -> str:
    """Returns the column whose name says that many rows share its values, else a column that does so in
    `rows`, else the first; "" without columns."""
    usual = (name for name in names if _A_GROUP.search(name))
    others = [name for name in names if not _AN_ID.search(name)]
    values = {name: Counter(row[name] for row in rows if name in row) for name in others}
    shared = (name for name, counts in values.items() if 1 < 2 * len(counts) <= counts.total())
    return next(chain(usual, shared, others, names), "")


class Passage(NamedTuple):
    """Bytes `start` to before `end` of the data, on its lines `line` to `last_line` (1-based). `path` is the
    place in the structure, or "". `opened` is a place from which its brackets can be matched, -1 if
    unknown."""

    start: int
    end: int
    line: int
    last_line: int
    path: str
    opened: int = -1


class PassageStart(NamedTuple):
    """The start of a passage at byte `at`. `path` is its place in the structure. `opened` is a byte, at most
    REACH + MOST bytes before, from which the brackets of JSON can be matched; -1 if unknown."""

    at: int
    path: str
    opened: int = -1


Mark = tuple[int, int, str]
"""The start of a section: offset, level, title. Only headings have a level above 0, which is shown."""


class Whole(NamedTuple):
    """Bytes `start` to before `end`, under `path`. `header` is the span of the lines before `start` that name
    the columns of the table; `columns` names them where they are no lines of their own."""

    start: int
    end: int
    path: str
    header: tuple[int, int] | None = None
    columns: str = ""


class SketchForm(Enum):
    """How a sketch shows data; `content/sketch.py` has a function for each."""

    TEXT = auto()
    """By a row if it has one table and no other, by its headings if it has three, else by its lines."""
    LINES = auto()
    """By its first and last lines."""
    VALUE = auto()
    """By the keys and values of one JSON document."""
    RECORDS = auto()
    """By the keys and values of JSON lines."""
    TABLE = auto()
    """By a row under the names of its columns."""
    OUTLINE = auto()
    """By its outline."""
    LOG = auto()
    PAGE = auto()
    BINARY = auto()


_LINES = 60
TABLES_BYTES = 4 << 10

Part = TypeVar("Part", bound=Source)
"""A source, and a part of it, which is of the same class."""


class Sample:
    """The first 8 KiB of a source, in which its format is looked for."""

    def __init__(self, source: Source) -> None:
        self.whole_head = source.head
        self.head = source.head.lstrip()
        self.tool_name, self.path = source.tool_name, source.path
        self.lines = list(filter(bytes.strip, self.head.split(b"\n", _LINES)[:_LINES]))
        if len(source.data) > len(source.head) and len(self.lines) > 2 and len(self.lines) < _LINES:
            # The last line is cut.
            del self.lines[-1]

    def share(self, pattern: re.Pattern[bytes]) -> float:
        """Returns the share of the lines that begin with a match."""
        return len([*filter(pattern.match, self.lines)]) / max(1, len(self.lines))

    def reaches(self, pattern: re.Pattern[bytes], share: float) -> bool:
        """True if at least that share of the lines match. Ends when the first lines have decided."""
        lines = self.lines
        first = len(lines) - int(share * len(lines)) + 1
        found = len([*filter(pattern.match, lines[:first])])
        if found and found / len(lines) < share:
            found += len([*filter(pattern.match, lines[first:])])
        return bool(lines) and found / len(lines) >= share

    @cached_property
    def first_line(self) -> bytes:
        return self.head.partition(b"\n")[0]


class Format:
    """A format of text. The methods here are those of plain text; a format overrides the ones that differ."""

    kind: Kind
    noun: str
    """Completes the sentence "The data is …"."""
    syntax = "data"
    """Completes the sentence "This is not well-formed …"."""
    finds: tuple[EdgeFinder, ...] = ()
    """Finds places to cut, the best kind first."""
    passage_finds: tuple[EdgeFinder, ...] | None = None
    """Finds places to cut into passages; None: the same as `finds`."""
    has_structure = True
    """False if its outline does not help to find a place in it again."""
    is_lines = True
    """True if SQL reads its lines, False if SQL reads its `value`."""
    is_records = False
    """True if its lines are records, so that lines next to a record say nothing about it."""
    is_doubtful = False
    """True if the format is recognised by little: the file name may correct it, and text in it may have other
    formats."""
    is_written = False
    """True if people write this format, and read it as it is."""
    sketch_form = SketchForm.TEXT
    """How a sketch shows it."""
    has_row_in_sketch = True
    """False if the sketch does not show the columns of `data`, so that its line of tables names them."""
    is_taken_for_output = False
    """True if what a command prints begins like this format now and then."""

    def matches(self, sample: Sample) -> bool:
        raise NotImplementedError

    def shape(self, source: Source) -> Description:
        raise NotImplementedError

    def outline(self, source: Source) -> Iterator[str | tuple[int, str]]:
        """Lines; pairs of a 0-based row of the data and a text, which get the number of the line there."""
        yield from ()

    def headings(self, source: Source) -> Iterator[tuple[int, str]]:
        """What a match is shown below: pairs of a 0-based row of the data and a text."""
        yield from ()

    def marks(self, data: bytes) -> Iterable[Mark]:
        return ()

    def boundary(self, data: bytes, low: int, wished: int, high: int) -> int:
        """Returns a good place to cut from `low` to `high`, near `wished`."""
        return cut(data, low, wished, high, self.finds)

    def next_place(self, data: bytes, start: int) -> int:
        """Returns the end of the passage that begins at `start`."""
        finds = self.finds if self.passage_finds is None else self.passage_finds
        return cut_passage(data, start, finds)

    def places(self, data: bytes) -> Iterator[PassageStart]:
        """Yields the starts of passages."""
        at = 0
        around: list[tuple[int, str]] = []
        for mark, level, title in chain(self.marks(data), ((len(data), 0, ""),)):
            # A section that is too short is joined with the next.
            while at < mark and (mark - at >= LEAST // 2 or mark == len(data)):
                yield PassageStart(at, _path(around))
                is_short = mark < len(data) and mark - at <= AIM + LEAST
                at = mark if is_short else min(self.next_place(data, at), mark)
            around = [*(outer for outer in around if outer[0] < level), (level, title)]

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        """What the passage is shown with, at most REACH bytes: its record or row, and the sentences around it
        if `has_sentences`. Reads a few kilobytes around the passage, and at most 4 MiB before it for the
        header of a table."""
        start, end = lines_around(data, passage)
        return Whole(start, end, passage.path)

    def value(self, source: Source) -> object:
        """Raises NotQueryable."""
        columns = ", ".join(("line", "text", *self.of_lines(source)))
        raise NotQueryable(
            f"The result is {self.noun}, which JMESPath cannot read. Use `pattern`, `lines`, `extract`, or "  # noqa: S608
            f"`query` with SELECT … FROM data, whose columns are {columns}."
        )

    def of_lines(self, source: Source) -> Readers:
        """What SQL reads of each line besides its text."""
        return {}

    def tables(self, source: Source) -> TablesAndNotes:
        """What SQL reads besides the lines as they are. Raises ValueError, RecursionError, csv.Error and
        NotQueryable if the data is not well-formed."""
        readers = self.of_lines(source)
        return ((table_of_lines(source, readers),) if readers else ()), ()

    def tables_part(self, source: Part) -> Part:
        """The part of the data of which a sketch describes the tables: what takes a millisecond."""
        return source.beginning(TABLES_BYTES)

    def row_noun(self, source: Source) -> str:
        """What the sketch calls data that it shows by a row."""
        return self.noun


class OutlinedFormat(Format):
    """A format whose outline has the headings of its text."""

    def headings(self, source: Source) -> Iterator[tuple[int, str]]:
        return ((one[0], one[1].strip()) for one in self.outline(source) if not isinstance(one, str))


def _path(around: list[tuple[int, str]]) -> str:
    """Returns the titles around a place. Each heading keeps its marks."""
    if not around:
        return ""
    level = around[-1][0]
    return ("#" * level + " " if level > 0 else "") + " › ".join(title for _, title in around if title)


def by_row(data: bytes, found: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the texts with the rows of their offsets. Offsets must increase."""
    row = done = 0
    for at, text in found:
        row += data.count(b"\n", done, at)
        done = at
        yield row, text


def within(passage: Passage, start: int, end: int) -> tuple[int, int]:
    return (start, end) if end - start <= REACH else (passage.start, passage.end)


def lines_around(data: bytes, passage: Passage) -> tuple[int, int]:
    return within(passage, line_start(data, passage.start), line_end(data, passage.end - 1))


def line_start(data: bytes, at: int) -> int:
    """Returns the start of the line; `at` if the start is more than REACH bytes before."""
    newline = data.rfind(b"\n", max(0, at - REACH), at)
    return newline + 1 if newline >= 0 or at <= REACH else at


def line_end(data: bytes, at: int) -> int:
    newline = data.find(b"\n", at, at + REACH)
    return newline + 1 if newline >= 0 else min(len(data), at + REACH)


_COLUMNS_BYTES = 300


def clipped_columns(text: bytes) -> str:
    return " ".join(cut_head(text, _COLUMNS_BYTES).decode("utf-8", "replace").split())
