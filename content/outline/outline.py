"""The outline of a text: what a model needs to ask the right question."""

import re
from collections.abc import Callable, Iterable

from content.kinds import Kind, sniff
from content.outline.definitions import definitions
from content.outline.forms import (
    elements,
    headings,
    hits,
    html_headings,
    json_shape,
    log_span,
    paragraphs,
    records_shape,
    table,
)
from content.outline.languages import Language, language_of
from content.text import Numbered, cut_head, unnumbered

_LOOKED_AT = 1024 * 1024
_MOST = 200
_NO_STRUCTURE = (Kind.TEXT, Kind.BINARY, Kind.GREP)
_MARKDOWN = frozenset(["md", "markdown", "mdx", "qmd", "rmd"])
# Names of settings files: their comments look like headings.
_SETTINGS_WORDS = """
yaml yml toml ini cfg cnf conf config properties env service desktop tf hcl nix cmake mk dockerfile makefile
gnumakefile containerfile justfile procfile gitignore dockerignore gitattributes editorconfig npmrc
"""
_SETTINGS = frozenset(_SETTINGS_WORDS.split())


def outline(
    data: bytes, max_bytes: int, total_bytes: int | None = None, path: str | None = None, first_line: int = 1
) -> str:
    """Returns at most `max_bytes` of UTF-8, "" without an outline. `data` may be the beginning of
    `total_bytes`; reads at most 1 MiB. `path` is the path of the file, if known, `first_line` the number of
    the first line in it. Raises nothing, whatever the data. Takes up to 150 ms: call it in a thread."""
    total = len(data) if total_bytes is None else total_bytes
    data = data[:_LOOKED_AT]
    source, kind, language = _identified(path, data, first_line)
    if language is None:
        lines = list(_FORMS.get(kind, paragraphs)(source))
    else:
        found = definitions(data, language, _MOST, first_line)
        lines = [f"{'  ' * definition.depth}{definition}" for definition in found]
    lines = lines or list(paragraphs(source))
    if not lines:
        return ""
    part = f", of its first {len(data)} bytes" if len(data) < total else ""
    text = "\n".join((f"Outline ({language or kind}{part}):", *lines))
    return cut_head(text.encode("utf-8", "replace"), max_bytes).decode()


def structure(path: str | None, data: bytes, most: int = _MOST, first_line: int = 1) -> list[str]:
    """Returns at most `most` lines for a recovery section; none for plain text, search results and binary
    data. For the arguments see `outline`."""
    data = data[:_LOOKED_AT]
    source, kind, language = _identified(path, data, first_line)
    if language is not None:
        return [f"  - {definition}" for definition in definitions(data, language, most, first_line)]
    if kind not in _FORMS or kind in _NO_STRUCTURE:
        return []
    return [re.sub("^ *", r"\g<0>  - ", line) for line in _FORMS[kind](source)][:most]


def _identified(path: str | None, data: bytes, first_line: int) -> tuple[Numbered, Kind, Language | None]:
    """The text without line numbers, its kind and its programming language. The path decides before the text,
    but matches of a search in a source file are not source code."""
    source = unnumbered(data, first_line)
    kind = sniff(source.text)
    if kind in (Kind.BINARY, Kind.GREP):
        return source, kind, None
    name = (path or "").replace("\\", "/").rpartition("/")[2].lower()
    ending = name.rpartition(".")[2]
    if ending in _MARKDOWN:
        return source, Kind.MARKDOWN, None
    if kind is Kind.MARKDOWN and (ending in _SETTINGS or name.partition(".")[0] in _SETTINGS):
        return source, Kind.TEXT, None
    return source, kind, language_of(path, source.text if kind in (Kind.CODE, Kind.TEXT) else b"")


_FORMS: dict[Kind, Callable[[Numbered], Iterable[str]]] = {
    Kind.JSON: lambda source: json_shape(source.text),
    Kind.NDJSON: lambda source: records_shape(source.text),
    Kind.CSV: table,
    Kind.LOG: log_span,
    Kind.MARKDOWN: headings,
    Kind.HTML: lambda source: list(html_headings(source)) or elements(source),
    Kind.XML: elements,
    Kind.GREP: hits,
    Kind.BINARY: lambda source: ["not text"],
}
