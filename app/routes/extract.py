"""POST /extract: a question about a stored result."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from app.accept import prefers
from app.edge.request_body import cancel_on_disconnect
from app.events import EVENTS, events_of
from app.extractor import Extracted, Wish, extract
from app.lookup import look_up
from app.openapi import example_of
from app.routing import traits
from app.runtime import Runtime
from domain.errors import (
    Conflict,
    Gone,
    Incomplete,
    InvalidField,
    NotFound,
    ResultExpired,
    ResultNotFound,
    SessionEnded,
    TooManySessions,
)
from domain.extraction import Coverage, ExtractStatus, LlmUsage, Mode, Question, Span
from domain.handles import parse_handle
from extraction import frames

router = APIRouter(tags=["extract"])


class SpanIn(BaseModel):
    """Bytes `start` to before `end`."""

    model_config = ConfigDict(extra="forbid")

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


class ExtractIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    handle: Annotated[str, Field(min_length=1, max_length=512)]
    extract: Annotated[str, Field(min_length=1, max_length=65_536, pattern=r"\S")]
    mode: Mode = Mode.AUTO
    deadline_ms: Annotated[int, Field(ge=100, le=120_000)] | None = None
    require_complete: bool = False
    ranges: Annotated[list[SpanIn], Field(max_length=1000)] = []


class ExtractOut(BaseModel):
    """`text` is framed, for the model; `body` is the same without its frame."""

    text: str
    body: str
    status: ExtractStatus
    strategy: Mode
    handle: str
    tool_name: str
    coverage: Coverage
    usage: LlmUsage
    latency_ms: float
    warnings: list[str]
    entry_id: str


@router.post(
    "/extract",
    response_model=ExtractOut,
    summary="Ask a stored result",
    responses={
        200: example_of("extract"),
    },
)
@traits(
    writes=True,
    raises=(ResultNotFound, ResultExpired, SessionEnded, TooManySessions, Conflict, Incomplete),
)
async def post_extract(request: Request, body: ExtractIn) -> Response:
    rt: Runtime = request.app.state.runtime
    accept = request.headers.get("accept", "")
    plain = prefers(accept, "text/plain")
    try:
        spans = tuple(Span(span.start, span.end) for span in body.ranges)
        if any(span.start >= span.end for span in spans):
            raise InvalidField("Each of `ranges` needs a `start` before its `end`.")
        question = Question(parse_handle(body.handle), body.extract, body.mode, spans)
        deadline = body.deadline_ms or rt.settings.extract_deadline_ms
        wish = Wish(deadline, body.require_complete)
        tenant = request.scope["tenant"]
        if prefers(accept, EVENTS):
            # What is unknown or gone is still a clean error, before the stream begins.
            await look_up(rt, tenant, str(question.handle))
            return events_of(lambda watch: extract(tenant, question, replace(wish, watch=watch), rt), _out)
        extracted = await cancel_on_disconnect(request, extract(tenant, question, wish, rt))
    except (NotFound, Gone) as error:
        if not plain:
            raise
        text = frames.failed("unknown", _safe(body.handle), body.mode, error.detail)
        return Response(text, error.status, media_type="text/plain; charset=utf-8")
    if plain:
        return Response(extracted.text, media_type="text/plain; charset=utf-8")
    return JSONResponse(_out(extracted))


def _safe(handle: str) -> str:
    """The handle only where it has the shape of one: other input is not repeated."""
    try:
        return str(parse_handle(handle))
    except NotFound:
        return "unknown"


def _out(extracted: Extracted) -> dict[str, Any]:
    answer = extracted.answer
    return ExtractOut(
        text=extracted.text,
        body=answer.body,
        status=answer.status,
        strategy=answer.strategy,
        handle=str(extracted.stored.handle),
        tool_name=extracted.stored.tool_name,
        coverage=answer.coverage,
        usage=answer.usage,
        latency_ms=extracted.receipt.entry.latency,
        warnings=list(answer.warnings),
        entry_id=extracted.receipt.entry.id,
    ).model_dump(mode="json")
