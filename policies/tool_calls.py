"""What a tool call says of its result: the server, the kind of tool, the file, the line, the command."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache

from domain.results import ToolResult


class ToolKind(StrEnum):
    WEB_SEARCH = "web_search"
    WEB_FETCH = "web_fetch"
    GLOB = "glob"
    GREP = "grep"
    FILE = "file"
    SHELL = "shell"
    OTHER = "other"


# The first kind with a set of words that are all in the name.
_WORDS: dict[ToolKind, tuple[frozenset[str], ...]] = {
    kind: tuple(frozenset(one.split("+")) for one in words.split())
    for kind, words in {
        ToolKind.WEB_SEARCH: "web+search websearch internet+search google bing duckduckgo tavily searxng",
        ToolKind.WEB_FETCH: "fetch url webpage webfetch http curl wget browse browser scrape crawl navigate",
        ToolKind.GLOB: "glob ls tree find+file find+files list+files list+file list+dir list+directory",
        ToolKind.GREP: "grep rg ripgrep search find query",
        ToolKind.FILE: "read file files cat open view document",
        ToolKind.SHELL: "shell bash sh zsh powershell exec execute command cmd terminal run process",
    }.items()
}
# What a tool's name may begin with.
_NAME_KINDS = ("mcp", "rest", "agent")
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z]+")

_NAME_KEYS = """
path file_path filePath filepath filename file_name file target_file absolute_path notebook_path uri
directory dir
"""
_NAMES = tuple(_NAME_KEYS.split())
_URLS = ("url", "uri", "link")
_OFFSET = "offset"
_FIRST_LINES = ("start_line", "line_start", "startLine")
_LIMITS = ("limit", "max_lines", "num_lines", "line_count")
_LAST_LINES = ("end_line", "line_end", "endLine")
_HEAD_LIMIT = "head_limit"
_MOST_RESULTS = ("max_results", "maxResults", "max_count")
_PATTERNS = ("pattern", "glob", "glob_pattern", "regex", "regexp", "query")
_COMMANDS = ("command", "cmd", "script", "commandLine")
# Some clients wrap the arguments of a server's tool in one of these.
_WRAPPERS = ("params", "arguments", "input")

_NAME_CHARS = 300
_SEARCH = re.compile(r"(?:^|[|;&(])\s*(?:git\s+)?(?:[ef]?grep|rg|ag|ack)\s")
_LARGEST = 10**12


def kind_of(tool_name: str, tool_kind: str | None = None) -> ToolKind:
    """The kind that `tool_kind` names if it is known, else the kind by the words of the tool's name."""
    kind = ToolKind.OTHER if tool_kind is None else _by_words(tool_kind)
    return _by_words(split_tool_name(tool_name)[1]) if kind is ToolKind.OTHER else kind


def _by_words(name: str) -> ToolKind:
    words = frozenset(_WORD.findall(_CASE.sub(" ", name).lower()))
    for kind, sets in _WORDS.items():
        if any(wanted <= words for wanted in sets):
            return kind
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
    keys = (*_URLS, *_NAMES) if kind_of(result.tool_name, result.tool_kind) is ToolKind.WEB_FETCH else _NAMES
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
    """True for a page of a file, or of what another kind of tool pages through."""
    of_pages = ToolKind.FILE, ToolKind.OTHER
    return is_paginated(result) and kind_of(result.tool_name, result.tool_kind) in of_pages


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
    return next((text for value in _values(result, _PATTERNS) if (text := _line(value))), None)


def command_of(result: ToolResult) -> str | None:
    """The shell command in the arguments, if it is one printable line of at most 300 characters."""
    for value in _values(result, _COMMANDS):
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = shlex.join(value)
        if text := _line(value):
            return text
    return None


def _line(value: object) -> str | None:
    text = value.strip() if isinstance(value, str) else ""
    return text if 0 < len(text) <= _NAME_CHARS and text.isprintable() else None


def searches(result: ToolResult) -> bool:
    """True if the result is a list of matches: of a search tool, or of a search command in a shell."""
    if kind_of(result.tool_name, result.tool_kind) in (ToolKind.GREP, ToolKind.GLOB, ToolKind.WEB_SEARCH):
        return True
    return _SEARCH.search(command_of(result) or "") is not None


def _number(result: ToolResult, keys: tuple[str, ...]) -> int | None:
    for value in _values(result, keys):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST:
            return value
    return None


def _values(result: ToolResult, keys: Iterable[str]) -> Iterator[object]:
    """Yields what the arguments hold under these keys, then what objects under a wrapper key hold; nothing if
    the arguments are not a JSON object."""
    if result.tool_arguments is None or not result.tool_arguments.lstrip().startswith("{"):
        return
    try:
        outer = json.loads(result.tool_arguments)
    except (ValueError, RecursionError):
        return
    wrapped = (outer.get(name) for name in _WRAPPERS)
    for level in (outer, *(inner for inner in wrapped if isinstance(inner, dict))):
        yield from (level[key] for key in keys if key in level)
