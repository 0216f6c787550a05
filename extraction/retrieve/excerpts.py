"""Excerpts: passages with their records and headers, as an answer shows them, each once under its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from content.formats.binary import readable
from content.formats.format import Passage, Whole
from content.formats.hidden_parts import hidden_spans, without
from content.kind import Kind
from content.match_view import page_text
from content.passages import whole
from content.source_text import SourceText
from content.text import decode_part
from extraction.asked_bytes import AskedBytes

_NEWLINE = ord("\n")
_TAG_BYTES = 2000
_BETWEEN_CELLS = re.compile(rb"(</t[dh]>)\s+(?=<t[dh]\b)", re.IGNORECASE)
_REPEATED = re.compile(r"^(.{8,})\n(?:\1\n){2,}", re.MULTILINE)
_OPEN_TAG = re.compile(rb"<[^<>]*\Z")


def _once(lines: re.Match[str]) -> str:
    return f"{lines[1]}\n[The same line {lines[0].count(chr(10))} times.]\n"


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """Bytes `start` to before `end`, from line `line` on (1-based). `first` is the part it begins with."""

    start: int
    end: int
    line: int
    first: Whole

    def joins(self, other: "_Excerpt") -> bool:
        if self.first.path == other.first.path and (self.end == other.start or other.end == self.start):
            return True
        return self.start < other.end and other.start < self.end


class Excerpts:
    """Passages in the order in which they are added. A passage that overlaps an excerpt, or adjoins one with
    the same path, becomes a part of it. Of binary data only the readable runs are shown, of a page its
    text."""

    def __init__(
        self,
        asked: AskedBytes,
        text: SourceText,
        max_bytes: int,
    ) -> None:
        """`text` is all of `asked`. `max_bytes` is room for the text, without its note."""
        self._is_page = text.format.kind is Kind.HTML
        self._asked = asked
        self._text = text
        self._data = text.data
        self._max_bytes = max_bytes
        self._is_code = text.format.kind is Kind.CODE
        self._is_text = text.format.kind is not Kind.BINARY
        self._excerpts: list[_Excerpt] = []
        self._left = max_bytes

    @property
    def size(self) -> int:
        """Bytes of the text so far, without its note."""
        return self._max_bytes - self._left

    @property
    def is_empty(self) -> bool:
        return not self._excerpts

    def add(self, passage: Passage) -> bool:
        """Adds the passage with its record and header; alone if there is no room for these. False if there is
        no room for the passage alone."""
        overlap = sum(
            max(0, min(one.end, passage.end) - max(one.start, passage.start)) for one in self._excerpts
        )
        is_blank = not self._is_text and not readable(self._data[passage.start : passage.end])
        if self._is_page and self._excerpts and not self._text_of_page(passage.start, passage.end):
            # The passage has no visible text.
            return True
        if is_blank or passage.end - passage.start - overlap > self._left:
            return False
        alone = Whole(passage.start, passage.end, passage.path)
        for shown in (whole(self._text, passage), alone):
            excerpts = self._with(passage, shown)
            size = sum(len(part.encode()) for part in self._parts(excerpts, ""))
            if size <= self._max_bytes:
                self._excerpts, self._left = excerpts, self._max_bytes - size
                return True
        return False

    def text(self, note: str) -> str:
        """All excerpts. The first heading contains the `note`."""
        return "".join(self._parts(self._excerpts, note))

    def _with(self, passage: Passage, shown: Whole) -> list[_Excerpt]:
        line = passage.line - self._data.count(b"\n", shown.start, passage.start)
        added = _Excerpt(shown.start, shown.end, line, shown)
        joined = [one for one in self._excerpts if one.joins(added)]
        if not joined:
            return [*self._excerpts, added]
        parts = [*joined, added]
        first = min(parts, key=lambda one: one.start)
        all_of_it = _Excerpt(first.start, max(one.end for one in parts), first.line, first.first)
        return [all_of_it if one is joined[0] else one for one in self._excerpts if one not in joined[1:]]

    def _parts(self, excerpts: list[_Excerpt], note: str) -> Iterator[str]:
        headers = set()
        for one in excerpts:
            first = one.first
            place = self._place(one)
            piece = self._shown(one.start, one.end)
            body = decode_part(piece if self._is_text else readable(piece))
            body = (self._text_of_page(one.start, one.end) if self._is_page else "") or body
            body = _REPEATED.sub(_once, body)
            columns = f"columns: {first.columns}" if first.columns else ""
            yield f"[{' · '.join(filter(None, (place, first.path, columns, note)))}]\n"
            if first.header and first.header not in headers:
                headers.add(first.header)
                yield decode_part(self._shown(*first.header))
                if self._is_code and first.header[1] < one.start:
                    yield "…\n"
            yield body if body.endswith("\n") else body + "\n"
            note = ""

    @cached_property
    def _unseen(self) -> list[tuple[int, int]]:
        return hidden_spans(self._data)

    def _text_of_page(self, start: int, end: int) -> str:
        """The text of a part of a page, whose ends may be within tags; "" if it has no text."""
        data, before = self._data, max(0, start - _TAG_BYTES)
        if data.rfind(b"<", before, start) > data.rfind(b">", before, start):
            start = data.find(b">", start, end) + 1 or start
        piece = _OPEN_TAG.sub(b"", without(self._unseen, data, start, end))
        piece = _BETWEEN_CELLS.sub(rb"\1", piece)
        lines = (" ".join(line.split()) for line in decode_part(page_text(piece)).split("\n"))
        return "".join(f"{line}\n" for line in lines if line)

    def _shown(self, start: int, end: int) -> bytes:
        """The stored bytes, with the line numbers that a tool wrote. If the stored bytes hold escapes, the
        data."""
        if not self._text.is_verbatim:
            return self._data[start:end]
        first, last = self._text.stored_span(start, end)
        return self._text.stored[first:last]

    def _place(self, excerpt: _Excerpt) -> str:
        """Where the excerpt stands: the lines of the stored result; the bytes, as in `ranges`, if lines are
        unknown or cut."""
        data, asked, text = self._data, self._asked, self._text
        spans = asked.located(*text.stored_span(excerpt.start, excerpt.end))
        in_bytes = f"bytes {spans[0].start}-{spans[-1].end}"
        if asked.size < asked.stored.measure.bytes:
            return in_bytes
        if text.is_verbatim:
            first = excerpt.line + text.stored_line(0) - 1
            last = first + data.count(b"\n", excerpt.start, excerpt.end - 1)
        else:
            first, last = text.line(excerpt.start), text.line(excerpt.end - 1)
        lines = f"line {first}" if first == last else f"lines {first}-{last}"
        if header := excerpt.first.header:
            above = data.count(b"\n", header[0], excerpt.start)
            lines += f" under line {first - above}"
        begins = excerpt.start == 0 or data[excerpt.start - 1] == _NEWLINE
        is_whole = begins and (excerpt.end == len(data) or data[excerpt.end - 1] == _NEWLINE)
        return lines if is_whole else f"{lines}, {in_bytes}"
