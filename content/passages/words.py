"""Prepares text for the full-text search: splits identifiers and scripts without spaces, decodes escapes."""

import re
from collections.abc import Iterator
from itertools import pairwise

_CODES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_ESCAPE = re.compile(r"\\[nrtbf\"'/\\]")
_SHORT = 100
_LEAST_CHARS_A_HUMP = 6

# Begins with the rare part, which makes it four times as fast.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]))")

# Thai to Khmer, kana, Han, Hangul: a word is found as a phrase of its characters.
_CHARACTER = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_RUN = re.compile(f"({_CHARACTER}+)")


def searchable(text: str) -> str:
    """The text with spaces between the parts that should be found separately."""
    if "\\" in text:
        text = _ESCAPE.sub(" ", _CODES.sub(_decoded, text))
    # More of them in a long text are not in identifiers, but in base64 and similar data.
    most = len(text) if len(text) < _SHORT else len(text) // _LEAST_CHARS_A_HUMP
    parted, humps = _HUMP.subn(_parted, text, most + 1)
    if humps <= most:
        text = parted
    return text if text.isascii() else _RUN.sub(_spaced, text)


def pieces(word: str) -> Iterator[str]:
    """Yields the word, or each pair of adjacent characters if its script has no spaces."""
    for index, part in enumerate(_RUN.split(word)):
        if index % 2 and len(part) > 1:
            yield from (first + second for first, second in pairwise(part))
        elif part:
            yield part


def _parted(hump: re.Match[str]) -> str:
    return " " + hump[0]


def _spaced(run: re.Match[str]) -> str:
    return f" {' '.join(run[0])} "


def _decoded(codes: re.Match[str]) -> str:
    """Decodes the UTF-16 escapes of JSON. A lone surrogate becomes U+FFFD."""
    return bytes.fromhex(codes[0].replace("\\u", "")).decode("utf-16-be", "replace")
