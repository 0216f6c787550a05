"""The data in what a tool returned, and the way back to the stored bytes."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from content.describe import extent, outline, source_of, structure
from content.kind import Kind
from content.passages import split, whole
from content.sketch import sketch
from content.source_text import SourceText
from tests.content.ordinary_texts import SHAPES, WRAPS

CODE = "import os\n\n\ndef main():\n    return os.name\n"


def numbered(text: str, first: int = 1, form: str = "{:6d}\t{}") -> str:
    lines = text.rstrip("\n").split("\n")
    return "".join(form.format(number, line) + "\n" for number, line in enumerate(lines, first))


@pytest.mark.parametrize("name", SHAPES)
def test_extent_says_the_same_however_a_tool_wraps_a_text(name: str) -> None:
    text, said, _ = SHAPES[name]
    kind = SourceText(text.encode()).format.kind
    for wrap, wrapped in WRAPS.items():
        data = wrapped(text).encode()
        assert extent(SourceText(data)).startswith(said), wrap
        assert SourceText(data).format.kind is kind, wrap
        is_outlined = kind not in (Kind.CODE, Kind.LISTING, Kind.TEXT)
        assert not is_outlined or outline(data, 400).startswith(f"Outline ({kind})"), wrap


@pytest.mark.parametrize("wrap", WRAPS)
def test_what_is_wrapped_is_the_text_itself(wrap: str) -> None:
    for text, _, _ in SHAPES.values():
        data = SourceText(WRAPS[wrap](text).encode()).data.decode()
        assert data.rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("wrap", WRAPS)
def test_every_stored_byte_is_in_exactly_one_passage(wrap: str) -> None:
    for name, (text, _, _) in SHAPES.items():
        source = SourceText(WRAPS[wrap](text).encode())
        passages = list(split(source))
        assert b"".join(source.data[one.start : one.end] for one in passages) == source.data, name
        spans = [source.stored_span(one.start, one.end) for one in passages]
        assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)], name
        assert spans[-1][1] == len(source.stored), name
        for one, (start, _) in zip(passages, spans, strict=True):
            if start:
                assert source.line(one.start) == source.stored.count(b"\n", 0, start) + 1, name


ANY = st.text(max_size=300) | st.lists(
    st.sampled_from(
        ["", "a,b", "{", '{"a": 1}', "# T", "\ufeff", "\x1b[1mx\x1b[0m", "a\rb", "é\r", "日本 語"]
    ),
    max_size=30,
).map("\n".join)


@given(ANY, st.sampled_from(sorted(WRAPS)), st.sampled_from(["", "grep"]))
@example("a\x1b[0mb\rc\n" * 9, "blocks", "")
@example("\n0", "arrow", "")
@example("", "plain", "")
def test_whatever_the_text_each_offset_leads_back_to_its_own_byte(text: str, wrap: str, tool: str) -> None:
    source = SourceText(WRAPS[wrap](text).encode(), tool)
    data = source.data
    places = [source.stored_at(at) for at in range(len(data))]
    assert places == sorted(places)
    if source.is_verbatim and places:
        ends = [*places[1:], len(source.stored)]
        pieces = [source.stored[start:end] for start, end in zip(places, ends, strict=True)]
        assert all(data[at : at + 1] in piece for at, piece in enumerate(pieces))
    for one in split(source):
        shown = whole(source, one)
        assert 0 <= shown.start <= one.start < one.end <= shown.end <= len(data)
        start, end = source.stored_span(one.start, one.end)
        assert 0 <= start <= end <= len(source.stored)


@given(ANY, st.sampled_from(sorted(WRAPS)), st.integers(0, 400))
def test_an_offset_of_the_stored_bytes_is_found_in_the_data(text: str, wrap: str, at: int) -> None:
    source = SourceText(WRAPS[wrap](text).encode())
    at = min(at, len(source.stored))
    place = source.data_at(at)
    assert place == len(source.data) or source.stored_at(place) >= at
    assert place == 0 or source.stored_at(place - 1) < at


def test_a_line_without_a_number_is_data_unless_a_tool_says_it_around_the_lines() -> None:
    lines = "".join(f"{n}: a line of the file\n" for n in range(1, 90))
    fact = "The tulip is kept in drawer 4711.\n"
    assert fact.encode() in SourceText(f"{lines}{fact}".encode()).data
    assert fact.encode() in SourceText(f"{fact}{lines}".encode()).data
    around = f"Here's the result of running `cat -n` on a.txt:\n{lines}(End of file - total 89 lines)\n"
    assert SourceText(around.encode()).data == b"a line of the file\n" * 89


def test_lines_of_answers_are_stored_ones_and_lines_of_a_structure_those_of_the_file() -> None:
    data = numbered(CODE, 100).encode()
    assert outline(data, 400).splitlines()[1:] == ["function main (line 4)", "def main (line 4)"][1:]
    assert outline(data, 400, first_line=1).splitlines()[1:] == ["def main (line 103)"]
    assert structure("a.py", data) == ["  - def main (line 103)"]
    assert structure("a.py", CODE.encode(), first_line=50) == ["  - def main (line 53)"]
    block = json.dumps({"type": "text", "text": CODE}).encode()
    assert outline(block, 400).splitlines()[1:] == ["def main (line 1)"]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("     1\ta\n     2\tb\n     5\tc\n", "a\nb\nc\n"),
        ("1: a\n2: b\n3: c\n1: d\n2: e\n" * 4, None),
        ("".join(f"{n}→x{n}\n" for n in (*range(1, 40), *range(1, 30))), "x1\nx2"),
        (
            "[File: a.py (3 lines total)]\n1:import os\n2:x = 1\n3:y = 2\n(no more)\n",
            "import os\nx = 1\ny = 2\n",
        ),
        ("id\tname\n1\tAnn\n2\tBo\n3\tCy\n", None),
        ("id|city|total\n0|x|0\n1|x|1\n2|x|2\n", None),
        ("10:01:02 a\n10:01:03 b\n", None),
        ("1. one\n2. two\n3. three\n", None),
        ("1→{}\n", "{}\n"),
        ("1: a sentence\n", None),
    ],
)
def test_numbers_are_taken_off_where_a_tool_wrote_them(text: str, data: str | None) -> None:
    assert SourceText(text.encode()).data.decode().startswith(text if data is None else data)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "text", "text": 1}',
        '[{"type": "text", "text": "a"}, {"type": "image", "data": "QUJD"}]',
        '{"type": "text", "text": "a", "size": 3}',
        '{"type": "text", "text": "a"} and more',
        "<file>\n<name>a</name>\n</file>",
        '{"content": [1, 2]}',
    ],
)
def test_what_only_looks_like_a_wrapper_is_data(text: str) -> None:
    assert SourceText(text.encode()).data == text.encode()


def test_several_blocks_are_one_text() -> None:
    blocks = [
        {"type": "text", "text": "a\tb\u00e9\n"},
        {"type": "text", "text": 'c"d'},
        {"text": "e", "type": "text"},
    ]
    source = SourceText(json.dumps(blocks).encode())
    assert source.data.decode() == 'a\tbé\nc"d\ne'
    assert source.stored[source.stored_at(source.data.index(b"d")) :].startswith(b'd"}')


def test_the_beginning_of_a_block_is_unwrapped_too() -> None:
    data = json.dumps({"type": "text", "text": "id,city\n" + "1,Rome\n" * 9000}).encode()
    told = sketch(source_of(data[:20_000], data[-4096:], len(data), 1))
    assert told == "CSV; one row of data:\nid: 1, city: Rome\nquery: data, lines(line, text)"


def test_codes_of_a_terminal_are_off_and_a_carriage_return_ends_no_line() -> None:
    source = SourceText(b"\x1b[32mok\x1b[0m 10%\r20%\r\n\x1b]0;title\x07done\n")
    assert source.data == b"ok 10%\r20%\r\ndone\n"
    assert source.line(source.data.index(b"done")) == 2


def test_a_byte_order_mark_is_off_at_the_beginning_alone() -> None:
    assert SourceText("\ufeffa\ufeffb".encode()).data == "a\ufeffb".encode()
