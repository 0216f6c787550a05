"""POST /results: governs one result, sent as JSON or as text. POST /check: whether a result would pass."""

import json
from typing import Annotated, Any

from msgspec import UNSET, Raw, UnsetType
from pydantic import Field
from starlette.routing import Route
from starlette.types import Receive, Scope

from app.governing.governor import GovernedResult, govern
from app.http.api.answers import (
    CONTENT,
    JSON,
    PLAIN,
    ResultOut,
    encode,
    result_out,
    spillgate_headers,
)
from app.http.api.bodies import INTEGRAL, MOST, BodyIn, BodyOut
from app.http.api.openapi import TEXT_ANSWER, json_of, result_body, struct_of
from app.http.api.request_body import RequestBody
from app.http.api.result_request import SENTENCES, ResultIn, ResultRequest, pictures_in, read_request
from app.http.api.routing import SESSION_ID, InRuntime, Router, Tenant, Traits, session_key
from app.http.api.schemas import named
from app.operations.tracing import GOVERN
from app.runtime import Runtime
from domain.budget import Session
from domain.errors import (
    Conflict,
    IdempotencyKeyReused,
    InvalidField,
    InvalidPolicy,
    InvalidUtf8,
    SessionEnded,
    TooManySessions,
)
from domain.handles import DEFAULT_SESSION, new_handle
from domain.outcomes import Trigger
from domain.results import Measure, ToolResult
from domain.structs import replace
from policies import view
from policies.decide import decide, would_pass
from policies.facts import Facts
from policies.outcomes import reject
from policies.oversized import breach_of
from policies.policy import PolicyMode, may_reject
from policies.shortest import shortest_texts
from policies.tool_calls import pages, reads_files

router = Router(tags=["results"])

_ARGUMENTS = named(
    "ToolArguments",
    {
        "description": "An object, or a text that is kept verbatim.",
        "anyOf": [{"type": "object", "additionalProperties": True}, {"type": "string"}],
    },
)
_SHAPE = {
    "session_id": {"type": "string", "default": DEFAULT_SESSION, **SESSION_ID},
    "content": CONTENT,
    "tool_arguments": _ARGUMENTS,
    "policy": {"type": "object", "additionalProperties": True},
}
_HEADERS = {
    "Idempotency-Key": "As `tool_call_id`, where that is not sent.",
    "Prefer": "`return=minimal` leaves `content` out of a JSON answer if the result passed.",
}

_BYTES_PER_TOKEN = 4
"""For an estimate of tokens from bytes. Measured: code 3.7, JSON 2.6 to 4.3, logs 2.5."""

PlannedSize = Annotated[int, Field(ge=0, le=MOST, strict=True), INTEGRAL]


_OPERATION = {
    "tags": ["results"],
    "summary": "Govern one tool result",
    "description": "A text body is streamed, with the fields in the query. `Accept: text/plain` answers with "
    "just the text for the model, and the rest in headers: `Spillgate-Outcome`, `-Trigger`, `-Handle`, …",
    "operationId": "post_result",
    "responses": {
        "200": {
            "description": "Nothing was stored: `content` is the result, byte for byte (`pass`), or what "
            "replaces it.",
            "content": json_of(struct_of(ResultOut)) | TEXT_ANSWER,
        },
        "201": {
            "description": "It was stored: `content` is what the model reads instead.",
            "content": json_of(struct_of(ResultOut)) | TEXT_ANSWER,
            "headers": {"Location": {"description": "/results/{handle}", "schema": {"type": "string"}}},
        },
    },
    **result_body(ResultIn, _SHAPE, SENTENCES, _HEADERS),
}


@Traits(
    writes=True,
    carries_results=True,
    streams_text=True,
    span=GOVERN,
    raises=(InvalidUtf8, Conflict, IdempotencyKeyReused, InvalidPolicy, SessionEnded, TooManySessions),
    operation=_OPERATION,
)
async def post_result(scope: Scope, receive: Receive, rt: Runtime) -> None:
    """Called by the application itself: see SpillgateApp."""
    sent = await read_request(scope, receive, rt.parsing)
    governed = await govern(sent.result, sent.governed, rt, sent.hold, sent.blocks)
    body: RequestBody = scope["request_body"]
    await body.answer(*_answer(sent, governed))


route = Route("/results", post_result, methods=["POST"])


def _answer(sent: ResultRequest, governed: GovernedResult) -> tuple[int, str, dict[str, str], bytes]:
    """Returns the status, the media type, more headers, and the body."""
    outcome, passed = governed.outcome, governed.content
    status, headers = 200, {}
    if outcome.handle is not None:
        status, headers = 201, {"location": f"/results/{outcome.handle}"}
    if sent.wants_text:
        if outcome.text is not None:
            passed = outcome.text.encode()
        elif sent.content is not None:
            passed = sent.content.utf8
        assert passed is not None
        return status, PLAIN, headers | spillgate_headers(outcome, sent.warnings), passed
    content: str | Raw | UnsetType = UNSET
    if governed.blocks is not None:
        content = Raw(governed.blocks)
    elif outcome.text is not None:
        content = _beside_pictures(outcome.text, sent, governed)
    elif sent.is_minimal:
        headers["preference-applied"] = "return=minimal"
    elif sent.content is not None:
        content = sent.content.literal
    elif passed is not None:
        content = passed.decode()
    return status, JSON, headers, encode(result_out(outcome, content, sent.warnings))


