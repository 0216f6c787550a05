"""Where the rows are in JSON: each table of an object, found without decoding the rows themselves."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from content.formats import sheets
from content.text import without_surrogates

Row = dict[str, Any]

_DEEPEST = 4
_LEAST_OF_MAP = 3
_LEAST_SCALARS = 10
_MOST_MEMBERS = 100
_COMPARED = 50
_MOST_TABLES = 24
_TEXT_SHARE = 0.75
_ESCAPED_QUOTE = b'\\"'
_HEAD = 64 << 10
_BEGIN = 60
_PLAIN = re.compile(r"[A-Za-z_]\w*")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_elements = msgspec.json.Decoder(list[Raw]).decode


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


class JsonTables(NamedTuple):
    """`data` are the rows that `query` reads first, `others` those of other tables by their keys. `document`
    is the object around them, without them."""

    data: JsonRows
    others: dict[str, JsonRows]
    document: Row | None = None


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


def unpacked(data: bytes) -> tuple[bytes, str]:
    """Decodes JSON that is nested as text in JSON, at any depth. Returns that JSON and the path of its text;
    the data itself and "" if no text makes up nearly all of it."""
    path = ""
    for _ in range(_DEEPEST if _ESCAPED_QUOTE in data[:_HEAD] else 0):
        found = _long_text(data)
        if found is None:
            break
        data, path = found[1], f"{path}{found[0]}"
    return data, f"${path}" if path else ""


def _long_text(data: bytes) -> tuple[str, bytes] | None:
    """Returns a text that is JSON and most of the data, within objects and lists of one element, and its
    path."""
    bare, path = data.strip(), ""
    try:
        while bare[:1] in (b"[", b"{"):
            if bare[:1] == b"[":
                (bare,), step = map(bytes, _elements(bare)), "[0]"
            else:
                key, item = max(_members(bare).items(), key=lambda one: len(bytes(one[1])))
                bare, step = bytes(item), json_path_of([key])[1:]
            path += step
            if len(bare) < _TEXT_SHARE * len(data):
                return None
        text = msgspec.json.decode(bare, type=str).strip().encode()
        if text[:1] in (b"[", b"{"):
            msgspec.json.decode(text, type=Raw)
            return path, text
    except (ValueError, RecursionError):
        pass
    return None


def tables_in(data: bytes) -> JsonTables:
    """The tables of a JSON value. Of an object `data` are the longest array of objects in it, or the longest
    of its objects whose members are alike; of another object the object itself. Raises ValueError and
    RecursionError."""
    try:
        return _tables_of(data.strip())
    except msgspec.DecodeError:
        # NaN, infinities, lone surrogates, which JSON does not have.
        return _tables_of(encoded(decoded(data)))


def _tables_of(raw: bytes) -> JsonTables:
    if raw[:1] == b"{":
        return _of_object(raw)
    if raw[:1] == b"[":
        items = _elements(raw)
        if len(items) == 1 and bytes(items[0])[:1] == b"{":
            inside = _of_object(bytes(items[0]))
            if inside.document is not None:
                return inside
        return JsonTables(_of_array("$", raw, items, _firsts(items)), {})
    return JsonTables(JsonRows("$", 1, rows=({"value": decoded(raw)},)), {})


def _of_object(raw: bytes) -> JsonTables:
    table = sheets.rows_in(raw)
    if table is not None:
        return JsonTables(JsonRows("$", len(table), rows=tuple(table)), {})
    members = _members(raw)
    places = list(islice(_places(raw, members, ()), _MOST_TABLES))
    if not places:
        value = decoded(raw)
        rows = _pairs(value) if _is_map_of_scalars(value) else [value]
        return JsonTables(JsonRows("$", len(rows), rows=tuple(rows)), {})
    best_steps, best = max(places, key=lambda place: place[1].size)
    others = _named([(steps, rows) for steps, rows in places if rows is not best and steps], best_steps)
    document = _without(members, [steps for steps, _ in places if steps]) if best_steps else None
    return JsonTables(best, others, document)


def _named(places: Sequence[tuple[tuple[str, ...], JsonRows]], best: tuple[str, ...]) -> dict[str, JsonRows]:
    """Returns the tables by their last keys. A key that `data` or another table has too is prefixed with the
    key above it."""
    named: dict[str, JsonRows] = {}
    for steps, rows in places:
        is_taken = steps[-1] in named or steps[-1:] == best[-1:]
        name = "_".join(steps[-2:]) if is_taken else steps[-1]
        while name in named:
            name += "_"
        named[name] = rows
    return named


def _places(
    raw: bytes, members: dict[str, Raw], steps: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], JsonRows]]:
    path = json_path_of(steps)
    if _is_map_of_objects(members):
        value = decoded(raw)
        name = "_key" if any("key" in item for item in value.values()) else "key"
        yield steps, JsonRows(path, len(value), rows=tuple({name: key, **one} for key, one in value.items()))
        return
    for key, item in members.items():
        inner, inside = bytes(item), (*steps, key)
        if inner[:1] == b"[":
            elements = _elements(inner)
            firsts = _firsts(elements)
            if (
                firsts == {b"{"}
                or _is_grid(inner, firsts)
                or (len(elements) >= _LEAST_SCALARS and not firsts & {b"{", b"["})
            ):
                yield inside, _of_array(json_path_of(inside), inner, elements, firsts)
        elif inner[:1] == b"{" and len(steps) < _DEEPEST:
            yield from _places(inner, _members(inner), inside)


def _firsts(items: list[Raw]) -> set[bytes]:
    """Returns the first bytes of the elements, which show their types."""
    return {b"%c" % first for first in {memoryview(item)[0] for item in items}}


def _is_grid(raw: bytes, firsts: set[bytes]) -> bool:
    return firsts == {b"["} and sheets.table_of(decoded(raw)) is not None


def _of_array(path: str, raw: bytes, items: list[Raw], firsts: set[bytes]) -> JsonRows:
    if firsts == {b"{"} and (table := sheets.rows_in(raw)) is None:
        return JsonRows(path, len(items), raw, begin=tuple(map(bytes, items[:_BEGIN])))
    value = decoded(raw)
    table = sheets.table_of(value)
    rows = table if table is not None else rows_of(value)
    return JsonRows(path, len(rows), rows=tuple(rows))


def rows_of(items: list[Any]) -> list[Row]:
    """Elements as rows: lists of objects joined, cells of a list as column_1 and so on, others as value."""
    if items and all(
        isinstance(item, list) and item and all(isinstance(one, dict) for one in item) for item in items
    ):
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


def _is_map_of_objects(members: dict[str, Raw]) -> bool:
    """True for an object whose members are objects that share half of their keys."""
    if len(members) < _LEAST_OF_MAP or any(bytes(item)[:1] != b"{" for item in members.values()):
        return False
    first, *others = (_members(item).keys() for item in members.values())
    return bool(first) and all(2 * len(first & other) >= len(first) for other in others)


def _is_map_of_scalars(value: Row) -> bool:
    return len(value) > _MOST_MEMBERS and not any(isinstance(item, dict | list) for item in value.values())


def _pairs(value: Row) -> list[Row]:
    return [{"key": key, "value": item} for key, item in value.items()]


def json_path_of(steps: Sequence[str]) -> str:
    return "$" + "".join(
        f".{step}" if _PLAIN.fullmatch(step) else f".{json.dumps(step, ensure_ascii=False)}" for step in steps
    )


def _without(members: dict[str, Raw], places: list[tuple[str, ...]]) -> Row:
    """The object of these members, without its tables."""
    taken = {steps[0] for steps in places if len(steps) == 1}
    deeper = {steps[0] for steps in places if len(steps) > 1}
    return {
        key: _without(_members(item), [steps[1:] for steps in places if steps[0] == key and len(steps) > 1])
        if key in deeper
        else decoded(bytes(item))
        for key, item in members.items()
        if key not in taken
    }
