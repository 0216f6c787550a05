"""What a source is: its extent, its outline, its structure, its language."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from content.formats.format import Description
from content.formats.hidden_parts import hidden_spans
from content.formats.prose import paragraphs
from content.kind import Kind
from content.natural_language import language_of_text
from content.source_text import SourceText
from content.text import SAMPLE_BYTES, SAMPLE_TAIL_BYTES, clip, count_of, cut_head, decode_escapes, line_count

OUTLINED_BYTES = 1 << 20
"""The most bytes that an outline is made from."""

_NAME_BYTES = 100
_MOST_NAMES = 400
_MOST_LINES = 200
_EXTENT_NAMES = 40
_EXTENT_BYTES = 2000
_WORD = re.compile(rb"\S++")

_PROSE = 2 * 1024
_FEW_WORDS = 40
_ESCAPES = 4
"""The ratio by which a text may grow in the escapes of JSON."""

_ESCAPED = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
# Fails at once where no tag ends.
_MARKUP = re.compile(rb"<[^<>]{0,300}>")
_DECLARED = re.compile(rb"<html\b[^<>]{0,200}?\blang=[\"']?([A-Za-z]{2})\b", re.IGNORECASE)
_CODES = {
    "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese", "it": "Italian", "nl": "Dutch",
    "pl": "Polish", "tr": "Turkish", "sv": "Swedish", "ru": "Russian", "zh": "Chinese", "ja": "Japanese",
    "ko": "Korean", "ar": "Arabic", "he": "Hebrew", "el": "Greek", "hi": "Hindi", "th": "Thai",
}  # fmt: skip


def source_of(
    head: bytes, tail: bytes, total_bytes: int, lines: int, tool_name: str = "", path: str | None = None
) -> SourceText:
    """A result of which both ends are known: `head` holds its first bytes, of which 128 KiB are used, `tail`
    the last 4 KiB. `lines` counts its newlines, plus one if text follows the last newline."""
    if len(head) < total_bytes:
        head = head[:SAMPLE_BYTES]
    return SourceText(
        head, tool_name, path, tail=tail[-SAMPLE_TAIL_BYTES:], total_bytes=total_bytes, lines=lines
    )


def extent(source: SourceText) -> str:
    """Returns, for example, `CSV, 2,000 rows, 3 columns: id, city, total; 45,890 bytes in 2,001 lines`. Takes
    linear time. Call it in a thread: 64 MiB take a few seconds."""
    stored = source.stored
    size = f"{len(stored):,} bytes in {count_of(line_count(stored), 'line')}"
    shape = source.format.shape(source)
    if source.format.kind in (Kind.TEXT, Kind.MARKDOWN):
        words = sum(1 for _ in _WORD.finditer(source.data))
        shape = replace(shape, counts=(*shape.counts, count_of(words, "word")))
    return f"{_sentence(shape, _EXTENT_BYTES, _EXTENT_NAMES)}; {size}"


def outline(
    data: bytes,
    max_bytes: int,
    total_bytes: int | None = None,
    path: str | None = None,
    first_line: int | None = None,
    tool_name: str = "",
) -> str:
    """Returns at most `max_bytes` of UTF-8, "" without an outline. `data` may be the beginning of
    `total_bytes`; reads at most 1 MiB. `path` is the path of the file, if known. `first_line` is the number
    of the first line in it: then lines are those of the file, which a tool may have written before them. None
    for those of the stored bytes. Raises nothing. Takes up to 150 ms: call it in a thread."""
    total = len(data) if total_bytes is None else total_bytes
    data = data[:OUTLINED_BYTES]
    source = SourceText(data, tool_name, path)
    lines = list(_outlined(source, first_line)) or list(
        _numbered(source, paragraphs(source.data), first_line)
    )
    if not lines:
        return ""
    part = f", of its first {len(data)} bytes" if len(data) < total else ""
    noun = str(source.format.kind)
    if source.format.kind is Kind.CODE:
        noun = source.format.shape(source).noun.removesuffix(" source").lower()
    text = "\n".join((f"Outline ({noun}{part}):", *lines)).encode("utf-8", "replace")
    cut = cut_head(text, max_bytes)
    # Half of the number of a line is another number.
    whole = cut.rpartition(b"\n")[0] if len(cut) < len(text) else cut
    return (whole or cut).decode()


def structure(path: str | None, data: bytes, first_line: int = 1) -> list[str]:
    """Returns at most 200 lines for a recovery section; none for plain text, search results and binary
    data. For the arguments see `outline`."""
    source = SourceText(data[:OUTLINED_BYTES], "", path)
    if not source.format.has_structure:
        return []
    is_code = source.format.kind is Kind.CODE
    lines = (line.lstrip() if is_code else line for line in _outlined(source, first_line))
    return [re.sub("^ *", r"\g<0>  - ", line) for line in islice(lines, _MOST_LINES)]


def _outlined(source: SourceText, first_line: int | None) -> Iterator[str]:
    return _numbered(source, source.format.outline(source), first_line)


def _numbered(
    source: SourceText, found: Iterable[str | tuple[int, str]], first_line: int | None
) -> Iterator[str]:
    """Adds the line number to each text."""
    for count, one in enumerate(found):
        if count == _MOST_LINES:
            yield "…"
            return
        if isinstance(one, str):
            yield one
            continue
        row, text = one
        if first_line is None:
            line = source.stored_line(row)
        elif source.numbers:
            line = source.numbers[min(row, len(source.numbers) - 1)]
        else:
            line = row + first_line
        yield f"{text} (line {line})"


def _sentence(shape: Description, room: int, most_names: int = _MOST_NAMES) -> str:
    """Returns the description in at most `room` bytes, with all names that fit. No name is cut."""
    said = ", ".join((shape.noun, *shape.counts))
    more = "".join(f", {fact}" for fact in shape.facts)
    said = _clipped(said, room)
    if shape.names:
        room -= len(f"{said}{shape.naming}{more}".encode("utf-8", "replace"))
        said += shape.naming + _names(shape.names, room, most_names)
    elif shape.naming.strip(": "):
        said += shape.naming
    return said + more


def _names(names: Sequence[str], room: int, most: int) -> str:
    """Returns the names that fit, separated by commas; `…` stands for the rest."""
    shown: list[str] = []
    for place, name in enumerate(names[:most], 1):
        name = _clipped(clip(name, _NAME_BYTES), _NAME_BYTES)
        name = f'"{name}"' if ", " in name else name
        left = 0 if place == len(names) else len(", …".encode())
        room -= len(name.encode("utf-8", "replace")) + 2
        if room + 2 < left and shown:
            return ", ".join((*shown, "…"))
        shown.append(name)
    return ", ".join((*shown, *(["…"] if len(names) > most else [])))


def _clipped(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= most else cut_head(data, max(0, most - 3)).decode() + "…"


def natural_language_of(source: SourceText) -> str:
    """The language of the beginning, "" for English and where it is not known; of a page that of its text, or
    the one it declares if it has few words. ASCII data and programs are in no language."""
    kind, head = source.format.kind, source.data
    if kind is Kind.HTML:
        head = head[:SAMPLE_BYTES]
        for start, end in reversed(hidden_spans(head)):
            head = head[:start] + head[end:]
        declared = _DECLARED.search(head)
        head = _MARKUP.sub(b" ", head)
        if declared and len(head.split()) < _FEW_WORDS:
            return _CODES.get(declared[1].lower().decode(), "")
    if b"\\u" in head[:_PROSE]:
        head = _ESCAPED.sub(lambda escapes: decode_escapes(escapes[0]), head[: _ESCAPES * _PROSE])
    head = head[:_PROSE]
    if kind is Kind.BINARY or (not source.format.is_written and head.isascii()):
        return ""
    return language_of_text(head.decode("utf-8", "ignore"))
