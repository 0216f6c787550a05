"""Rows of JSON, as SQL reads them."""

import json
from typing import Any, NamedTuple

import msgspec

from content.text import without_surrogates

Row = dict[str, Any]


class JsonRows(NamedTuple):
    """Rows at `path`, such as `$.result.items`, "$" for all of the value. `array` is the text of an array of
    objects, b"" where `rows` are what the reader has made of another form. `size` is the number of rows.
    `begin` are the texts of the first elements of the array."""

    path: str
    size: int
    array: bytes = b""
    rows: tuple[Row, ...] = ()
    begin: tuple[bytes, ...] = ()

    def first(self, most: int) -> list[Row]:
        """At most 60."""
        return [decoded(raw) for raw in self.begin[:most]] if self.array else list(self.rows[:most])


def decoded(data: bytes) -> Any:
    """The value; NaN and infinities are their names. Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return json.loads(data, parse_constant=str, strict=False)


def encoded(value: object) -> bytes:
    """The value as JSON; lone surrogates are U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(without_surrogates(value), ensure_ascii=False).encode()
