"""What is said of a text, and the pieces that it is cut into."""

from content.describe import extent, outline
from content.formats.format import Passage
from content.kind import Kind
from content.passages import split, whole
from content.source_text import SourceText


def said(text: str, tool: str = "", path: str | None = None) -> str:
    return extent(SourceText(text.encode(), tool, path)).rpartition("; ")[0]


def outlined(text: str, path: str | None = None) -> list[str]:
    return outline(text.encode(), 2000, path=path).splitlines()


def kind_of(text: str, tool: str = "", path: str | None = None) -> Kind:
    return SourceText(text.encode(), tool, path).format.kind


def pieces(text: str) -> list[tuple[str, Passage]]:
    source = SourceText(text.encode())
    return [(source.data[one.start : one.end].decode(), one) for one in split(source)]


def shown_around(text: str, wanted: str) -> str:
    """What the passage that holds `wanted` is shown with, below the header of its table."""
    source = SourceText(text.encode())
    at = source.data.index(wanted.encode())
    passage = next(one for one in split(source) if one.start <= at < one.end)
    found = whole(source, passage)
    header = source.data[slice(*found.header)].decode() if found.header else ""
    return header + source.data[found.start : found.end].decode()
