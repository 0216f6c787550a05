"""Headings and paragraphs, each with the number of its line."""

import re
from collections.abc import Iterator

from content.text.line_numbers import Numbered

_ENTRIES = 200
_CLIP = 160

_HEADING = re.compile(rb"^(#{1,6}) +(\S[^\n]{0,300})|^(```|~~~)", re.MULTILINE)
_HTML_HEADING = re.compile(rb"<(title|h[1-6])\b[^<>]{0,300}>", re.IGNORECASE)
_TAG = re.compile(rb"<[^>]{0,300}>")
_PARAGRAPH = re.compile(rb"(?:\A\s*+|\n[ \t\r]*+\n[ \t]*+)(\S[^\n]{0,300})")


def headings(source: Numbered) -> Iterator[str]:
    """Headings of Markdown."""
    return _placed(source, _outside_fences(source.text))


def html_headings(source: Numbered) -> Iterator[str]:
    data = source.text
    return _placed(source, ((m.start(), _html_heading(data, m)) for m in _HTML_HEADING.finditer(data)))


def paragraphs(source: Numbered) -> Iterator[str]:
    """The first line of each paragraph."""
    found = ((match.start(1), clip(match[1])) for match in _PARAGRAPH.finditer(source.text))
    return _placed(source, found)


def clip(raw: bytes) -> str:
    """The text on one line of at most 160 characters."""
    text = " ".join(raw[: 4 * _CLIP].decode("utf-8", "ignore").split())
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"


def _placed(source: Numbered, found: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Adds to each text the number of its line."""
    row, done = 0, 0
    for count, (at, text) in enumerate(found):
        if count == _ENTRIES:
            yield "…"
            return
        row += source.text.count(b"\n", done, at)
        done = at
        yield f"{text} (line {source.line(row)})"


def _outside_fences(data: bytes) -> Iterator[tuple[int, str]]:
    fenced = False
    for match in _HEADING.finditer(data):
        if match[3]:
            fenced = not fenced
        elif not fenced:
            yield match.start(), f"{match[1].decode()} {clip(match[2])}"


def _html_heading(data: bytes, tag: re.Match[bytes]) -> str:
    name = tag[1].lower()
    text = data[tag.end() : tag.end() + 600].partition(b"</" + tag[1])[0]
    return f"{name.decode()}: {clip(_TAG.sub(b' ', text))}"
