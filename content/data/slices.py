"""The part of a query's value that one response returns: JSON within a cap of bytes."""

import msgspec
from msgspec import Raw, Struct

from content.text import cut_head
from domain.errors import InvalidField, QueryTooCostly

_encode = msgspec.json.Encoder().encode


class Slice(Struct, frozen=True):
    """`total` counts the items of an array, None for any other value. `truncated`: `result` is a part."""

    result: Raw
    type: str
    total: int | None
    next_offset: int | None
    truncated: bool


def slice_of(value: object, limit: int, offset: int, max_bytes: int) -> Slice:
    """Returns items `offset` to before `offset + limit` of an array, as many as fit; a string, cut if needed;
    any other value whole. Raises QueryTooCostly if an item or value does not fit and cannot be cut."""
    if isinstance(value, list):
        return _items(value, limit, offset, max_bytes)
    encoded, truncated = encoded_json(value), False
    if len(encoded) > max_bytes:
        if not isinstance(value, str):
            raise _too_large("value", len(encoded), max_bytes)
        encoded, truncated = _string_head(_whole_characters(value), len(encoded), max_bytes), True
    return Slice(Raw(encoded), _type(value), None, None, truncated)


def _items(array: list[object], limit: int, offset: int, max_bytes: int) -> Slice:
    held: list[bytes] = []
    room = max_bytes - 2
    for item in array[offset : offset + limit]:
        encoded = encoded_json(item)
        room -= len(encoded) + 1
        if room < -1:
            if not held:
                raise _too_large("first of these items", len(encoded), max_bytes)
            break
        held.append(encoded)
    end = offset + len(held)
    return Slice(
        Raw(b"[" + b",".join(held) + b"]"),
        "array",
        len(array),
        end if end < len(array) else None,
        len(held) < len(array),
    )


def encoded_json(value: object) -> bytes:
    """Encodes as JSON. Lone surrogates become U+FFFD, infinities null. Raises InvalidField for other
    values."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_without_surrogates(value))
    except TypeError:
        raise InvalidField("The value is an expression (&…), not data: give it to a function.") from None
    except RecursionError:
        raise InvalidField("The value is nested too deeply for an answer.") from None


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return _whole_characters(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _whole_characters(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _string_head(text: str, encoded_size: int, max_bytes: int) -> bytes:
    """Shortens the string in proportion until it fits with its escapes and quotes."""
    data, encoded = text.encode(), b""
    while data and encoded_size > max_bytes:
        data = cut_head(data, len(data) * max(max_bytes - 2, 0) // encoded_size)
        encoded = _encode(data.decode())
        encoded_size = len(encoded)
    return encoded


def _type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "object"


def _too_large(what: str, size: int, max_bytes: int) -> QueryTooCostly:
    return QueryTooCostly(
        f"The {what} has {size:,} bytes, and an answer holds {max_bytes:,}. Select less of it: "
        "`keys(@)` lists an object's keys, `.{a: a, b: b}` picks some."
    )
