"""What a tool call says about its result: the server, the kind of tool, the file, the line, the command."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any

from domain.results import ToolResult


class ToolKind(StrEnum):
    WEB_SEARCH = "web_search"
    WEB_FETCH = "web_fetch"
    GLOB = "glob"
    GREP = "grep"
    FILE = "file"
    SHELL = "shell"
    OTHER = "other"


_KINDS = {kind.value: kind for kind in ToolKind} | {
    "read": ToolKind.FILE,
    "search": ToolKind.GREP,
    "execute": ToolKind.SHELL,
    "fetch": ToolKind.WEB_FETCH,
}
"""The values of `tool_kind`: those of ToolKind, and kinds of the Agent Client Protocol with the same
meaning."""

_TOOLS = {
    name: kind
    for kind, names in {
        ToolKind.FILE: "read readfile readtextfile viewfile notebookread",
        ToolKind.GREP: "grep grepcontent grepsearch ripgrep rg searchfilecontent",
        ToolKind.GLOB: "glob globfiles ls listfiles listdir listdirectory findfiles filesearch",
        ToolKind.SHELL: "bash shell executeshell executecommand runcommand runshellcommand runterminalcmd "
        "runinterminal execcommand localshell powershell",
        ToolKind.WEB_SEARCH: "websearch googlewebsearch bravewebsearch",
        ToolKind.WEB_FETCH: "webfetch fetchurl fetchwebpage",
    }.items()
    for name in names.split()
}
"""Whole names of tools whose kind is known, without case, `_` and `-`: those of the profiles and of coding
agents. A word within a name decides nothing: `fetch_orders` does not fetch a page."""

# Prefixes that a tool's name may have.
_NAME_KINDS = ("mcp", "rest", "agent")

_NAME_KEYS = """
path file_path filePath filepath filename file_name file target_file absolute_path notebook_path
"""
_PATHS = tuple(_NAME_KEYS.split())
_DIRECTORIES = ("directory", "dir")
_URLS = ("url", "uri", "link")
_NAMES = (*_PATHS, "uri", *_DIRECTORIES)
_OFFSET = "offset"
_FIRST_LINES = ("start_line", "line_start", "startLine")
_LIMITS = ("limit", "max_lines", "num_lines", "line_count")
_LAST_LINES = ("end_line", "line_end", "endLine")
_HEAD_LIMIT = "head_limit"
_MOST_RESULTS = ("max_results", "maxResults", "max_count")
_PATTERNS = ("pattern", "glob", "glob_pattern", "regex", "regexp", "query")
_SEARCHED_FOR = ("pattern", "glob", "glob_pattern", "regex", "regexp")
_COMMANDS = ("command", "cmd", "script", "commandLine")
_IGNORES_CASE = ("-i", "ignore_case", "ignoreCase", "case_insensitive")
_SHELL_COMMANDS = ("command", "cmd", "commandLine")
# Some clients wrap the arguments of a server's tool in one of these.
_WRAPPERS = ("params", "arguments", "input")

_NAME_CHARS = 300
_PAGE = re.compile(r"https?://", re.IGNORECASE)
_GLOB = re.compile(r"\*[*./]|[^*]*/\*")
_SEARCH = re.compile(r"(?:^|[|;&(])\s*(?:git\s+)?(?:[ef]?grep|rg|ag|ack)\s")
_LARGEST = 10**12


def tool_kind_of(result: ToolResult) -> ToolKind:
    """Returns the kind that `tool_kind` names, else that of the tool's whole name, else that of the
    arguments."""
    if result.tool_kind is not None and (said := _KINDS.get(result.tool_kind.lower())):
        return said
    name = split_tool_name(result.tool_name, result.tool_namespace)[1]
    return _TOOLS.get(name.lower().replace("_", "").replace("-", "")) or _kind_by_arguments(result)


def _kind_by_arguments(result: ToolResult) -> ToolKind:
    """Finds the kind by a command, the address of a page, a pattern beside a path, or the path of a file."""
    given = {name: value for level in reversed(_levels(result)) for name, value in level.items() if value}
    if not given:
        return ToolKind.OTHER

    def has(keys: tuple[str, ...], form: type = str) -> bool:
        return any(isinstance(given.get(key), form) for key in keys)

    if has(_SHELL_COMMANDS) or has(_SHELL_COMMANDS, list):
        return ToolKind.SHELL
    if any(_PAGE.match(str(given.get(key))) for key in _URLS):
        return ToolKind.WEB_FETCH
    pattern = next((given[key] for key in _SEARCHED_FOR if isinstance(given.get(key), str)), None)
    if pattern is None:
        return ToolKind.FILE if has(_PATHS) else ToolKind.OTHER
    if has(_PATHS) or has(_DIRECTORIES):
        return ToolKind.GLOB if _GLOB.match(pattern) else ToolKind.GREP
    return ToolKind.OTHER


@lru_cache(maxsize=1024)
def split_tool_name(tool_name: str, namespace: str | None = None) -> tuple[str, str]:
    """Server namespace and tool. `mcp__ns__tool`, `ns__tool`, `ns/tool`, also after `mcp:`, `rest:` or
    `agent:`, are split; the namespace of any other name is "". A given `namespace` is used as it is."""
    if namespace is not None:
        return namespace, _without_namespace(namespace, tool_name)
    if tool_name.startswith("mcp__"):
        server, _, tool = tool_name[5:].partition("__")
        return (server, tool) if server and tool else ("", tool_name)
    kind, colon, name = tool_name.partition(":")
    server, _, tool = (name if colon and kind in _NAME_KINDS else tool_name).rpartition("/")
    if not server:
        server, _, tool = tool_name.partition("__")
    return (server, tool) if server and tool else ("", tool_name)


def _without_namespace(namespace: str, tool_name: str) -> str:
    """The tool's name without the namespace, if the name begins with it in one of the known forms."""
    kinds = ((f"{kind}:", "/") for kind in _NAME_KINDS)
    for prefix, separator in (("mcp__", "__"), ("", "__"), *kinds, ("", "/")):
        tool = tool_name.removeprefix(f"{prefix}{namespace}{separator}")
        if tool and tool != tool_name:
            return tool
    return tool_name


