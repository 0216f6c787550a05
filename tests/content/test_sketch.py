"""The sketch of a result: the shape of its data with real values, and nothing that was not looked at."""

import csv
import io
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.describe import source_of
from content.sketch import MAX_BYTES, Origin, sketch
from content.source_text import SourceText
from content.text import line_count

ORDERS = [
    {"id": n, "customer": {"name": f"Ann {n}", "age": 30}, "items": [{"sku": "A-17", "n": 2}] * (n % 9 + 1)}
    for n in range(248)
]


def sketched(text: str, most: int = MAX_BYTES, *, tool: str = "", origin: Origin = Origin()) -> str:  # noqa: B008
    data = text.encode("utf-8", "replace")
    return sketch(source_of(data, data[-4096:], len(data), line_count(data), tool), most, origin)


def test_json_is_shown_by_its_keys_with_values_and_by_the_lengths_of_its_lists() -> None:
    text = json.dumps({"status": "ok", "orders": ORDERS})
    assert sketched(text) == (
        'JSON {status: "ok", orders: 248 × {id: 0, customer: {name: "Ann 0", age: 30}, '
        'items: 1–9 × {sku: "A-17", n: 2}}}\n'
        "query: data(248 rows of orders), document(1 row), lines(line, text)"
    )


def test_keys_that_are_ids_are_one() -> None:
    text = json.dumps({"data": {f"txn_{n}": {"amount": n, "city": "Lima"} for n in range(96)}})
    assert 'data: {96 keys like "txn_0": {amount: 0, city: "Lima"}}' in sketched(text)


def test_a_key_that_some_objects_lack_has_a_mark() -> None:
    rows = [{"id": n} | ({"note": "late"} if n % 3 == 0 else {}) for n in range(20)]
    assert sketched(json.dumps(rows)).startswith('JSON 20 × {id: 0, note?: "late"}')


def test_each_section_of_an_object_of_tables_is_shown_before_more_of_any() -> None:
    names = ["users", "orders", "items", "notes", "roles", "cities", "prices", "stores", "visits", "plans"]
    text = json.dumps(
        {name: [{"id": n, "name": f"{name} {n}", "size": n}] * 7 for n, name in enumerate(names)}
    )
    shown = sketched(text)
    assert all(f"{name}: 7 × {{id: " in shown for name in names)


def test_names_are_spelled_as_sql_takes_them() -> None:
    shown = sketched(json.dumps([{"unit price": 1, "order": 2, "plain": 3}] * 9))
    assert '{"unit price": 1, "order": 2, plain: 3}' in shown


def test_of_a_part_of_json_nothing_is_counted_that_may_go_on() -> None:
    data = json.dumps({"total": 248, "few": [1, 2], "orders": ORDERS * 40}).encode()
    assert len(data) > 256 << 10
    shown = sketch(source_of(data[:16_384], data[-4096:], len(data), 1))
    assert shown.startswith("JSON {total: 248, few: 2 × 1, orders: [{id: 0, ")
    assert "rows" not in shown


def test_all_keys_of_two_levels_are_shown_before_any_third() -> None:
    inner = {f"inner_{n}": {f"deep_{m}": "x" * 30 for m in range(5)} for n in range(4)}
    shown = sketched(json.dumps({f"outer_{n}": inner for n in range(8)}))
    assert all(f"outer_{n}" in shown for n in range(8))
    assert "inner_0" in shown
    assert "deep_0" not in shown


def test_rows_are_shown_by_one_real_row_under_the_names_of_the_query() -> None:
    rows = [(n, "Lima", n * 1.5, "") for n in range(300)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("id", "city", "unit price", ""), *rows])
    assert sketched(out.getvalue()) == (
        'CSV; one row of data:\nid: 0, city: Lima, "unit price": 0.0, column_4: \n'
        "query: data(300 rows), lines(line, text)"
    )


def test_wide_rows_keep_their_values_before_more_names() -> None:
    names = [f"measurement_{n}" for n in range(60)]
    text = "\n".join((",".join(names), *(",".join(["1234.5"] * 60) for _ in range(40))))
    shown = sketched(text)
    assert "measurement_0: 1234.5" in shown
    assert "measurement_20: 1234.5" in shown


