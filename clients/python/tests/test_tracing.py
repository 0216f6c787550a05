"""A program that traces with OpenTelemetry passes its trace on."""

import httpx
import pytest
from opentelemetry import trace

from spillgate import AsyncSpillgate, Spillgate

pytestmark = pytest.mark.anyio


async def test_the_current_trace_goes_along_with_every_request() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"tools": [], "instructions": ""})

    transport = httpx.MockTransport(answer)
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        Spillgate(transport=transport).tools()
        await AsyncSpillgate(transport=transport).tools()
    Spillgate(transport=transport).tools()
    sent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert [one.headers.get("traceparent") for one in asked] == [sent, sent, None]
