"""Markup: pages of HTML and documents of XML."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from itertools import starmap

from content.formats.cuts import MOST, at_ends, at_starts, matches_in_slices
from content.formats.format import (
    TABLES_BYTES,
    Description,
    Format,
    Mark,
    OutlinedFormat,
    Part,
    Passage,
    Sample,
    SketchForm,
    Whole,
    by_row,
    clipped_columns,
    within,
)
from content.formats.page_tables import PageTable, first_page_tables, page_tables
from content.formats.prose import sentences
from content.kind import Kind
from content.source import Source
from content.tables import (
    SAMPLED,
    Column,
    Table,
    TablesAndNotes,
    lines_table,
    sample_of,
    type_of,
    unique,
    without_counts,
)
from content.text import clip

TAG = re.compile(rb"<[^<>]{0,2000}>")
WHOLE_TAG = re.compile(
    rb"<[/!?A-Za-z](?>(?:[^<>\"']{1,2000}+|\"[^\"]{0,2000}+\"|'[^']{0,2000}+'){0,60})>|<[/!?A-Za-z][^<>]{0,2000}>"
)
"""A tag, also one with a bracket in the value of an attribute."""

_HTML = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|div|p|span|table|ul|script|style|h[1-6])\b", re.IGNORECASE
)
_XML = re.compile(rb"<(?:\?xml|!--|!DOCTYPE|[A-Za-z_][\w:.-]*[\s/>])")
_HEADING = re.compile(rb"<(title|h[1-6])\b[^<>]{0,300}>", re.IGNORECASE)
_PAGE_TITLE = re.compile(rb"<(?:title|h[12])\b[^<>]{0,300}>", re.IGNORECASE)
# The number of an item belongs to the item.
_BLOCK_TAG = re.compile(
    rb"<(?<!\d[.)] <)(?:h[1-6]|p|div|section|article|table|tr|ul|ol|li|pre|form|script|style)\b",
    re.IGNORECASE,
)
_TAG_END = re.compile(rb">(?=<)")
_ROOT = re.compile(rb"<([A-Za-z_][\w:.-]{0,60})[\s/>]")
_ELEMENT = re.compile(rb"<([A-Za-z_][\w:.-]{0,100})[\s/>]")
_ELEMENTS = 24
_TITLE = 80
_HEAD = 16 << 10

_OPENING_ROW, _CLOSING_ROW = re.compile(rb"<tr\b", re.IGNORECASE), re.compile(rb"</tr\s*>", re.IGNORECASE)
_TABLE = re.compile(rb"<(/?)table\b", re.IGNORECASE)
_ROW = re.compile(rb"<tr\b[^<>]{0,300}>", re.IGNORECASE)
_ROW_BYTES = 4000
END_OF_CELL = re.compile(rb"</t[hd]\s*>", re.IGNORECASE)
_TABLE_BYTES = 256 << 10
TAGS_BETWEEN = re.compile(
    rb"</?(?:h[1-6]|p|div|section|article|table|tr|td|th|ul|ol|li|pre|form|br|main|header|nav|body)\b[^<>]{0,300}>",
    re.IGNORECASE,
)


def page_headings(data: bytes) -> Iterator[tuple[int, str]]:
    """The title and the headings of a page, each after the name of its tag, and where they begin."""
    for tag in _HEADING.finditer(data):
        yield tag.start(), f"{tag[1].lower().decode()}: {clip(_text_of(data, tag, 600))}"


class HtmlFormat(OutlinedFormat):
    kind = Kind.HTML
    is_written = True
    noun = "an HTML page"
    sketch_form = SketchForm.PAGE
    finds = (at_starts(_BLOCK_TAG),)

    def matches(self, sample: Sample) -> bool:
        return _HTML.match(sample.head) is not None

    def shape(self, source: Source) -> Description:
        """The title is that of the page, else its first heading."""
        head = source.data[:_HEAD]
        tags = sorted(_PAGE_TITLE.finditer(head), key=lambda tag: tag[0][1:2] not in b"tT")
        ends = ((tag.end(), head.find(b"</", tag.end(), tag.end() + 600)) for tag in tags)
        titles = (html.unescape(clip(TAG.sub(b" ", head[start:end]))) for start, end in ends if end > 0)
        return Description("HTML page", title=next(filter(None, titles), ""))

    def outline(self, source: Source) -> Iterator[str | tuple[int, str]]:
        data = source.data
        return by_row(data, page_headings(data)) if _HEADING.search(data) else _elements(data)

    def marks(self, data: bytes) -> Iterator[Mark]:
        for tag in matches_in_slices(_HEADING, data):
            level = 1 if tag[1].lower() == b"title" else int(tag[1][1:])
            if data.find(b"</", tag.end(), tag.end() + 4 * _TITLE) > 0:
                yield tag.start(), level, clip(_text_of(data, tag, 4 * _TITLE), _TITLE)

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        start, end = within(passage, *_table_row(data, passage.start, passage.end))
        if has_sentences:
            start, end = within(passage, *sentences(data, start, end, TAGS_BETWEEN))
        return Whole(start, end, passage.path, columns=_heads_of_cells(data, start))

    def tables(self, source: Source) -> TablesAndNotes:
        read = page_tables if source.is_whole else first_page_tables
        found = tuple(starmap(_of_page, enumerate(read(source.data.decode("utf-8", "replace")), 1)))
        data = lines_table(source)._replace(name="data")
        return without_counts((data, *found) if found else (), source), ()

    def tables_part(self, source: Part) -> Part:
        return source.beginning(TABLES_BYTES, max(0, source.data.find(b"<table")))


def _of_page(number: int, table: PageTable) -> Table:
    columns = tuple(
        Column(name, type_of(row[at] for row in table.rows[:SAMPLED]))
        for at, name in enumerate(unique(table.names))
    )
    sample = sample_of(table.rows, columns)
    return Table(
        f"table{number}", columns, len(table.rows), sample, table.is_named, read=lambda: iter(table.rows)
    )


class XmlFormat(Format):
    kind = Kind.XML
    noun = "XML"
    sketch_form = SketchForm.LINES
    finds = (at_ends(_TAG_END),)

    def matches(self, sample: Sample) -> bool:
        return _XML.match(sample.head) is not None

    def shape(self, source: Source) -> Description:
        root = _ROOT.search(_without_comments(source.data[:_HEAD]))
        return Description("XML", [f"root element {root[1].decode()}"] if root else [])

    def outline(self, source: Source) -> Iterator[str]:
        return _elements(source.data)

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        return Whole(passage.start, passage.end, passage.path)


def _text_of(data: bytes, tag: re.Match[bytes], most: int) -> bytes:
    """The text of the element that a tag opens."""
    return TAG.sub(b" ", data[tag.end() : tag.end() + most].partition(b"</")[0])


def _elements(data: bytes) -> Iterator[str]:
    """The root element, and the count of each other element."""
    names = _ELEMENT.findall(_without_comments(data))
    if not names:
        return
    yield f"root element: {names[0].decode()}"
    for name, count in Counter(names[1:]).most_common(_ELEMENTS):
        yield f"  {name.decode()}: {count}"


def _without_comments(xml: bytes) -> bytes:
    """Takes linear time, unlike a pattern, even if a comment has no end."""
    first, *rest = xml.split(b"<!--")
    return b"".join((first, *(piece.partition(b"-->")[2] for piece in rest)))


def _table_row(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Completes the table rows that begin or end in the passage."""
    before = [row.start() for row in _OPENING_ROW.finditer(data, max(0, start - MOST), start)]
    if before and not _CLOSING_ROW.search(data, before[-1], start):
        start = before[-1]
    inside = [row.start() for row in _OPENING_ROW.finditer(data, start, end)]
    if inside and not _CLOSING_ROW.search(data, inside[-1], end):
        closing = _CLOSING_ROW.search(data, end, end + MOST)
        end = closing.end() if closing else end
    return start, end


def _heads_of_cells(data: bytes, start: int) -> str:
    """The first row of the table around `start`, if it holds `th` and ends before."""
    tables = list(_TABLE.finditer(data, max(0, start - _TABLE_BYTES), start))
    if not tables or tables[-1][1]:
        return ""
    row = _ROW.search(data, tables[-1].start(), start)
    closing = row and _CLOSING_ROW.search(data, row.end() + 1, min(start, row.end() + _ROW_BYTES))
    if row is None or closing is None:
        return ""
    cells = data[row.end() : closing.start()]
    if b"<th" not in cells.lower():
        return ""
    return clipped_columns(TAG.sub(b" ", END_OF_CELL.sub(b" | ", cells)).strip().removesuffix(b"|"))
