"""Spans, exported over OTLP/HTTP by OpenTelemetry's SDK. Imported only where an endpoint for them is set.

A span is a plain object until it ends. Then the SDK's exporter gets all of it. The SDK's own span class
takes four times as long on the event loop, where a span is promised in 20 µs (bench/README.md).
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from app import __version__
from app.edge.request_body import ClientDisconnected
from app.operations.logs import describe_request
from app.operations.telemetry import Metrics
from app.operations.tracing import (
    ERROR_TYPE,
    Carrier,
    Span,
    carrier_of,
    current,
    note_disconnected,
    note_refused,
)
from domain.errors import ConfigError, SpillgateError

log = logging.getLogger("spillgate.traces")

CLOSE_SECONDS = 2.0
"""At the end, spans that were not exported yet have this long."""

_MS = 1_000_000
_OK, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class Tracer:
    """Begins and ends the spans of a process. `processor` exports them. The variables OTEL_TRACES_SAMPLER,
    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES apply, by the SDK."""

    def __init__(self, processor: SpanProcessor, metrics: Metrics) -> None:
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "spillgate"}))
        # It never gets the processor: with one, it would wait 30 s for the collector as the process ends.
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._resource, self._sampler, self._ids = resource, provider.sampler, provider.id_generator
        self._processor = processor
        self._metrics = metrics
        self._scope = InstrumentationScope("spillgate", __version__)
        self._propagator = TraceContextTextMapPropagator()

    async def serve(
        self, app: ASGIApp, name: str, route: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serves a request under a span, as a part of its caller's trace."""
        with self.serving(name, carrier_of(scope["headers"])) as span:
            if span is None:
                await app(scope, receive, send)
                return
            span.attributes["http.route"] = route
            status = 0
            try:
                await app(scope, receive, send)
            except SpillgateError as error:
                status = error.status
                raise
            finally:
                # 0: the client disconnected before it was answered.
                if status := status or scope["request_body"].status:
                    span.attributes["http.response.status_code"] = status
                    span.has_failed = span.has_failed or status >= 500

    @contextmanager
    def serving(self, name: str, carrier: Carrier) -> Iterator[Span | None]:
        """The span of a request, which later notes are about; None if it is not sampled."""
        span = self._begin(name, carrier)
        if span is None:
            yield None
            return
        try:
            yield span
        except SpillgateError as error:
            note_refused(error)
            raise
        except ClientDisconnected:
            note_disconnected()
            raise
        except asyncio.CancelledError:
            span.fail("cancelled", is_fault=False)
            raise
        except BaseException as error:
            if ERROR_TYPE not in span.attributes:
                span.fail(type(error).__name__)
            raise
        finally:
            self.end(span)

    def _begin(self, name: str, carrier: Carrier) -> Span | None:
        context = self._propagator.extract(carrier, Context())
        parent: SpanContext | None = get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            parent, trace_id = None, self._ids.generate_trace_id()
        else:
            trace_id = parent.trace_id
        sampling = self._sampler.should_sample(context, trace_id, name, SpanKind.SERVER)
        if sampling.decision is not Decision.RECORD_AND_SAMPLE:
            current.set(None)
            return None
        flags = TraceFlags(TraceFlags.SAMPLED)
        ids = SpanContext(trace_id, self._ids.generate_span_id(), False, flags, sampling.trace_state)
        span = Span(self, name, SpanKind.SERVER, ids, parent, time.time_ns())
        current.set(span)
        describe_request(trace_id=f"{trace_id:032x}")
        return span

    def part_of(self, outer: Span, name: str) -> Span:
        return self._inside(outer, name, SpanKind.INTERNAL, time.time_ns())

    def model_call(
        self, outer: Span, name: str, timestamp: int, latency: float, attributes: dict[str, Any]
    ) -> None:
        """`timestamp` is Unix ms, `latency` ms."""
        span = self._inside(outer, name, SpanKind.CLIENT, timestamp * _MS)
        span.attributes = attributes
        span.has_failed = ERROR_TYPE in attributes
        self.end(span, span.began + int(latency * _MS))

    def end(self, span: Span, now: int | None = None) -> None:
        """Exports the span. Later notes are about the span around it. `now` is Unix ns."""
        if span is current.get():
            current.set(span.outer)
        self._metrics.spans.inc()
        ended = ReadableSpan(
            span.name,
            context=span.ids,
            parent=span.parent,
            resource=self._resource,
            attributes=span.attributes,
            kind=span.kind,
            status=_FAILED if span.has_failed else _OK,
            start_time=span.began,
            end_time=time.time_ns() if now is None else now,
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(ended)

    def close(self) -> None:
        """Exports what waits, within CLOSE_SECONDS."""
        closing = threading.Thread(target=self._processor.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _inside(self, outer: Span, name: str, kind: SpanKind, began: int) -> Span:
        parent = outer.ids
        ids = SpanContext(
            parent.trace_id, self._ids.generate_span_id(), False, parent.trace_flags, parent.trace_state
        )
        return Span(self, name, kind, ids, parent, began, outer)


def open_tracer(metrics: Metrics) -> Tracer:
    """Exports in batches, from a bounded queue, in a thread of its own: the variables OTEL_EXPORTER_OTLP_*
    and OTEL_BSP_* say where to and how. Raises ConfigError for those that are not valid."""
    try:
        exporter = CountingExporter(OTLPSpanExporter(session=StatusOnlySession()), metrics)
        tracer = Tracer(BatchSpanProcessor(exporter), metrics)
    except ValueError:
        raise ConfigError("One of the variables OTEL_BSP_* has a value that is not valid.") from None
    # From here on its lines would come again with each batch, and with each span that finds the queue full.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    return tracer


class StatusOnlySession(requests.Session):
    """Reads status and headers of an answer, then closes the connection: the body might never end."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        response = super().send(request, **options | {"stream": True})
        response.close()
        return response


class CountingExporter(SpanExporter):
    """Counts the spans that the collector accepts. Logs once that it accepts none, and once that it does
    again."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if not failed:
            self._metrics.spans_exported.inc(len(spans))
        if failed and not self._is_failing:
            log.warning("The collector accepts no spans. They are lost until it does; requests go on.")
        elif self._is_failing and not failed:
            log.warning("The collector accepts spans again.")
        self._is_failing = failed
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
