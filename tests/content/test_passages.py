"""Passages: all of the text, in pieces that follow its structure, each with its lines and its path."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from content.formats import OF_KIND
from content.formats.cuts import MOST, REACH
from content.formats.format import Passage
from content.kind import Kind
from content.passages import split as split_source
from content.source_text import SourceText


def split(data: bytes, tool_name: str = "") -> Iterator[Passage]:
    return split_source(SourceText(data, tool_name))


ITEMS = [
    {"name": f"item {n}", "price": {"net": n, "currency": "EUR"}, "tags": ["a", "b,c"]} for n in range(40)
]


def holding(data: str, wanted: str, tool_name: str = "") -> tuple[Passage, str]:
    encoded = data.encode()
    at = encoded.index(wanted.encode())
    found = next(one for one in split(encoded, tool_name) if one.start <= at < one.end)
    return found, encoded[found.start : found.end].decode()


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=40)
    | st.just("x" * 900)
    | st.just('é\n"}' * 99),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=12), inner, max_size=12),
    max_leaves=60,
)
SOME_LINES = [
    *(
        "",
        "# Title",
        "## Part",
        "def f(x):",
        "    return 1",
        "2024-05-01 10:00:00 ERROR x",
        "\tat a.b(C.java:1)",
    ),
    *("a.py:12:hit", "b/c.py:3:hit", 'a,"b', 'c",d', "<h1>One</h1>", "<p>two</p>", "```"),
    *("日本語" * 80, "w " * 500),
]
LINES = st.lists(st.sampled_from(SOME_LINES) | st.text(max_size=300), max_size=60).map("\n".join)
CUT_ANYWHERE = st.tuples(JSON_LIKE.map(json.dumps), st.integers(0, 4000)).map(
    lambda given: given[0][: given[1]]
)


@given(
    JSON_LIKE.map(json.dumps)
    | JSON_LIKE.map(lambda value: json.dumps(value, indent=2))
    | LINES
    | CUT_ANYWHERE
)
@example("\r0")
def test_passages_are_all_of_the_text_and_cut_no_character(text: str) -> None:
    source = SourceText(text.encode())
    data = source.data
    passages = list(split_source(source))
    assert [one.start for one in passages] == [0, *(one.end for one in passages)][: len(passages)]
    assert b"".join(data[one.start : one.end] for one in passages) == data
    for one in passages:
        data[one.start : one.end].decode()
        assert 0 < one.end - one.start <= MOST
        assert one.line == data.count(b"\n", 0, one.start) + 1
        assert one.last_line == data.count(b"\n", 0, one.end - 1) + 1


@given(st.binary(max_size=4000))
@example(b"\x1b=")
def test_bytes_that_are_no_text_get_through_too(stored: bytes) -> None:
    source = SourceText(stored)
    data = source.data
    assert b"".join(data[one.start : one.end] for one in split_source(source)) == data


DUMPS: list[Callable[[object], str]] = [json.dumps, lambda value: json.dumps(value, indent=4)]


@pytest.mark.parametrize("dump", DUMPS, ids=["one-line", "pretty"])
def test_records_of_json_have_the_path_of_the_first_in_their_passage(dump: Callable[[object], str]) -> None:
    data = dump({"total": 40, "items": ITEMS})
    whole = json.loads(data)
    paths = [one.path for one in split(data.encode())]
    assert len(paths) > 5
    for one in split(data.encode()):
        named = re.fullmatch(r'\$\.items\["item (\d+)"\]', one.path)
        if named is None:
            continue
        number = int(named[1])
        first = data.encode()[one.start : one.end].decode()
        assert json.dumps(whole["items"][number]["name"]) in first
        assert number == 0 or json.dumps(whole["items"][number - 1]["name"]) not in first
    assert '$.items["item 3"]' in paths or '$.items["item 2"]' in paths


NAMED = [
    ('{"id": "a-7", "size": 1, "name": "main.c", "text": %s}', '$["main.c"]'),
    (
        '{"bom-ref": "x, y", "tags": ["a", "b"], "owner": {"name": "else"}, "key": "K 1", "text": %s}',
        '$["K 1"]',
    ),
    ('{"id": "a-7", "text": %s}', '$["a-7"]'),
    ('{"id": 7, "text": %s}', "$[1]"),
    ('{"name": null, "title": "", "text": %s}', "$[1]"),
    ('{"name": "quo\\"te", "text": %s}', "$[1]"),
]


@pytest.mark.parametrize(("element", "path"), NAMED)
def test_an_element_is_named_by_a_member_that_names_it(element: str, path: str) -> None:
    text = json.dumps([f"word {n}" for n in range(200)])
    data = f'[{{"x": {text}}}, {element % text}]'
    assert holding(data, data[-30:])[0].path.startswith(f"{path}.text[")
    assert holding(data.replace('"', "'"), data[-30:].replace('"', "'"))[0].path.startswith(f"{path}.text[")


@example("\x1b=\x800", Kind.JSON)
@given(
    (
        JSON_LIKE.map(json.dumps)
        | JSON_LIKE.map(lambda value: json.dumps(value, indent=2))
        | LINES
        | CUT_ANYWHERE
    ),
    st.sampled_from(Kind),
)
def test_what_a_passage_is_shown_with_is_around_it_and_bounded(text: str, kind: Kind) -> None:
    # Offsets count in the data, which has no terminal codes.
    source = SourceText(text.encode())
    data = source.data
    for one in split_source(source):
        shown = OF_KIND[kind].around(data, one)
        assert 0 <= shown.start <= one.start < one.end <= shown.end <= len(data)
        assert shown.end - shown.start <= max(REACH, one.end - one.start)
        data[shown.start : shown.end].decode()
        if shown.header:
            assert 0 <= shown.header[0] < shown.header[1] <= shown.start


def test_indexes_count_what_is_no_record_too() -> None:
    data = json.dumps(
        [1, "a,b", {"x": "y" * 200}, [], 5, [6, 7], {"z": "w" * 200}, None, {"last": "v" * 500}]
    )
    assert holding(data, '"z"')[0].path == "$[6]"
    assert holding(data, '"last"')[0].path in ("$[8]", "$[7]")


def test_a_long_record_is_taken_apart_by_its_members() -> None:
    record = {
        "first": {"text": "a " * 200},
        "odd key": {"text": "b " * 200},
        "third": [{"id": n} for n in range(99)],
    }
    data = json.dumps([record])
    assert holding(data, "b b")[0].path in ('$[0]["odd key"]', "$[0].first", "$[0]")
    assert holding(data, '"id": 90')[0].path.startswith("$[0].third[")


def test_many_small_numbers_are_counted_on_the_way() -> None:
    data = json.dumps({"values": list(range(100_000, 103_000))})
    passage, text = holding(data, "102500")
    assert passage.path.startswith("$.values[")
    assert str(100_000 + int(passage.path[9:-1])) == text.split(",")[0].strip()


def test_rows_of_a_literal_are_records_too() -> None:
    data = str([(n, f"it's {n}", None) for n in range(300)])
    passage, text = holding(data, "it's 250")
    assert text.startswith(f"({passage.path[2:-1]}, ")
    numbers = str([(n, n * 2) for n in range(300)])
    assert holding(numbers, "(250, 500)")[0].path.startswith("$[")


def test_lines_of_a_string_inside_json_are_where_it_is_cut() -> None:
    log = "\n".join(f"{n} something happened to the service here" for n in range(100))
    _, text = holding(json.dumps({"stdout": log}), "57 something")
    assert text.startswith("5")
    assert text.endswith("\\n")


def test_deep_json_keeps_its_outer_paths() -> None:
    data = '{"a":' * 5000 + "1" + "}" * 5000 + ', "end": ' + json.dumps(ITEMS)
    assert len(list(split(data.encode()))) > 50


def test_a_path_has_an_end() -> None:
    data = "".join(f'{{"{"k" * 150}{n}":' for n in range(60)) + json.dumps(ITEMS)
    paths = [one.path for one in split(data.encode())]
    assert max(map(len, paths)) <= 210
    assert any(path.startswith("$…") and re.search(r'k59\["item \d+"\]\Z', path) for path in paths)


def test_a_row_of_csv_is_not_cut_inside_its_quotes() -> None:
    cells = (f'"two\n\nlines, {n}"' if n % 9 == 5 else f"one line {n}" for n in range(90))
    rows = "".join(f"{n},{cell},x{'y' * 60}\n" for n, cell in enumerate(cells))
    for one in split(("id,text,more\n" + rows).encode()):
        text = ("id,text,more\n" + rows)[one.start : one.end]
        assert text.count('"') % 2 == 0


MARKDOWN = "# Guide\nintro\n\n## Install\n\n```sh\n# no heading\napt install it\n```\n\n## Use\nrun it\n"


def test_sections_of_markdown_carry_their_headings() -> None:
    long = MARKDOWN.replace("intro", "intro " * 40).replace("run it", "run it " * 40)
    assert holding(long, "intro intro")[0].path == "# Guide"
    assert holding(long, "run it run")[0].path == "## Guide › Use"
    assert holding(MARKDOWN * 9, "apt install")[0].path.startswith("#")


def test_sections_of_html_carry_their_headings() -> None:
    body = "<p>" + "some words " * 20 + "</p>\n"
    head = f"<!DOCTYPE html><html><title>Site</title>\n{body}<h2>Prices &amp; plans</h2>\n"
    data = f"{head}{body}<p>the target</p>{body}"
    assert holding(data, "the target")[0].path == "## Site › Prices &amp; plans"


def test_code_carries_its_definitions() -> None:
    method = "    def {}(self, value):\n" + "        if (value) {{ }}\n        return value\n" * 6 + "\n"
    data = "import os\n\nclass Store:\n" + "".join(map(method.format, ("open", "close", "sweep")))
    assert holding(data, "def close")[0].path == "class Store › def close(self, value)"


def test_one_line_of_any_size_is_cut_between_words() -> None:
    data = "word " * 5000
    for one in list(split(data.encode()))[:-1]:
        assert data[one.end - 1] == " "
    assert max(one.end - one.start for one in split(b"x" * 50_000)) <= MOST


def test_documents_one_to_a_line_are_not_mixed() -> None:
    data = "".join(json.dumps({"id": n, "text": "t" * 150}) + "\n" for n in range(40))
    for one in split(data.encode()):
        assert data[one.start : one.end].startswith('{"id"')


def test_the_end_of_a_section_is_no_passage_of_a_few_words() -> None:
    text = "It says a little. " * 14
    end = "The end of it has a few words more, in a paragraph of its own, not in the next."
    data = "".join(f"## Part {n}\n\n{text}\n\n{end}\n" for n in range(20))
    passages = list(split(data.encode()))
    assert all(one.end - one.start >= 120 for one in passages)
    assert len({one.path for one in passages}) == 20