def test_a_log_is_shown_by_its_gravest_lines_and_told_by_counts() -> None:
    lines = [f"2026-11-23 10:{n // 60:02}:{n % 60:02} INFO request {n} done" for n in range(400)]
    lines[170] = "2026-11-23 10:02:50 ERROR disk sda1 is full"
    lines[180:180] = ["Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'user'"]
    shown = sketched("\n".join(lines) + "\n")
    assert shown.startswith(
        "log; first time 2026-11-23 10:00:00, last 2026-11-23 10:06:39; INFO 399, ERROR 1"
    )
    assert "without a level 3; 1 traceback" in shown
    assert "\n171: 2026-11-23 10:02:50 ERROR disk sda1 is full\n" in shown
    levels = "level such as INFO, ERROR"
    assert shown.endswith(f"query: data(403 rows: line, text, time, {levels}), lines(line, text)")
    assert shown.endswith(
        "query: data(403 rows: line, text, time, level such as INFO, ERROR), lines(line, text)"
    )


def test_levels_of_a_part_are_not_counted() -> None:
    data = b"2026-11-23 10:00:00 INFO done\n" * 20_000
    shown = sketch(source_of(data[:16_384], data[-4096:], len(data), 20_000))
    assert "INFO 2" not in shown
    assert "\n20000: 2026-11-23 10:00:00 INFO done\n" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Exit code: 101\n" + "checking a crate\n" * 300 + "could not compile\n", "101"),
        ("checking a crate\n" * 300 + "error: it failed\n[exit status 2]\n", "2"),
        ("checking a crate\n" * 300 + "Process exited with code 137", "137"),
    ],
)
def test_a_failure_is_told_first_with_the_last_lines(text: str, said: str) -> None:
    shown = sketched(text, origin=Origin(is_command=True))
    assert shown.startswith(f"The tool failed: exit status {said}.\n")
    assert text.rstrip().split("\n")[-1] in shown


def test_a_failure_that_the_client_tells_is_told() -> None:
    assert sketched("checking\n" * 300, origin=Origin(is_error=True)).startswith("The tool failed.\n")


def test_the_status_of_a_success_is_no_failure() -> None:
    shown = sketched("ok\n" * 300 + "exit code: 0\n", origin=Origin(is_command=True))
    assert shown.startswith("Exit status 0.\n")


def test_lines_of_a_command_that_differ_only_in_numbers_and_paths_are_shown_once() -> None:
    text = "".join(f"cannot access '/proc/{n}/fd': no such file\n" for n in range(400)) + "done\n"
    shown = sketched(text, origin=Origin(is_command=True))
    assert shown.count("cannot access") == 2
    assert "\n401: done\n" in shown


def test_of_a_command_that_prints_one_long_line_no_last_lines_are_announced() -> None:
    data = " ".join(f"{number}aaaa" for number in range(5_000)).encode()
    shown = sketch(source_of(data[:16_384], data[-4096:], len(data), 1), MAX_BYTES, Origin(is_command=True))
    assert shown.startswith("plain text\n1: 0aaaa 1aaaa")
    assert "last lines" not in shown


def test_a_page_is_shown_by_its_title_and_its_text() -> None:
    page = (
        "<html><head><title>Tide tables</title><script>var a = 1;</script></head><body><h1>Harbours</h1>"
        + "<p>The water of the inner harbour rises twice a day.</p>" * 40
        + "<h2>Lima</h2></body></html>"
    )
    shown = sketched(page)
    assert shown.startswith("page “Tide tables”\n")
    assert "The water of the inner harbour rises twice a day." in shown
    assert "var a" not in shown


def test_text_with_headings_is_shown_by_them() -> None:
    text = "".join(f"## Part {n}\n\nSome words of this part.\n\n" for n in range(9))
    assert sketched(text).startswith("headings: 1: Part 0 · 5: Part 1 · 9: Part 2")


def test_code_is_shown_by_what_it_defines() -> None:
    text = "import os\n\n\n" + "".join(f"def part_{n}(a):\n    return os.sep + a\n\n\n" for n in range(60))
    assert "\n4: def part_0 · 8: def part_1" in sketched(text, tool="read")


def test_the_language_is_told_where_it_is_not_english() -> None:
    text = "Die Katze liegt auf dem Sofa und schläft, und das ist auch gut für sie.\n" * 40
    assert sketched(text).startswith("Mostly German.\n")


def test_json_that_is_not_well_formed_is_told() -> None:
    text = json.dumps(ORDERS)[:-2000].replace('"id": 7,', '"id": 7,,')
    shown = sketched(text)
    assert "not well-formed" in shown
    assert "query: lines(line, text)" in shown


def test_a_last_record_that_is_cut_off_is_told() -> None:
    text = "".join(f'{{"id": {n}, "level": "error"}}\n' for n in range(300))
    assert sketched(text).startswith('JSON lines: {id: 0, level: "error"}')
    assert sketched(text[:-9]).startswith('JSON lines, the last is cut off: {id: 0, level: "error"}')