def _beside_pictures(text: str, sent: ResultRequest, governed: GovernedResult) -> str | Raw:
    """What replaces the result: a text; if the result has pictures, a list of the text and the pictures."""
    pictures = () if sent.content is None else sent.content.pictures
    if pictures and governed.masked_blocks is not None:
        pictures = pictures_in(governed.masked_blocks)
    return Raw(encode([{"type": "text", "text": text}, *pictures])) if pictures else text


class CheckIn(BodyIn):
    """At least one of `bytes`, `tokens` and `rows`."""

    session_id: Annotated[str, Field(json_schema_extra=SESSION_ID)] = DEFAULT_SESSION
    tool_name: Annotated[str, Field(min_length=1, max_length=256)]
    bytes: PlannedSize | None = Field(None, description="Without `tokens`, a token is taken to be 4 bytes.")
    tokens: PlannedSize | None = Field(
        None, description="Without `bytes`, no cap in bytes or characters is judged."
    )
    rows: PlannedSize | None = Field(None, description="For `max_rows` and `reject_rows` of the policy.")
    model: Annotated[str, Field(max_length=256)] | None = Field(None, description="As in POST /results.")
    paginated: Annotated[
        bool,
        Field(strict=True, description="The call reads a page of a file: no size cap refuses it."),
    ] = False
    tool_arguments: dict[str, Any] | None = Field(
        None, description="As in POST /results: its limit of lines makes it `paginated`."
    )
    tool_kind: Annotated[str, Field(max_length=128)] | None = Field(None, description="As in POST /results.")


class CheckOut(BodyOut):
    """`content` is what the model reads instead of the result if it is not allowed. In mode `observe`
    everything is allowed, and `trigger` says what would have fired."""

    allowed: bool
    trigger: Trigger | None
    content: str | None


@router.post("/check", summary="Check a size before the work is done; reserves and stores nothing")
@Traits(raises=(SessionEnded,))
async def post_check(rt: InRuntime, tenant: Tenant, body: CheckIn) -> CheckOut:
    """Judges a size as POST /results would. A result that no text would make smaller is allowed; so is a page
    of a file, unless the policy rejects and the page exceeds the budget. In mode `observe` everything is
    allowed, and `trigger` says what would have fired."""
    if body.bytes is None and body.tokens is None and body.rows is None:
        raise InvalidField("Give the size: `bytes`, `tokens` or `rows`.")
    key = session_key(tenant, body.session_id)
    session = await rt.ledger.session(key)
    if session is not None and session.ended_at is not None:
        raise SessionEnded
    session = session or Session(key, epoch=0, created_at=0, last_used_at=0)
    model = await rt.known_models.of_session(body.model or session.model)
    policy = rt.policies.policy(body.tool_name, session.policy)
    budget = session.budget(model.window, model.enforce)
    # With tokens alone, only caps in tokens and the budget are judged.
    size = body.bytes or 0
    tokens = size // _BYTES_PER_TOKEN if body.tokens is None else body.tokens
    rows = body.rows or 0
    if 0 < policy.max_rows < rows:
        # As in POST /results, the view is judged; here its rows are assumed to have the mean length.
        size, tokens = size * policy.max_rows // rows, tokens * policy.max_rows // rows
        policy = view.with_size_cap(policy)
    arguments = None if body.tool_arguments is None else json.dumps(body.tool_arguments)
    result = ToolResult(key, body.tool_name, tool_arguments=arguments, tool_kind=body.tool_kind)
    is_page = pages(result) or (body.paginated and reads_files(result))
    if is_page and not may_reject(policy):
        # Nothing refuses a page. The given size is that of the whole file.
        return CheckOut(allowed=True, trigger=None, content=None)
    facts = Facts(_measure(size, rows, tokens), budget, rows, is_page)
    trigger = decide(facts, policy)
    if trigger is None and not (policy.bypass or budget.fits(tokens)):
        trigger = Trigger.RESERVE_FAILED
    if trigger is None or policy.mode is PolicyMode.OBSERVE:
        return CheckOut(allowed=True, trigger=trigger, content=None)
    # The texts are made for a size in bytes.
    sized = replace(facts, measure=_measure(size or tokens * _BYTES_PER_TOKEN, rows, tokens))
    handle = new_handle(key, session.epoch, None, "")
    texts = [
        (kind, await rt.count(text, model.tokenizer) + shown * tokens // max(1, sized.measure.bytes))
        for kind, text, shown in shortest_texts(trigger, sized, policy, result, handle)
    ]
    if tokens and would_pass(texts, tokens, budget):
        return CheckOut(allowed=True, trigger=trigger, content=None)
    text = reject.refusal(result, breach_of(trigger, facts, policy), policy)
    return CheckOut(allowed=False, trigger=trigger, content=text)


def _measure(size: int, rows: int, tokens: int) -> Measure:
    return Measure(size, rows, size, tokens, False)
