"""POST /hooks/{client}: a coding agent's hook, asked as the agent asks and answered as the agent reads."""

from typing import Annotated

from fastapi import Path, Request, Response

from app.api.answers import in_pieces
from app.api.openapi import body_of, json_of
from app.api.routing import InRuntime, Router, Tenant, Traits, check_rate
from app.doors.hooks.agents import CLIENTS
from app.doors.hooks.hook import PASS, hook_answer
from app.edge.request_body import read_body
from app.operations.tracing import GOVERN
from domain.errors import NotFound, SpillgateError

router = Router(tags=["hooks"])

Client = Annotated[
    str, Path(description="The coding agent.", json_schema_extra={"enum": list(CLIENTS)}, examples=["codex"])
]
_ANSWER = "`{}` if the result passes, or what the agent reads as a replacement, in the shape of the tool."


@router.post(
    "/hooks/{client}",
    response_class=Response,
    summary="Govern one tool result, as a coding agent's hook reports it",
    responses={200: {"description": _ANSWER, "content": json_of({"type": "object"})}},
    openapi_extra=body_of({}, "The JSON of the agent's hook, as it comes.", required=False),
)
@Traits(carries_results=True, fails_open=True, span=GOVERN)
async def post_hook(client: Client, request: Request, rt: InRuntime, tenant: Tenant) -> Response:
    """Whatever goes wrong with the result, the agent keeps it: the answer is then `{}` and the log says why.
    Only a request that is not admitted (401, 413) is answered with a problem."""
    if client not in CLIENTS:
        raise NotFound
    answer = PASS
    if not request.app.state.draining:
        try:
            check_rate(request)
            body = await read_body(request)
            answer = await hook_answer(client, body, tenant, rt, request.scope["request_body"].hold)
        except SpillgateError as error:
            request.app.refused(error, "POST", request.url.path)
    return in_pieces(answer)
