"""Lists of files, as `ls`, `find` and `git` print them."""

import pytest

from content.kind import Kind
from tests.content.formats.describing import kind_of, pieces, said

LS = """\
total 720
drwxr-xr-x 77 root     root      4096 Nov 24 14:58 .
drwxr-xr-x 21 root     root      4096 Nov 24 14:49 ..
drwxr-xr-x  3 root     root      4096 Jun 24  2025 .java
-rw-------  1 root     root         0 May 20  2025 .pwd.lock
drwxr-xr-x  2 root     root      4096 May  9  2026 PackageKit
lrwxrwxrwx  1 root     root        19 May  9  2026 localtime -> /usr/share/zoneinfo/UTC
-rw-r--r--  1 root     root      3040 May 25  2023 adduser.conf
"""
FOLDERS = """\
docs:
agents.md
api.md
backends.md
clients.md
dashboard.md
deploy.md
encryption.md
extraction.md
hooks.md
house.md
images

docs/images:
dashboard.png
session.png
"""
FIND = "docs/shell.md\ndocs/clients.md\ndocs/hooks.md\ndocs/policies.md\n./docs/a b.md\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LS, "directory listing, 7 entries"),
        (LS.removeprefix("total 720\n"), "directory listing, 7 entries"),
        (LS * 300, "directory listing, 2,100 entries"),
        (FIND, "list of paths"),
        (FOLDERS, "list of paths"),
        ("site.v2\nmain.c\nlib.so\na.mp3\n", "list of paths"),
        ("C:\\Users\\a\\x.txt\n" * 5, "list of paths"),
    ],
)
def test_a_list_says_what_it_lists_and_how_many(text: str, told: str) -> None:
    assert said(text) == told
    assert kind_of(text) is Kind.LISTING


@pytest.mark.parametrize(
    "text",
    [
        "and/or\nthis or that, which are words\nof a text and no paths at all\nthe end\n",
        "1.5\n2.5\n" * 20 + "a sentence of words\n" * 20,
        "docs/a.md\ndocs/b.md\n",
    ],
)
def test_words_and_short_lists_are_text(text: str) -> None:
    assert kind_of(text) is Kind.TEXT


def test_no_entry_is_cut() -> None:
    for text, _ in pieces(LS * 40):
        assert text.startswith(("total", "d", "-", "l"))
        assert text.endswith("\n")
