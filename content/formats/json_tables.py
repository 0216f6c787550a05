"""The tables in JSON, found without decoding the rows themselves."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw
from pydantic_core import from_json

from content.formats import sheets
from content.json_rows import JsonRows, Row, decoded, encoded
from content.source import Source
from content.tables import (
    COUNTED_BYTES,
    HEAD_BYTES,
    INTEGER,
    LINES,
    NUMBER,
    PARSED_BYTES,
    SAMPLED,
    TEXT,
    Column,
    Documents,
    Table,
    TablesAndNotes,
    unique,
)
from content.text import count_of

_DEEPEST = 4
_LEAST_OF_MAP = 3
_LEAST_SCALARS = 10
_MOST_MEMBERS = 100
_COMPARED = 50
_MOST_TABLES = 24
_TEXT_SHARE = 0.75
_ESCAPED_QUOTE = b'\\"'
_BEGIN = 60
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_elements = msgspec.json.Decoder(list[Raw]).decode


class JsonTables(NamedTuple):
    """`data` are the rows that `query` reads first, `others` those of other tables by their keys. `document`
    is the object around them, without them."""

    data: JsonRows
    others: dict[str, JsonRows]
    document: Row | None = None


def unpacked(data: bytes) -> tuple[bytes, str]:
    """Decodes JSON that is nested as text in JSON, at any depth. Returns that JSON and the path of its text;
    the data itself and "" if no text makes up nearly all of it."""
    path = ""
    for _ in range(_DEEPEST if _ESCAPED_QUOTE in data[:HEAD_BYTES] else 0):
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


def ends_early(data: bytes | str) -> bool:
    """True for JSON whose only fault is that its end is missing."""
    try:
        from_json(data, cache_strings="none")
    except ValueError as error:
        return _is_at_end(error)
    return False


def _is_at_end(error: ValueError) -> bool:
    return str(error).startswith("EOF ")


def parsed_head(data: bytes) -> tuple[object, bool]:
    """Returns the value of JSON that may be cut, or None, and True if the JSON is complete."""
    try:
        return from_json(data, cache_strings="none"), True
    except ValueError as error:
        is_cut = _is_at_end(error)
    if not is_cut:
        try:
            # Lone surrogates, and deeper nesting.
            return json.loads(data), True
        except (ValueError, RecursionError):
            pass
    try:
        return from_json(data, allow_partial="trailing-strings", cache_strings="none"), False
    except (ValueError, RecursionError):
        return None, False


def tables_of_json(source: Source) -> TablesAndNotes:
    if source.is_whole:
        try:
            return tables_of_value(source.data)
        except (ValueError, RecursionError):
            return _broken(source.data)
    value, _ = parsed_head(source.data[:HEAD_BYTES])
    if value is None:
        return (), ()
    return only_data(tables_of_value(encoded(value)))


def only_data(found: TablesAndNotes) -> TablesAndNotes:
    """Returns `data` alone, the only table that the beginning of a value is sure to show."""
    (data, *_), _ = found
    return (data._replace(rows=None, path=""),), ()


def tables_of_value(data: bytes) -> TablesAndNotes:
    data, inside = unpacked(data)
    found = tables_in(data)
    taken = {"data", "document", LINES}
    tables = [table_of_rows("data", found.data)]
    for key, rows in found.others.items():
        name = unique([key], taken)[0]
        taken.add(name.lower())
        tables.append(table_of_rows(name, rows))
    if found.document:
        tables.append(table_of_rows("document", JsonRows("$", 1, rows=(found.document,))))
    note = f"data is the JSON in the text of {inside}; all around it is only in lines." if inside else ""
    return tuple(tables), (note,) if note else ()


def _broken(data: bytes) -> TablesAndNotes:
    """Returns the tables of JSON that is followed by other text, or whose end is missing."""
    if len(data) > PARSED_BYTES:
        raise ValueError("too large to be parsed")
    text = data.decode("utf-8", "replace")
    if ends_early(text):
        tables, _ = tables_of_value(encoded(cut_off(text)))
        last = text.rstrip().count("\n") + 1
        # One long line is shown as many lines.
        where = f" in line {last:,}" if last > 1 else ""
        rows = count_of(tables[0].rows or 0, "complete element")
        return tables, (f"The JSON is cut off{where}: data has its {rows}.",)
    values, end = documents(text)
    if not values or not is_most(text, end):
        raise ValueError("most of it is no JSON")
    tables, _ = tables_of_value(encoded(values[0] if len(values) == 1 else values))
    line = text.count("\n", 0, end) + 1
    where = f" in line {line:,}" if "\n" in text.rstrip() else ""
    note = f"What follows the JSON{where} is only in lines." if text[end:].strip() else ""
    return tables, (note,) if note else ()


def is_most(text: str, size: int) -> bool:
    return 2 * size >= len(text)


_NO_SPACE = re.compile(r"\S")


def documents(text: str) -> tuple[list[object], int]:
    """Returns the JSON documents that follow each other from the beginning, and the end of the last one."""
    decode = json.JSONDecoder().raw_decode
    values: list[object] = []
    at = 0
    while begin := _NO_SPACE.search(text, at):
        try:
            value, at = decode(text, begin.start())
        except (ValueError, RecursionError):
            break
        values.append(value)
    return values, at


_NO_MARKS = bytes(set(range(256)) - set(b'"[]{}'))


def cut_off(text: str) -> object:
    """Returns the value of JSON whose end is missing, without its incomplete element. Raises ValueError."""
    value: Any = from_json(text, allow_partial=True, cache_strings="none")
    inner = value
    for _ in range(1, _open_brackets(text.encode("utf-8", "replace"))):
        if isinstance(inner, list) and inner:
            inner.pop()
        # What `from_json` ended may have fewer levels than the text.
        if not isinstance(inner, dict) or not inner:
            break
        inner = inner[next(reversed(inner))]
    return value


def _open_brackets(data: bytes) -> int:
    """Returns how many lists and objects of JSON are open at its end."""
    marks = data.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS)
    bare = b"".join(marks.split(b'"')[::2])
    return bare.count(b"[") + bare.count(b"{") - bare.count(b"]") - bare.count(b"}")


def tables_of_records(source: Source) -> TablesAndNotes:
    lines = [line for line in source.data[:HEAD_BYTES].split(b"\n") if line[:1] in (b"{", b"[")]
    rows = []
    for line in lines[:SAMPLED]:
        try:
            rows.append(decoded(line))
        except ValueError:
            break
    if not rows:
        head = source.data[:HEAD_BYTES].decode("utf-8", "replace")
        rows, end = documents(head)
        rows = rows if is_most(head, end) else []
    if len(rows) == 1 and source.is_whole:
        return _broken(source.data)
    if not rows:
        raise ValueError("no record in the head")
    table = table_of_rows(
        "data", JsonRows("", 0, rows=tuple(row if isinstance(row, dict) else {"value": row} for row in rows))
    )
    return (table._replace(rows=_records_count(source), path="", read=Documents()),), ()


def _records_count(source: Source) -> int | None:
    """Returns the records to load; None if finding them would take long."""
    if not source.is_whole or len(source.data) > COUNTED_BYTES:
        return None
    lines = [line for line in source.data.split(b"\n") if line.strip()]
    whole = [*map(_is_object, lines)]
    if all(whole[:-1]) and len(lines) > 1:
        return sum(whole)
    if any(whole) or len(source.data) > HEAD_BYTES:
        return None
    values, _ = documents(source.data.decode("utf-8", "replace"))
    lists = [value if isinstance(value, list) else [value] for value in values]
    rows = [*chain.from_iterable(lists)]
    return len(rows) if all(isinstance(row, dict) for row in rows) else None


def _is_object(line: bytes) -> bool:
    try:
        return bytes(_raw(line))[:1] == b"{"
    except msgspec.DecodeError:
        return False


_raw = msgspec.json.Decoder(msgspec.Raw).decode


def table_of_rows(name: str, rows: JsonRows) -> Table:
    first = rows.first(SAMPLED)
    keys = dict.fromkeys(key for row in first for key in row) or {"value": None}
    columns = tuple(
        Column(name, _json_type([row[key] for row in first if row.get(key) is not None]))
        for name, key in zip(unique(keys), keys, strict=True)
    )
    sample = tuple(first[0].get(key) for key in keys) if first else None
    return Table(name, columns, rows.size, sample, path=rows.path, read=rows)


def _json_type(values: Sequence[object]) -> str:
    kinds = {type(value) for value in values}
    if kinds and kinds <= {int}:
        return INTEGER
    if kinds and kinds <= {int, float}:
        return NUMBER
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {dict}:
        return "STRUCT"
    return "LIST" if kinds == {list} else TEXT
