from hypothesis import given
from hypothesis import strategies as st

from content.lines import Line, LinePage, LinePager


def page(data: bytes, offset: int = 1, limit: int = 100, max_bytes: int = 10_000, size: int = 0) -> LinePage:
    pager = LinePager(offset, limit, max_bytes)
    for start in range(0, len(data), size or len(data) or 1):
        pager.feed(data[start : start + (size or len(data))])
    return pager.finish()


def test_a_final_newline_ends_a_line_and_begins_none() -> None:
    assert page(b"a\nb\n") == LinePage([Line(1, "a"), Line(2, "b")], 2, None)
    assert page(b"a\nb\n", limit=2, size=1) == page(b"a\nb\n")
    assert page(b"a\n\n", limit=1) == LinePage([Line(1, "a")], 2, 2)
    assert page(b"a\n\n", offset=2) == LinePage([Line(2, "")], 2, None)
    assert page(b"a\nb\n", offset=3) == LinePage([], 2, None)
    assert page(b"\n") == LinePage([Line(1, "")], 1, None)


def test_an_empty_body_has_no_lines() -> None:
    assert page(b"") == LinePage([], 0, None)


def test_a_page_says_where_the_next_one_starts() -> None:
    assert page(b"a\nb\nc", offset=2, limit=1) == LinePage([Line(2, "b")], 3, 3)
    assert page(b"a\nb\nc", offset=3, limit=1) == LinePage([Line(3, "c")], 3, None)


def test_past_the_end_there_is_nothing() -> None:
    assert page(b"a\nb", offset=9) == LinePage([], 2, None)


def test_the_byte_bound_stops_before_the_line_that_does_not_fit() -> None:
    assert page(b"aaaa\nbbbb\ncccc", max_bytes=9) == LinePage([Line(1, "aaaa"), Line(2, "bbbb")], 3, 3)


def test_a_line_longer_than_a_page_is_cut_at_a_character_and_passed_over() -> None:
    data = "ééééé\nx".encode()
    assert page(data, max_bytes=5) == LinePage([Line(1, "éé", truncated=True)], 2, 2)
    assert page(data, offset=2, max_bytes=5) == LinePage([Line(2, "x")], 2, None)


LINES = st.lists(st.sampled_from(["", "a", "bb", "é€😀", "x" * 30, "\r"]), max_size=12).map("\n".join)


@given(LINES, st.integers(1, 14), st.integers(0, 14), st.integers(0, 60), st.integers(1, 9))
def test_any_split_gives_the_same_page(text: str, offset: int, limit: int, max_bytes: int, size: int) -> None:
    data = text.encode()
    whole = page(data, offset, limit, max_bytes)
    assert page(data, offset, limit, max_bytes, size) == whole
    assert sum(len(line.text.encode()) for line in whole.lines) <= max_bytes


@given(LINES, st.integers(1, 5), st.integers(4, 40))
def test_following_the_pages_reads_every_line_once(text: str, limit: int, max_bytes: int) -> None:
    offset: int | None = 1
    lines: list[Line] = []
    while offset is not None:
        found = page(text.encode(), offset, limit, max_bytes)
        lines += found.lines
        offset = found.next_offset
    expected = text.split("\n")
    if not expected[-1]:
        expected.pop()
    assert [line.number for line in lines] == list(range(1, len(expected) + 1))
    for line, whole in zip(lines, expected, strict=True):
        assert whole.startswith(line.text)
        assert line.truncated == (line.text != whole)
