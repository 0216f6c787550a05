"""Plain text and Markdown: headings, comments that look like them, items, sentences, order."""

import pytest

from content.kind import Kind
from tests.content.formats.describing import kind_of, outlined, pieces, said, shown_around

README = """\
# Spillgate

It takes what tools return.

## Start

```sh
# Not a heading.
pip install spillgate
```

## Use

- one
- two
"""
# As `man ls` prints it without a terminal.
MAN = """\
LS(1)                            User Commands                           LS(1)

NAME
       ls - list directory contents

SYNOPSIS
       ls [OPTION]... [FILE]...

DESCRIPTION
       List  information  about  the FILEs (the current directory by default).
       Sort entries alphabetically if none of -cftuvSUX nor --sort  is  speci-
       fied.

       -a, --all
              do not ignore entries starting with .
"""
LOGIN_DEFS = """\
#
# If defined, all su activity is logged to this file.
#
SYSLOG_SU_ENAB\t\tyes
SYSLOG_SG_ENAB\t\tyes
#
# If defined, file which maps tty line to TERM environment parameter.
#
MAIL_DIR        /var/mail
FAILLOG_ENAB\t\tyes
"""
COMMITS = """\
commit 2433308f37513519be72e91dde2a76dabc136832
Author: A Maintainer <a@example.org>
Date:   Tue Nov 24 15:34:56 2026 +0000

    One pattern for paragraphs and for unindented lines

 content/formats/code.py  | 6 ++----
 content/formats/cuts.py  | 3 +++
 2 files changed, 5 insertions(+), 4 deletions(-)

commit f829562c2b0ab71a3d0202bf0a0e6623dee2e163
Author: A Maintainer <a@example.org>
Date:   Tue Nov 24 15:31:25 2026 +0000

    JSON: counts, passages, records and cuts walk by one function
"""


def test_headings_are_counted_and_outlined_but_not_those_in_a_fence() -> None:
    assert said(README) == "Markdown, 3 headings, 24 words"
    assert outlined(README) == [
        "Outline (markdown):",
        "# Spillgate (line 1)",
        "## Start (line 5)",
        "## Use (line 12)",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# Guide\n\nRun this:\n\n```python\nimport os\nimport re\ndef f(a):\n    return a\n```\n",
        "# Guide\n\n## Use\n\n    import os\n    import re\n\n" + "This is all that there is.\n" * 4,
        "- one\n- two\n\n# Title\n\n> quoted\n",
        "# Only\n# Titles\n",
    ],
)
def test_source_in_markdown_is_markdown(text: str) -> None:
    assert kind_of(text) is Kind.MARKDOWN


@pytest.mark.parametrize(
    "text",
    [
        LOGIN_DEFS,
        "# Network services, Internet style\n#\n# Note that it is the policy of IANA.\n# Ports follow.\n" * 3,
        "# How many\nreplicas: 2\n\n## Image\nimage:\n  name: shop\n  # Which\n  tag: 1\n",
        '# Build\n[project]\n# Its name\nname = "shop"\nversion = "1"\n',
        '# Base\nFROM python:3.12\n\n# Install\nRUN pip install shop\nCMD ["shop"]\n',
        "# Build all\nall: shop\n\n# The shop\nshop: shop.o\n\tcc -o shop shop.o\n",
        "# Server\nserver {\n  # Port\n  listen 80;\n  root /srv;\n}\n",
        "# Port\nPort 22\n# Users\nPermitRootLogin no\n#AllowUsers me\n",
    ],
)
def test_comments_of_settings_are_no_headings(text: str) -> None:
    assert kind_of(text) is Kind.TEXT


def test_a_manual_page_is_text_and_its_paragraphs_stay_whole() -> None:
    assert kind_of(MAN) is Kind.TEXT
    assert said(MAN).startswith("plain text")
    found = [piece for piece, _ in pieces(MAN * 6)]
    assert all("List  information" not in piece or "fied.\n" in piece for piece in found)


def test_commits_are_named() -> None:
    assert said(COMMITS).startswith("log of commits")


def test_a_sentence_is_completed_beyond_its_passage() -> None:
    text = " ".join(f"The train number {n} of the day leaves the city at {n} and is late." for n in range(60))
    around = shown_around(text, "train number 31 ")
    assert around.strip().startswith("The train number")
    assert around.strip().endswith("is late.")


def test_a_table_within_text_is_shown_under_its_header() -> None:
    rows = "".join(f"| item {n} | {n * 3} |\n" for n in range(90))
    text = f"# Prices\n\nAll of them are below, by item.\n\n| item | price |\n|---|---|\n{rows}"
    around = shown_around(text, "| item 80 ")
    assert around.startswith("| item | price |\n|---|---|\n")
    assert "| item 80 | 240 |\n" in around


@pytest.mark.parametrize("mark", ["- ", "* ", "1. ", "12) "])
def test_items_of_a_list_are_not_cut(mark: str) -> None:
    item = f"{mark}An item of the list that says what there is to be done\n  and goes on below it.\n"
    for piece, _ in pieces("# List\n\nSome words before it.\n\n" + item * 40):
        assert piece.count(mark + "An item") == piece.count("goes on below it.\n")


METRICS = "".join(f"# HELP hits_{n} How many.\n# TYPE hits_{n} counter\nhits_{n} {n}\n" for n in range(9))
LICENCE = "## This is a part of it.\n##\n## Use it as you like,\n## but keep this text.\n#\n" * 3
HOSTS = "".join(f"# rack {n}\n10.0.0.{n} host{n} host{n}.example\n" for n in range(9))


@pytest.mark.parametrize("text", [METRICS, f"# A schema\n{LICENCE}\nname ( 1.2.3 SUP top )\n", HOSTS])
def test_comments_are_no_headings(text: str) -> None:
    assert kind_of(text) is Kind.TEXT


def test_headings_right_above_their_text_are_headings() -> None:
    text = "# Guide\n" + "".join(f"## Step {n}\nTurn the wheel, and wait.\n" for n in range(9))
    assert kind_of(text) is Kind.MARKDOWN


def test_lines_that_begin_with_a_word_of_a_language_are_no_source() -> None:
    table = "import time: self | cumulative | package\n" + "import time: 12 | 30 | io\n" * 9
    assert kind_of(table) is not Kind.CODE
