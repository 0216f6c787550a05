"""The tree of the rooms as docs/house.md shows it: `make tree` writes it there."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("domain", "content", "policies", "storage", "extraction", "app", "command", "relay", "replay")
PAGE = ROOT / "docs" / "house.md"
BEGIN, END = "<!-- tree -->\n", "<!-- /tree -->"


def tree() -> str:
    """A code block with one line a folder, module and script: its name and its first line of prose."""
    lines = [line for room in ROOMS for line in _folder(ROOT / room, 0)]
    return "\n".join(["```", *lines, "```", ""])


def tree_of_the_docs() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _folder(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", folder / "__init__.py", depth)
    for path in sorted(folder.glob("*.py")):
        if path.stem != "__init__":
            yield _line(path.stem, path, depth + 1)
    for path in sorted(folder.glob("lua/*.lua")):
        yield _row(f"lua/{path.stem}", path.read_text().splitlines()[0].removeprefix("-- "), depth + 1)
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists():
            yield from _folder(inner, depth + 1)


def _line(name: str, path: Path, depth: int) -> str:
    sentence = ast.get_docstring(ast.parse(path.read_text())) or ""
    return _row(name, sentence.splitlines()[0] if sentence else "", depth)


def _row(name: str, sentence: str, depth: int) -> str:
    return f"{'  ' * depth}{name}".ljust(24) + f" {sentence}".rstrip()


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + tree() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
