"""How much there is of a text, by its kind; hostile text too."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from content.describe import extent as extent_of
from content.source_text import SourceText


def extent(data: bytes) -> str:
    return extent_of(SourceText(data))


ORDERS = {"orders": [{"id": n, "tags": [1, 2]} for n in range(2000)], "page": 1, "none": [], "o": {"a": [1]}}
KEYS = "object with keys orders, page, none, o"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(ORDERS), f"JSON, {KEYS}; orders: 2,000 objects with keys id, tags; 58,942 b"),
        (json.dumps(ORDERS, indent=2), f"JSON, {KEYS}; orders: 2,000 objects with keys id, tags; 1"),
        (
            json.dumps({**ORDERS, "more": "y" * 300_000}),
            "JSON, object with keys orders; none: 0 items; orders: 2,000 objects with keys id, tags; 3",
        ),
        (json.dumps([["x"]] * 110_000), "JSON, 110,000 elements; "),
        ("[[1, 2], [3]]", "JSON, array of 2 arrays; first: array of 2 numbers; 13 bytes in 1 line"),
        ('[{"a": [1, [2]], "b": {}}, [[]], 3]', "JSON, array of 3; "),
        ("[]]} {", "JSON, 0 elements; 6 bytes"),
        ("[]", "JSON, empty array; 2 bytes in 1 line"),
        ('{"a": "x,y[", "b": 2}', "JSON, object with keys a, b; 21 bytes in 1 line"),
        ('{"orders": [{"id": 1}, {"i', "JSON, object with keys orders, …; orders: array of objects with k"),
        (
            '{"a": 1}\n{"a": 2}\n\n',
            "JSON lines, 2 records with keys a; 19 bytes in 3 lines",
        ),
        ("a,b,c\n1,2,3\n4,5,6\n", "CSV, 2 rows, 3 columns: a, b, c; 18 bytes in 3 lines"),
        ('a,"b\n",c\n1,2,"3\n\n3"\n4,5,6\n', "CSV, 2 rows, 3 columns: a, b, c; "),
        ("a.py:3: x\nb.py:4: y\n", "search output, 2 lines in 2 files; 20 bytes"),
        (
            "Feb 29 23:59:59 a\nMar  1 00:00:09 b",
            "log, from Feb 29 23:59:59 to Mar  1 00:00:09 (0:00:10); 35 b",
        ),
        ("23:59:59 a\n00:00:09 b", "log, from 23:59:59 to 00:00:09; 21 bytes in 2 lines"),
        (
            "2024-02-30 10:00:00 a\n2024-02-31 10:00:00 b",
            "log, from 2024-02-30 10:00:00 to 2024-02-31 10:00:00; ",
        ),
        (
            '1.1.1.1 - - [12/May/2024:10:00:00 +0000] "GET /"\n1.1.1.1 - - [14/May/2024:11:00:00 +0000] "G"',
            "log, from 12/May/2024:10:00:00 to 14/May/2024:11:00:00 (2 days, 1:00:00); ",
        ),
        ("some words", "plain text, 2 words; 10 bytes in 1 line"),
    ],
)
def test_what_there_is_is_counted(text: str, said: str) -> None:
    assert extent(text.encode()).startswith(said)


def test_more_brackets_than_can_be_walked_through_are_not_counted() -> None:
    assert extent(b"[" * 2_000_000) == "JSON; 2,000,000 bytes in 1 line"


@given(
    st.text(alphabet='[]{}",:\\ \n\t;ab1', max_size=400), st.sampled_from(["", "[", '{"a"', '["', "a,b,c\n"])
)
def test_no_text_raises_anything(text: str, head: str) -> None:
    text = head + text
    assert f"{len(text.encode()):,} bytes" in extent(text.encode())


@given(st.lists(st.text(alphabet='x",\n ', max_size=9), min_size=20, max_size=30))
@example([""] * 19 + ["\nx\nx\n"])
def test_rows_are_counted_as_they_were_written(cells: list[str]) -> None:
    quoted = [cell.replace('"', '""') for cell in cells]
    rows = "".join(f'{number},"{cell}","y"\n' for number, cell in enumerate(quoted))
    for times in (1, 1000):
        text = "id,name,other\n" + rows * times
        said = f"CSV, {times * len(cells):,} rows, 3 columns: id, name, other; "
        assert extent(text.encode()).startswith(said)


@given(st.text(alphabet="ab \n", max_size=99))
def test_words_are_counted_across_blocks(text: str) -> None:
    data = ("some words " * 30_000 + text).encode()
    assert extent(data).startswith(f"plain text, {len(data.split()):,} words; ")
