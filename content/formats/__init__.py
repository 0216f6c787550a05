"""The formats of text, one a file: `identify` tells which of them a source is, once for all who ask."""

from content.formats.binary import BinaryFormat
from content.formats.code import CodeFormat
from content.formats.diff import DiffFormat
from content.formats.format import Format, Sample
from content.formats.json import JsonFormat, LiteralFormat, RecordsFormat
from content.formats.languages import file_name, language_of
from content.formats.listing import ListingFormat
from content.formats.log import LogFormat
from content.formats.markup import HtmlFormat, XmlFormat
from content.formats.prose import MarkdownFormat, TextFormat
from content.formats.search import SearchFormat
from content.formats.table import TableFormat
from content.source import Source

_MARKDOWN, _CODE, _TEXT = MarkdownFormat(), CodeFormat(), TextFormat()

FORMATS: tuple[Format, ...] = (
    BinaryFormat(),
    DiffFormat(),
    RecordsFormat(),
    JsonFormat(),
    HtmlFormat(),
    XmlFormat(),
    LogFormat(),
    SearchFormat(),
    LiteralFormat(),
    TableFormat(),
    _CODE,
    _MARKDOWN,
    ListingFormat(),
    _TEXT,
)
"""Tried in this order: the first format that matches is used."""

OF_KIND = {one.kind: one for one in FORMATS}

_MARKDOWN_ENDINGS = frozenset(["md", "markdown", "mdx", "qmd", "rmd"])
# Names of settings files, whose comments look like headings.
_SETTINGS_WORDS = """
yaml yml toml ini cfg cnf conf config properties env service desktop tf hcl nix cmake mk dockerfile makefile
gnumakefile containerfile justfile procfile gitignore dockerignore gitattributes editorconfig npmrc
"""
_SETTINGS = frozenset(_SETTINGS_WORDS.split())


def identify(source: Source) -> Format:
    """Reads at most 8 KiB."""
    sample = Sample(source)
    found = next(one for one in FORMATS if one.matches(sample)) if sample.lines else _TEXT
    return _named(sample, found) if source.path and found.is_doubtful else found


def _named(sample: Sample, found: Format) -> Format:
    """Corrects the format by the name of the file. If the first line of a text names the file, a tool wrote
    the text about the file, so it is not the file itself."""
    name = file_name(sample.path).lower()
    ending = name.rpartition(".")[2]
    if not name or name.encode("utf-8", "replace") in sample.first_line.lower():
        return found
    if ending in _MARKDOWN_ENDINGS:
        return _MARKDOWN
    if found is _MARKDOWN and (ending in _SETTINGS or name.partition(".")[0] in _SETTINGS):
        return _TEXT
    return _CODE if language_of(sample.path, b"") else found
