"""Where the records of a value are, and what their keys hold."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOKED_AT = 2000
_DEPTH = 2


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """`records` is the expression of the array, "" for the value itself; `noun` its key, if it has one.
    `types` says of each path, `("address", "city")`, "number", "string", "boolean" or "mixed"; null aside."""

    records: str
    noun: str
    types: dict[tuple[str, ...], str]

    def find(self, name: str) -> tuple[str, ...] | None:
        """The one path of this name, whatever its case and separators; None where there is none, or more."""
        wanted = plain_name(name)
        whole = [path for path in self.types if plain_name("".join(path)) == wanted]
        found = whole or [path for path in self.types if plain_name(path[-1]) == wanted]
        return found[0] if wanted and len(found) == 1 else None


def plain_name(name: str) -> str:
    """`unitPrice`, `unit_price` and `Unit price` are one name."""
    return "".join(filter(str.isalnum, name)).lower()


def quoted(path: tuple[str, ...]) -> str:
    """The path in JMESPath."""
    return ".".join(key if _PLAIN.fullmatch(key) else json.dumps(key) for key in path)


def keys_of(value: object) -> RecordKeys | None:
    """None where no array of objects stands out: there is none, or there are several."""
    arrays = list(_arrays(value, ()))
    if len(arrays) != 1:
        return None
    path, records = arrays[0]
    types: dict[tuple[str, ...], str] = {}
    for record in records[:_LOOKED_AT]:
        for key, item in _leaves(record, ()):
            kind = _type(item)
            if kind is not None:
                types[key] = kind if types.get(key, kind) == kind else "mixed"
    return RecordKeys(quoted(path), path[-1] if path else "", types)


def _arrays(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[object]]]:
    """Every array of nothing but objects that no other array holds."""
    if isinstance(value, list):
        if value and all(isinstance(item, dict) for item in value):
            yield path, value
    elif isinstance(value, dict) and len(path) < _DEPTH:
        for key, item in value.items():
            yield from _arrays(item, (*path, key))


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict) and len(path) < _DEPTH:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif path:
        yield path, value


def _type(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "mixed"
