"""Prose: plain text and Markdown, with headings, items, paragraphs and sentences."""

import re
from collections.abc import Iterator
from itertools import pairwise

from content.formats.cuts import PARAGRAPH, REACH, UNINDENTED, at_ends, matches_in_slices
from content.formats.format import (
    Description,
    Format,
    Mark,
    Passage,
    Sample,
    Whole,
    by_row,
    line_end,
    line_start,
    lines_around,
    within,
)
from content.formats.log import EVENT
from content.formats.sheets import CELL_LINE
from content.formats.table import RULE, is_over
from content.formats.text_tables import tables_in_text
from content.kind import Kind
from content.source import Source
from content.tables import TablesAndNotes
from content.text import clip, count_of

_TITLE = 80
_LIST_BYTES = 4096
_RECORD_BYTES = 500
_LIST_HEADING_BYTES = 200
_HEADING = re.compile(rb"^(#{1,6}) +(\S[^\n]{0,300})|^(```|~~~)", re.MULTILINE)
_MARKDOWN = re.compile(
    rb"#{1,6} \S|```|[-*] (?:\[[ x]\] )?\S|> |\d{1,3}\. \S|\|.*\|\s*\Z|.*\[[^\]]{1,200}\]\([^)\s]+\)"
)
_LEAST_COMMENTS, _ATTACHED = 4, 0.8
_HEADS = re.compile(rb"#{1,6} \S|```")
# Lines of YAML, TOML, INI, Dockerfile, Makefile and of servers' configuration.
_SETTING = re.compile(
    rb"\s*(?:- )?[\w.\-/$()\"']{1,80}\s*(?:[:?+]?=|:(?:\s|\Z))|\s*\[[^\]]*\]\s*\Z|\t\S"
    rb"|(?:FROM|RUN|COPY|ADD|ENV|ARG|CMD|ENTRYPOINT|WORKDIR|EXPOSE|USER|LABEL|VOLUME|export|include) "
    rb"|\s*[\w-]+ [^;{]*[;{]\s*\Z|\s*[})\]]|\s*[A-Za-z][\w-]*[ \t]+\S+\s*\Z"
)
_FIRST = re.compile(rb"(?:\A\s*+|\n[ \t\r]*+\n[ \t]*+)(\S[^\n]{0,300})")

# Items and indented lines belong to the line above them.
_STANZA = re.compile(rb"\n(?:\n(?=[^\n])|[ \t\r*+-][^\n]{0,300}\n(?=[^\s*+-]))")
_ITEM = re.compile(rb"\n(?=[ \t]{0,40}(?:[-*+]|\d{1,3}[.)]) )|\n[ \t\r]{0,200}\n(?=[^\n])")
_COMMIT = re.compile(rb"\s*commit [0-9a-f]{7,64}\b")


def markdown_headings(data: bytes) -> Iterator[re.Match[bytes]]:
    """Headings of Markdown outside code fences: the group 1 is the marks, the group 2 the text."""
    fenced = False
    for heading in matches_in_slices(_HEADING, data):
        if heading[3]:
            fenced = not fenced
        elif not fenced:
            yield heading


def heading_levels(sample: Sample) -> set[int]:
    """0 is a code fence."""
    return {len(line) - len(line.lstrip(b"#")) for line in filter(_HEADS.match, sample.lines)}


def _are_comments(head: bytes, levels: set[int]) -> bool:
    """Headings do not stand below each other, nor many of the first level right above their lines."""
    lines = head.split(b"\n")
    heads = [(line, below) for line, below in pairwise(lines) if line.startswith(b"#") and _HEADS.match(line)]
    if len(heads) < _LEAST_COMMENTS:
        return False
    if 2 * sum(below.startswith(b"#") for _, below in heads) >= len(heads):
        return True
    return levels == {1} and sum(bool(below.strip()) for _, below in heads) >= _ATTACHED * len(heads)


class _ProseFormat(Format):
    is_doubtful = True
    is_written = True

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        start, end = lines_around(data, passage)
        start, end = within(passage, start, _record_end(data, start, end))
        start, end = within(passage, *_cells(data, start, end))
        if has_sentences:
            start, end = within(passage, *sentences(data, start, end, _LINES_BETWEEN))
        header = header_above(data, start) or (list_heading(data, start) if has_sentences else None)
        return Whole(start, end, passage.path, header)

    def tables(self, source: Source) -> TablesAndNotes:
        return tables_in_text(source)

    def row_noun(self, source: Source) -> str:
        return "records of one field a line"


