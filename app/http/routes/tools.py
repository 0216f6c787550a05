"""A model's tools: their definitions, the answers to their calls, and stored results as arguments of other
tools."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from app.answering.pass_on import Used, pass_on
from app.answering.tool_call import call_tool, tools_of_session
from app.answering.tool_definitions import ToolFormat, definitions, instructions
from app.http.api.answers import JSON, PLAIN, cut_on_error, wants_text
from app.http.api.bodies import BodyIn, BodyOut
from app.http.api.openapi import TEXT_ANSWER
from app.http.api.request_body import cancel_on_end
from app.http.api.routing import SESSION_ID, InRuntime, Router, Tenant, Traits, session_key
from app.operations.tracing import READ
from content.json_text import as_json
from domain.errors import Conflict, TooManySessions
from domain.handles import DEFAULT_SESSION

router = Router(tags=["tools"])


class ToolsOut(BodyOut):
    """`instructions` belong in the system prompt. Both fields are empty while the session has nothing
    stored."""

    tools: list[dict[str, Any]]
    instructions: str


class ToolCallIn(BodyIn):
    """A call that a model made."""

    session_id: Annotated[str, Field(json_schema_extra=SESSION_ID)] = DEFAULT_SESSION
    name: Annotated[str, Field(description="As GET /tools names it.")]
    arguments: Annotated[
        Any,
        Field(
            description="As the model wrote them: an object, or the text of one. For any other value, as for "
            "an unknown name, the answer tells the model what is wrong."
        ),
    ] = None


class ToolCallOut(BodyOut):
    """`text` is for the model. With `is_error` it says why there is no answer, and what to do instead."""

    text: str
    is_error: bool
    entry_id: str | None


@router.get("/tools", summary="The model's tools, while the session has something stored")
async def get_tools(
    rt: InRuntime,
    tenant: Tenant,
    session_id: Annotated[str, Query(json_schema_extra=SESSION_ID)] = DEFAULT_SESSION,
    format: ToolFormat = ToolFormat.OPENAI,
    final_turn: Annotated[bool, Query(description="The model is to answer now: no tools.")] = False,
) -> ToolsOut:
    key = session_key(tenant, session_id)
    offered = [] if final_turn else await tools_of_session(key, rt)
    if not offered:
        return ToolsOut(tools=[], instructions="")
    return ToolsOut(tools=definitions(offered, rt.modes, format), instructions=instructions(offered))


@router.post(
    "/tools/call",
    summary="Execute a call of the model's tools",
    response_model=ToolCallOut,
    responses={200: {"content": TEXT_ANSWER}},
)
@Traits(writes=True, repairs_text=True, span=READ, raises=(TooManySessions, Conflict))
async def post_tool_call(request: Request, rt: InRuntime, tenant: Tenant, body: ToolCallIn) -> Response:
    key = session_key(tenant, body.session_id)
    answer = await cancel_on_end(request, call_tool(key, body.name, body.arguments, rt))
    if wants_text(request):
        return Response(answer.text, media_type=PLAIN)
    out = ToolCallOut(text=answer.text, is_error=answer.is_error, entry_id=answer.entry_id)
    return JSONResponse(out.model_dump())


class ArgumentsIn(BodyIn):
    """A call of another tool, before it runs."""

    session_id: Annotated[str, Field(json_schema_extra=SESSION_ID)] = DEFAULT_SESSION
    tool_name: Annotated[str, Field(min_length=1, max_length=256, description="The tool that gets them.")]
    arguments: Annotated[Any, Field(description="As the model wrote them: any JSON.")]


class ArgumentsOut(BodyOut):
    """`arguments` in which each string that refers to a stored result is replaced by that text. If the tool
    must not run, `arguments` is null, and `refusal` is what the model reads instead."""

    used: list[Used]
    refusal: str | None
    arguments: Any


@router.post(
    "/arguments",
    response_model=ArgumentsOut,
    summary="Put stored results into the arguments of a tool",
)
@Traits(writes=True, repairs_text=True, span=READ, raises=(TooManySessions, Conflict))
async def post_arguments(request: Request, rt: InRuntime, tenant: Tenant, body: ArgumentsIn) -> Response:
    key = session_key(tenant, body.session_id)
    passed = await cancel_on_end(request, pass_on(key, body.tool_name, body.arguments, rt))
    head = {"used": passed.used, "refusal": passed.refusal}
    if passed.arguments is None:
        return Response(as_json({**head, "arguments": None}), media_type=JSON)

    async def answer() -> AsyncIterator[bytes]:
        yield as_json(head)[:-1] + b',"arguments":'
        assert passed.arguments is not None
        async for chunk in passed.arguments:
            yield chunk
        yield b"}"

    return StreamingResponse(cut_on_error(request, answer()), media_type=JSON)
