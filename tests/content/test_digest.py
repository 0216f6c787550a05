"""The digest of a result: bounded whatever the text is, and what it shows of each kind."""

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from content.describe import MAX_BYTES as ABOUT_BYTES
from content.describe import source_of
from content.digest import MAX_BYTES, digest


def shown(text: str, tool: str = "", path: str | None = None, most: int = 1024) -> str:
    """As the governor calls it: all of a small result, the head and tail of a large one."""
    data = text.encode()
    head = data if len(data) <= 256 << 10 else data[: 16 << 10]
    return digest(source_of(head, data[-4096:], len(data), data.count(b"\n") + 1, tool, path), most)


def below(text: str, tool: str = "", path: str | None = None) -> list[str]:
    return shown(text, tool, path).partition("\n\n")[2].split("\n")


PIECES = [
    *('{"a": ', "[", "]", "}", '"', "\\", "\\u0000", "\\ud800", ",", "null", "1e999", ": ", "\n", "\r", "\t"),
    *(
        "<p>",
        "</p>",
        "<script>",
        "<!--",
        "&#0;",
        "\x00",
        "\x1b[31m",
        "\x9b",
        "\u2028",
        "é",
        "漢",
        "🧪",
        "|",
        "||",
    ),
    *("2024-01-02 03:04:05 ERROR x\n", "a,b,c\n1,2,3\n", "A1: 7\n", "TextContent(type='text', text='", "'"),
    *(
        '[{"id": 1}, {"id": 2}]',
        '{"x": [[1, 2], [3, 4]]}',
        "same line\n" * 9,
        "x" * 700,
        "diff --git a/b b/b\n",
    ),
]
hostile = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=800),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=60),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
        max_leaves=40,
    ).map(json.dumps),
)


# Its columns take all the room.
@example('[{"a":{"%s":false,"b":false}},{}]' % ("c" * 31), 2, 62)
@given(hostile, st.integers(1, 40), st.integers(0, 1024))
def test_a_digest_of_hostile_text_is_bounded_and_whole(text: str, times: int, most: int) -> None:
    found = shown(text * times, most=most)
    size = len(found.encode())
    assert size <= min(most, ABOUT_BYTES + 2 + MAX_BYTES)
    assert not [char for char in found if unicodedata.category(char) == "Cc" and char != "\n"]


@given(hostile, st.integers(0, 3000))
def test_a_digest_of_a_cut_head_and_tail_raises_nothing(text: str, cut: int) -> None:
    data = (text * 8).encode()
    found = digest(source_of(data[:cut], data[-cut:], len(data) + cut, 10, "bash", None))
    assert len(found.encode()) <= ABOUT_BYTES + 2 + MAX_BYTES


def test_an_array_of_objects_is_shown_as_rows_under_their_columns() -> None:
    rows = [{"id": n, "name": f"Widget {n}", "gone": None, "price": n * 1.5} for n in range(200)]
    lines = below(json.dumps({"total": 200, "items": rows}))
    assert lines[:3] == ["total: 200", "id | name | price", "0 | Widget 0 | 0.0"]
    assert lines[-1] == "199 | Widget 199 | 298.5"
    assert "…" in lines


def test_the_cells_of_a_sheet_are_shown_as_rows() -> None:
    cells = [
        {"address": f"{column}{row}", "value": f"{column.lower()}{row}"}
        for row in range(1, 90)
        for column in "ABC"
    ]
    lines = below(json.dumps(cells))
    assert lines[0] == "a2 | b2 | c2"
    assert lines[-1] == "a89 | b89 | c89"


def test_cells_one_a_line_are_shown_as_rows() -> None:
    lines = below(
        "".join(f"{column}{row}: {column.lower()} {row}\n" for row in range(1, 90) for column in "ABC")
    )
    assert lines[0] == "a 1 | b 1 | c 1"
    assert lines[-1] == "a 89 | b 89 | c 89"


def test_a_log_is_shown_by_its_gravest_lines_and_its_last() -> None:
    lines = [f"2026-11-20 08:{n // 60:02}:{n % 60:02} INFO request {n} done" for n in range(900)]
    lines[400] = "2026-11-20 08:06:40 ERROR disk full on /data"
    lines[401] = "2026-11-20 08:06:41 WARN retrying"
    found = below("\n".join(lines))
    assert found[0] == lines[400]
    assert found[1] == lines[401]
    assert found[-1] == lines[-1]


def test_the_repeats_in_what_a_command_printed_are_folded() -> None:
    text = (
        "starting\n" + "".join(f"Downloading part {n} of 313\n" for n in range(1, 314)) + "done: 2 errors\n"
    )
    assert below(text, "bash") == ["Downloading part 1 of 313", "… 312 more lines like it", "done: 2 errors"]


def test_a_page_is_shown_by_its_text() -> None:
    page = (
        "<html><head><title>Prices</title><style>p {color: red}</style></head><body><nav>Home</nav>"
        "<h1>Prices of 2026</h1><p>A ticket is <b>4 €</b>.</p><table><tr><td>Child</td>"
        "<td>2 €</td></tr></table>"
        f"<script>{'x();' * 300}</script></body></html>"
    )
    assert below(page) == ["Prices of 2026", "A ticket is 4 €.", "Child | 2 €"]


def test_the_rows_of_a_table_are_shown_once_under_the_columns_that_about_names() -> None:
    table = "id,city,total\n" + "".join(f"{n},Oslo,{n * 3}\n" for n in range(2000))
    lines = below(table)
    assert lines[0] == "0,Oslo,0"
    assert lines[-1] == "1999,Oslo,5997"


@pytest.mark.parametrize("size", [20_000, 400_000])
def test_of_a_large_array_the_last_element_is_shown_too(size: int) -> None:
    text = json.dumps([{"id": n, "name": f"widget {n}"} for n in range(size // 32)])
    assert f"widget {size // 32 - 1}" in shown(text)


def test_an_answer_that_the_mcp_sdk_printed_is_described_by_what_is_in_it() -> None:
    inner = json.dumps([{"id": n, "name": f"Ä'{n}"} for n in range(90)], ensure_ascii=False)
    printed = f"meta=None content=[TextContent(type='text', text={inner!r}, annotations=None)] isError=False"
    assert shown(printed) == shown(inner)