def name_of(result: ToolResult) -> str | None:
    """The file, directory or URL in the tool's arguments: one line of at most 300 characters."""
    if result.tool_arguments is None:
        return None
    keys = (*_URLS, *_NAMES) if tool_kind_of(result) is ToolKind.WEB_FETCH else _NAMES
    for value in _values(result, keys):
        if isinstance(value, str) and value.strip():
            return "".join(sign if sign.isprintable() else " " for sign in value[:_NAME_CHARS]).strip()
    return None


def first_row(result: ToolResult, offset_base: int) -> int:
    """The 1-based number of the result's first line in its file; 1 if the arguments do not say.
    `offset_base` is the value of `offset` that means the first line."""
    offset = _number(result, (_OFFSET,))
    if offset is not None:
        return max(1, offset + 1 - offset_base)
    return max(1, _number(result, _FIRST_LINES) or 1)


def is_paginated(result: ToolResult) -> bool:
    """True if the arguments limit the lines: by their number, or by the last line."""
    return _number(result, (*_LIMITS, *_LAST_LINES)) is not None


def pages(result: ToolResult) -> bool:
    """True if the call asks for a page of a file."""
    return is_paginated(result) and reads_files(result)


def reads_files(result: ToolResult) -> bool:
    return tool_kind_of(result) is ToolKind.FILE


def limit_of(result: ToolResult) -> int | None:
    """The number of lines, rows or entries in the arguments."""
    return _number(result, _LIMITS)


def rows_asked_for(result: ToolResult) -> int | None:
    """The number of rows that the arguments ask for, 0 for all of them; None if they do not say."""
    head = _number(result, (_HEAD_LIMIT,))
    if head is not None:
        return head
    last = _number(result, _LAST_LINES)
    by_range = None if last is None else last + 1 - (_number(result, _FIRST_LINES) or 1)
    number = _number(result, (*_LIMITS, *_MOST_RESULTS)) or by_range
    return number if number is not None and number > 0 else None


def pattern_of(result: ToolResult) -> str | None:
    """The pattern of a search in the arguments, if it is one printable line of at most 300 characters."""
    return next(_lines(result, _PATTERNS), None)


def command_of(result: ToolResult) -> str | None:
    """The shell command in the arguments, if it is one printable line of at most 300 characters."""
    for value in _values(result, _COMMANDS):
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = shlex.join(value)
        if text := _line(value):
            return text
    return None


def _lines(result: ToolResult, keys: Iterable[str]) -> Iterator[str]:
    return (text for value in _values(result, keys) if (text := _line(value)))


def _line(value: object) -> str | None:
    text = value.strip() if isinstance(value, str) else ""
    return text if 0 < len(text) <= _NAME_CHARS and text.isprintable() else None


def ignores_case(result: ToolResult) -> bool:
    """True if the arguments say that the search ignores letter case."""
    return any(value is True for value in _values(result, _IGNORES_CASE))


def saved_to(result: ToolResult) -> str | None:
    """The file into which the call saves the page."""
    return next(_lines(result, ("save_to",)), None)


def searches(result: ToolResult) -> bool:
    """True if the result is a list of matches: of a search tool, or of a search command in a shell."""
    if tool_kind_of(result) in (ToolKind.GREP, ToolKind.GLOB, ToolKind.WEB_SEARCH):
        return True
    return _SEARCH.search(command_of(result) or "") is not None


def _number(result: ToolResult, keys: tuple[str, ...]) -> int | None:
    for value in _values(result, keys):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST:
            return value
    return None


def _values(result: ToolResult, keys: Iterable[str]) -> Iterator[object]:
    """Yields what the arguments hold under these keys, then what objects under a wrapper key hold."""
    for level in _levels(result):
        yield from (level[key] for key in keys if key in level)


def _levels(result: ToolResult) -> list[dict[str, Any]]:
    """The arguments, then the objects under a wrapper key; nothing if they are not a JSON object."""
    if result.tool_arguments is None or not result.tool_arguments.lstrip().startswith("{"):
        return []
    try:
        outer = json.loads(result.tool_arguments)
    except (ValueError, RecursionError):
        return []
    wrapped = (outer.get(name) for name in _WRAPPERS)
    return [outer, *(inner for inner in wrapped if isinstance(inner, dict))]
