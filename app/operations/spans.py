"""Spans of requests, by OpenTelemetry's SDK over OTLP/HTTP. Imported only where an endpoint for them is set.

They hold handles, never content. The conventions for generative AI are in development, so their names stand
here as literals.
"""

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

import requests
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.operations.logs import describe_request
from app.operations.telemetry import Metrics
from app.operations.tracing import EXTRACT
from domain.accounting import AccountingEntry
from domain.errors import ConfigError, SpillgateError
from domain.extraction import Answer, Question
from domain.handles import Handle
from domain.llm import LlmCall
from domain.outcomes import Outcome
from domain.ports import Observer, ServedRequest
from domain.results import StoredResult, ToolResult

log = logging.getLogger("spillgate.traces")

CLOSE_SECONDS = 2.0
"""The seconds at the end for spans that were not exported yet."""

_OPERATION = "gen_ai.operation.name"
_TOOL_NAME = "gen_ai.tool.name"
_CONVERSATION = "gen_ai.conversation.id"
_ERROR_TYPE = "error.type"
_HANDLE = "spillgate.handle"
_BYTES = "spillgate.bytes"
_TOKENS = "spillgate.tokens"
_TOKENS_SAVED = "spillgate.tokens_saved"

_MS = 1_000_000
_DISCONNECTED = (0, 499)
"""The statuses of a request whose client disconnected before it was answered."""

_entered: ContextVar[Token[Context] | None] = ContextVar("entered", default=None)


class SpanExport(Observer):
    """The spans of a process. `processor` exports them. The variables OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME
    and OTEL_RESOURCE_ATTRIBUTES apply, by the SDK."""

    def __init__(self, processor: SpanProcessor, metrics: Metrics) -> None:
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "spillgate"}))
        # The process ends without the 30 s that the provider would wait for the collector.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(_Counting(metrics))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("spillgate", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Exports what waits, within CLOSE_SECONDS."""
        closing = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def admitted(self, request: ServedRequest) -> None:
        if request.span:
            context = self._continued(request.tracing)
            span = self._tracer.start_span(request.span, context, SpanKind.SERVER)
            _entered.set(attach(set_span_in_context(span, context)))
            _name_trace()

    def answered(self, request: ServedRequest, error: BaseException | None) -> None:
        if (token := _entered.get()) is None:
            return
        _entered.set(None)
        _note({"http.route": request.route, "http.response.status_code": request.status or None})
        if error is not None:
            _fail_by(error)
        elif request.status in _DISCONNECTED:
            _fail("client_disconnected", is_fault=False)
        elif request.status >= 500:
            get_current_span().set_status(StatusCode.ERROR)
        get_current_span().end()
        detach(token)

    @contextmanager
    def part(
        self, name: str, tracing: Mapping[str, str] | None = None, method: str | None = None
    ) -> Iterator[None]:
        if tracing is None and not get_current_span().is_recording():
            yield
            return
        context = None if tracing is None else self._continued(tracing)
        kind = SpanKind.INTERNAL if tracing is None else SpanKind.SERVER
        with self._tracer.start_as_current_span(
            name, context, kind, record_exception=False, set_status_on_exception=False
        ):
            _note({"mcp.method.name": method})
            if tracing is not None:
                _name_trace()
            try:
                yield
            except BaseException as error:
                _fail_by(error)
                raise

    def _continued(self, tracing: Mapping[str, str]) -> Context:
        return self._propagator.extract(tracing, Context())

    def refused(self, error: SpillgateError, route: str, *, carries_result: bool) -> None:
        _fail_by(error)

    def told(self, error: SpillgateError, handles: object = ()) -> None:
        _fail_by(error)

    def failed(self, reason: str) -> None:
        _fail(reason, is_fault=False)

    def governed(self, result: ToolResult, outcome: Outcome, tokens_out: int, seconds: float) -> None:
        measure, budget = outcome.measure, outcome.budget
        _note(
            {
                _TOOL_NAME: result.tool_name,
                _CONVERSATION: result.key.session_id,
                "gen_ai.tool.call.id": result.call_id,
                "spillgate.outcome": outcome.kind.value,
                "spillgate.trigger": outcome.trigger and outcome.trigger.value,
                _HANDLE: outcome.handle and str(outcome.handle),
                _BYTES: measure.bytes,
                _TOKENS: measure.tokens,
                "spillgate.tokens_exact": measure.tokens_exact,
                _TOKENS_SAVED: measure.tokens - tokens_out,
                "spillgate.durability": outcome.durability and outcome.durability.value,
                "spillgate.budget.remaining": budget.remaining_tokens if budget.enforced else None,
            }
        )

    def asked(self, handle: Handle | None) -> None:
        get_current_span().update_name(EXTRACT)
        _note({_OPERATION: "retrieval"})
        if handle is not None:
            _note({_HANDLE: str(handle), _CONVERSATION: handle.session_id})

    def found(self, stored: StoredResult) -> None:
        handle = stored.handle
        _note({_HANDLE: str(handle), _CONVERSATION: handle.session_id, _TOOL_NAME: stored.tool_name})

    def read(self, entry: AccountingEntry) -> None:
        tokens = entry.tokens_out
        _note({_BYTES: entry.details.bytes, _TOKENS: tokens, _TOKENS_SAVED: -tokens})

    def extracted(self, question: Question, answer: Answer | None, entry: AccountingEntry) -> None:
        if answer is not None:
            _note({"spillgate.strategy": answer.strategy.value, "spillgate.status": answer.status.value})
            self.read(entry)
            if entry.error is not None:
                _fail(entry.error, is_fault=False)

    def called(self, call: LlmCall, *, embeds: bool) -> None:
        """Exports the call, which has ended, as a span of its own."""
        if not get_current_span().is_recording():
            return
        operation = "embeddings" if embeds else "chat"
        attributes: dict[str, Any] = {
            _OPERATION: operation,
            "gen_ai.provider.name": call.provider,
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": call.tokens.input,
            "gen_ai.usage.cache_read.input_tokens": call.tokens.cached,
            "gen_ai.usage.output_tokens": call.tokens.output,
        }
        if call.stop_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = (call.stop_reason,)
        if call.error is not None:
            attributes[_ERROR_TYPE] = call.error
        began = call.timestamp * _MS
        span = self._tracer.start_span(
            f"{operation} {call.model}", None, SpanKind.CLIENT, attributes, start_time=began
        )
        if call.error is not None:
            span.set_status(StatusCode.ERROR)
        span.end(began + int(call.latency * _MS))


