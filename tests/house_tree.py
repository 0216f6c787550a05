"""The tree of the rooms as docs/house.md shows it: `make tree` writes it there."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("domain", "content", "policies", "storage", "extraction", "app", "beside", "machine", "replay")
PAGE = ROOT / "docs" / "house.md"
BEGIN, END = "<!-- tree -->\n", "<!-- /tree -->"
WIDTH = 18
PAGES = {"ui": "The dashboard, as the browser runs it: a script for each view. `page.css` has its colours."}
"""Folders without Python, and their sentences."""


def tree() -> str:
    """A code block with two lines a folder: its name with its first sentence, and the names of its files."""
    lines = [line for room in ROOMS for line in _folder(ROOT / room, 0)]
    return "\n".join(["```", *lines, "```", ""])


def tree_of_the_docs() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _folder(folder: Path, depth: int) -> Iterator[str]:
    module = folder / "__init__.py"
    sentence = (
        (ast.get_docstring(ast.parse(module.read_text())) or "") if module.exists() else PAGES[folder.name]
    )
    yield f"{'  ' * depth}{folder.name}/".ljust(WIDTH) + sentence.partition("\n")[0]
    names = [path.stem for path in sorted(folder.glob("*.[pj][ys]")) if path.stem != "__init__"]
    names += [f"lua/{path.stem}" for path in sorted(folder.glob("lua/*.lua"))]
    if names:
        yield " " * (WIDTH + 2) + " · ".join(names)
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists() or inner.name in PAGES:
            yield from _folder(inner, depth + 1)


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + tree() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