class MarkdownFormat(_ProseFormat):
    kind = Kind.MARKDOWN
    noun = "Markdown"
    is_taken_for_output = True
    finds = (at_ends(_ITEM), at_ends(PARAGRAPH))

    def matches(self, sample: Sample) -> bool:
        """True for headings and prose. A `#` between settings is a comment, unless there are three levels."""
        lines = sample.lines
        if not any(map(_HEADS.match, lines)) or sample.share(_MARKDOWN) < 0.15:
            return False
        levels = heading_levels(sample)
        rest = [line for line in lines if not line.lstrip().startswith(b"#")]
        settings = sum(map(bool, map(_SETTING.match, rest)))
        # Nothing but lines of one level is a long comment.
        is_comment = not rest and len(levels) == 1 and len(lines) > 3
        if 0 not in levels and _are_comments(sample.head, levels):
            return False
        return len(levels) > 2 or 0 in levels or (not is_comment and settings <= 0.5 * len(rest))

    def shape(self, source: Source) -> Description:
        headings = [heading[2] for heading in markdown_headings(source.data)]
        counts = [count_of(len(headings), "heading")] if headings and source.is_whole else []
        return Description("Markdown", counts, title=clip(headings[0]) if headings else "")

    def outline(self, source: Source) -> Iterator[tuple[int, str]]:
        headings = (
            (one.start(), f"{one[1].decode()} {clip(one[2])}") for one in markdown_headings(source.data)
        )
        return by_row(source.data, headings)

    def headings(self, source: Source) -> Iterator[tuple[int, str]]:
        return by_row(source.data, ((one.start(), clip(one[0])) for one in markdown_headings(source.data)))

    def marks(self, data: bytes) -> Iterator[Mark]:
        for heading in markdown_headings(data):
            yield heading.start(), len(heading[1]), clip(heading[2].rstrip(b" #\r"), _TITLE)


class TextFormat(_ProseFormat):
    kind = Kind.TEXT
    noun = "plain text"
    # Also a log whose traces are longer than all the rest.
    finds = (at_ends(_STANZA), at_ends(EVENT), at_ends(UNINDENTED))
    passage_finds = finds[:1]
    has_structure = False
    # It has no headings: a # in plain text begins a comment.

    def matches(self, sample: Sample) -> bool:
        return True

    def shape(self, source: Source) -> Description:
        data = source.data
        first = clip(source.head.lstrip().partition(b"\n")[0])
        if _COMMIT.match(data):
            return Description("log of commits", title=first)
        return Description("plain text", title=first)

    def outline(self, source: Source) -> Iterator[tuple[int, str]]:
        return paragraphs(source.data)


def _record_end(data: bytes, start: int, end: int) -> int:
    """Where the last of the least indented lines ends with all that is deeper; `end` if that is far."""
    lines = [line for line in data[start:end].split(b"\n") if line.strip()]
    least = min(map(_indent, lines), default=0)
    at = end
    while at < min(len(data), end + _RECORD_BYTES):
        after = line_end(data, at)
        if not data[at:after].strip() or _indent(data[at:after]) <= least:
            return at
        at = after
    return end if at < len(data) else at


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def list_heading(data: bytes, start: int) -> tuple[int, int] | None:
    """The span of the line that heads the list which goes on at `start`: it ends with a colon, and no blank
    line or other such line is between. Looks back 4 KiB."""
    before = data[max(0, start - _LIST_BYTES) : start]
    lines = before[before.rfind(b"\n\n") + 2 if b"\n\n" in before else 0 :].splitlines(keepends=True)
    at = start
    for line in reversed(lines):
        at -= len(line)
        if line.rstrip().endswith(b":") and len(line) <= _LIST_HEADING_BYTES:
            return at, at + len(line)
    return None


def paragraphs(data: bytes) -> Iterator[tuple[int, str]]:
    """Yields the first line of each paragraph."""
    return by_row(data, ((match.start(1), clip(match[1])) for match in _FIRST.finditer(data)))


