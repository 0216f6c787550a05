"""POST /extract: a question about a stored result; answered as JSON, as text or as server-sent events."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from msgspec import to_builtins
from pydantic import Field
from starlette.responses import StreamingResponse

from app.answering.extractor import Extracted, Requirements, extract
from app.answering.reading import look_up, session_in_any_case
from app.http.api.answers import PLAIN, prefers, wants_text
from app.http.api.bodies import INTEGRAL, MOST, BodyIn, BodyOut
from app.http.api.openapi import TEXT_ANSWER
from app.http.api.problems import problem_of
from app.http.api.request_body import cancel_on_disconnect, cancel_on_stop
from app.http.api.routing import InRuntime, Router, Tenant, Traits
from app.operations.tracing import EXTRACT
from app.runtime import Runtime
from domain.errors import (
    Conflict,
    Gone,
    Incomplete,
    InternalError,
    InvalidField,
    NotFound,
    ResultExpired,
    ResultNotFound,
    SessionEnded,
    SpendReached,
    SpillgateError,
    TooManySessions,
)
from domain.extraction import ByteRange, Coverage, ExtractStatus, LlmUsage, Mode, Question
from domain.handles import DEFAULT_SESSION, SessionKey, forgiven_handle, session_named_in
from extraction.task import Progress, frame_failure

router = Router(tags=["extract"])

EVENTS = "text/event-stream"
QUIET_SECONDS = 10.0
"""After this many seconds without an event a comment is sent, because proxies close silent connections."""

_HANDLE_LIKE = re.compile(r"session-[A-Za-z0-9._:@=+~/-]{1,256}")


class SpanIn(BodyIn):
    """Bytes `start` to before `end`."""

    start: Annotated[int, Field(ge=0, le=MOST, strict=True), INTEGRAL]
    end: Annotated[int, Field(ge=0, le=MOST, strict=True), INTEGRAL]


class Asker(StrEnum):
    MODEL = "model"
    PERSON = "person"


class ExtractIn(BodyIn):
    """A question about a stored result."""

    handle: Annotated[str, Field(min_length=1, max_length=512, description="As the handle message gives it.")]
    extract: Annotated[
        str, Field(min_length=1, max_length=65_536, pattern=r"\S", description="What to look for.")
    ]
    mode: Mode = Field(Mode.AUTO, description="How to look. Without a model `auto` is `retrieve`.")
    deadline_ms: Annotated[int, Field(ge=100, le=120_000, strict=True), INTEGRAL] | None = Field(
        None,
        description="The answer comes within 500 ms after this. Default: SPILLGATE_EXTRACT_DEADLINE_MS.",
    )
    require_complete: Annotated[
        bool, Field(strict=True, description="Answer 502 `incomplete` rather than from a part of the data.")
    ] = False
    ranges: list[SpanIn] = Field([], max_length=1000, description="The bytes to look at. Default: all.")
    asked_by: Asker = Field(
        Asker.MODEL,
        description="person: the answer is charged to no session and does not reduce the savings. Its "
        "entries, and those of its model calls, have the session and the client `dashboard`.",
    )
    max_answer_bytes: Annotated[int, Field(ge=300, le=1_000_000, strict=True), INTEGRAL] | None = Field(
        None, description="The most bytes of an answer of passages. Default: the policy's."
    )


class ExtractOut(BodyOut):
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
    description="`Accept: text/plain` answers with `text` alone, also of an unknown handle (404); "
    "`text/event-stream` with the events `plan`, `chunk` and `reduce`, then `result` or `error`.",
    responses={200: {"content": {**TEXT_ANSWER, EVENTS: {"schema": {"type": "string"}}}}},
)
@Traits(
    writes=True,
    span=EXTRACT,
    raises=(
        *(ResultNotFound, ResultExpired, SessionEnded, TooManySessions, SpendReached),
        *(Conflict, Incomplete),
    ),
)
async def post_extract(request: Request, rt: InRuntime, tenant: Tenant, body: ExtractIn) -> Response:
    refused = partial(request.app.refused, method="POST", path="/extract")
    stopping: asyncio.Event = request.app.state.stopping
    deadline = body.deadline_ms or rt.settings.extract_deadline_ms
    ends = asyncio.get_running_loop().time() + deadline / 1000
    by_person = body.asked_by is Asker.PERSON
    required = Requirements(ends, body.require_complete, needs_model=True, by_person=by_person)
    try:
        question = await _question(body, tenant, rt, ends)

        def work() -> Coroutine[Any, Any, Extracted]:
            return cancel_on_stop(stopping, extract(tenant, question, required, rt))

        if prefers(request.headers.get("accept", ""), EVENTS):
            # An unknown or expired handle is answered with its status, before the stream begins.
            with anyio.CancelScope(deadline=required.ends):
                await look_up(rt, tenant, str(question.handle))
            steps: asyncio.Queue[Progress | None] = asyncio.Queue()
            required = replace(required, watch=steps.put_nowait)
            return StreamingResponse(_events(steps, work, refused), media_type=EVENTS)
        extracted = await cancel_on_disconnect(request, work())
    except (NotFound, Gone) as error:
        if not wants_text(request):
            raise
        refused(error)
        handle = body.handle if _HANDLE_LIKE.fullmatch(body.handle) else "unknown"
        text = frame_failure("unknown", handle, body.mode, error.detail)
        return Response(text, error.status, media_type=PLAIN)
    if not wants_text(request):
        return JSONResponse(_out(extracted))
    answer = extracted.answer
    headers = {
        "Spillgate-Status": answer.status.value,
        "Spillgate-Strategy": answer.strategy.value,
        "Spillgate-Coverage": f"{answer.coverage.ratio:.4g}",
    }
    return Response(extracted.text, headers=headers, media_type=PLAIN)


async def _question(body: ExtractIn, tenant: str, rt: Runtime, ends: float) -> Question:
    """Accepts the handle in the spellings that a tool call accepts. Raises ResultNotFound."""
    spans = tuple(ByteRange(span.start, span.end) for span in body.ranges)
    if any(span.start >= span.end for span in spans):
        raise InvalidField("Each of `ranges` needs a `start` before its `end`.")
    key = SessionKey(tenant, session_named_in(body.handle, DEFAULT_SESSION))
    handle = forgiven_handle(body.handle, key)
    # A slow ledger must not delay the answer: after the deadline, the session is taken as the handle spells
    # it.
    with anyio.move_on_after(ends - asyncio.get_running_loop().time()):
        if session := await session_in_any_case(key, rt):
            handle = handle._replace(session_id=session.key.session_id)
    return Question(handle, body.extract, body.mode, spans, body.max_answer_bytes)


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


async def _events(
    steps: "asyncio.Queue[Progress | None]",
    work: Callable[[], Coroutine[Any, Any, Extracted]],
    refused: Callable[[SpillgateError], None],
) -> AsyncIterator[str]:
    """Yields each step, then one event: `result`, or `error` with a problem, which `refused` gets too.
    Cancels the work if the client disconnects."""
    working: asyncio.Task[Extracted] = asyncio.ensure_future(work())
    working.add_done_callback(lambda done: steps.put_nowait(None))
    try:
        while True:
            try:
                step = await asyncio.wait_for(steps.get(), QUIET_SECONDS)
            except TimeoutError:
                yield ": still working\n\n"
                continue
            if step is None:
                break
            yield _event(step.event, step.fields)
        fault = working.exception()
        if fault is None:
            yield _event("result", _out(working.result()))
            return
        error = fault if isinstance(fault, SpillgateError) else InternalError()
        refused(error)
        yield _event("error", to_builtins(problem_of(error, "/extract")))
        if not isinstance(fault, SpillgateError):
            raise fault  # For the log.
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait((working,))


def _event(name: str, fields: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(fields, ensure_ascii=False)}\n\n"
