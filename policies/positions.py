"""On which line of a TOML text each table and key is set: the standard parser does not tell."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]


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
    """Line, text and value of each. A statement is valid TOML by itself once it is whole, and not before."""
    lines = text.replace("\r\n", "\n").split("\n")
    start = 0
    for end in range(1, len(lines) + 1):
        statement = "\n".join(lines[start:end])
        try:
            data = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if data:
            yield start + 1, statement, data
        start = end


def _paths(value: object) -> Iterator[Path]:
    """The way to each leaf; a table without keys is one."""
    if not isinstance(value, Mapping) or not value:
        yield ()
        return
    for name, inner in value.items():
        for path in _paths(inner):
            yield (name, *path)
