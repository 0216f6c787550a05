"""The parts of a page that a reader does not see: scripts, style sheets, bare tags, base64."""

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice, takewhile
from operator import itemgetter

from content.formats.cuts import matches_in_slices
from content.formats.format import Passage
from content.formats.markup import TAG
from content.kind import Kind

# The letter that may follow decides in half the time.
_UNSEEN = re.compile(rb"<(?-i:(?=[\\/sSnN]))(\\?/?)(script|style|svg|noscript)\b", re.IGNORECASE)
_OPENING = (b"<script", b"<style", b"<svg")
_HEAD = 64 << 10
_LEAST_WORDS = 3

_PAGES = (Kind.HTML, Kind.MARKDOWN, Kind.TEXT)
_TEXTS = (*_PAGES, Kind.JSON, Kind.NDJSON)
_LEAST_BASE64 = 100
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{100,}+={0,2}(?>(?:(?>(?:\\[nr]|\s)+)[A-Za-z0-9+/_-]{20,}+={0,2})*)")
_DECLARATION = rb"[\w-]{2,40}+\s*+:[^;{}]{1,200}+"
_RULE = re.compile(rb"\{\s*+(?>(?:%b;\s*+)*)(?>(?:%b)?)\}" % (_DECLARATION, _DECLARATION))
_SELECTOR_BYTES = 200
_SHEET_BYTES = 4096
_MOSTLY = 0.7
_TAG_BYTES = 100
"""The most bytes after the name in a closing tag."""


def hidden_spans(data: bytes, is_page: bool = True) -> list[tuple[int, int]]:
    """The scripts, style sheets and other parts of a page that no reader of it sees, in order. What is never
    closed reaches to the end of a page; in other text, which may hold pages, it is no span."""
    spans: list[tuple[int, int]] = []
    begin, name = -1, b""
    for match in matches_in_slices(_UNSEEN, data):
        closes, tag = match[1], match[2].lower()
        if not closes and (begin < 0 or not is_page):
            begin, name = match.start(), tag
        elif closes and tag == name:
            spans.append((begin, data.find(b">", match.end(), match.end() + _TAG_BYTES) + 1 or match.end()))
            begin, name = -1, b""
    return [*spans, (begin, len(data))] if begin >= 0 and is_page else spans


def without(spans: list[tuple[int, int]], data: bytes, start: int, end: int) -> bytes:
    """Returns a piece of the data without the bytes in these spans."""
    text = data[start:end]
    covered = takewhile(
        lambda span: span[0] < end, islice(spans, bisect_right(spans, start, key=itemgetter(1)), None)
    )
    for first, last in reversed([*covered]):
        text = text[: max(0, first - start)] + text[last - start :]
    return text


def is_seen(data: bytes, kind: Kind) -> Callable[[Passage], bool]:
    """Returns a test that is false for a passage of `data` without readable text. In data that begins as a
    style sheet, the rules count as readable."""
    is_page = kind is Kind.HTML
    has_scripts = is_page or (kind in _TEXTS and any(tag in data[:_HEAD] for tag in _OPENING))
    spans = hidden_spans(data, is_page) if has_scripts else []
    may_have_rules = kind in _PAGES and not _is_style_sheet(data[:_SHEET_BYTES])

    def test(passage: Passage) -> bool:
        text = without(spans, data, passage.start, passage.end)
        if 2 * len(text) < passage.end - passage.start and not is_page:
            return False
        if is_page and len(TAG.sub(b"", text).split()) < _LEAST_WORDS:
            return False
        return not (_is_base64(text) or (may_have_rules and b"}" in text and _is_style_sheet(text)))

    return test


def _is_base64(text: bytes) -> bool:
    if max(map(len, text.split()), default=0) < _LEAST_BASE64:
        return False
    rest = _BASE64.sub(b" ", text)
    return 2 * len(rest) < len(text) and len(rest.split()) < _LEAST_WORDS


def _is_style_sheet(text: bytes) -> bool:
    """True if most of the text is CSS rules with their selectors."""
    covered = last = 0
    for rule in _RULE.finditer(text):
        covered += len(rule[0]) + min(rule.start() - last, _SELECTOR_BYTES)
        last = rule.end()
    return covered >= _MOSTLY * len(text)
