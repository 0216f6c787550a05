"""How `query` reads a result: the tables, their columns, their first row and their number of rows."""

import json

import pytest

from content.layout import Layout, layout_of
from content.source_text import SourceText
from content.tables import Table, spelled, unique


def read(text: str, total: int | None = None) -> Layout:
    return layout_of(SourceText(text.encode(), total_bytes=total))


def names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def test_data_is_the_first_table_and_lines_the_last() -> None:
    layout = read("one\ntwo\n" * 20)
    assert [(table.name, names(table), table.rows) for table in layout.tables] == [
        ("data", ["line", "text"], 40),
        ("lines", ["line", "text"], 40),
    ]
    assert layout.tables[0].sample == (1, "one")


def test_a_table_has_its_names_its_types_and_a_row_of_values() -> None:
    data, lines = read("id,name,price\n" + "".join(f'{n},"n, {n}",{n}.5\n' for n in range(9))).tables
    assert [column[:2] for column in data.columns] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
        ("price", "DOUBLE"),
    ]
    assert (data.sample, data.rows, data.is_named, lines.rows) == ((0, "n, 0", 0.5), 9, True, 10)


def test_a_newline_in_a_cell_ends_no_row() -> None:
    data = read('id,"a\nb",c\n' + '1,"x\ny",2\n' * 30).tables[0]
    assert (names(data), data.rows) == (["id", "a b", "c"], 30)


def test_rows_of_a_part_are_not_counted() -> None:
    assert read("a,b,c\n" + "1,2,3\n" * 99, total=10_000).tables[0].rows is None


def test_the_rows_of_an_object_are_its_longest_array_and_other_arrays_are_tables() -> None:
    value = {
        "total": 2,
        "orders": [{"id": n, "Total": 1.5, "total": True} for n in range(30)],
        "users": [{"id": 1, "of": {"city": "Rome"}}] * 9,
    }
    data, users, document, _ = read(json.dumps(value)).tables
    assert (data.path, data.rows, names(data)) == ("$.orders", 30, ["id", "Total", "total_2"])
    assert (users.name, users.rows, users.sample) == ("users", 9, (1, {"city": "Rome"}))
    assert (document.name, document.sample) == ("document", (2,))


def test_keys_that_are_ids_are_cells_of_a_column() -> None:
    value = {"jobs": {f"job-{n}": {"state": "ok", "tries": n} for n in range(20)}}
    data = read(json.dumps(value)).tables[0]
    assert (names(data), data.sample) == (["key", "state", "tries"], ("job-0", "ok", 0))


def test_json_lines_have_the_keys_of_their_first_records() -> None:
    data = read('{"a": 1}\n{"a": 2, "b": [1]}\n' * 20).tables[0]
    assert (names(data), data.rows) == (["a", "b"], 40)


def test_a_log_has_times_and_levels() -> None:
    data = read("2026-05-01T00:00:00Z ERROR it failed\n" * 30).tables[0]
    assert (names(data), data.rows) == (["line", "text", "time", "level"], 30)
    assert data.sample is not None
    assert data.sample[2:] == ("2026-05-01T00:00:00", "ERROR")


def test_what_does_not_parse_has_lines_and_says_so() -> None:
    layout = read('[{"a": 1}, {"a": ' + "x\n" * 90)
    assert names(layout.tables[0]) == ["line", "text"]
    assert layout.notes == ("This is not well-formed JSON: data has its lines.",)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["a", "A", "a", ""], ["a", "A_2", "a_3", "column_4"]),
        (["x", "x_2", "x"], ["x", "x_2", "x_3"]),
        (["two\nlines"], ["two lines"]),
    ],
)
def test_names_are_unique_whatever_their_case(given: list[str], made: list[str]) -> None:
    assert unique(given) == made


def test_a_name_is_quoted_where_sql_needs_it() -> None:
    assert [spelled(name) for name in ("id", "order", "a b", 'a"b')] == ["id", '"order"', '"a b"', '"a""b"']


