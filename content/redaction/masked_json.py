"""JSON with masks in its strings: it is still JSON, of the same shape."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from content.redaction.masks import NOT_SEARCHED, Masks

_START = re.compile(rb'"|[-+.0-9A-Za-z]+')
_PART = re.compile(rb'[^"\\]*+(?>(?:\\.[^"\\]*+){0,4096})', re.DOTALL)
"""A part of a string: regular expressions take about 100 bytes of memory for each escape."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_COLON = re.compile(rb"[ \t\r\n]*:")
_BASE64 = re.compile(rb"[A-Za-z0-9+/\\]{1000,}={0,2}")
_DATA_URL = re.compile(rb"data:[\w+./-]{1,100}(?:;[\w=.-]{1,100})*;base64,[A-Za-z0-9+/\\]+={0,2}")
_OF_BYTES = frozenset({b'"data"', b'"blob"', b'"bytes"', b'"file_data"', b'"b64_json"'})
"""The names under which pictures, sounds and files are in base64."""

_WORD = re.compile(rb'"[A-Za-z]?[a-z][A-Za-z_]{0,22}"')
"""A name or type in the shape of a message. No key or token is so short and has letters alone."""

_QUOTE = ord('"')
_LITERALS = frozenset({b"true", b"false", b"null"})


class _Token(NamedTuple):
    """A string with its quotes, a number or a literal. `name`: the name of the member whose value it is; that
    of an item is the one of its list. None for a name itself."""

    start: int
    end: int
    name: bytes | None


def masked_json(data: bytes, masks: Masks, key: bytes, *, keeps_numbers: bool = False) -> bytes:
    """The text of a JSON value with its masks; `data` itself if none of them is in a string or number. A
    number becomes a string, unless it is kept. Bytes in base64 stay, as pictures. `key`: that of the
    session."""
    parts, done, number = list[bytes](), 0, 0
    for token in _tokens(data):
        while number < len(masks) and masks.ends[number] <= token.start:
            number += 1
        if number == len(masks):
            break
        if masks.starts[number] < token.end:
            instead = _masked(data, token, _Cuts(masks, number, key), keeps_numbers=keeps_numbers)
            if instead is not None:
                parts += [data[done : token.start], instead]
                done = token.end
    return b"".join([*parts, data[done:]]) if parts else data


def _tokens(data: bytes) -> Iterator[_Token]:
    at, name = 0, b""
    while (found := _START.search(data, at)) is not None:
        start, at = found.span()
        if data[start] != _QUOTE:
            yield _Token(start, at, name)
            continue
        at = _end_of_string(data, at)
        if _COLON.match(data, at):
            name = data[start:at]
            yield _Token(start, at, None)
        else:
            yield _Token(start, at, name)


def _end_of_string(data: bytes, at: int) -> int:
    """Behind the quote that ends the string within which `at` is."""
    while (part := _PART.match(data, at)) is not None and part.end() > at:
        at = part.end()
    return at + 1


class _Cuts(NamedTuple):
    """The masks from a number on."""

    masks: Masks
    number: int
    key: bytes

    def within(self, token: _Token) -> Iterator[tuple[int, int, bytes]]:
        """What gives way to which mask. Of what is longer than the token, a name stays."""
        for number in range(self.number, len(self.masks)):
            start, end = self.masks.starts[number], self.masks.ends[number]
            if start >= token.end - 1:
                return
            is_longer = start <= token.start or end >= token.end
            if token.name is None and is_longer and self.masks.kind(number) != NOT_SEARCHED:
                continue
            yield (
                max(start, token.start + 1),
                min(end, token.end - 1),
                self.masks.mask(number, self.key),
            )


def _masked(data: bytes, token: _Token, cuts: _Cuts, *, keeps_numbers: bool) -> bytes | None:
    """None if the token stays."""
    text = data[token.start : token.end]
    if text[0] != _QUOTE:
        stays = keeps_numbers or text in _LITERALS
        return None if stays else b'"%b"' % cuts.masks.mask(cuts.number, cuts.key)
    if _is_binary(text, token.name):
        return None
    if cuts.masks.kind(cuts.number) == NOT_SEARCHED and _WORD.fullmatch(text):
        return None
    parts, at = list[bytes](), token.start
    for start, end, mask in _unbroken(data, token, cuts.within(token)):
        parts += [data[at : max(start, at)], mask]
        at = end
    return b"".join([*parts, data[at : token.end]]) if parts else None


def _is_binary(text: bytes, name: bytes | None) -> bool:
    inside = text[1:-1]
    return bool((name in _OF_BYTES and _BASE64.fullmatch(inside)) or _DATA_URL.fullmatch(inside))


def _unbroken(
    data: bytes, token: _Token, cuts: Iterable[tuple[int, int, bytes]]
) -> Iterator[tuple[int, int, bytes]]:
    """The same, with the whole of each escape of which they have a part."""
    escapes = _ESCAPE.finditer(data, token.start + 1, token.end - 1)
    escape = next(escapes, None)
    for start, end, mask in cuts:
        while escape is not None and escape.end() <= start:
            escape = next(escapes, None)
        first = start if escape is None else min(start, escape.start())
        while escape is not None and escape.end() < end:
            escape = next(escapes, None)
        if escape is not None and escape.start() < end:
            end = escape.end()
        yield first, end, mask
