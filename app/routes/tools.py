"""GET /tools: what to register with the model while something is stored."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from app.api.openapi import SESSION_ID, example_of
from app.api.tool_definitions import FORMATS, INSTRUCTIONS, ToolFormat
from app.runtime import Runtime
from domain.handles import DEFAULT_SESSION, SessionKey, checked_session_id

router = APIRouter(tags=["tools"])


class ToolsOut(BaseModel):
    """`instructions` go into the system prompt. Both are empty while nothing is stored."""

    tools: list[dict[str, Any]]
    instructions: str


@router.get(
    "/tools",
    summary="The tool_output tool, while the session has something stored",
    responses={200: example_of("tools")},
)
async def get_tools(
    request: Request,
    session_id: Annotated[str, Query(json_schema_extra=SESSION_ID)] = DEFAULT_SESSION,
    format: ToolFormat = ToolFormat.OPENAI,
) -> ToolsOut:
    rt: Runtime = request.app.state.runtime
    key = SessionKey(request.scope["tenant"], checked_session_id(session_id))
    if await rt.store.count_results([key]) == [0]:
        return ToolsOut(tools=[], instructions="")
    return ToolsOut(tools=[FORMATS[format]()], instructions=INSTRUCTIONS)
