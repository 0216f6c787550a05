"""What a tool's arguments say of its result: the name of what was read, and where the reading began."""

import json
from collections.abc import Iterator, Mapping

from domain.results import ToolResult
from policies.tool_kinds import ToolKind, kind_of

_NAMES = (
    "path",
    "file_path",
    "filePath",
    "filepath",
    "filename",
    "file_name",
    "file",
    "target_file",
    "absolute_path",
    "notebook_path",
    "uri",
    "directory",
    "dir",
)
_URLS = ("url", "uri", "link")
_OFFSETS = ("offset", "start_line", "line_start", "startLine")
# Some clients wrap the arguments of a server's tool in one of these.
_WRAPPERS = ("params", "arguments", "input")

_NAME_CHARS = 300
_LARGEST = 10**12


def name_of(result: ToolResult) -> str | None:
    """The file, directory or URL that the tool was given: one line, at most 300 characters."""
    keys = (*_URLS, *_NAMES) if kind_of(result.tool_name, result.tool_kind) is ToolKind.WEB_FETCH else _NAMES
    for given in _given(result.tool_arguments):
        for key in keys:
            value = given.get(key)
            if isinstance(value, str) and value.strip():
                return "".join(sign if sign.isprintable() else " " for sign in value[:_NAME_CHARS]).strip()
    return None


def first_row(result: ToolResult) -> int:
    """The number of the result's first line, 1 unless the arguments say otherwise."""
    for given in _given(result.tool_arguments):
        for key in _OFFSETS:
            value = given.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST:
                return value
    return 1


def _given(arguments: str | None) -> Iterator[Mapping[str, object]]:
    """The arguments, then what they wrap; nothing where they are no JSON object."""
    if arguments is None or not arguments.lstrip().startswith("{"):
        return
    try:
        outer = json.loads(arguments)
    except (ValueError, RecursionError):
        return
    yield outer
    for name in _WRAPPERS:
        if isinstance(inner := outer.get(name), dict):
            yield inner
