"""A program that traces with OpenTelemetry passes its trace on."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry import trace

from spillgate import AsyncSpillgate, Spillgate

pytestmark = pytest.mark.anyio


async def test_the_current_trace_goes_along_with_every_request() -> None:
    asked: list[str | None] = []

    class Tools(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["traceparent"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"tools": [], "instructions": ""}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Tools) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
        with trace.use_span(trace.NonRecordingSpan(context)):
            Spillgate(base_url=url).tools()
            await AsyncSpillgate(base_url=url).tools()
        Spillgate(base_url=url).tools()
        server.shutdown()
    sent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert asked == [sent, sent, None]
