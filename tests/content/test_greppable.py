import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.greppable import LONG_LINE, Greppable, needs_view

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def view(data: bytes, size: int = 65_536) -> bytes:
    made = Greppable()
    parts = [made.feed(data[start : start + size]) for start in range(0, len(data), size)]
    return b"".join([*parts, made.finish()])


def longest(data: bytes) -> int:
    return max(map(len, data.split(b"\n")))


def test_json_is_one_member_a_line() -> None:
    data = b'{"a":[1,"x, y",{}],"b" : null}'
    assert view(data).decode() == '{\n "a": [\n  1,\n  "x, y",\n  {}\n ],\n "b": null\n}'


def test_a_python_literal_is_one_member_a_line() -> None:
    assert view(repr([("it's", None, 'a, "b"')]).encode()).decode() == (
        '[\n (\n  "it\'s",\n  None,\n  \'a, "b"\'\n )\n]'
    )


def test_tags_are_on_lines_of_their_own() -> None:
    assert view(b"<a><b>x</b> <c/></a>") == b"<a>\n<b>x</b>\n <c/>\n</a>"


def test_tags_are_told_apart_across_blocks() -> None:
    data = b"<p>" + b"<b>x</b>" * 20_000
    for shift in range(8):
        shifted = b"<" + b"a" * shift + b">" + data
        assert view(shifted) == shifted.replace(b"><", b">\n<")


@given(JSON, st.booleans())
def test_the_view_of_json_is_that_of_json_dumps(value: object, compact: bool) -> None:
    separators = (",", ":") if compact else None
    text = json.dumps(value, separators=separators, ensure_ascii=compact)
    expected = json.dumps(value, indent=1, ensure_ascii=compact)
    assert view(text.encode()).decode() == re.sub("^ {9,}", " " * 8, expected, flags=re.MULTILINE)


def test_a_large_array_across_blocks_is_one_member_a_line() -> None:
    value = [{"id": i, "text": 'é "quoted" \\ ' * (i % 50), "n": [i / 3, None]} for i in range(3000)]
    made = view(json.dumps(value, ensure_ascii=False).encode())
    assert made.decode() == json.dumps(value, indent=1, ensure_ascii=False)


@given(st.integers(0, 2**32), st.integers(1, 100_000))
def test_any_split_gives_the_same_view_of_anything(seed: int, size: int) -> None:
    chance = random.Random(seed)
    start = chance.choice(['{"', "['", "<", "", '["'])
    text = start + "".join(
        chance.choices(['{"', "}", "[", "],", '"', ":", "\\", "é", " ", "a" * 90, "\n"], k=5000)
    )
    data = text.encode()
    made = view(data)
    assert view(data, max(size, len(data) // 200)) == made
    assert len(made) <= 10 * len(data) + 10
    assert b"".join(made.split()) == b"".join(data.split())


HOSTILE = [
    b"[" * 100_000,
    b'["' + b"\\" * 100_001,
    b'{"' + b'\\"' * 70_000,
    b'["' + b"\\n" * 70_000,
    b"[1" + b" " * 130_000,
    b'["' + "é".encode() * 70_000,
    b'["a"' + b"," * 100_000,
    b"x" * 100_000,
    b"<" + b"> " * 70_000,
    "€".encode() * 40_000,
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_loses_nothing_and_grows_at_most_tenfold(data: bytes) -> None:
    made = view(data)
    assert len(made) <= 10 * len(data)
    assert longest(made) <= LONG_LINE
    made.decode()
    assert b"".join(made.split()) == b"".join(data.split())


def test_a_long_string_is_broken_after_its_escaped_newlines() -> None:
    code = "def f():\n    return 'a\\nb'\n" * 200
    made = view(json.dumps({"code": code}).encode())
    assert made.count(b"    return 'a\\\\nb'\\n\n") >= 199


def test_a_long_line_is_broken_at_spaces() -> None:
    data = b"word " * 5000
    made = view(data)
    assert made.replace(b"\n", b"") == data
    assert all(line.endswith(b"word ") for line in made.split(b"\n")[:-1])


@pytest.mark.parametrize("filler", [b"x", b"word "])
def test_a_mask_stays_on_one_line(filler: bytes) -> None:
    mask = b"[redacted: github_token #905958]"
    for before in range(1900, 2010):
        line = (filler * 2000)[:before] + mask + mask + filler * 800
        assert view(line).count(mask) == 2, before


def test_ordinary_lines_stay_as_they_are() -> None:
    data = b"first, second\n{third}\n" * 9000
    assert view(data) == data


def test_one_line_data_needs_the_view() -> None:
    assert needs_view(5000, 1)
    assert not needs_view(5000, 100)
    assert not needs_view(0, 0)
