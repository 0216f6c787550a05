"""The attributes of a request's span, by the names of OpenTelemetry. They hold handles, never content.

The conventions for generative AI are in development, so their names stand here as literals. Nothing of
OpenTelemetry is imported unless an endpoint for spans is set.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from domain.accounting import AccountingEntry
from domain.decisions import Outcome
from domain.errors import SpillgateError
from domain.extraction import Answer
from domain.handles import Handle
from domain.llm import LlmCall
from domain.results import StoredResult, ToolResult

GOVERN = "spillgate.govern"
EXTRACT = "spillgate.extract"
READ = "spillgate.read"

OPERATION = "gen_ai.operation.name"
TOOL_NAME = "gen_ai.tool.name"
CONVERSATION = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"
HANDLE = "spillgate.handle"
BYTES = "spillgate.bytes"
TOKENS = "spillgate.tokens"
TOKENS_SAVED = "spillgate.tokens_saved"

_EXTRA = "opentelemetry.exporter.otlp.proto.http"
_PROTOCOL = "http/protobuf"


Carrier = Mapping[str, str]
"""`traceparent` and `tracestate`, as far as they came."""


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """`endpoint` is the URL to which spans are exported, None if none are. `fault` says why none are, though
    the environment asks for them."""

    endpoint: str | None = None
    fault: str | None = None


def trace_target(environ: Mapping[str, str] = os.environ) -> TraceTarget:
    """What the standard OTEL_* variables ask for. A fault is no reason not to start: the variables are often
    set for all programs of a machine or a cluster."""
    own = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    common = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    endpoint = own or (common and f"{common.removesuffix('/')}/v1/traces")
    exporter = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if not endpoint or exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return TraceTarget()
    protocols = (f"OTEL_EXPORTER_OTLP_{name}PROTOCOL" for name in ("TRACES_", ""))
    protocol = next((environ[name] for name in protocols if environ.get(name)), _PROTOCOL)
    if exporter != "otlp":
        return _faulty("OTEL_TRACES_EXPORTER must be `otlp` or `none`")
    if protocol != _PROTOCOL:
        return _faulty(
            f"OTEL_EXPORTER_OTLP_PROTOCOL must be `{_PROTOCOL}`, which collectors serve at port 4318"
        )
    if not _is_http(endpoint):
        return _faulty("OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://127.0.0.1:4318")
    if not _is_installed():
        return _faulty("OTEL_EXPORTER_OTLP_ENDPOINT is set: install requirements-extras.lock")
    return TraceTarget(endpoint)


def _faulty(what: str) -> TraceTarget:
    return TraceTarget(fault=f"No spans are exported. {what}, or OTEL_TRACES_EXPORTER=none.")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("opentelemetry.sdk", _EXTRA))
    except ModuleNotFoundError:
        return False


class SpanTracer(Protocol):
    """What a span needs of the tracer that began it: `app.operations.spans.Tracer`."""

    def part_of(self, outer: Span, name: str) -> Span: ...

    def model_call(
        self, outer: Span, name: str, timestamp: int, latency: float, attributes: dict[str, Any]
    ) -> None: ...

    def end(self, span: Span, now: int | None = None) -> None: ...


@dataclass(slots=True)
class Span:
    """A request, a part of one, or a call of a model. `ids` and `parent` are SpanContexts, `kind` a SpanKind
    of OpenTelemetry; `began` is Unix ns. `outer` is the span around a part."""

    tracer: SpanTracer
    name: str
    kind: Any
    ids: Any
    parent: Any
    began: int
    outer: Span | None = None
    has_failed: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Adds those that are not None."""
        self.attributes.update((name, value) for name, value in attributes.items() if value is not None)

    def fail(self, error: str, *, is_fault: bool = True) -> None:
        """`is_fault`: the service failed, and not the caller."""
        self.attributes[ERROR_TYPE] = error
        self.has_failed = self.has_failed or is_fault


