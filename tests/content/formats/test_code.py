"""Source: its language by path or content, its definitions, and where it is cut."""

import pytest

from content.kind import Kind
from tests.content.formats.describing import kind_of, outlined, pieces, said

LICENCE = "# Permission is hereby granted, free of charge, to any person.\n" * 40
PYTHON = "import os\nimport re\n\n\ndef f(a):\n    # why\n    return a\n\n\nclass A(B):\n    x = 1\n"
GO = 'package main\n\nimport (\n\t"fmt"\n)\n\nfunc main() {\n\tn := 1\n\tfmt.Println(n)\n}\n'
MAKEFILE = """\
VENV := .venv
PYTHON := python3
WORKERS := auto

check: $(VENV)/.dev
\t$(VENV)/bin/ruff check .
\t$(VENV)/bin/mypy .

clean:
\trm -rf $(VENV)
"""


@pytest.mark.parametrize("text", [LICENCE + PYTHON, PYTHON, GO, "#!/bin/sh\necho a\n", "<?php\necho 1;\n"])
def test_source_is_known_by_its_content(text: str) -> None:
    assert kind_of(text) is Kind.CODE


@pytest.mark.parametrize(
    ("text", "path", "language"),
    [
        (PYTHON, None, "Python source, 1 class, 1 other definition"),
        (PYTHON, "a.txt", "Python source, 1 class, 1 other definition"),
        (GO, None, "Go source, 1 definition"),
        ("x = 1\ny = 2\n", "src/a.rb", "Ruby source"),
        ("echo a\necho b\n", "bin/run.sh", "Shell source"),
    ],
)
def test_its_language_and_how_much_it_defines_are_said(text: str, path: str | None, language: str) -> None:
    assert said(text, path=path).split("\n")[0] == language


def test_assignments_of_a_makefile_are_not_those_of_go() -> None:
    assert not said(MAKEFILE * 4).startswith("Go")
    assert said(GO * 4).startswith("Go source")


def test_members_of_json_are_signs_of_no_language() -> None:
    member = '        "private": {"type": "string", "use": "const x = 1"},\n      },\n'
    assert said(member * 60) == "source code"
    typed = "interface Shop {\n  name: string;\n  open: boolean;\n}\n"
    assert said(typed + member * 9 + typed * 3).startswith("Typescript source")


def test_definitions_are_outlined_on_their_lines() -> None:
    assert outlined(PYTHON) == [
        "Outline (python):",
        "def f (line 5)",
        "class A (line 10)",
    ]


def test_a_function_is_not_cut_from_its_first_line() -> None:
    body = "".join(f"    total = total + {n} * price_of_item_{n}\n" for n in range(9))
    text = "import os\n\n\n" + "".join(
        f"def part_{n}(price):\n{body}    return total\n\n\n" for n in range(9)
    )
    for piece, passage in pieces(text):
        assert piece.count("def ") <= 2
        assert "def " not in piece.rstrip().rpartition("\n")[2]
        if "return total" in piece and "def " in piece:
            assert passage.path.startswith("def part_")


def test_prose_that_speaks_of_imports_is_no_source() -> None:
    words = "The type of thing that one would import from abroad.\nA class of its own.\n"
    assert kind_of(words * 9) is Kind.TEXT


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


DOCSTRING = (
    "A library of commands.\n\n    - handles options, and\n    - writes help.\n\nAn example:: \n\n    f(1)\n"
    * 30
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f'"""{DOCSTRING}"""\n\n{PYTHON}', Kind.CODE),
        (f"# Copyright of the writers of this file.\nr'''{DOCSTRING}'''\n\n__all__ = ['f']\n", Kind.CODE),
        (f'"""{DOCSTRING * 9}', Kind.CODE),
        (f"/*\n{DOCSTRING}*/\n#include <stdio.h>\n#include <time.h>\nint main(void) {{\n}}\n", Kind.CODE),
        (f"# Commands\n\nWhat they do.\n\n## Use\n\n```python\n{PYTHON}```\n" * 9, Kind.MARKDOWN),
        (f"{DOCSTRING}\n", Kind.TEXT),
        ('"""quoted"" word",b,c\n' * 90, Kind.CSV),
        ("# What the service is told at its start, and why.\nport = 8000\nhost = 'a'\n" * 9, Kind.TEXT),
    ],
)
def test_source_under_a_long_comment_is_source(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind
