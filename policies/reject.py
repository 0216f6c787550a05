"""reject: an error that says what to do instead; no partial data."""

from enum import StrEnum


class Noun(StrEnum):
    """What a tool's result is called in the error."""

    FILE = "File content"
    COMMAND = "Command output"
    SEARCH = "Search output"
    OTHER = "Tool output"


_WORDS = {
    Noun.FILE: ("read", "file", "cat", "open", "view"),
    Noun.SEARCH: ("search", "grep", "find", "glob", "query"),
    Noun.COMMAND: ("shell", "bash", "exec", "command", "terminal", "run"),
}

_SUGGESTIONS = {
    Noun.FILE: "Use offset and limit to read a part of it, or grep_content to search it.",
    Noun.COMMAND: "Pipe it through head, tail or grep, or redirect it to a file and read parts of that.",
    Noun.SEARCH: "Use a more specific pattern, or set max_results.",
    Noun.OTHER: "Ask for less: narrow the request, or page through it with offset and limit.",
}


def noun(tool_name: str) -> Noun:
    """By the words in the tool's name; a search over files is a search."""
    name = tool_name.lower()
    for kind in (Noun.SEARCH, Noun.FILE, Noun.COMMAND):
        if any(word in name for word in _WORDS[kind]):
            return kind
    return Noun.OTHER


def text(tool_name: str, size: int, cap: int, unit: str = "tokens") -> str:
    """The error. `size` and `cap` are of the same unit: tokens, or bytes where only bytes are known."""
    kind = noun(tool_name)
    return f"Error: {kind} (~{size} {unit}) exceeds maximum allowed {unit} ({cap}).\n{_SUGGESTIONS[kind]}"
