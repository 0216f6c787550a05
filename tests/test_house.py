"""The house's own rules, as far as a command can check them."""

import ast
import re
from pathlib import Path

import pytest

from tests.house_tree import tree, tree_of_the_docs

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "app",
    "bench",
    "clients/python",
    "command",
    "content",
    "domain",
    "extraction",
    "policies",
    "relay",
    "replay",
    "storage",
)
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_each_module_opens_with_a_sentence() -> None:
    mute = [str(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert mute == []


def test_docstrings_begin_with_their_noun_or_verb() -> None:
    """ "Of the body" and "As `find`" name neither."""
    begins = re.compile(r'^ *"""(?:Of|As) ', re.MULTILINE)
    assert [str(path) for path in FILES if begins.search(path.read_text())] == []


def test_no_pattern_has_a_possessive_group() -> None:
    """Python 3.11.0 to 3.11.4 match `(?:ab?)*+` wrongly (gh-106052): write `(?>(?:ab?)*)`."""
    possessive = re.compile(r"(?<!\\)\)(?:[*+?]|\{+[0-9,]+\}+)\+")
    found = [str(path) for path in FILES if possessive.search(path.read_text())]
    assert found == []


def test_the_tree_in_the_docs_is_that_of_the_modules() -> None:
    assert tree_of_the_docs() == tree(), "docs/house.md is out of date: run `make tree`"


@pytest.mark.parametrize("name", ["http1.py", "addresses.py"])
def test_the_http_core_of_the_commands_is_that_of_the_client(name: str) -> None:
    """One file, by a link: tools that edit in place turn a link into a copy."""
    core = ROOT / "command" / name
    assert core.is_symlink()
    assert core.resolve() == ROOT / "clients" / "python" / "spillgate" / name
