"""The house's own rules, as far as a command can check them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house_tree import tree, tree_of_the_docs

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("app", "bench", "content", "domain", "extraction", "policies", "storage")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

MOST_LINES_A_FILE = 400
MOST_LINES_A_FUNCTION = 50


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_small_and_opens_with_its_sentence(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES_A_FILE
    assert ast.get_docstring(ast.parse(text))


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
