"""What kind of tool made a result, by the words in its name."""

import re
from enum import StrEnum

from domain.accounting import split_tool_name


class ToolKind(StrEnum):
    WEB_SEARCH = "web_search"
    WEB_FETCH = "web_fetch"
    GLOB = "glob"
    GREP = "grep"
    FILE = "file"
    SHELL = "shell"
    OTHER = "other"


# The first kind of which one set of words stands in the name.
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
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z]+")


def kind_of(tool_name: str, tool_kind: str | None = None) -> ToolKind:
    """What the caller says of it goes first, where that is a kind known here."""
    said = ToolKind.OTHER if tool_kind is None else _by_words(tool_kind)
    return _by_words(split_tool_name(tool_name)[1]) if said is ToolKind.OTHER else said


def _by_words(name: str) -> ToolKind:
    words = frozenset(_WORD.findall(_CASE.sub(" ", name).lower()))
    for kind, sets in _WORDS.items():
        if any(wanted <= words for wanted in sets):
            return kind
    return ToolKind.OTHER
