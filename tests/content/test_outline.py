import json

from hypothesis import given, settings
from hypothesis import strategies as st

from content.describe import outline, structure
from content.text import Preview, cut_head, cut_tail, preview

LOG = b"".join(
    b"2024-05-01T10:00:%02dZ %s request\n" % (i, b"ERROR" if i % 7 == 0 else b"INFO") for i in range(50)
)
CSV = b'id,name,city\n1,"Ann, B",Oslo\n2,Bo,Rome\n3,Cy,Bonn\n'
GREP = b"src/a.py:10:def f():\nsrc/a.py:22:    f()\nsrc/b.py:3:import a\n"


def test_json_shows_types_keys_and_lengths() -> None:
    text = outline(json.dumps({"items": [{"id": 1, "name": "x"}] * 3, "next": None}).encode(), 1024)
    assert text.splitlines() == [
        "Outline (json):",
        "object with 2 keys",
        "  items: array of 3",
        "    first item: object with 2 keys",
        "      id: number",
        "      name: string",
        "  next: null",
    ]


def test_json_that_is_cut_off_shows_what_there_is_and_says_so() -> None:
    data = json.dumps([{"id": n, "tags": ["a", "b"]} for n in range(100)]).encode()
    lines = outline(data[:500], 1024, len(data)).splitlines()
    assert lines[0] == "Outline (json, of its first 500 bytes):"
    assert lines[1].startswith("(cut off) array of ")


def test_a_log_shows_levels_and_its_span() -> None:
    assert outline(LOG, 1024).splitlines()[1:] == [
        "levels: ERROR 8, INFO 42",
        "from 2024-05-01T10:00:00 to 2024-05-01T10:00:49 (0:00:49)",
    ]


@given(st.text(max_size=400), st.integers(0, 400))
def test_cuts_are_whole_beginnings_and_ends(text: str, size: int) -> None:
    data = text.encode()
    head, tail = cut_head(data, size), cut_tail(data, size)
    assert len(head) <= size
    assert len(tail) <= size
    assert text.startswith(head.decode())
    assert text.endswith(tail.decode())
    assert min(size, len(data)) - len(head) <= 4


def test_a_cut_splits_no_crlf() -> None:
    assert cut_head(b"a\r\nb", 2) == b"a"
    assert cut_tail(b"a\r\nb", 2) == b"b"


@settings(deadline=None)
@given(st.sampled_from(Preview), st.text(max_size=600), st.integers(0, 700), st.integers(0, 700))
def test_a_preview_keeps_within_its_bound(kind: Preview, text: str, window: int, max_bytes: int) -> None:
    data = text.encode()
    shown = preview(kind, data[:window], data[-window:] if window else b"", len(data), max_bytes)
    assert len(shown.encode()) <= max_bytes


def test_head_and_tail_name_what_is_between() -> None:
    data = b"a" * 500 + b"b" * 500
    assert preview(Preview.HEAD_TAIL, data, data, 1000, 248) == (
        "a" * 100 + "\n[... 800 bytes omitted ...]\n" + "b" * 100
    )
    assert preview(Preview.HEAD_TAIL, b"short", b"short", 5, 248) == "short"
    assert preview(Preview.NONE, data, data, 1000, 248) == ""
    assert preview(Preview.HEAD, data, data, 1000, 10) == "a" * 10


def test_structure_lists_what_is_no_source_too() -> None:
    assert structure("a.json", b'{"items": [{"id": 1}], "next": null}') == [
        "  - object with 2 keys",
        "    - items: array of 1",
        "      - first item: object with 1 keys",
        "        - id: number",
        "    - next: null",
    ]
    assert structure(None, CSV) == ["  - 3 columns: id, name, city", "  - 3 rows"]
    assert structure(None, b"Just two\nlines.\n") == structure(None, b"\x7fELF\x02\x01\x00\x00") == []


def test_the_name_of_a_settings_file_decides_where_its_comments_look_like_headings() -> None:
    data = b"# Shop\n## Image\n### Tag\nimage: shop\n"
    assert structure("docs/shop", data)[0] == "  - # Shop (line 1)"
    for name in ("values.yaml", "deploy/Dockerfile", "Makefile.am"):
        assert structure(name, data) == []


def test_headings_of_markdown_are_structure_whatever_stands_between() -> None:
    data = b"# One\nkey: value\nother: value\n## Two\nport: 80\n"
    assert structure("docs/a.md", data) == ["  - # One (line 1)", "  - ## Two (line 4)"]
    deep = b"# One\nId: 1\n\n## Two\nId: 2\n\n### Three\nId: 3\n"
    assert structure(None, deep)[-1] == "  - ### Three (line 7)"


def test_matches_of_a_search_are_no_structure() -> None:
    assert structure("src/a.py", GREP) == []
