"""Guardrails of model gateways: LiteLLM's generic one, and Headroom's protocol."""

from typing import Annotated

from fastapi import Path, Query, Request, Response

from app.doors import headroom, litellm
from app.http.api.answers import JSON
from app.http.api.bodies import BodyOut
from app.http.api.openapi import body_of, json_of
from app.http.api.request_body import cancel_on_end, read_body
from app.http.api.routing import InRuntime, Router, Tenant, Traits, check_rate
from app.http.api.schemas import named
from app.operations.logs import log_hook_passed
from app.operations.tracing import EXTRACT, GOVERN
from content.json_text import as_json
from domain.errors import Conflict, ResultExpired, ResultNotFound, SessionEnded, SpillgateError

router = Router(tags=["guardrails"])


@router.post(
    "/beta/litellm_basic_guardrail_api",
    response_class=Response,
    summary="Govern the tool results of a request to a model, as LiteLLM's generic guardrail",
    responses={
        200: {
            "description": "`NONE`, or the messages with the large results replaced.",
            "content": json_of({"type": "object"}),
        }
    },
    openapi_extra=body_of({}, "The JSON of LiteLLM's generic guardrail, as it comes.", required=False),
)
@Traits(carries_results=True, fails_open=True, span=GOVERN)
async def post_litellm(request: Request, rt: InRuntime, tenant: Tenant) -> Response:
    """If an error occurs, the answer is `NONE`: the gateway continues with its request, and the error is in
    the log. Only a request that is not admitted (401, 413) is answered with a problem."""
    answer = as_json(litellm.NONE)
    if not request.app.state.draining:
        try:
            check_rate(request)
            body = await read_body(request.scope, request.receive)
            replaced, error = await litellm.guardrail_answer(body, tenant, rt)
            _log(error, request)
            answer = as_json(replaced)
        except SpillgateError as error:
            _log(error, request)
    return Response(answer, media_type=JSON)


_CONFIG = named("CompressConfig", {"type": "object", "properties": {"tool_name": {"type": "string"}}})
_CONVERSATION = named(
    "CompressIn",
    {
        "type": "object",
        "required": ["messages"],
        "properties": {
            "messages": {
                "type": "array",
                "items": {"type": "object", "additionalProperties": True},
                "description": "In the form of the model's API.",
            },
            "tools": {"description": "Those that the model is offered, in the same form."},
            "config": {"description": "`tool_name`: what the texts name.", **_CONFIG},
        },
    },
)


@router.post(
    "/v1/compress",
    response_class=Response,
    summary="Replace the large tool results of a conversation, in Headroom's protocol",
    responses={200: {"description": "As many messages as came.", "content": json_of({"type": "object"})}},
    openapi_extra=body_of(
        _CONVERSATION,
        "`messages` in the form of OpenAI chat or Responses, Anthropic, Gemini or Bedrock Converse.",
    ),
)
@Traits(writes=True, carries_results=True, span=GOVERN)
async def post_compress(request: Request, rt: InRuntime, tenant: Tenant) -> Response:
    """A result that cannot be governed stays as it is, and the log says why. The text that replaces a result
    names `config.tool_name`, or a tool of Spillgate that is in `tools`."""
    body = await read_body(request.scope, request.receive)
    answer, error = await headroom.compress(body, tenant, request.headers.get("user-agent", ""), rt)
    _log(error, request)
    return Response(as_json(answer), media_type=JSON)


class RetrievedOut(BodyOut):
    """`original_content` is the answer to the query, which the model reads."""

    hash: str
    original_content: str
    tool_name: str


@router.get("/v1/retrieve/{hash}", summary="Ask about a result by its hash, in Headroom's protocol")
@Traits(writes=True, span=EXTRACT, raises=(ResultNotFound, ResultExpired, SessionEnded, Conflict))
async def get_retrieved(
    hash: Annotated[str, Path(description="Of `ccr_hashes`.", examples=["aaaaaaaaaaaabbbbbbbbbbbb"])],
    request: Request,
    rt: InRuntime,
    tenant: Tenant,
    query: Annotated[
        str | None, Query(max_length=65_536, description="What to extract. Without it: beginning and end.")
    ] = None,
) -> RetrievedOut:
    text, tool_name = await cancel_on_end(request, headroom.retrieve(tenant, hash, query, rt))
    return RetrievedOut(hash=hash, original_content=text, tool_name=tool_name)


def _log(error: SpillgateError | None, request: Request) -> None:
    if error is not None:
        request.app.refused(error, request.method, request.url.path)
        log_hook_passed("guardrail", f"{error.detail} The result is not stored.")
