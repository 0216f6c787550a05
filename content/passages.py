"""Passages: all of a text in pieces that follow its structure, each with its lines and its path."""

from collections.abc import Iterator
from itertools import chain, pairwise

from content.formats.format import Passage, PassageStart, Whole
from content.source_text import SourceText

_NEWLINE = ord("\n")


def split(source: SourceText) -> Iterator[Passage]:
    """Yields passages in order. Every byte of the data is in exactly one passage, and no valid character is
    cut. Linear in the size of any data."""
    data, line = source.data, 1
    for place, following in pairwise(chain(source.format.places(data), (PassageStart(len(data), ""),))):
        start, end = place.at, following.at
        if start < end:
            following_line = line + data.count(b"\n", start, end)
            yield Passage(start, end, line, following_line - (data[end - 1] == _NEWLINE), *place[1:])
            line = following_line


def whole(source: SourceText, passage: Passage, *, has_sentences: bool = True) -> Whole:
    """What the passage is shown with: its record or row, the sentences around it, the header of its table."""
    return source.format.around(source.data, passage, has_sentences=has_sentences)