# Lines of single cells, such as `B7: 12`, and tables within text.

_TABLE_BEFORE = 4 << 20
_ABOVE = 6
_ROWS = 4


def _cells(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Extends lines of single cells to their rows."""
    first = CELL_LINE.match(data, start, end)
    while first and start > 0:
        before = line_start(data, start - 1)
        cell = CELL_LINE.match(data, before, start)
        if before == start or cell is None or cell[1] != first[1]:
            break
        start = before
    last = CELL_LINE.match(data, line_start(data, end - 1), end)
    while last and end < len(data):
        cell = CELL_LINE.match(data, end)
        if cell is None or cell[1] != last[1]:
            break
        end = line_end(data, end)
    return start, end


def header_above(data: bytes, start: int) -> tuple[int, int] | None:
    """The header of the table whose rows are from `start` on: the line above a rule, or the first line after
    an empty one if its words stand over the cells."""
    rows = data[start : start + REACH].partition(b"\n\n")[0].split(b"\n")[:_ROWS]
    block = max(data.rfind(b"\n\n", max(0, start - _TABLE_BEFORE), start) + 2, 0)
    if block < 2:
        block = 0 if start <= _TABLE_BEFORE else start
    at, above = block, b""
    for _ in range(_ABOVE):
        until = data.find(b"\n", at, min(start, at + REACH)) + 1
        if not until:
            return None
        line = data[at : until - 1]
        if RULE.match(line) and above.count(b"|") == rows[0].count(b"|") > 1:
            return at - len(above) - 1, until
        if b"  " in line.strip() and all(is_over(line, row) for row in rows):
            return at, until
        at, above = until, line
    return None


# Sentences.

_SENTENCE_END = r"(?:[.!?][\"')\]*_]{0,3}\s+(?=[\"'(\[*_]{0,3}[^\W\d_a-z])|[。！？][」』”]?\s*)"
_LINES_BETWEEN = re.compile(rb"\n[ \t\r]*\n|\n(?=[ \t]{0,12}(?:[-*+>|#]|\d{1,3}[.)]) )")
_SENTENCES = re.compile(_SENTENCE_END)
_GOES_ON = re.compile(rb"[ \t]{0,8}[a-z]")
_NEAR = 300


def sentences(data: bytes, start: int, end: int, between: re.Pattern[bytes]) -> tuple[int, int]:
    """Completes a paragraph that is cut, by the rest of its sentence or by one more sentence."""
    if _is_cut(data, start):
        start = _sentence_start(data, start, between)
    if _is_cut(data, end):
        end = _sentence_end(data, end, between)
    return start, end


def _is_cut(data: bytes, at: int) -> bool:
    """True within a line, and before a line that begins with a lowercase letter and so continues the line
    above."""
    if not 0 < at < len(data):
        return False
    return data[at - 1 : at] != b"\n" or _GOES_ON.match(data, at) is not None


def _sentence_start(data: bytes, start: int, between: re.Pattern[bytes]) -> int:
    first = max(0, start - _NEAR)
    breaks = [match.end() for match in between.finditer(data, first, min(len(data), start + 1))]
    if start in breaks or start + 1 in breaks:
        return start
    begin = breaks[-1] if breaks else first
    cuts = _ends_of_sentences(data, begin, start)
    if breaks or not first:
        cuts = [begin, *cuts]
    earlier = [cut for cut in cuts if cut < start]
    return earlier[-1] if earlier else start


def _sentence_end(data: bytes, end: int, between: re.Pattern[bytes]) -> int:
    last = min(len(data), end + _NEAR)
    stop = between.search(data, max(0, end - 1), last)
    limit = stop.start() if stop else last
    if limit <= end:
        return end
    cuts = _ends_of_sentences(data, end, limit)
    if stop or last == len(data):
        cuts = [*cuts, limit]
    return cuts[0] if cuts else end


def _ends_of_sentences(data: bytes, start: int, end: int) -> list[int]:
    """The places after the ends of sentences."""
    while start < end and data[start] & 0xC0 == 0x80:
        start += 1
    text = data[start:end].decode("utf-8", "ignore")
    ends = (match.end() for match in _SENTENCES.finditer(text))
    return [start + len(text[:at].encode()) for at in ends]
