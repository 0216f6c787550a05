"""Results as values: JSON and its dialects, streams of documents, tables."""

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.formats.table import Dialect, Row, dialect_of, read_table
from content.kind import Kind
from content.tables import TEXT, table_of_cells
from content.values import read_value
from domain.errors import NotQueryable

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=8)


def rows_of(text: str) -> list[Row]:
    """A table of two columns and few rows is told from no other text: its separator is known here."""
    return read_table(text, dialect_of(text.encode()) or Dialect(b"\t" if "\t" in text else b","))


def value_of(text: str, tool: str = "") -> object:
    return read_value(text.encode(), tool)[1]


def test_a_byte_order_mark_and_crlf_are_passed_over() -> None:
    assert value_of('\ufeff{"a": 1}\r\n') == {"a": 1}
    assert value_of("\ufeffid,name,n\r\n1,x,2\r\n") == [{"id": 1, "name": "x", "n": 2}]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"a": 1}\r\n\r\n  {"a": 2}',
        '{"a":\n 1}{"a": 2}',
        '{\n  "a": 1\n}\n{\n  "a": 2\n}\n',
    ],
)
def test_documents_one_after_the_other_are_one_array(text: str) -> None:
    assert read_value(text.encode()) == (Kind.NDJSON, [{"a": 1}, {"a": 2}])


def test_a_line_separator_within_a_string_ends_no_record() -> None:
    assert value_of('{"a": "x\u2028y"}\n{"a": "z"}') == [{"a": "x\u2028y"}, {"a": "z"}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1}\n{"a": 2}\n{"a": tru', "line 3, column 7"),
        ('[1, 2, "S3cret', "line 1, column 8"),
        ("[" * 100_000, "too deeply"),
        ("[1" + "0" * 5000 + "]", "too many digits"),
        ("just words", "plain text"),
        ("\0\1\2", "binary"),
        ("# Title\n\n- a\n- b\n", "Markdown"),
        ("<html><p>x</p></html>", "HTML"),
        ("2026-11-21 10:00:00 start\n2026-11-21 10:00:01 end\n", "a log"),
    ],
)
def test_what_cannot_be_queried_is_named_and_not_repeated(text: str, says: str) -> None:
    with pytest.raises(NotQueryable, match=says) as caught:
        read_value(text.encode())
    assert "`pattern`" in caught.value.detail
    assert "S3cret" not in caught.value.detail


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS, min_size=1), min_size=2
    )
)
def test_ndjson_says_what_its_lines_say(records: list[dict[str, object]]) -> None:
    text = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    kind, value = read_value(text.encode())
    assert value == records
    assert kind in (Kind.JSON, Kind.NDJSON)


def test_a_column_is_numbers_only_if_every_cell_is_one() -> None:
    rows = rows_of("id,zip,price,note\n1,01234,9.5,\n2,53111,,x\n3,99999,1e3,7\n")
    assert rows == [
        {"id": 1, "zip": "01234", "price": 9.5, "note": ""},
        {"id": 2, "zip": "53111", "price": None, "note": "x"},
        {"id": 3, "zip": "99999", "price": 1000.0, "note": "7"},
    ]


def test_ragged_rows_lose_nothing() -> None:
    assert rows_of("a,b,c\n1,2\n3,4,5,six,7\n") == [
        {"a": 1, "b": 2, "c": None},
        {"a": 3, "b": 4, "c": 5, "_more": ["six", "7"]},
    ]


def test_equal_and_empty_column_names_are_told_apart() -> None:
    assert rows_of("a,a,,_more\nx,y,z,w\n") == [{"a": "x", "a_2": "y", "column_3": "z", "_more_4": "w"}]


@pytest.mark.parametrize(("mark", "cell"), [("\t", "b,c"), (";", "1,5"), (",", "b;c")])
def test_the_separator_is_told_from_the_lines(mark: str, cell: str) -> None:
    assert rows_of(mark.join(("k", "l", "m")) + "\n" + mark.join((f'"{cell}"', "x", "y")) + "\n") == [
        {"k": cell, "l": "x", "m": "y"}
    ]


def test_years_in_a_header_are_names_and_years_above_years_are_data() -> None:
    assert len(rows_of("2020,Norway\n2021,Sweden\n")) == 2
    assert rows_of("country,2019,2020\nNorway,1,2\n") == [{"country": "Norway", "2019": 1, "2020": 2}]


def test_an_open_quote_swallows_no_rows() -> None:
    with pytest.raises(NotQueryable, match="not closed"):
        rows_of('a,b\n1,"S3cret\n2,x\n')
    assert rows_of('a\tb\n1\t"x\n2\ty\n') == [{"a": 1, "b": '"x'}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("number", ["1\x1f", "\x1c7", "1.5\x1d", "\x1e2e3", "9" * 5000, "-1" + "0" * 400])
def test_what_python_does_not_read_as_a_number_is_text(number: str) -> None:
    assert rows_of(f"name\tn\nx\t{number}\ny\t1\n") == [{"name": "x", "n": number}, {"name": "y", "n": "1"}]
    table = table_of_cells("data", ["name", "n"], [["x", number], ["y", "1"]])
    assert (table.columns[1].type, table.sample) == (TEXT, ("x", number))


@settings(deadline=None)
@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=1, max_size=8))
def test_no_cell_of_a_table_is_lost(rows: list[list[str]]) -> None:
    written = io.StringIO()
    # No cell is as long: a first row with a cell that stands in its column again is data.
    names = ["first name", "second name", "third name"]
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    read = rows_of(written.getvalue())
    assert [len(row) for row in read] == [3] * len(rows)
    for row, cells in zip(read, rows, strict=True):
        for found, cell in zip(row.values(), cells, strict=True):
            assert found == cell or (cell.strip() and found == float(cell)) or (found is None and not cell)