CUT = json.dumps({"total": 30, "items": [{"id": n, "o": {"x": [n, 2]}, "t": True} for n in range(30)]})


@pytest.mark.parametrize(
    ("end", "rows"),
    [(', "o": {"x": [17', 17), ('{"id": 17, "o": {"x": [17, 2]}, "t": tr', 17), ('{"id": 17, "o": {"x', 17),
     ('"id": 17, "o": {"x": [17, 2]}, "t": true}', 18), (']', 30)],
)  # fmt: skip
def test_json_that_is_cut_off_has_its_complete_elements_and_says_so(end: str, rows: int) -> None:
    at = CUT.rindex("]") if end == "]" else CUT.index(end)
    layout = read(CUT[: at + len(end)])
    data, document, _ = layout.tables
    assert (data.path, data.rows, names(data), document.sample) == ("$.items", rows, ["id", "o", "t"], (30,))
    assert layout.notes == (f"The JSON is cut off: data has its {rows} complete elements.",)


def test_text_around_json_is_left_out_and_told() -> None:
    below = read(CUT + "\n[exit code 1]\n")
    assert (below.tables[0].rows, below.notes) == (
        30,
        ("What follows the JSON in line 1 is only in lines.",),
    )
    above = read("HTTP/1.1 200 OK\nServer: s\n\n" + CUT)
    assert (above.tables[0].rows, above.notes) == (
        30,
        ("data is JSON below 3 lines, which are only in lines.",),
    )


@pytest.mark.parametrize("text", ["[1/60] one\n" * 30, "[0.1] two\n" * 30, CUT.replace('"id": 5', '"id" 5')])
def test_what_is_wrong_before_its_end_is_no_json_that_is_cut_off(text: str) -> None:
    assert names(read(text).tables[0]) == ["line", "text"]


def test_json_in_a_text_in_json_is_read_as_deep_as_it_goes() -> None:
    inner = json.dumps({"items": [{"id": n, "name": f"n {n}"} for n in range(300)]})
    layout = read(json.dumps({"status": 200, "body": json.dumps({"content": [{"result": inner}]})}))
    assert (layout.tables[0].path, layout.tables[0].rows, names(layout.tables[0])) == (
        "$.items",
        300,
        ["id", "name"],
    )
    assert layout.notes == (
        "data is the JSON in the text of $.body.content[0].result; all around it is only in lines.",
    )


def test_json_records_within_lines_are_rows_with_the_numbers_of_their_lines() -> None:
    text = "begin\n" + "".join(f'step {n}: got {{"id": {n}, "ms": {2 * n}}}\n' for n in range(60))
    layout = read(text)
    data = layout.tables[0]
    assert (names(data), data.rows, data.sample) == (["line", "id", "ms"], 60, (2, 0, 0))
    assert layout.notes == (
        "data has the JSON records that stand within the lines. 1 line without one is only in lines.",
    )
    assert names(read("if (a) { return b; }\n" * 60).tables[0]) == ["line", "text"]


def test_tables_that_share_a_key_have_the_key_above_it_in_their_name() -> None:
    rows = [{"name": f"n{n}"} for n in range(30)]
    layout = read(
        json.dumps({"components": rows, "tools": {"components": rows[:1]}, "extra": {"tools": rows[:2]}})
    )
    assert [table.name for table in layout.tables][:3] == ["data", "tools_components", "tools"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a"', 3),
        ('[{"a": 1}, {"a": 2}][{"a": 3}]', 3),
        ('{\n "a": 1\n}\n{\n "a": 2\n}\n', 2),
        ('{"a": 1}\nno record\n{"a": 2}\n{"a": 3}\n{"a": 4}\n', None),
    ],
)
def test_records_are_counted_as_they_are_loaded(text: str, rows: int | None) -> None:
    assert layout_of(SourceText(text.encode())).tables[0].rows == rows
