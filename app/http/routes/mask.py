"""POST /mask: masks the secrets of what a client shows beside a governed text."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.http.api.answers import JSON
from app.http.api.openapi import body_of, json_of
from app.http.api.request_body import read_body
from app.http.api.routing import SESSION_ID, InRuntime, Router, Tenant, Traits, session_key
from app.masking.redactions import new_session
from beside.hooks.agents import DOORS
from content.json_text import checked_json
from content.redaction.masks import masks_in
from domain.errors import InvalidField
from domain.handles import DEFAULT_SESSION

router = Router(tags=["results"])

ToolInQuery = Annotated[str, Query(min_length=1, max_length=256, description="The tool whose result it is.")]
SessionInQuery = Annotated[str, Query(json_schema_extra=SESSION_ID)]
DoorInQuery = Annotated[
    str | None,
    Query(
        description="The coding agent that shows it, as in POST /results. Numbers then stay: agents refuse "
        "an output of another form.",
        json_schema_extra={"enum": list(DOORS)},
    ),
]


@router.post(
    "/mask",
    response_class=Response,
    summary="Mask the secrets in a JSON value, such as links and structured content beside a text",
    responses={
        200: {"description": "The value with masks.", "content": json_of({})},
        204: {"description": "Nothing is masked: the value stays as it is."},
    },
    openapi_extra=body_of({}, "Any JSON."),
)
@Traits(carries_results=True)
async def post_mask(
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    tool_name: ToolInQuery,
    session_id: SessionInQuery = DEFAULT_SESSION,
    door: DoorInQuery = None,
) -> Response:
    """Masks what the tool's policy redacts, in all strings, names of members and numbers; 204 if there is
    nothing to mask. It is for a client that shows its model more than the text that it sends to POST
    /results, if the answer of that route says `redacts`. Masks count in `spillgate_redacted_total`; there is
    no accounting entry."""
    if door is not None and door not in DOORS:
        raise InvalidField(f"`door` must be one of {', '.join(DOORS)}.")
    key = session_key(tenant, session_id)
    data = await checked_json(await read_body(request.scope, request.receive), rt.parsing)
    session = await rt.ledger.session(key) or new_session(key)
    redaction = rt.redactions.of_tool(session, tool_name, None if door is None else DOORS[door])
    if redaction is None:
        return Response(status_code=204)
    # Numbers stay for a coding agent: it would refuse an output of another form.
    shown = await redaction.masked_json(data, keeps_numbers=door is not None)
    if shown is data:
        return Response(status_code=204)
    rt.observer.masked(masks_in(shown.decode()))
    return Response(shown, media_type=JSON)
