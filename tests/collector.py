"""A collector of OpenTelemetry on a free loopback port: keeps what comes over OTLP/HTTP, or misbehaves."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """`fault`: `away` refuses connections, `silent` never answers, `endless` answers 200 with a body that
    never ends, `error_N` answers with that status."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self._bodies: list[bytes] = []
        self._requests = 0
        self._stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def received(self) -> bytes:
        """Every byte that was exported."""
        return b"".join(self._bodies)

    def spans(self) -> list[Span]:
        messages = [ExportTraceServiceRequest.FromString(body) for body in self._bodies]
        return [
            span
            for message in messages
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    async def asked(self) -> None:
        """Returns once a request has come. One that is away is never asked."""
        async with asyncio.timeout(30):
            while self.fault != "away" and not self._requests:
                await asyncio.sleep(0.01)

    def __enter__(self) -> Self:
        if self.fault == "away":
            self._server.socket.close()
        else:
            threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self.fault != "away":
            self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._requests += 1
                if collector.fault == "silent":
                    collector._stopped.wait()
                    return
                if not collector.fault:
                    assert self.path == "/v1/traces"
                    collector._bodies.append(body)
                status = collector.fault.removeprefix("error_") if "error" in collector.fault else "200"
                self.send_response(int(status))
                if collector.fault != "endless":
                    self.send_header("Content-Length", "0")
                self.end_headers()
                while collector.fault == "endless" and not collector._stopped.is_set():
                    try:
                        self.wfile.write(b"x" * (1 << 16))
                    except OSError:
                        return

            def log_message(self, format: str, *given: Any) -> None:
                pass

        return Handler
