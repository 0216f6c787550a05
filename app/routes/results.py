"""POST /results: governs one result, sent as JSON or streamed as text."""

from fastapi import Request, Response
from msgspec import UNSET, Raw, UnsetType

from app.api.answers import PLAIN, JsonAnswer, ResultOut, encode, result_out, spillgate_headers
from app.api.openapi import json_of, result_body, struct_of
from app.api.result_request import ResultIn, ResultRequest, read_request
from app.api.routing import SESSION_ID, InRuntime, Router, Traits
from app.governing.governor import Governed, govern
from app.operations.tracing import GOVERN
from domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidPolicy,
    InvalidUtf8,
    SessionEnded,
    TooManySessions,
)
from domain.handles import DEFAULT_SESSION

router = Router(tags=["results"])

_SHAPE = {
    "session_id": {"type": "string", "default": DEFAULT_SESSION, **SESSION_ID},
    "content": {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
        ],
        "description": "A string, or a list of MCP content blocks.",
    },
    "tool_arguments": {
        "anyOf": [{"type": "object"}, {"type": "string"}],
        "description": "Kept verbatim.",
    },
    "policy": {"type": "object", "description": "Policy keys for this result alone."},
}


@router.post(
    "/results",
    response_class=Response,
    summary="Govern one tool result",
    responses={
        200: {
            "description": "Nothing was stored: `content` is the result, byte for byte (`pass`), or what "
            "replaces it.",
            "content": json_of(struct_of(ResultOut)),
        },
        201: {
            "description": "It was stored: `content` is what the model reads instead.",
            "content": json_of(struct_of(ResultOut)),
        },
    },
    openapi_extra=result_body(ResultIn, _SHAPE),
)
@Traits(
    writes=True,
    carries_results=True,
    span=GOVERN,
    raises=(InvalidUtf8, Conflict, IdempotencyKeyReused, InvalidPolicy, SessionEnded, TooManySessions),
)
async def post_result(request: Request, rt: InRuntime) -> Response:
    sent = await read_request(request, rt.parsing)
    governed = await govern(sent.result, sent.governed, rt, sent.hold)
    return await _answer(sent, governed)


async def _answer(sent: ResultRequest, governed: Governed) -> Response:
    outcome, passed = governed.outcome, governed.content
    status, headers = 200, {}
    if outcome.handle is not None:
        status, headers = 201, {"Location": f"/results/{outcome.handle}"}
    if sent.wants_text:
        if outcome.text is not None:
            passed = outcome.text.encode()
        elif sent.content is not None:
            passed = await sent.content.text()
        assert passed is not None
        headers |= spillgate_headers(outcome, sent.warnings)
        return Response(passed, status, headers, media_type=PLAIN)
    content: str | Raw | UnsetType = UNSET
    if outcome.text is not None:
        content = outcome.text
    elif sent.is_minimal:
        headers["Preference-Applied"] = "return=minimal"
    elif sent.content is not None:
        content = await sent.content.json()
    elif passed is not None:
        content = passed.decode()
    return JsonAnswer(encode(result_out(outcome, content, sent.warnings)), status, headers)
