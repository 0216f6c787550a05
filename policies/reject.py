"""reject: an error that says what to do instead; no partial data."""

from domain.results import Measure
from policies.facts import Policy
from policies.oversized import Breach, Ends, Oversized, whereabouts
from policies.tool_kinds import ToolKind, kind_of

_NOUNS = {
    ToolKind.FILE: "File content",
    ToolKind.SHELL: "Command output",
    ToolKind.GREP: "Search output",
    ToolKind.GLOB: "Search output",
    ToolKind.WEB_SEARCH: "Search output",
}

_SUGGESTIONS = {
    ToolKind.FILE: "Use offset and limit to read a part of it, or grep_content to search it.",
    ToolKind.SHELL: "Pipe it through head, tail or grep, or redirect it to a file and read parts of that.",
    ToolKind.GREP: "Use a more specific pattern, name files or directories, or set max_results.",
    ToolKind.GLOB: "Use a narrower pattern: a directory, or an extension; or set max_results.",
    ToolKind.WEB_SEARCH: "Use a more specific query, set max_results, or fetch one of the pages.",
    ToolKind.WEB_FETCH: "Fetch it with save_to and search that file with grep_content, or read parts of it.",
    ToolKind.OTHER: "Ask for less: narrow the request, or page through it with offset and limit.",
}


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(0, 0)


def text(oversized: Oversized) -> str | None:
    result = oversized.result
    return refusal(result.tool_name, oversized.breach, result.tool_kind) + whereabouts(oversized.handle)


def refusal(tool_name: str, breach: Breach, tool_kind: str | None = None) -> str:
    """In the unit that decided, and what to do instead."""
    kind, unit = kind_of(tool_name, tool_kind), breach.unit
    noun = _NOUNS.get(kind, "Tool output")
    return (
        f"Error: {noun} (~{breach.size} {unit}) exceeds maximum allowed {unit} ({breach.allowed}).\n"
        f"{_SUGGESTIONS[kind]}"
    )