def _note(attributes: Mapping[str, Any]) -> None:
    """Adds those that are not None to the span of the request, or of the part of one, under way."""
    if (span := get_current_span()).is_recording():
        span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def _fail(reason: str, *, is_fault: bool) -> None:
    """The first reason stays. `is_fault`: the service failed, and not the caller."""
    span = get_current_span()
    if isinstance(span, Span) and _ERROR_TYPE not in (span.attributes or {}):
        span.set_attribute(_ERROR_TYPE, reason)
        if is_fault:
            span.set_status(StatusCode.ERROR)


def _fail_by(error: BaseException) -> None:
    if isinstance(error, SpillgateError):
        _fail(error.code, is_fault=error.status >= 500)
    elif isinstance(error, asyncio.CancelledError):
        _fail("cancelled", is_fault=False)
    else:
        _fail(type(error).__name__, is_fault=True)


def _name_trace() -> None:
    """Adds the id of the trace to the log lines of the request."""
    if (span := get_current_span()).is_recording():
        describe_request(trace_id=f"{span.get_span_context().trace_id:032x}")


class _Counting(SpanProcessor):
    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.spans.inc

    def on_end(self, span: ReadableSpan) -> None:
        self._count()


def open_spans(metrics: Metrics) -> SpanExport:
    """Exports in batches, from a bounded queue, in a thread of its own: the variables OTEL_EXPORTER_OTLP_*
    and OTEL_BSP_* say where to and how. Raises ConfigError for those that are not valid."""
    try:
        exporter = CountingExporter(OTLPSpanExporter(session=StatusOnlySession()), metrics)
        spans = SpanExport(BatchSpanProcessor(exporter), metrics)
    except ValueError:
        raise ConfigError("One of the variables OTEL_BSP_* has a value that is not valid.") from None
    # From here on its lines would come again with each batch, and with each span that finds the queue full.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    return spans


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
