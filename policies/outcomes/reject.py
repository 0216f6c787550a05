"""reject: an error text that says what to do instead, without any data."""

import shlex

from domain.results import Measure, ToolResult
from policies.oversized import Breach, Ends, Oversized, footer, name_for_model
from policies.policy import Policy
from policies.tool_calls import ToolKind, is_paginated, limit_of, tool_kind_of

CUTS = False
MUST_SAVE = False

_NOUNS = {
    ToolKind.FILE: "File content",
    ToolKind.SHELL: "Command output",
    ToolKind.GREP: "Search output",
    ToolKind.GLOB: "Search output",
    ToolKind.WEB_SEARCH: "Search output",
}

_SUGGESTIONS = {
    ToolKind.FILE: "Use offset and limit to read a part of it, or {grep} to search it.",
    ToolKind.SHELL: "Pipe it through head, tail or grep, or redirect it to a file and read parts of that.",
    ToolKind.GREP: "Use a more specific pattern, name files or directories, or set max_results.",
    ToolKind.GLOB: "Use a narrower pattern: a directory, or an extension; or set max_results.",
    ToolKind.WEB_SEARCH: "Use a more specific query, set max_results, or fetch one of the pages.",
    ToolKind.WEB_FETCH: "Fetch it with save_to and search that file with {grep}, or read parts of it.",
    ToolKind.OTHER: "Ask for less: narrow the request.",
}
_PAGINATED = {
    ToolKind.FILE: "Read less at once: a smaller limit{limit}, or {grep} to search it.",
    ToolKind.OTHER: "Ask for less at once: a smaller limit{limit}, or a narrower request.",
}
_STORED = "Use head, tail or grep on {path}: the output is stored there, and the command need not run again."

_SHARE = 0.9
"""The share of the fitting limit that is suggested, because lines differ in length."""

_TOKENS = 40
"""The tokens of a usual error text."""


def ends(measure: Measure, policy: Policy) -> Ends:
    return Ends(0, 0)


def text(oversized: Oversized) -> str | None:
    breach, policy = oversized.breach, oversized.policy
    refused = refusal(oversized.result, breach, policy, oversized.path)
    return refused + footer(oversized)


def tokens(measure: Measure, policy: Policy, message_tokens: int) -> int:
    return _TOKENS


def refusal(result: ToolResult, breach: Breach, policy: Policy, path: str | None = None) -> str:
    """The error text: size and cap in the unit that was exceeded, and what to do instead. `path` is a file
    that holds the result."""
    kind, unit = tool_kind_of(result), breach.unit
    noun = _NOUNS.get(kind, "Tool output")
    return (
        f"Error: {noun} (~{breach.size} {unit}) exceeds maximum allowed {unit} ({breach.allowed}).\n"
        f"{policy.suggestion or _suggestion(result, kind, breach, policy, path)}"
    )


def _suggestion(result: ToolResult, kind: ToolKind, breach: Breach, policy: Policy, path: str | None) -> str:
    if kind is ToolKind.SHELL and path is not None:
        return _STORED.format(path=shlex.quote(path))
    named = _PAGINATED.get(kind, _SUGGESTIONS[kind]) if is_paginated(result) else _SUGGESTIONS[kind]
    return named.format(grep=name_for_model("grep_content", policy), limit=_smaller(result, breach))


def _smaller(result: ToolResult, breach: Breach) -> str:
    """The limit that would fit, as ` (about 40)`; "" if the arguments have no limit."""
    limit = limit_of(result)
    fitting = 0 if limit is None else int(limit * breach.allowed / max(breach.size, 1) * _SHARE)
    return f" (about {fitting})" if fitting > 0 else ""
