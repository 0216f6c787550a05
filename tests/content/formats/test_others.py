"""Source, prose, pages, lists, searches, diffs and files: recognised by what they hold."""

import pytest

from content.describe import about, outline
from content.formats.unseen import is_seen
from content.kind import Kind
from content.passages import split
from content.source import Source

LICENCE = "# Permission is hereby granted, free of charge, to any person.\n" * 40
PYTHON = "import os\nimport re\n\n\ndef f(a):\n    # why\n    return a\n\n\nclass A(B):\n    x = 1\n"
LUA = "local M = {}\n\nfunction M.open(path)\n  if path then\n    return 1\n  end\nend\n\nreturn M\n"
SQL = "CREATE TABLE a (\n  id integer,\n  name text\n);\nINSERT INTO a VALUES (1);\nSELECT id FROM a;\n"


def kind_of(text: str, tool: str = "", path: str | None = None) -> Kind:
    return Source(text.encode(), tool, path).format.kind


@pytest.mark.parametrize(
    "text", [LICENCE + PYTHON, PYTHON, LUA, SQL, "#!/bin/sh\necho a\n", "<?php\necho 1;\n"]
)
def test_source_is_known_by_its_content(text: str) -> None:
    assert kind_of(text) is Kind.CODE


@pytest.mark.parametrize(
    "text",
    [
        "# Guide\n\nRun this:\n\n```python\nimport os\nimport re\ndef f(a):\n    return a\n```\n",
        "# Guide\n\n## Use\n\n    import os\n    import re\n\n" + "This is all that there is.\n" * 4,
        "- one\n- two\n\n# Title\n\n> quoted\n",
    ],
)
def test_source_in_markdown_is_markdown(text: str) -> None:
    assert kind_of(text) is Kind.MARKDOWN


def test_prose_that_speaks_of_imports_is_no_source() -> None:
    assert (
        kind_of("The type of thing that one would import from abroad.\nA class of its own.\n" * 9)
        is Kind.TEXT
    )


@pytest.mark.parametrize(
    ("text", "path", "kind"),
    [
        ("one\ntwo\n", "a.md", Kind.MARKDOWN),
        ("one\ntwo\n", "a.py", Kind.CODE),
        ("# a\nkey: 1\n## b\n### c\n", "a.yaml", Kind.TEXT),
        ('[{"id": 1}]', "a.py", Kind.JSON),
        ("a.py: no such file\n", "a.py", Kind.TEXT),
        ("src/a.py:3: x\nsrc/a.py:9: y\n", "src/a.py", Kind.GREP),
        ("id,name,x\n1,2,3\n2,3,4\n", "a.csv", Kind.CSV),
    ],
)
def test_the_path_decides_where_the_text_is_unclear(text: str, path: str, kind: Kind) -> None:
    assert kind_of(text, path=path) is kind


def test_a_list_of_a_page_keeps_its_numbers() -> None:
    items = "".join(
        f"{n}. <span>Item {n} is described here in some more words</span>\n" for n in range(1, 40)
    )
    source = Source(f"<html><body>\n{items}</body></html>".encode())
    for one in split(source):
        text = source.data[one.start : one.end].decode()
        assert text.count(". <span>") == text.count("<span>")
        assert text.count("</span>") == text.count("<span>")


def test_what_a_reader_of_a_page_does_not_see_is_not_seen() -> None:
    page = (
        "<html><style>p { color: red; margin: 0 }</style><p>"
        + "Words to be read are here. " * 30
        + "</p></html>"
    )
    source = Source(page.encode())
    test = is_seen(source.data, source.format.kind)
    seen = [source.data[one.start : one.end] for one in split(source) if test(one)]
    assert seen
    assert not any(b"color" in text for text in seen)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("total 48\n" + "-rw-r--r-- 1 a a 12 Nov 20 a.txt\n" * 9, "directory listing, 9 entries"),
        ("".join(f"./a/b/{n}.py\n" for n in range(30)), "list of paths"),
        ("".join(f"src/{n // 3}.py:{n}: x\n" for n in range(30)), "search output, 30 lines in 10 files"),
        ("--- a.txt\n+++ b.txt\n@@ -1 +1 @@\n-a\n+b\n", "diff, 1 file\n“--- a.txt”"),
        ("commit 1a2b3c4d5e\nAuthor: A\n\n    Words\n", "log of commits\n“commit 1a2b3c4d5e”"),
        ("[('Rome', 12), ('Oslo', 7)]", "Python list of 2 tuples\n“[('Rome', 12), ('Oslo', 7)]”"),
        ("<svg xmlns='x'>" + "<g/>" * 30 + "</svg>", "XML, root element svg"),
    ],
)
def test_lists_searches_and_diffs_say_how_much_there_is(text: str, said: str) -> None:
    data = text.encode()
    assert about(data, data[-4096:], len(data), text.count("\n") + 1) == said


def test_a_diff_lists_its_files_on_their_lines() -> None:
    hunk = "@@ -1 +1 @@\n-a\n+b\n"
    text = "".join(f"diff --git a/{n} b/{n}\n--- a/{n}\n+++ b/{n}\n{hunk}" for n in ("x.py", "y.py"))
    assert outline(text.encode(), 400).splitlines() == ["Outline (diff):", "x.py (line 3)", "y.py (line 9)"]
    assert {one.path for one in split(Source((text + " c\n" * 300).encode()))} == {"x.py", "y.py"}
