"""POST /extract: a question about a stored result."""

import asyncio
import re
from dataclasses import replace
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from app.api.accept import prefers
from app.api.openapi import example_of
from app.api.query_parameters import INTEGRAL
from app.api.routing import traits
from app.api.sse import EVENTS, events_of
from app.edge.request_body import cancel_on_disconnect, cancel_on_stop
from app.extracting.extractor import Extracted, Wish, extract
from app.reading.lookup import look_up
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
from domain.extraction import Answer, Coverage, ExtractStatus, LlmUsage, Mode, Question, Span
from domain.handles import parse_handle
from extraction.task import answer_text

router = APIRouter(tags=["extract"])

_HANDLE_LIKE = re.compile(r"session-[A-Za-z0-9._:@=+~/-]{1,256}")


class SpanIn(BaseModel):
    """Bytes `start` to before `end`."""

    model_config = ConfigDict(extra="forbid")

    start: Annotated[int, Field(ge=0, strict=True), INTEGRAL]
    end: Annotated[int, Field(ge=0, strict=True), INTEGRAL]


class ExtractIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    handle: Annotated[str, Field(min_length=1, max_length=512)]
    extract: Annotated[str, Field(min_length=1, max_length=65_536, pattern=r"\S")]
    mode: Mode = Mode.AUTO
    deadline_ms: Annotated[int, Field(ge=100, le=120_000, strict=True), INTEGRAL] | None = None
    require_complete: Annotated[bool, Field(strict=True)] = False
    ranges: Annotated[list[SpanIn], Field(max_length=1000)] = []
    max_answer_bytes: Annotated[int, Field(ge=300, le=1_000_000, strict=True), INTEGRAL] | None = None


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
        question = Question(parse_handle(body.handle), body.extract, body.mode, spans, body.max_answer_bytes)
        deadline = body.deadline_ms or rt.settings.extract_deadline_ms
        ends = asyncio.get_running_loop().time() + deadline / 1000
        wish = Wish(ends, body.require_complete)
        tenant = request.scope["tenant"]
        stopping: asyncio.Event = request.app.state.stopping
        if prefers(accept, EVENTS):
            # An unknown or expired handle is answered with its status, before the stream begins.
            with anyio.CancelScope(deadline=ends):
                await look_up(rt, tenant, str(question.handle))
            return events_of(
                lambda watch: cancel_on_stop(
                    stopping, extract(tenant, question, replace(wish, watch=watch), rt)
                ),
                _out,
            )
        work = cancel_on_stop(stopping, extract(tenant, question, wish, rt))
        extracted = await cancel_on_disconnect(request, work)
    except (NotFound, Gone) as error:
        if not plain:
            raise
        text = answer_text.frame_failure("unknown", _safe(body.handle), body.mode, error.detail)
        return Response(text, error.status, media_type="text/plain; charset=utf-8")
    if plain:
        return Response(
            extracted.text, headers=_headers(extracted.answer), media_type="text/plain; charset=utf-8"
        )
    return JSONResponse(_out(extracted))


def _headers(answer: Answer) -> dict[str, str]:
    return {
        "Spillgate-Status": answer.status.value,
        "Spillgate-Strategy": answer.strategy.value,
        "Spillgate-Coverage": f"{answer.coverage.ratio:.4g}",
    }


def _safe(handle: str) -> str:
    """The handle, if it is close enough to one to tell the model which of its handles was wrong."""
    return handle if _HANDLE_LIKE.fullmatch(handle) else "unknown"


def _out(extracted: Extracted) -> dict[str, Any]:
    answer = extracted.answer
    return ExtractOut(
        text=extracted.text,
        body=answer.body,
        status=answer.status,
        strategy=answer.strategy,
        handle=extracted.handle,
        tool_name=extracted.tool_name,
        coverage=answer.coverage,
        usage=answer.usage,
        latency_ms=extracted.entry.latency,
        warnings=list(answer.warnings),
        entry_id=extracted.entry.id,
    ).model_dump(mode="json")
