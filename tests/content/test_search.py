import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.grep import Grep, GrepPage
from domain.errors import BadPattern


def grep(pattern: str, data: bytes, size: int = 0, **options: int) -> GrepPage:
    search = Grep(pattern, **options)  # type: ignore[arg-type]
    for start in range(0, len(data), size or len(data) or 1):
        search.feed(data[start : start + (size or len(data))])
    return search.finish()


def lines(found: GrepPage) -> list[int]:
    return [match.line for match in found.matches]


def test_a_final_newline_is_not_followed_by_a_line() -> None:
    assert lines(grep("^$", b"a\n\nb\n")) == [2]
    assert grep("x*", b"a\nb\n").total_matches == 2
    assert grep("x*", b"a\nb\n", limit=0).total_matches == 2


@pytest.mark.parametrize("pattern", [r"[^x]b", r"a\s*b", r"(?s)a.*b", r"a\Cb", r"a\Wb", r"a(?:.|\s)b"])
def test_no_pattern_matches_across_lines(pattern: str) -> None:
    assert grep(pattern, b"a\nb\na\nb").total_matches == 0


@pytest.mark.parametrize("pattern", [r"\Ab", "^b", r"b\z", "b$", "(?-m)^b", "(?i-m:B$)", "(?-ms)b$"])
def test_anchors_of_the_whole_text_are_those_of_a_line(pattern: str) -> None:
    assert lines(grep(pattern, b"a\nb\nb\nc\n", size=2)) == [2, 3]


def test_escaped_and_bracketed_anchors_stay_what_they_are() -> None:
    assert lines(grep(r"\\A", b"A\n\\A\n")) == [2]
    assert lines(grep(r"[\^$][(?-m]", b"A\n$?\n")) == [2]
    assert lines(grep(r"\Q\A\E", b"A\n\\A\n")) == [2]


def test_a_literal_is_no_pattern_and_case_may_be_ignored() -> None:
    assert lines(grep("a.B(", b"axb(\na.b(\n", literal=True, ignore_case=True)) == [2]
    assert lines(grep("É.", "é1\n".encode(), ignore_case=True)) == [1]


def test_the_byte_bound_ends_a_page_and_the_next_goes_on() -> None:
    found = grep("x", b"xxxx\nxxxx\nxxxx\n", max_bytes=9)
    assert (lines(found), found.next_offset) == ([1, 2], 2)


def test_a_first_match_larger_than_a_page_is_cut() -> None:
    found = grep("é", "éééé\n".encode(), max_bytes=5, context=2)
    assert [(match.text, match.truncated) for match in found.matches] == [("éé", True)]
    assert found.next_offset is None


@pytest.mark.parametrize("size", [1000, 65_536, 5_000_000])
def test_of_a_huge_line_only_the_surroundings_of_the_match_are_shown(size: int) -> None:
    data = b"first\n" + "é".encode() * 1_000_000 + b"needle" + "é".encode() * 1_000_000 + b"\nlast needle\n"
    found = grep("needle", data, size, context=1)
    assert lines(found) == [2, 3]
    assert found.matches[0].text == "é" * 400 + "needle" + "é" * 394
    assert found.matches[0].truncated
    assert found.matches[0].before == ["first"]
    assert found.matches[0].after == ["last needle"]
    assert found.matches[1].before == ["é" * 1000]


def test_line_anchors_do_not_match_within_a_huge_line() -> None:
    data = b"ab" * 1_500_000 + b"\nb\n"
    assert lines(grep("^b", data, 65_536)) == [2]
    assert lines(grep("^b$|a$", data, 65_536)) == [2]


@given(
    st.text("ab\n", max_size=60),
    st.sampled_from(["a", "^a", "b$", "a*", "[^a]", "^$", "ab|b", "a.b", "(?:a|b)b"]),
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(1, 7),
)
def test_it_finds_what_looking_at_each_line_finds(
    text: str, pattern: str, context: int, limit: int, offset: int, size: int
) -> None:
    whole = text.removesuffix("\n").split("\n") if text else []
    wanted = [number for number, line in enumerate(whole) if re.search(pattern, line)]
    found = grep(pattern, text.encode(), size, context=context, limit=limit, offset=offset)
    assert found.total_matches == len(wanted)
    shown = wanted[offset : offset + limit]
    assert [(m.line - 1, m.text) for m in found.matches] == [(n, whole[n]) for n in shown]
    assert [m.before for m in found.matches] == [whole[max(0, n - context) : n] for n in shown]
    assert [m.after for m in found.matches] == [whole[n + 1 : n + 1 + context] for n in shown]


@given(
    st.lists(st.sampled_from(["hit", "miss", "", "hit é", "x" * 3000 + "hit"]), max_size=30),
    st.integers(0, 300),
)
def test_blocks_change_nothing(texts: list[str], max_bytes: int) -> None:
    data = "\n".join(texts * 40).encode()
    options = {"context": 2, "limit": 7, "offset": 3, "max_bytes": max_bytes}
    assert grep("hit", data, **options) == grep("hit", data, 4001, **options)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("secret(?=x)", "no lookahead"),
        (r"(secret)\1", "no backreferences"),
        ("secret[", "not closed"),
        ("secret)", "without its"),
        ("secret{2000}", "at most 1,000"),
        ("secret\nx", "line break"),
        (r"secret\nx", "line break"),
        ("secret" * 200, "1,000 characters"),
        (r"(?:secret\pL{1,500}){2}", "RE2|costly"),
        ("secret\ud800", "surrogate"),
        ("secret\\", "backslash"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_reason_and_not_echoed(pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason) as caught:
        Grep(pattern)
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_terminal_codes_are_neither_seen_nor_shown(size: int) -> None:
    data = b"\x1b[1;32mok\x1b[0m\n\x1b]0;title\x07\x1b[31merror\x1b[0m: disk\nerr\x1b[4mor\x1b[0ms\n"
    found = grep(r"\berror\b", data, size, context=1)
    assert [(one.line, one.text, one.before, one.after) for one in found.matches] == [
        (2, "error: disk", ["ok"], ["errors"])
    ]
    assert grep("errors", data, size).total_matches == 1
    assert grep(r"\x1b|31m|title", data, size).total_matches == 0


@pytest.mark.parametrize(("size", "long"), [(0, 5), (1, 5), (3, 5), (0, 1_100_000), (4001, 1_100_000)])
def test_a_carriage_return_before_the_newline_is_not_part_of_the_line(size: int, long: int) -> None:
    data = b"one\r\n\r\nt\rwo\r\n" + b"x" * long + b"end\r\nlast\r"
    found = grep("[en]e$|^$|o$|d$", data, size, context=1)
    assert [(one.line, one.text[-4:], one.before) for one in found.matches[:3]] == [
        (1, "one", []),
        (2, "", ["one"]),
        (3, "t\rwo", [""]),
    ]
    assert lines(found) == [1, 2, 3, 4]
    assert lines(grep("last.$", data, size)) == [5]


@pytest.mark.parametrize("size", [0, 1])
def test_an_escape_that_begins_no_code_is_a_character(size: int) -> None:
    assert lines(grep("b", b"a\n\x1b{b\n\x1b", size)) == [2]
    assert lines(grep(r"\x1b", b"a\n\x1b{b\n\x1b", size)) == [2, 3]
