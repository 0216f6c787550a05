"""POST /results: governs one result, sent as JSON or streamed as text."""

from fastapi import Request, Response
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from app.api.answers import JsonAnswer, ResultOut, encode, result_out, spillgate_headers
from app.api.openapi import (
    BUDGET,
    ENTRY_ID,
    HANDLE,
    MEASURE,
    MESSAGE,
    SESSION_ID,
    SHORT_TEXT,
    body_of,
    schema_of,
)
from app.api.result_request import ResultIn, ResultRequest, read_request
from app.api.routing import InRuntime, Router, traits
from app.governing.governor import Governed, govern
from app.operations.tracing import GOVERN
from domain.decisions import OutcomeKind, Trigger
from domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidPolicy,
    InvalidUtf8,
    SessionEnded,
    TooManySessions,
)
from domain.handles import DEFAULT_SESSION
from domain.results import Durability, Measure

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


_SENT = {
    "session_id": "demo",
    "tool_name": "execute_shell",
    "tool_call_id": "call_8d1f",
    "tool_arguments": {"command": "git status"},
    "content": SHORT_TEXT,
    "context": {"used_tokens": 41200, "turn": 7},
}
_PASSED = ResultOut(
    outcome=OutcomeKind.PASS,
    content=Raw(encode(SHORT_TEXT)),
    complete=True,
    trigger=None,
    handle=None,
    measure=Measure(bytes=53, lines=3, chars=53, tokens=11, tokens_exact=True),
    budget=BUDGET,
    truncated_bytes=None,
    truncated_total=None,
    durability=None,
    degraded=False,
    entry_id=ENTRY_ID,
    warnings=(),
)
_STORED = replace(
    _PASSED,
    outcome=OutcomeKind.STORE,
    content=Raw(encode(MESSAGE)),
    complete=False,
    trigger=Trigger.SIZE_CAP,
    handle=HANDLE,
    measure=MEASURE,
    durability=Durability.DISK,
)


@router.post(
    "/results",
    response_class=Response,
    summary="Govern one tool result",
    responses={
        200: schema_of(
            "Nothing was stored: `content` is the result, byte for byte (`pass`), or what replaces it.",
            _PASSED,
        ),
        201: schema_of("It was stored: `content` is what the model reads instead.", _STORED),
    },
    openapi_extra=body_of(ResultIn, _SHAPE, _SENT),
)
@traits(
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
    outcome, passed = governed
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
        return Response(passed, status, headers, media_type="text/plain; charset=utf-8")
    content: Raw | UnsetType = UNSET
    if outcome.text is not None:
        content = Raw(encode(outcome.text))
    elif sent.is_minimal:
        headers["Preference-Applied"] = "return=minimal"
    elif sent.content is not None:
        content = await sent.content.json()
    elif passed is not None:
        content = Raw(encode(passed.decode()))
    return JsonAnswer(encode(result_out(outcome, content, sent.warnings)), status, headers)
