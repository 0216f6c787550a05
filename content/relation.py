"""The rows that a value holds: those of the table `data`, which SQL reads."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import methodcaller
from typing import Any, NamedTuple

from content.formats import sheets
from content.formats.table import unique

Row = dict[str, Any]

_DEEPEST = 4
_LEAST_OF_MAP = 3
_LEAST_SCALARS = 10
_MOST_MEMBERS = 100
_MOST_INNER = 24
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RESERVED_WORDS = """
add all alter and as autoincrement between case check collate commit constraint create cross current_date
current_time current_timestamp default deferrable delete distinct drop else escape except exists foreign
from full group having if in index indexed inner insert intersect into is isnull join left limit natural not
nothing notnull null offset on or order outer primary references returning right select set table then to
transaction union unique update using values when where with
"""
RESERVED = frozenset(_RESERVED_WORDS.split())
"""Words of SQLite that are no name without quotes."""


class Lines(NamedTuple):
    """The lines of a text as rows; `first` is the number of the first. `read` takes more columns."""

    first: int
    data: bytes
    read: Mapping[str, Callable[[bytes], str | None]]
    affinities: Mapping[type, str] = {int: "INTEGER", str: "TEXT"}

    def columns(self) -> "list[Column]":
        names = ("line", "text", *self.read)
        return [Column(name, (name,), frozenset((int if name == "line" else str,))) for name in names]

    def rows(self) -> Iterator[tuple[int | str | None, ...]]:
        data, readers, number, start = self.data, tuple(self.read.values()), self.first, 0
        while start < len(data):
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            line = data[start:end].removesuffix(b"\r")
            yield number, line.decode("utf-8", "replace"), *(read(line) for read in readers)
            number, start = number + 1, end + 1


class Cells(NamedTuple):
    """The rows of a table that are read as they are loaded, and the types of its columns: float for numbers,
    int for numbers of which some are too large for SQLite. `notes` say of columns how their numbers are
    read."""

    types: Mapping[str, type]
    read: Callable[[], Iterator[tuple[Any, ...]]]
    notes: Mapping[str, str]
    affinities: Mapping[type, str] = {float: "NUMERIC", int: "", str: "TEXT"}

    def columns(self) -> "list[Column]":
        types = self.types.values()
        names = _unique(self.types)
        return [Column(name, (name,), frozenset((kind,))) for name, kind in zip(names, types, strict=True)]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return self.read()


class Relation(NamedTuple):
    """`path` is where the rows are in the value, such as `$.result.items`, "" if they are all of it.
    `document` is the object around them, without them; None if they are all of the value."""

    rows: list[Row]
    path: str = ""
    document: Row | None = None


class _Place(NamedTuple):
    """`steps` lead from an object to the `rows` in it."""

    steps: tuple[str, ...]
    rows: list[Row]


def relation_of(value: object) -> Relation:
    """The rows of a table in any of its forms. Of an object they are the longest array of objects in it, or
    the longest of its objects whose members are alike; of another object they are the object itself."""
    table = sheets.table_of(value)
    if table is not None:
        return Relation(table)
    if isinstance(value, list):
        return Relation(_rows_of(value))
    if not isinstance(value, dict):
        return Relation([{"value": value}])
    places = list(_places(value, ()))
    if not places:
        return Relation(_pairs(value) if _is_map_of_scalars(value) else [value])
    best = max(places, key=lambda place: len(place.rows))
    if not best.steps:
        return Relation(best.rows)
    path = "".join(f".{step}" if _PLAIN_NAME.fullmatch(step) else f'."{step}"' for step in best.steps)
    return Relation(best.rows, f"${path}", _without(value, best.steps))


def _places(value: Row, steps: tuple[str, ...]) -> Iterator[_Place]:
    if _is_map_of_objects(value):
        yield _Place(steps, _named(value))
        return
    for key, item in value.items():
        if isinstance(item, list) and item:
            table = sheets.table_of(item) if isinstance(item[0], list) else None
            if table is not None:
                yield _Place((*steps, key), table)
            elif all(isinstance(one, dict) for one in item) or (
                len(item) >= _LEAST_SCALARS and not any(isinstance(one, dict | list) for one in item)
            ):
                yield _Place((*steps, key), _rows_of(item))
        elif isinstance(item, dict) and len(steps) < _DEEPEST:
            yield from _places(item, (*steps, key))


def _is_map_of_objects(value: Row) -> bool:
    """True for an object whose members are objects that share half of their keys."""
    if len(value) < _LEAST_OF_MAP or not all(isinstance(item, dict) for item in value.values()):
        return False
    first, *others = value.values()
    return bool(first) and all(2 * len(first.keys() & other.keys()) >= len(first) for other in others)


def _is_map_of_scalars(value: Row) -> bool:
    return len(value) > _MOST_MEMBERS and not any(isinstance(item, dict | list) for item in value.values())


def _named(value: Row) -> list[Row]:
    name = "_key" if any("key" in item for item in value.values()) else "key"
    return [{name: key, **item} for key, item in value.items()]


def _pairs(value: Row) -> list[Row]:
    return [{"key": key, "value": item} for key, item in value.items()]


def _rows_of(items: list[Any]) -> list[Row]:
    if all(isinstance(item, list) and all(isinstance(one, dict) for one in item) for item in items):
        return [{"_list": number, **one} for number, item in enumerate(items, 1) for one in item]
    if any(isinstance(item, list) for item in items):
        return [
            {f"column_{number}": cell for number, cell in enumerate(item, 1)}
            if isinstance(item, list)
            else _row(item)
            for item in items
        ]
    return [_row(item) for item in items]


def _row(item: object) -> Row:
    return item if isinstance(item, dict) else {"value": item}


def _without(value: Row, steps: tuple[str, ...]) -> Row:
    first, *rest = steps
    if not rest:
        return {key: item for key, item in value.items() if key != first}
    return {key: _without(item, tuple(rest)) if key == first else item for key, item in value.items()}


class Column(NamedTuple):
    """A column and the keys that lead to its cell in a row: two for a member of a nested object."""

    name: str
    keys: tuple[str, ...]
    types: frozenset[type]

    @property
    def read(self) -> Callable[[Row], Any]:
        """Takes the cell of the column from a row, None if there is none."""
        if len(self.keys) == 1:
            return methodcaller("get", self.keys[0])
        outer, inner = self.keys
        return lambda row: item.get(inner) if (item := row.get(outer)) else None


def columns_of(rows: list[Row]) -> list[Column]:
    """A column for each key. A small object in a row, such as `{"billing": {"email": …}}`, is the columns
    `billing.email` and so on. Names are unique without regard to case."""
    types: dict[str, set[type]] = {}
    for row in rows:
        _note_types(types, row)
    members = _members(rows, {key for key, kinds in types.items() if dict in kinds and kinds <= _OBJECT})
    columns: list[tuple[tuple[str, ...], str, set[type]]] = []
    for key, kinds in types.items():
        if inner := members.get(key):
            columns += [((key, name), f"{key}.{name}", of_inner) for name, of_inner in inner.items()]
        else:
            columns.append(((key,), key, kinds))
    names = _unique(name for _, name, _ in columns)
    return [
        Column(name, keys, frozenset(kinds)) for name, (keys, _, kinds) in zip(names, columns, strict=True)
    ]


_OBJECT = {dict, type(None)}


def _members(rows: list[Row], objects: set[str]) -> dict[str, dict[str, set[type]]]:
    """The types of the members of these keys, whose cells are objects; none where they have many members."""
    members: dict[str, dict[str, set[type]]] = {key: {} for key in objects}
    for row in rows if objects else ():
        for key, item in row.items():
            if item and (types := members.get(key)) is not None:
                _note_types(types, item)
                if len(types) > _MOST_INNER:
                    del members[key]
    return members


def _note_types(types: dict[str, set[type]], row: Row) -> None:
    for key, item in row.items():
        kinds = types.get(key)
        if kinds is None:
            kinds = types[key] = set()
        kinds.add(type(item))


def _unique(keys: Iterable[str]) -> list[str]:
    names = (plain_name(key) or f"column_{number}" for number, key in enumerate(keys, 1))
    return unique(names, fold=str.lower)


def plain_name(key: str) -> str:
    """The key on one line, without what SQLite cannot take in a name."""
    return " ".join(key.replace("\0", " ").encode("utf-8", "replace").decode().split())


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def spelled(name: str) -> str:
    """The name as SQL spells it: in double quotes where it is not a plain word."""
    is_plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in RESERVED
    return name if is_plain else quoted(name)


def text_of(text: str) -> str:
    """The text as SQL spells it."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Iterable[str], most_chars: int) -> str:
    """The names that fit, and how many more there are."""
    names = list(names)
    room, count = most_chars, 0
    for name in names:
        room -= len(name) + 2
        if room < 0 and count:
            break
        count += 1
    more = f", and {len(names) - count:,} more" if count < len(names) else ""
    return ", ".join(names[:count]) + more
