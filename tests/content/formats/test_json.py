"""JSON: records, documents one after another, tables in other forms, keys of nested objects."""

import json

import pytest

from content.describe import extent
from content.formats.sheets import table_of
from content.kind import Kind
from content.passages import split, whole
from content.source_text import SourceText
from content.values import as_table, read_value
from domain.errors import NotQueryable

SHEET = [
    {"address": "A1", "value": "Name"},
    {"address": "B1", "value": "Age"},
    {"address": "D1", "value": None},
    {"address": "A2", "value": "Ann"},
    {"address": "B2", "value": 41},
    {"address": "A4", "value": "Bo"},
    {"address": "D4", "value": "x"},
]
IN_ROWS = [
    {"Name": "Ann", "Age": 41, "column_3": None},
    {"Name": "Bo", "Age": None, "column_3": "x"},
]


@pytest.mark.parametrize(
    "value",
    [
        SHEET,
        {"sheet": "One", "cells": SHEET},
        {one["address"]: one["value"] for one in SHEET},
        {f"Sheet1!${one['address'][0]}${one['address'][1]}": {"v": one["value"]} for one in SHEET},
    ],
    ids=["list", "member", "keys", "objects"],
)
def test_cells_with_addresses_are_rows(value: object) -> None:
    assert table_of(value) == IN_ROWS


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        ([["id", "city"], [1, "Rome"], [2]], [{"id": 1, "city": "Rome"}, {"id": 2, "city": None}]),
        ({"range": "A1:B2", "values": [["a", "b"], ["1", "2"]]}, [{"a": "1", "b": "2"}]),
        ({"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}, [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
        ({"a": [1, 2], "b": ["x", None]}, [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    ],
)
def test_arrays_of_arrays_and_objects_of_arrays_are_rows(value: object, rows: object) -> None:
    assert table_of(value) == rows


@pytest.mark.parametrize(
    "value",
    [
        [{"id": 1}],
        [[1, 2], [3, 4]],
        {"a": [1], "b": [2, 3]},
        {"a": [[1]], "b": [[2]]},
        {"tags": ["a", "b"]},
        {"values": [1, 2]},
        {"address": "A1"},
        [{"address": "A1", "value": 1}, {"address": "home", "value": 2}],
        [],
        {},
        7,
    ],
)
def test_other_values_stay_as_they_are(value: object) -> None:
    assert table_of(value) is None
    assert as_table(value) is value


def test_keys_and_values_with_lone_surrogates_are_described() -> None:
    data = json.dumps([{"a": "\ud83d", "\udfff": 1}]).encode()
    assert extent(SourceText(data)).rpartition("; ")[0] == "JSON, 1 objects with keys a, \ufffd"


def test_cells_are_one_table_to_all() -> None:
    data = json.dumps(SHEET * 1, indent=1).encode()
    assert extent(SourceText(data)).rpartition("; ")[0] == "JSON, 2 rows, 3 columns: Name, Age, column_3"


def test_a_passage_of_cells_holds_whole_rows() -> None:
    cells = [{"address": f"{at}{row}", "value": f"{at} of {row}"} for row in range(1, 80) for at in "ABCDE"]
    source = SourceText(json.dumps(cells).encode())
    for one in list(split(source))[2:-2]:
        shown = whole(source, one)
        text = source.data[shown.start : shown.end].decode()
        assert text.count('"A') <= text.count('"E') + 1


def test_keys_of_small_objects_are_columns_of_their_own() -> None:
    row = {
        "id": 1,
        "billing": {"email": "a@b.c", "vat": 7},
        "tags": ["a"],
        "deep": {"x": {"y": 1}},
        "none": {},
    }
    data = json.dumps([row] * 20).encode()
    said = extent(SourceText(data)).rpartition("; ")[0]
    assert said == "JSON, 20 objects with keys id, billing.email, billing.vat, tags, deep, none"


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ('{"a": 1}\n{"a": 2}\nnot a record\n{"a": 3}\n{"a": 4}\n{"a": 5}\n', Kind.NDJSON, 5),
        ('started\n{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a": 4}\n{"a": 5}\n{"a": 6}\n', Kind.NDJSON, 6),
        ('{\n "a": "}{"\n}\n{\n "a": 2\n}\n', Kind.NDJSON, 2),
        ('{"a": 1}{"a": 2}', Kind.NDJSON, 2),
        ("[1, 2]\n[3, 4]\n", Kind.NDJSON, 2),
        ('{"template": "}{", "b": 1}', Kind.JSON, 2),
    ],
)
def test_documents_are_counted_with_and_without_text_among_them(text: str, kind: Kind, count: int) -> None:
    found, value = read_value(text.encode())
    assert found is kind
    assert isinstance(value, list | dict)
    assert len(value) == count


def test_a_record_that_is_cut_is_named_and_not_left_out() -> None:
    with pytest.raises(NotQueryable, match="line 3"):
        read_value(b'{"a": 1}\n{"a": 2}\n{"a": 3')


def test_records_below_a_request_are_records() -> None:
    request = 'PUT answers\n{\n  "mappings": {\n    "time": "date"\n  }\n}\n\n# The data\nPOST _bulk\n'
    rows = "".join(f'{{ "index": {{ "_id": "{n}" }} }}\n{{"group": "a", "time": {n}}}\n' for n in range(200))
    text = request + rows
    kind, value = read_value(text.encode())
    assert kind is Kind.NDJSON
    assert isinstance(value, list)
    assert len(value) == 400
    said = extent(SourceText(text.encode())).rpartition("; ")[0]
    assert said.endswith("records with keys index._id, group, time")
