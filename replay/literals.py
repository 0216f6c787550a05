"""Literals: the words of a text that a model can only have copied, such as an id, a path or an address."""

import re
from collections.abc import Iterator
from typing import Any

LEAST_CHARS = 5
MOST_CHARS = 300
MOST_QUOTE_CHARS = 20_000

QUOTE_KEYS = frozenset({"old_string", "old_str", "oldString", "oldText", "old_text", "search"})
"""Arguments with which a tool that edits a file names the text to replace."""

_LITERAL = re.compile(
    r"""
    (?P<url>[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\s"'<>()\[\]{}\\`|,]+)
    |(?P<address>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<path>(?:[A-Za-z]:|~|\.{1,2})?(?:[/\\][\w.@+-]+){2,}/?|\w[\w.@+-]*(?:/[\w.@+-]+)+/?|\w[\w-]*\.[a-z]{1,4}\b)
    |(?P<number>\b\d{1,3}(?:,\d{3})+(?:\.\d+)?\b)
    |(?P<word>[\w-]*\d[\w.-]*)
    |(?P<name>[A-Z][\w'’]*[a-z][\w'’]*(?:[ ][A-Z][\w'’]*[a-z][\w'’]*)+)
    """,
    re.VERBOSE,
)
_FOUR_DIGITS = re.compile(r"(?:\d[.,:-]?){4}")
_LETTER = re.compile(r"[^\W\d_]")
_TRAILING = ".,:;!?-_"
_FUNCTION_WORD = re.compile(
    "A|An|And|As|At|But|By|For|From|Here|If|In|Is|It|Its|Let|My|No|Not|Now|Of|On|Or|Our|So|Step|That|The|Their"
    "|Then|There|These|They|This|Those|To|Use|We|What|When|Where|With|You|Your"
)

_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf\"'/\\])")


def plain(text: str) -> str:
    """The text with the escapes of a string of JSON, or of a programming language, decoded; those of white
    space and quotes as a space. Literals are looked for in such texts."""
    return _ESCAPES.sub(_decoded, text) if "\\" in text else text


def _decoded(escape: re.Match[str]) -> str:
    if escape[1]:
        code = int(escape[1], 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return escape[0][1] if escape[0][1] in "/\\" else " "


def literals(text: str) -> Iterator[str]:
    """Yields each literal of a plain text once, in order: URLs, addresses, paths, identifiers with a digit,
    numbers of four digits and more, proper names of two words and more; of at least five characters."""
    seen = set()
    for found in _LITERAL.finditer(text):
        literal = found[0].rstrip(_TRAILING).lstrip("-")
        if found.lastgroup == "word" and not _LETTER.search(literal) and not _FOUR_DIGITS.search(literal):
            continue
        if found.lastgroup == "name":
            words = literal.split(" ")
            while words and _FUNCTION_WORD.fullmatch(words[0]):
                del words[0]
            if len(words) < 2:
                continue
            literal = " ".join(words)
        if LEAST_CHARS <= len(literal) <= MOST_CHARS and literal not in seen:
            seen.add(literal)
            yield literal


def stands_in(literal: str, text: str) -> bool:
    """True if the plain text holds the literal, not as a part of a longer word."""
    start = text.find(literal)
    while start >= 0:
        end = start + len(literal)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (_is_word(before) and _is_word(literal[0])) and not (
            _is_word(after) and _is_word(literal[-1])
        ):
            return True
        start = text.find(literal, start + 1)
    return False


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def strings(value: Any) -> Iterator[str]:
    """Yields the strings and numbers of a JSON value, without its keys and without quotes of files."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in QUOTE_KEYS:
                yield from strings(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def quotes(value: Any) -> Iterator[str]:
    """Yields the texts that the arguments of a tool quote from a file in order to replace them."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in QUOTE_KEYS and isinstance(item, str) and LEAST_CHARS <= len(item) <= MOST_QUOTE_CHARS:
                yield item
            else:
                yield from quotes(item)
    elif isinstance(value, list):
        for item in value:
            yield from quotes(item)


_GUTTER = re.compile(r"^[ ]*\d+(?:→|\t|: ?|\| ?)", re.MULTILINE)


def without_line_numbers(text: str) -> str:
    """The text without the line numbers that tools write before the lines of a file."""
    return _GUTTER.sub("", text)
