"""JMESPath over values: what it answers, what it refuses, and how much of it goes into an answer."""

import json
from typing import Any

import jmespath
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.jmespath import Expression
from domain.errors import InvalidField, QueryTooCostly
from extraction.query_terms import slice_of

ROWS = [
    {"id": 1, "level": "ok", "ms": 12, "tags": ["a"]},
    {"id": 2, "level": "ERROR", "ms": 80, "tags": ["a", "b"]},
    {"id": 3, "level": "ok", "ms": None, "tags": []},
    {"id": 4, "level": "ok", "ms": 80, "tags": ["b"]},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)
SYNTAX = r"""a b @ * [*] [] [?a] [?a>`1`] [0] [-1] [1:] [::-1] [::0] . | || && ! & , ( ) { } : ` ' " `1` 'x'
    length( sort_by( max( sum( map( keys( to_number( contains( == < - `"x"`"""
PARTS = st.sampled_from(SYNTAX.split())
WORKING = st.sampled_from(
    ["@", "*", "[]", "[0]", "a", "a.b", "[?a]", "[*].a", "[a, b]", "{x: a}", "a || b", "!a", "type(@)"]
)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("length(@)", 4),
        ("[?level == 'ERROR'].id", [2]),
        ("[?ms > `20`].id", [2, 4]),
        ("max_by([?ms != `null`], &ms).id", 2),
        ("sort_by(@, &level)[0].level", "ERROR"),
        ("sum([].ms)", 172),
        ("[?contains(tags, 'b')].id", [2, 4]),
        ("[?level > `5`]", []),
        ("nothing.at.all", None),
    ],
)
def test_an_expression_answers(expression: str, answer: object) -> None:
    assert Expression(expression).evaluate(ROWS) == answer


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("S3cret[", "at its end"),
        ("S3cret }", "character 8"),
        ("'S3cret", "character 1"),
        ("#S3cret", "character 1"),
        ("", "empty"),
        ("S3cret(@)", "Known are: abs, .* SQL counts, groups and sorts: SELECT"),
        ("count_by(@, &level)", "A function is not known"),
        ("length()", "takes 1 arguments, not 0"),
        ("max_by(@, &ms)", r"gets null here. Leave such values out first: \[\?field"),
        ("sum([].level)", "sum\\(\\) takes array-number, and gets string"),
        ("sort_by(@, &tags)", "gets array"),
        ('max_by(`[{"k": 1}, {"k": "S3cret"}]`, &k)', "ordered together"),
        ("[::0]", "step"),
        ("(" * 4000, "too deeply"),
        ("a" * 5000, "4,096 characters"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_repeated(expression: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        Expression(expression).evaluate(ROWS)
    assert "S3cret" not in caught.value.detail


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@settings(deadline=None)
@given(st.lists(PARTS, max_size=8), JSON)
def test_any_expression_over_any_value_answers_json_or_is_refused(parts: list[str], value: object) -> None:
    try:
        shown = slice_of(Expression("".join(parts)).evaluate(value), 100, 0, 1000)
    except InvalidField:
        return
    msgspec.json.decode(shown.result)


@settings(deadline=None)
@given(WORKING, JSON)
def test_the_language_is_that_of_the_library(expression: str, value: object) -> None:
    assert Expression(expression).evaluate(value) == jmespath.search(expression, value)


@settings(deadline=None)
@given(st.lists(JSON, max_size=12), st.integers(1, 5), st.integers(30, 400))
def test_pages_joined_are_the_array(array: list[Any], limit: int, max_bytes: int) -> None:
    seen: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        try:
            page = slice_of(array, limit, offset, max_bytes)
        except QueryTooCostly:
            assert len(msgspec.json.encode(array[offset])) + 2 > max_bytes
            return
        assert len(page.result) <= max_bytes
        assert page.total == len(array)
        seen += msgspec.json.decode(page.result)
        offset = page.next_offset
    assert seen == json.loads(msgspec.json.encode(array))


@settings(deadline=None)
@given(st.text(min_size=20), st.integers(2, 60))
def test_a_long_string_is_cut_between_characters(text: str, max_bytes: int) -> None:
    shown = slice_of(text, 100, 0, max_bytes)
    assert len(shown.result) <= max_bytes
    part = msgspec.json.decode(shown.result)
    assert text.startswith(part)
    assert shown.truncated == (part != text)


def test_an_object_that_does_not_fit_says_how_to_select() -> None:
    with pytest.raises(QueryTooCostly, match=r"keys\(@\)"):
        slice_of({"a": "x" * 100}, 100, 0, 50)


def test_what_json_cannot_hold_is_mended() -> None:
    shown = slice_of({"\ud800": ["\udfff!", float("inf"), 10**40]}, 100, 0, 1000)
    assert msgspec.json.decode(shown.result) == {"\ufffd": ["\ufffd!", None, 10**40]}
