"""What searches print: matches counted by file, each file's together."""

import pytest

from content.kind import Kind
from tests.content.formats.describing import kind_of, outlined, pieces, said

GREP = """\
content/formats/log.py:9:from content.formats.cuts import UNINDENTED, at_ends
content/formats/log.py:194:    finds = (at_ends(EVENT), at_ends(UNINDENTED))
content/formats/diff.py:6:from content.formats.cuts import at_ends, matches_in_slices
content/formats/diff.py:22:    finds = (at_ends(_HUNK),)
content/formats/cuts.py:32:def at_ends(pattern: re.Pattern[bytes]) -> Find:
"""
CONTEXT = """\
content/lines.py-10-class Line:
content/lines.py:11:    number: int
content/lines.py-12-    text: str
--
content/text.py-40-
content/text.py:41:def cut_head(data: bytes) -> bytes:
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GREP, "search output, 5 lines in 3 files"),
        (CONTEXT, "search output, 5 lines in 2 files"),
        (GREP * 400, "search output, 2,000 lines in 3 files"),
        ("src/a b.py:3: x\n" * 5, "plain text, 15 words"),
    ],
)
def test_matches_are_counted_by_file(text: str, told: str) -> None:
    assert said(text) == told


def test_the_files_with_the_most_matches_come_first() -> None:
    assert outlined(GREP + GREP.replace("diff", "log")) == [
        "Outline (grep):",
        "10 lines in 3 files",
        "content/formats/log.py: 6",
        "content/formats/diff.py: 2",
        "content/formats/cuts.py: 2",
    ]


def test_a_search_in_one_file_is_known_by_the_tool() -> None:
    numbered = "".join(f"{n}:    def f{n}(a):\n" for n in range(3, 90, 4))
    assert kind_of(numbered, "grep_content") is Kind.GREP
    assert kind_of(numbered) is not Kind.GREP


@pytest.mark.parametrize(
    "text", ["10:30:00 start\n10:31:00 end\n" * 4, "http://a.b:80/x\n" * 9, "a.py: no such file\n" * 9]
)
def test_colons_alone_are_no_search(text: str) -> None:
    assert kind_of(text) is not Kind.GREP


def test_matches_of_two_files_are_not_mixed() -> None:
    text = "".join(f"src/part_{n // 6}.py:{n}:    total = total + price_of_item\n" for n in range(90))
    for piece, _ in pieces(text):
        assert len({line.partition(":")[0] for line in piece.splitlines()}) == 1
        assert piece.endswith("\n")
