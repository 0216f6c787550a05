"""Changes of files: how many, where they begin, and of which commit."""

import pytest

from content.kind import Kind
from content.source_text import SourceText
from tests.content.formats.describing import kind_of, outlined, pieces, said

CHANGE = """\
diff --git a/content/formats/{0}.py b/content/formats/{0}.py
index 0ea36308..2664bc12 100644
--- a/content/formats/{0}.py
+++ b/content/formats/{0}.py
@@ -6,6 +6,6 @@ from collections.abc import Iterator
 from datetime import datetime, timedelta
 from itertools import islice
-from content.formats.cuts import at_ends
+from content.formats.cuts import UNINDENTED, at_ends
 from content.kind import Kind
 from content.source_text import SourceText
"""
COMMIT = """\
commit {}
Author: A Maintainer <a@example.org>
Date:   {}

    One pattern for paragraphs and for unindented lines

"""
SHOWN = COMMIT.format("2433308f37513519be72e91dde2a76dabc136832", "Tue Nov 24 15:34:56 2026 +0000")
OLDER = COMMIT.format("f829562c2b0ab71a3d0202bf0a0e6623dee2e163", "Mon Nov 23 15:31:25 2026 +0000")
TWO = CHANGE.format("log") + CHANGE.format("diff")
PLAIN = "--- a.txt\n+++ b.txt\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TWO, "diff, 2 files"),
        (SHOWN + TWO, "diff, 2 files"),
        (PLAIN, "diff, 1 file"),
        (PLAIN * 3, "diff, 1 file"),
        (PLAIN + PLAIN.replace("b.txt", "c.txt"), "diff, 2 files"),
        ("\n" + TWO, "diff, 2 files"),
    ],
)
def test_a_diff_says_of_how_many_files(text: str, told: str) -> None:
    assert said(text) == told


@pytest.mark.parametrize(
    "text",
    [SHOWN, "--- a line of dashes\nand more\n", "diff the two files\n", SHOWN + "    diff --git a b\n"],
)
def test_words_about_changes_are_no_diff(text: str) -> None:
    assert kind_of(text) is not Kind.DIFF


def test_files_are_outlined_on_their_lines() -> None:
    paths = ["content/formats/log.py", "content/formats/diff.py"]
    assert outlined(TWO) == ["Outline (diff):", f"{paths[0]} (line 4)", f"{paths[1]} (line 15)"]
    assert {one.path for _, one in pieces(TWO + " c\n" * 300)} == set(paths)


def test_hunks_are_not_cut_where_they_fit() -> None:
    hunk = "@@ -{0},3 +{0},3 @@ def f():\n context of the change\n-a line that is old\n+a line that is new\n"
    text = PLAIN + "".join(hunk.format(n) for n in range(60))
    for piece, _ in pieces(text):
        assert piece.count("-a line that is old") == piece.count("+a line that is new")


def test_commits_with_their_changes_are_a_diff() -> None:
    source = SourceText((SHOWN + TWO + "\n" + OLDER + TWO).encode())
    assert source.format.kind is Kind.DIFF
