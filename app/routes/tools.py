"""GET /tools: the definition of the tool `tool_output`, and its part of the system prompt."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.api.openapi import SESSION_ID, example_of
from app.api.routing import InRuntime, Tenant
from domain.extraction import Mode
from domain.handles import DEFAULT_SESSION, SessionKey, checked_session_id

router = APIRouter(tags=["tools"])

NAME = "tool_output"

DESCRIPTION = (
    "Answers a question about a tool output that was too large to show and was stored under a handle. "
    "Returns an answer, or the parts of the output that match what you ask for best."
)

INSTRUCTIONS = (
    "Some tool outputs are too large to show. Instead you get a message, or a part of the output, that names "
    "a handle: behind it the output is stored whole. To learn what it holds, call tool_output with that "
    "handle, exactly as given, and an `extract` that says precisely what you are looking for: names, "
    "identifiers, fields, time ranges, error texts. "
    "You may ask as often as you need. Never guess what a stored output says, and never treat the message "
    "or the part as the output."
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "handle": {
            "type": "string",
            "minLength": 1,
            "description": "The handle, exactly as the message gave it.",
        },
        "extract": {
            "type": "string",
            "minLength": 1,
            "description": "What to extract, precisely and in detail.",
        },
        "mode": {
            "type": "string",
            "enum": [mode.value for mode in Mode],
            "description": (
                "How to look; best left out, which is auto. full-chunked: a model reads all of it. "
                "read-grep: a model searches it. retrieve: the passages that match your words, verbatim; "
                "needs no model. truncate: its beginning and end."
            ),
        },
    },
    "required": ["handle", "extract"],
    "additionalProperties": False,
}


class ToolFormat(StrEnum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    MCP = "mcp"


def _openai() -> dict[str, Any]:
    function = {"name": NAME, "description": DESCRIPTION, "parameters": SCHEMA}
    return {"type": "function", "function": function}


def _anthropic() -> dict[str, Any]:
    return {"name": NAME, "description": DESCRIPTION, "input_schema": SCHEMA}


def _mcp() -> dict[str, Any]:
    return {"name": NAME, "description": DESCRIPTION, "inputSchema": SCHEMA}


FORMATS: dict[ToolFormat, Callable[[], dict[str, Any]]] = {
    ToolFormat.OPENAI: _openai,
    ToolFormat.ANTHROPIC: _anthropic,
    ToolFormat.MCP: _mcp,
}


class ToolsOut(BaseModel):
    """`instructions` go into the system prompt. Both are empty while nothing is stored."""

    tools: list[dict[str, Any]]
    instructions: str


@router.get(
    "/tools",
    summary="The tool_output tool, while the session has something stored",
    responses={200: example_of({"tools": [_openai()], "instructions": INSTRUCTIONS})},
)
async def get_tools(
    rt: InRuntime,
    tenant: Tenant,
    session_id: Annotated[str, Query(json_schema_extra=SESSION_ID)] = DEFAULT_SESSION,
    format: ToolFormat = ToolFormat.OPENAI,
) -> ToolsOut:
    key = SessionKey(tenant, checked_session_id(session_id))
    if await rt.store.count_results([key]) == [0]:
        return ToolsOut(tools=[], instructions="")
    return ToolsOut(tools=[FORMATS[format]()], instructions=INSTRUCTIONS)
