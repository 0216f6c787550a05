"""The definitions of the tools, in each format, and the instructions for the system prompt."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from content import MAX_EXPRESSION_CHARS, MAX_PATTERN_CHARS
from domain.extraction import Mode
from policies.policy import Offer, Policy

_Handle = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="The handle, exactly as the message gave it. Several are joined by commas.",
    ),
]
_Pattern = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_PATTERN_CHARS,
        description="A regular expression (RE2) for single lines; a|b finds either.",
    ),
]


class OneArguments(Struct, frozen=True, forbid_unknown_fields=True):
    # The descriptions are short: this tool may be in every request. A docstring would be one of them.
    handle: str
    query: Annotated[
        str, Meta(description="DuckDB SQL over data, lines (of several: data1, …); or JMESPath")
    ] = ""
    pattern: Annotated[str, Meta(description="RE2, single lines")] = ""
    lines: Annotated[str, Meta(description="10-20,95,-5")] = ""
    extract: Annotated[str, Meta(description="words to find passages by")] = ""


class AskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    handle: _Handle
    extract: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=65_536,
            description=(
                "What you look for: the words, names and numbers as the data spells them, in the data's "
                "language."
            ),
        ),
    ]
    mode: Annotated[Mode, Meta(description="How to look. Leave it out, and auto chooses.")] = Mode.AUTO


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    handle: _Handle
    pattern: _Pattern
    context: Annotated[int, Meta(ge=0, le=20, description="Lines around each match.")] = 0
    ignore_case: Annotated[bool, Meta(description="Ignore upper and lower case.")] = False
    offset: Annotated[
        int, Meta(ge=0, description="The first match to show, counted from 1. Left out: a sample of all.")
    ] = 0


class LinesArguments(Struct, frozen=True, forbid_unknown_fields=True):
    handle: _Handle
    lines: Annotated[
        str, Meta(min_length=1, description="Which lines: 120-180, or 120, or -40 for the last 40.")
    ]


class QueryArguments(Struct, frozen=True, forbid_unknown_fields=True):
    handle: _Handle
    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_EXPRESSION_CHARS,
            description=(
                "SQL over the table `data` (SELECT or WITH …), whose columns are the keys of the "
                "records; else JMESPath over all of the data, such as [?price > `10`].name."
            ),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Tool:
    """`offer` is the word for it in the policy. `arguments` are those of its schema; a call may have others
    (see `tool_arguments`). `use` says in the instructions when to call it: "" if the description says all
    that a model must know. `title` is for people."""

    name: str
    title: str
    offer: Offer
    arguments: type[Struct]
    description: str
    use: str = ""


TOOLS: dict[Offer, Tool] = {
    tool.offer: tool
    for tool in (
        Tool(
            "tool_output",
            "",
            Offer.ONE,
            OneArguments,
            "Reads stored tool outputs by handle (several: a,b) and one of the others. "
            "Count and sum by query.",
        ),
        Tool(
            "tool_output",
            "Ask about a stored tool output",
            Offer.ASK,
            AskArguments,
            "Answers a question about a tool output that was too large to show and was stored under a "
            "handle. Returns an answer, or the parts of the output that best match what you ask for.",
            "meaning, or where you do not know the spelling",
        ),
        Tool(
            "tool_output_grep",
            "Search a stored tool output",
            Offer.GREP,
            GrepArguments,
            "Searches the lines of a stored tool output for a regular expression.",
            "names, ids, dates, error texts",
        ),
        Tool(
            "tool_output_lines",
            "Read lines of a stored tool output",
            Offer.LINES,
            LinesArguments,
            "Reads lines of a stored tool output.",
            "what stands around a line whose number you know",
        ),
        Tool(
            "tool_output_query",
            "Query a stored tool output",
            Offer.QUERY,
            QueryArguments,
            "Evaluates SQL or JMESPath over a stored tool output that is JSON, JSON lines, CSV or TSV.",
            "counts, sums, filters over records (JSON, CSV)",
        ),
    )
}


def offered_tools(policy: Policy) -> list[Tool]:
    """The one tool answers questions too: beside it there is no `ask`, whose tool has the same name."""
    without = Offer.ASK if Offer.ONE in policy.offer else None
    return [tool for tool in TOOLS.values() if tool.offer in policy.offer and tool.offer is not without]


def called_tool(name: str, policy: Policy) -> Tool | None:
    """The tool of this name, offered or not. `tool_output` is the one tool, unless `ask` is offered."""
    if name == TOOLS[Offer.ONE].name:
        is_asked = Offer.ASK in policy.offer and Offer.ONE not in policy.offer
        return TOOLS[Offer.ASK if is_asked else Offer.ONE]
    return next((tool for tool in TOOLS.values() if tool.name == name), None)


_MODES = {
    Mode.FULL_CHUNKED: "a model reads all of it",
    Mode.READ_GREP: "a model searches it",
    Mode.RETRIEVE: "the passages that match your words, verbatim",
    Mode.TRUNCATE: "its beginning and end",
}

_BEGINNING = (
    "Some tool outputs are too large to show. Instead you get a message, or a part of the output, that names "
    "a handle: the whole output is stored under it. To learn what it holds, call, with that handle exactly "
    "as given:"
)
_ENDING = (
    "Call as often as you need. Never guess what a stored output says, and never treat the message or the "
    "part as the output."
)


def instructions(offered: Iterable[Tool]) -> str:
    """For the system prompt: which of the offered tools to use when. "" if the definitions say all."""
    uses = [f"- {tool.name}: {tool.use}." for tool in offered if tool.use]
    return "\n".join((_BEGINNING, *uses, _ENDING)) if uses else ""


class ToolFormat(StrEnum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    MCP = "mcp"


def schema(tool: Tool, modes: Iterable[Mode]) -> dict[str, Any]:
    """The JSON Schema of the tool's arguments. `modes` are those that can run as configured."""
    _, parts = msgspec.json.schema_components([tool.arguments])
    parameters = {key: value for key, value in parts[tool.arguments.__name__].items() if key != "title"}
    properties = parameters["properties"]
    if "mode" in properties:
        modes = tuple(modes)
        ways = "; ".join(f"{mode}: {way}" for mode, way in _MODES.items() if mode in modes)
        description = f"{properties['mode']['description']} {ways}."
        enum = [mode.value for mode in Mode if mode in modes]
        properties["mode"] = {"type": "string", "enum": enum, "description": description}
    for field in properties.values():
        field.pop("default", None)
        field.pop("maxLength", None)
    return parameters


_CLAUDE_CODE = {"anthropic/maxResultSizeChars": 500_000, "anthropic/alwaysLoad": True}
"""Read by Claude Code: the length of an answer that the model is shown whole, and that the model is shown the
tool from the start. Without the latter it has to search for the tool first."""


def definitions(offered: Iterable[Tool], modes: Iterable[Mode], form: ToolFormat) -> list[dict[str, Any]]:
    return [_definition(tool, schema(tool, modes), form) for tool in offered]


def _definition(tool: Tool, parameters: dict[str, Any], form: ToolFormat) -> dict[str, Any]:
    head = {"name": tool.name, "description": tool.description}
    match form:
        case ToolFormat.OPENAI:
            return {"type": "function", "function": {**head, "parameters": parameters}}
        case ToolFormat.ANTHROPIC:
            return {**head, "input_schema": parameters}
        case ToolFormat.MCP:
            return {
                **head,
                "inputSchema": parameters,
                "annotations": ({"title": tool.title} if tool.title else {}) | {"readOnlyHint": True},
                "_meta": _CLAUDE_CODE,
            }