def carrier_of(headers: Iterable[tuple[bytes, bytes]]) -> Carrier:
    """What the headers of a request say of its caller's trace. Several headers `tracestate` are one list."""
    carrier = dict[str, str]()
    for name, value in headers:
        if name == b"traceparent":
            carrier["traceparent"] = value.decode("latin-1")
        elif name == b"tracestate":
            before = carrier.get("tracestate")
            carrier["tracestate"] = ",".join([*([before] if before else []), value.decode("latin-1")])
    return carrier


current: ContextVar[Span | None] = ContextVar("span", default=None)
"""The span of the request under way, in this task and in those that it starts. None: it is not exported."""


def begin_part(name: str) -> Span | None:
    """A part of the request, which later notes are about. None while no span is exported."""
    outer = current.get()
    if outer is None:
        return None
    part = outer.tracer.part_of(outer, name)
    current.set(part)
    return part


def end_part(part: Span | None) -> None:
    if part is not None:
        part.tracer.end(part)


def _note(attributes: Mapping[str, Any]) -> None:
    if (span := current.get()) is not None:
        span.note(attributes)


def note_governed(result: ToolResult, outcome: Outcome, tokens_out: int) -> None:
    if (span := current.get()) is None:
        return
    measure, budget = outcome.measure, outcome.budget
    span.note(
        {
            TOOL_NAME: result.tool_name,
            CONVERSATION: result.key.session_id,
            "gen_ai.tool.call.id": result.call_id,
            "spillgate.outcome": outcome.kind.value,
            "spillgate.trigger": outcome.trigger and outcome.trigger.value,
            HANDLE: outcome.handle and str(outcome.handle),
            BYTES: measure.bytes,
            TOKENS: measure.tokens,
            "spillgate.tokens_exact": measure.tokens_exact,
            TOKENS_SAVED: measure.tokens - tokens_out,
            "spillgate.durability": outcome.durability and outcome.durability.value,
            "spillgate.budget.remaining": budget.remaining_tokens if budget.enforced else None,
        }
    )


def note_asking() -> None:
    """The request is a question, also if it names no stored result."""
    if (span := current.get()) is not None:
        span.name = EXTRACT
        span.attributes[OPERATION] = "retrieval"


def note_question(handle: Handle) -> None:
    """A stored result is asked a question."""
    note_asking()
    _note({HANDLE: str(handle), CONVERSATION: handle.session_id})


def note_stored(stored: StoredResult) -> None:
    """A stored result was found, and is to be read."""
    handle = stored.handle
    _note({HANDLE: str(handle), CONVERSATION: handle.session_id, TOOL_NAME: stored.tool_name})


def note_extracted(answer: Answer, entry: AccountingEntry) -> None:
    if (span := current.get()) is not None:
        span.note({"spillgate.strategy": answer.strategy.value, "spillgate.status": answer.status.value})
        note_read(entry.details.bytes or 0, entry.tokens_out)
        if entry.error is not None:
            span.fail(entry.error, is_fault=False)


def note_read(size: int, tokens: int) -> None:
    """Notes the bytes and tokens that are given of a stored result, or of an answer."""
    _note({BYTES: size, TOKENS: tokens, TOKENS_SAVED: -tokens})


def note_refused(error: SpillgateError) -> None:
    if (span := current.get()) is not None:
        span.fail(error.code, is_fault=error.status >= 500)


def note_disconnected() -> None:
    """The client disconnected before it was answered. That is no failure of the service."""
    if (span := current.get()) is not None:
        span.fail("client_disconnected", is_fault=False)


def note_model_call(call: LlmCall, *, embeds: bool) -> None:
    """Exports one call of a model, which has ended."""
    if (span := current.get()) is None:
        return
    operation = "embeddings" if embeds else "chat"
    attributes: dict[str, Any] = {
        OPERATION: operation,
        "gen_ai.provider.name": call.provider,
        "gen_ai.request.model": call.model,
        "gen_ai.usage.input_tokens": call.tokens.input,
        "gen_ai.usage.cache_read.input_tokens": call.tokens.cached,
        "gen_ai.usage.output_tokens": call.tokens.output,
    }
    if call.stop_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (call.stop_reason,)
    if call.error is not None:
        attributes[ERROR_TYPE] = call.error
    span.tracer.model_call(span, f"{operation} {call.model}", call.timestamp, call.latency, attributes)
