"""The house's own rules, as far as a command can check them."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.house_tree import tree, tree_of_the_docs

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("app", "bench", "clients/python", "content", "domain", "extraction", "policies", "storage")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

MOST_LINES_A_FILE = 400
MOST_LINES_A_FUNCTION = 50
MOST_FILES_A_FOLDER = 15


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_are_small_and_open_with_a_sentence() -> None:
    long = [str(path) for path in FILES if path.read_text().count("\n") > MOST_LINES_A_FILE]
    mute = [str(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert (long, mute) == ([], [])


def test_a_folder_of_the_product_is_read_at_a_glance() -> None:
    counts = Counter(
        path.parent
        for room in ROOMS[:1] + ROOMS[3:]
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.name != "__init__.py" and path.suffix != ".pyc"
    )
    assert {str(folder): count for folder, count in counts.items() if count > MOST_FILES_A_FOLDER} == {}


def test_docstrings_begin_with_their_noun_or_verb() -> None:
    """ "Of the body" and "As `find`" name neither."""
    begins = re.compile(r'^ *"""(?:Of|As) ', re.MULTILINE)
    assert [str(path) for path in FILES if begins.search(path.read_text())] == []


def test_no_pattern_has_a_possessive_group() -> None:
    """Python 3.11.0 to 3.11.4 match `(?:ab?)*+` wrongly (gh-106052): write `(?>(?:ab?)*)`."""
    possessive = re.compile(r"(?<!\\)\)(?:[*+?]|\{+[0-9,]+\}+)\+")
    found = [str(path) for path in FILES if possessive.search(path.read_text())]
    assert found == []


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in FILES
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno >= MOST_LINES_A_FUNCTION
    ]
    assert long == []


def test_the_tree_in_the_docs_is_that_of_the_modules() -> None:
    assert tree_of_the_docs() == tree(), "docs/house.md is out of date: run `make tree`"
