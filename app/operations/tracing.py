"""Where spans are exported, and which trace they continue. Imports OpenTelemetry only if an endpoint is
set."""

import importlib.util
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

GOVERN = "spillgate.govern"
EXTRACT = "spillgate.extract"
READ = "spillgate.read"

_EXTRA = "opentelemetry.exporter.otlp.proto.http"
_PROTOCOL = "http/protobuf"


Carrier = Mapping[str, str]
"""The headers `traceparent` and `tracestate` of a request, if it has them."""


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """`endpoint` is the URL to which spans are exported, None if none are. `fault` says why none are, though
    the environment asks for them."""

    endpoint: str | None = None
    fault: str | None = None


def trace_target(environ: Mapping[str, str] = os.environ) -> TraceTarget:
    """Reads the standard OTEL_* variables. A fault in them does not stop the start, because they are often
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