@given(st.text(max_size=400), st.integers(1, 40), st.integers(80, 900), st.booleans())
def test_any_text_is_sketched_within_its_bytes(text: str, times: int, most: int, is_command: bool) -> None:
    shown = sketched(text * times, most, origin=Origin(is_command=is_command))
    assert len(shown.encode()) <= min(most, MAX_BYTES)


@given(st.sampled_from([json.dumps(ORDERS), "a,b\n" * 900, "<p>x</p>" * 900]), st.integers(0, 9000))
def test_a_text_that_is_cut_is_sketched(text: str, cut: int) -> None:
    data = text.encode()
    shown = sketch(source_of(data[:cut], data[cut:], len(data), 1))
    assert len(shown.encode()) <= MAX_BYTES


@pytest.mark.parametrize(
    "piece", ['{"a":', "[", "<p ", '"', "a,", "\\", "Traceback (most recent call last)\n"]
)
def test_hostile_text_is_sketched_in_its_time(piece: str) -> None:
    """At most 150 times that of a log of the same size, which takes 5 ms."""
    log = "".join(f"2026-01-01 12:00:{n % 60:02} INFO request {n} took {n % 7} ms\n" for n in range(2400))
    hostile, most = piece * (len(log) // len(piece)), 150 * min(seconds_of(log) for _ in range(3))
    assert any(seconds_of(hostile) < most for _ in range(3))


def seconds_of(text: str) -> float:
    """Processor time."""
    began = time.thread_time()
    sketched(text)
    return time.thread_time() - began


def test_texts_that_have_few_values_are_shown_with_all_of_them() -> None:
    rows = [{"id": n, "state": ("paid", "open", "void")[n % 3], "day": f"{n % 3}. May"} for n in range(60)]
    assert 'state: "paid"|"open"|"void", day: "0. May"' in sketched(json.dumps(rows))
    table = "id,state,of\n" + "".join(f"{n},{('paid', 'open')[n % 2]},a  {n}\n" for n in range(99))
    assert "id: 0, state: paid, of: a  0\nvalues such as: state paid | open\n" in sketched(table)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" + ", ".join(f"('item {n}', {n})" for n in range(9000)) + "]", "column_1: item 0, column_2: 0\n"),
        ("".join(f"uid: a{n}\nmail: a{n}@x.org\n\n" for n in range(4000)), "uid: a0, mail: a0@x.org\n"),
        ("| id | name |\n|---|---|\n" + "| 1 | Ann |\n" * 9000, "id: 1, name: Ann\n"),
    ],
)
def test_rows_of_a_beginning_are_named_and_not_counted(text: str, said: str) -> None:
    told = sketched(text)
    assert said in told
    assert told.endswith("\nquery: data, lines(line, text)")


def test_the_first_table_of_a_large_page_is_named() -> None:
    rows = "".join(f"<tr><td>{n}</td><td>name {n}</td></tr>\n" for n in range(3000))
    table = f"<table><tr><th>Id</th><th>Name</th></tr>{rows}</table>"
    told = sketched(f"<html><body><h1>Names</h1>{'<p>Words.</p>' * 900}{table}</body></html>")
    assert told.endswith("\nquery: table1(Id, Name), lines(line, text)")
    layout = f"<table><tr><td>{table}</td></tr></table>"
    # The outer table has one row so far: whether it counts is not known.
    assert sketched(f"<html><body>{layout}{layout}</body></html>").endswith("\nquery: lines(line, text)")


def test_rows_of_which_the_beginning_is_known_are_data() -> None:
    for text in ('[{"id": 1, "of": "a"},', '{"of": [{"id": 1},'):
        data = (text + '{"id": 2, "of": "b"},' * 900).encode()
        told = sketch(source_of(data, data[-4096:], 2 * len(data), 1))
        assert told.endswith("\nquery: data, lines(line, text)")


def test_a_large_table_above_another_is_not_told_as_data() -> None:
    """`data` has the lines of a text with several tables, which each have a name."""
    rows = "".join(f"web-{number:<8}1/1     Running\n" for number in range(900))
    one = f"NAME        READY   STATUS\n{rows}"
    assert "one row of data:\nNAME: web-0" in sketch(SourceText(one.encode()))
    shown = sketch(SourceText(f"{one}\n{one}".encode()))
    assert "data" not in shown
    assert "web-899" in shown
    assert shown.endswith("query: lines(line, text)")
