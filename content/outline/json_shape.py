"""The shape of JSON: types, keys and lengths. The JSON may be cut anywhere."""

import json
import re
from collections.abc import Iterator

_DEPTH = 3
_KEYS = 24
_KEY_CHARS = 60
_RECORDS = 5
_NAMES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_CLOSER = {b"{": b"}", b"[": b"]"}


def json_shape(data: bytes) -> Iterator[str]:
    """Lines that describe the value; none if it is not JSON."""
    value, whole = parsed_head(data)
    if value is not None:
        yield from _described("" if whole else "(cut off) ", value, 0)


def records_shape(data: bytes) -> Iterator[str]:
    """Describes JSON lines: their number, and the keys of the first records."""
    lines = data.splitlines()
    yield f"{len(lines)} lines, one record each"
    keys: dict[str, str] = {}
    for line in lines[:_RECORDS]:
        value, _ = parsed_head(line)
        if isinstance(value, dict):
            keys |= {key: _type(item) for key, item in value.items() if key not in keys}
    yield from (f"  {_key(key)}: {kind}" for key, kind in list(keys.items())[:_KEYS])


def parsed_head(data: bytes) -> tuple[object, bool]:
    """The value, of cut data as far as it goes; None if it is no JSON. True if the data is complete."""
    try:
        return json.loads(data), True
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_closed(data)), False
    except (ValueError, RecursionError):
        return None, False


def _closed(data: bytes) -> bytes:
    """The data up to its last comma, with its open brackets closed."""
    tokens = [(match[0], match.start()) for match in _TOKEN.finditer(data)]
    while tokens and tokens[-1][0] != b",":
        tokens.pop()
    if not tokens:
        return b""
    still_open: list[bytes] = []
    for token, _ in tokens:
        if token in _CLOSER:
            still_open.append(_CLOSER[token])
        elif still_open and token in (b"}", b"]"):
            still_open.pop()
    return data[: tokens[-1][1]] + b"".join(reversed(still_open))


def _described(label: str, value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}{label}{_type(value)}"
    if depth == _DEPTH:
        return
    if isinstance(value, dict):
        for key in list(value)[:_KEYS]:
            yield from _described(f"{_key(key)}: ", value[key], depth + 1)
        if len(value) > _KEYS:
            yield f"{indent}  … {len(value) - _KEYS} more keys"
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        yield from _described("first item: ", value[0], depth + 1)


def _type(value: object) -> str:
    if isinstance(value, dict):
        return f"object with {len(value)} keys"
    if isinstance(value, list):
        return f"array of {len(value)}"
    return _NAMES[type(value)]


def _key(key: str) -> str:
    key = " ".join(key.split())
    return key if len(key) <= _KEY_CHARS else key[: _KEY_CHARS - 1] + "…"
