import csv
import io
import json
import re
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from content.kind import Kind
from extraction.full_chunked.chunking import best_cut

WORDS = st.text('ab1 é,:{}[]"\\\n', max_size=12)
RECORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 99), "title": WORDS, "more": RECORDS}),
    min_size=3,
    max_size=30,
)
CELLS = st.sampled_from(["", "1", "Ann", "a b", "x, y", "two\nlines", 'said "so"', '"all"', "a\n\nb, c"])
EVENTS = {
    "java": "2024-05-01 10:00:0{} ERROR [main] it broke\njava.lang.Error: no\n\tat a.B.c(B.java:12)\n"
    "Caused by: java.io.IOException\n\t... 3 more\n",
    "python": "[2024-05-01T10:00:0{}Z] ERROR it broke\nTraceback (most recent call last):\n"
    '  File "a.py", line 3, in f\n    g()\nValueError: no\n\n',
    "levels": "WARN: {} tries\nnext in 3 s\n",
    "syslog": "May  1 10:00:0{} host app[12]: it broke\nwith two\nlines more\n",
}


def cut(data: bytes, wished: int, reach: int, kind: Kind, around: int = 300) -> int:
    """Cuts like the caller: only a window of the data is seen."""
    low, high = max(1, wished - reach), min(len(data), wished + reach)
    start, end = max(0, low - around), min(len(data), high + around)
    return start + best_cut(data[start:end], low - start, wished - start, high - start, kind)


@given(OBJECTS, st.integers(0, 100), st.sampled_from([None, 1]))
def test_json_is_cut_between_the_elements_of_its_array(
    records: list[object], percent: int, indent: int
) -> None:
    texts = [json.dumps(record, ensure_ascii=False) for record in records]
    between = "," if indent is None else ",\n"
    data = ("[" + between.join(texts) + "]").encode()
    starts = {len(("[" + between.join(texts[:n]) + between).encode()) for n in range(1, len(texts))}
    wished = max(1, len(data) * percent // 100)
    place = cut(data, wished, len(data), Kind.JSON)
    assert place == min(starts, key=lambda start: (abs(start - wished), start))


HALF_AN_ESCAPE = [  # The window begins at the second backslash of an escaped one.
    {"id": 0, "title": "", "more": None},
    {"id": 10, "title": "11", "more": []},
    {"id": 10, "more": [], "title": "1111111\n\n\n\\"},
    {"id": 10, "title": "1", "more": [None, None, False, -10_000_000_000]},
    {"id": 10, "title": "11\n", "more": {"": None, "1111111111\n\n": False}},
]


@example(HALF_AN_ESCAPE, 46)
@given(OBJECTS, st.integers(0, 100))
def test_a_window_into_one_line_of_json_shows_where_strings_end(records: list[object], percent: int) -> None:
    data = json.dumps(records * 5, ensure_ascii=False).encode()
    place = cut(data, max(1, len(data) * percent // 100), 400, Kind.JSON, around=100)
    outer = re.sub(rb'"(?:[^"\\]|\\.)*"', lambda text: b"x" * len(text[0]), data)
    assert outer[place - 1 : place] == b","


def test_values_on_lines_of_their_own_are_kept_whole() -> None:
    data = b"".join(json.dumps({"id": n, "tags": ["a", "b"]}).encode() + b"\r\n" for n in range(40))
    for kind in (Kind.JSON, Kind.NDJSON):
        place = cut(data, len(data) // 2, 60, kind)
        assert data[place:].startswith(b'{"id"')


def test_text_inside_of_json_is_cut_at_its_own_lines() -> None:
    data = json.dumps({"text": "one, two\nthree \\n four\n" * 100}).encode()
    place = cut(data, len(data) // 2, 40, Kind.JSON)
    assert data[place - 2 : place] == b"\\n"
    assert data[place - 3 : place - 2] != b"\\"


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=4, max_size=40),
    st.integers(0, 100),
    st.sampled_from(",;\t"),
)
def test_a_quoted_newline_is_no_end_of_a_row(rows: list[tuple[str, ...]], percent: int, mark: str) -> None:
    ends, out = set(), io.StringIO()
    writer = csv.writer(out, delimiter=mark, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    for row in [("id", "name", "text"), *rows]:
        writer.writerow(row)
        ends.add(len(out.getvalue()))
    data = out.getvalue().encode()
    place = cut(data, max(1, len(data) * percent // 100), len(data), Kind.CSV)
    assert place in ends


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS.keys())
def test_a_trace_stays_with_its_event(event: str) -> None:
    data = "".join(event.format(n % 10) for n in range(200)).encode()
    first = event.split("{")[0].encode()
    for wished in range(len(data) // 2, len(data) // 2 + len(event)):
        assert data[cut(data, wished, 300, Kind.LOG) :].startswith(first)


@pytest.mark.parametrize(
    ("kind", "data", "starts"),
    [
        (Kind.TEXT, b"one\ntwo\n\nthree\nfour\n\n" * 9, (b"one", b"three")),
        (Kind.CODE, b"def f():\r\n    x\r\n\r\n    y\r\n\r\n" * 9, (b"def",)),
        (Kind.TEXT, b"a line\n" * 40, (b"a line",)),
        (Kind.TEXT, b"word " * 60, (b"word",)),
        (Kind.XML, b"<row><id>1</id></row>" * 20, (b"<",)),
        (Kind.GREP, b"a.py:1: x y\n" * 30, (b"a.py",)),
    ],
)
def test_a_better_place_is_taken_where_there_is_one(
    kind: Kind, data: bytes, starts: tuple[bytes, ...]
) -> None:
    for wished in range(60, 120):
        assert data[cut(data, wished, 30, kind) :].startswith(starts)


@given(
    st.text('aé漢😀 \r\n,"{}[]\\', min_size=1).filter(lambda text: text != "\r\n"),
    st.integers(0, 300),
    st.integers(0, 40),
    st.sampled_from([*Kind]),
)
def test_no_character_and_no_crlf_is_cut(text: str, wished: int, reach: int, kind: Kind) -> None:
    data = text.encode()
    wished = min(wished, len(data) - 1) or 1
    # Within a reach of one byte there is no other place than that.
    assume(wished + reach > 1 or not text.startswith("\r\n"))
    place = cut(data, wished, reach, kind)
    assert wished - reach - 4 <= place <= max(1, wished + reach)
    data[:place].decode()
    assert data[place - 1 : place + 1] != b"\r\n"


@pytest.mark.parametrize("kind", [*Kind])
def test_any_bytes_are_cut_in_no_time(kind: Kind) -> None:
    pieces = [
        *(b'"', b"\\", b'\\"', b" ", b"\n", b"\r\n", b"[", b"]\n[", b"{},", b'"",', b"1,", b"12:1 "),
        *(b"-", b"><"),
    ]
    started = time.process_time()
    for piece in pieces:
        data = piece * (70_000 // len(piece))
        assert 0 < cut(data, 35_000, 33_000, kind, around=2000) < len(data)
    assert time.process_time() - started < 3
