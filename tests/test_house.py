"""The house's own rules, as far as a command can check them."""

import ast
import re
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.house_tree import tree, tree_of_the_docs

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "app",
    "bench",
    "beside",
    "clients/python",
    "content",
    "domain",
    "extraction",
    "machine",
    "policies",
    "replay",
    "storage",
)
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_each_module_opens_with_a_sentence() -> None:
    assert [str(path) for path in FILES if not re.match(r'"""\s*\S', path.read_text())] == []


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


@pytest.mark.parametrize("name", ["machine/http1.py", "machine/addresses.py"])
def test_the_http_core_of_the_commands_is_that_of_the_client(name: str) -> None:
    """One file, by a link: tools that edit in place turn a link into a copy."""
    core = ROOT / name
    assert core.is_symlink()
    assert core.resolve() == ROOT / "clients" / "python" / "spillgate" / core.name


_SIZES = r"(len\(|size|bytes|chars)"
SIZE = re.compile(rf"{_SIZES}.* [<>]|[<>].*{_SIZES}", re.IGNORECASE)


IN_THREAD = ("run_sync", "to_thread", "run_in_executor")


def in_thread(node: ast.AST) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
    return not names.isdisjoint(IN_THREAD)


def test_one_place_decides_whether_long_work_runs_in_a_thread() -> None:
    """`content/threads.py`, by one size. A comparison elsewhere would be a second threshold."""
    calling = [text for path in FILES if any(name in (text := path.read_text()) for name in IN_THREAD)]
    places = {
        ast.unparse(node)
        for text in calling
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.IfExp) and in_thread(node) and SIZE.search(ast.unparse(node.test))
    }
    assert places == set()


@pytest.mark.parametrize("room", ["app", "beside", "content", "extraction", "machine", "policies", "storage"])
def test_a_size_has_one_value_in_a_room(room: str) -> None:
    values: dict[str, set[str]] = {}
    for path in (ROOT / room).rglob("*.py"):
        text = path.read_text()
        for node in ast.parse(text).body if re.search(r"_(?:BYTES|CHARS) = ", text) else ():
            name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if isinstance(node, ast.Assign) and re.fullmatch(r"[A-Z]\w*_(?:BYTES|CHARS)", name):
                values.setdefault(name, set()).add(ast.unparse(node.value))
    assert {name: found for name, found in values.items() if len(found) > 1} == {}


UVICORN_PRIVATE = {"_start_asgi_task"}
"""What the edge uses of uvicorn's protocol that is private. `tests/test_leaned_on.py` calls it."""


def test_no_more_of_uvicorn_is_private() -> None:
    theirs = {name for name in dir(HttpToolsProtocol) if name.startswith("_") and not name.startswith("__")}
    used = set()
    for path in (ROOT / "app/http/edge").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute | ast.FunctionDef):
                used.add(node.attr if isinstance(node, ast.Attribute) else node.name)
    assert used & theirs == UVICORN_PRIVATE
