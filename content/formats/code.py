"""Source code: its language, by the path or by the text, and what it defines."""

import re
from collections.abc import Iterator

from content.formats.cuts import PARAGRAPH, UNINDENTED, at_ends, matches_in_slices
from content.formats.definitions import definitions, scan
from content.formats.format import (
    Description,
    Mark,
    OutlinedFormat,
    Passage,
    Sample,
    SketchForm,
    Whole,
    lines_around,
)
from content.formats.headers import header_of
from content.formats.languages import CODE_LINE, Language, language_in, language_of
from content.formats.prose import heading_levels
from content.formats.text_tables import tables_in_code
from content.kind import Kind
from content.source import Source
from content.tables import TablesAndNotes
from content.text import clip, count_of

_CODE = re.compile(
    rb"\s*+(?:%b|(?=[aefips])(?:export |public |private |static |async |pub )*"
    rb"(?:function|fn|func|interface|struct|enum|impl) ?\w*|return\b|if ?\(.*\) ?\{)" % CODE_LINE
)
# Lines with which source of any language begins, or which it has in its first lines.
_MAY_BE_CODE = re.compile(
    _CODE.pattern + rb"|\s*+(?:<\?php|use |local |my |sub |require|module |library\(|end\b|--|type "
    rb"|(?i:create|select|insert) |\#|[\w.]+ (?:<-|:=) |defmodule |object |val |let |data |typedef )"
)
_SHARE = 0.2
_DEFINED_BYTES = 48 << 10
_TYPES = ("class", "struct", "interface", "trait", "enum")
_TITLE = 80
_DEEP = 100
_UNINDENTED_PARAGRAPH = re.compile(rb"\n\r?\n(?=\S)")
_DEFINITION = re.compile(
    rb"^([ \t]{0,8})((?>(?:export |default |public |private |protected |static |abstract |async |"
    rb"pub(?:\([a-z]+\))? )*)"
    rb"(?:class|def|function|fn|func|interface|struct|enum|trait|impl|type|module|namespace) [^\n]{1,200})",
    re.MULTILINE,
)


# A long comment or a docstring, with which source of some languages begins.
_OPENING = re.compile(
    rb"(?>(?:(?:[ \t]*(?:#(?!#| \w+ *\n\n)|//|--)[^\n]*)?\n)*)"
    rb"(?:/\*(?>(?:[^*]+|\*(?!/))*)\*/|(?P<docstring>[rR]?(?:\"\"\"(?>(?:[^\"]+|\"(?!\"\"))*)\"\"\"|'''(?>(?:[^']+|'(?!''))*)'''))"
    rb"[ \t]*\n)?"
)
_UNENDED = re.compile(rb"(?>(?:(?:#[^\n]*)?\n)*)[rR]?(?:\"\"\"|''')[ \\]*(?:\n|[A-Z])")
_LEAST_OPENING, _LEAST_SIGNS = 40, 3
_BELOW = 250
_FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.MULTILINE)


def _is_below_comment(head: bytes) -> bool:
    """True for source under the comment or docstring with which the text begins. Markdown may begin with a
    heading, and quote source in fences."""
    opening = _OPENING.match(head)
    if opening is None or opening.end() < _LEAST_OPENING:
        return _UNENDED.match(head) is not None
    body = head[opening.end() :]
    lines = [line for line in body.split(b"\n", _BELOW)[:_BELOW] if line.strip()]
    if _FENCE.search(head) or not lines:
        return False
    if opening["docstring"]:
        return language_in(body, lines) in (Language.PYTHON, None)
    return len(lines) >= _LEAST_SIGNS and language_in(body, lines) is not None


def source_noun(source: Source) -> str:
    language = language_of(source.path, source.data)
    return f"{language.title()} source" if language else "source code"


def definitions_in_order(source: Source) -> Iterator[tuple[int, str]]:
    """Yields the definitions with their rows, first ones first. Does not search behind the last definition
    that the caller takes."""
    language = language_of(source.path, source.data)
    for one in scan(source.data, language) if language else ():
        yield one.line - 1, f"{one.keyword} {one.name}"


class CodeFormat(OutlinedFormat):
    kind = Kind.CODE
    is_doubtful = True
    noun = "source code"
    sketch_form = SketchForm.OUTLINE
    is_taken_for_output = True
    finds = (at_ends(_UNINDENTED_PARAGRAPH), at_ends(PARAGRAPH), at_ends(UNINDENTED))
    passage_finds = finds[1:2]

    def matches(self, sample: Sample) -> bool:
        """Recognises code by its language, if the signs of the language are a share of the lines that are not
        comments; else by its lines. Source quoted in Markdown is not source."""
        if _is_below_comment(sample.head):
            return True
        likely = [*filter(_MAY_BE_CODE.match, sample.lines)]
        if not likely:
            return False
        levels = heading_levels(sample)
        if 0 in levels or len(levels) > 1:
            return False
        if len([*filter(_CODE.match, likely)]) >= _SHARE * len(sample.lines):
            return True
        # One such line may be the first line, or words of a text.
        may_be = len(likely) > 1 or likely[0] is sample.lines[0]
        return may_be and language_in(sample.head, sample.lines) is not None

    def around(self, data: bytes, passage: Passage, *, has_sentences: bool = True) -> Whole:
        start, end = lines_around(data, passage)
        return Whole(start, end, passage.path, header_of(data, start, end))

    def tables(self, source: Source) -> TablesAndNotes:
        return tables_in_code(source)

    def shape(self, source: Source) -> Description:
        language, noun = language_of(source.path, source.data), source_noun(source)
        if language is None or len(source.data) > _DEFINED_BYTES or not source.is_whole:
            return Description(noun)
        # A text has at most as many definitions as bytes, so all are counted.
        entries = definitions(source.data, language, most=_DEFINED_BYTES)
        classes = sum(1 for one in entries if one.keyword in _TYPES)
        counts = [f"{classes:,} {'class' if classes == 1 else 'classes'}"] if classes else []
        if others := len(entries) - classes:
            counts.append(count_of(others, "other definition" if classes else "definition"))
        return Description(noun, counts)

    def outline(self, source: Source) -> Iterator[str | tuple[int, str]]:
        language = language_of(source.path, source.data)
        if language is not None:
            for one in definitions(source.data, language):
                yield one.line - 1, f"{'  ' * one.depth}{one.keyword} {one.name}"

    def marks(self, data: bytes) -> Iterator[Mark]:
        for match in matches_in_slices(_DEFINITION, data):
            yield match.start(), len(match[1].expandtabs(4)) - _DEEP, clip(match[2].rstrip(b" {:(\r"), _TITLE)
