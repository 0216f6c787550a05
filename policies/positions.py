"""On which line of a TOML text each table and key is set: the standard parser does not tell."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]

# Strings and comments, so that what stands in them is skipped; brackets; the end of a line.
_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]''',
    re.DOTALL,
)


def line_numbers(text: str) -> dict[Path, int]:
    """The line where the statement that first sets it begins, by path. `text` must be valid TOML."""
    found: dict[Path, int] = {}
    table: Path = ()
    for number, statement, data in _statements(text):
        if statement.lstrip().startswith("["):
            table = max(_paths(data), key=len)
            paths = [table]
        else:
            paths = [(*table, *path) for path in _paths(data)]
        for path in paths:
            for length in range(1, len(path) + 1):
                found.setdefault(path[:length], number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Line, text and value of each statement, in time linear in `text`."""
    start, line, depth = 0, 1, 0
    for token in _TOKEN.finditer(text + "\n"):
        opening = token[0]
        depth += (opening in "[{") - (opening in "]}")
        if opening != "\n" or depth:
            continue
        statement = text[start : token.end()]
        if data := tomllib.loads(statement):
            # A statement is never preceded by empty lines: each of those ends a statement without data.
            yield line, statement, data
        line += statement.count("\n")
        start = token.end()


def _paths(value: object) -> Iterator[Path]:
    """The way to each leaf; a table without keys is one."""
    if not isinstance(value, Mapping) or not value:
        yield ()
        return
    for name, inner in value.items():
        for path in _paths(inner):
            yield (name, *path)
