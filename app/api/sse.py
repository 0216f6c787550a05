"""An extraction as server-sent events: what it does while it does it, then its result."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import StreamingResponse

from app.api.problems import encoded, problem_of
from app.extracting.extractor import Watch
from domain.errors import InternalError, SpillgateError
from extraction.task.task import Progress

T = TypeVar("T")

EVENTS = "text/event-stream"
QUIET_SECONDS = 10.0
"""After so long without an event a comment is sent, so that nothing on the way takes the stream for dead."""


def events_of(
    start: Callable[[Watch], Awaitable[T]], result: Callable[[T], dict[str, Any]]
) -> StreamingResponse:
    """Streams the steps, then one event `result`, or `error` with its problem. A client that disconnects
    cancels the work."""
    return StreamingResponse(_events(start, result), media_type=EVENTS)


async def _events(
    start: Callable[[Watch], Awaitable[T]], result: Callable[[T], dict[str, Any]]
) -> AsyncIterator[str]:
    steps: asyncio.Queue[Progress | None] = asyncio.Queue()
    working = asyncio.ensure_future(start(steps.put_nowait))
    working.add_done_callback(lambda done: steps.put_nowait(None))
    try:
        while (step := await _next(steps)) is not None:
            yield ": still working\n\n" if step is _QUIET else _event(step.event, step.fields)
        fault = working.exception()
        if fault is None:
            yield _event("result", result(working.result()))
        elif isinstance(fault, SpillgateError):
            yield _event("error", json.loads(encoded(problem_of(fault, "/extract"))))
        else:
            yield _event("error", json.loads(encoded(problem_of(InternalError(), "/extract"))))
            # For the log.
            raise fault
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait((working,))


_QUIET = Progress("quiet", {})


async def _next(steps: "asyncio.Queue[Progress | None]") -> Progress | None:
    try:
        return await asyncio.wait_for(steps.get(), QUIET_SECONDS)
    except TimeoutError:
        return _QUIET


def _event(name: str, fields: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(fields, ensure_ascii=False)}\n\n"
