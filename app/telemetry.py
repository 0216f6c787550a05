"""What operators see: JSON log lines and metrics. Neither ever holds a result, an argument or a secret."""

import json
import logging
import sys
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, ProcessCollector
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from app import __version__
from domain.accounting import split_tool_name
from domain.decisions import Outcome, OutcomeKind, Trigger
from domain.extraction import Answer
from domain.handles import Handle
from domain.llm import LlmCall
from domain.results import Measure, ToolResult

log = logging.getLogger(__name__)

_GOVERN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FRAMES = 20
# These log addresses and replies at INFO.
_CHATTY = ("httpx", "httpcore", "asyncio")


class JsonFormatter(logging.Formatter):
    """One JSON object a line; `extra={"fields": {...}}` adds its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        fields: Mapping[str, Any] | None = getattr(record, "fields", None)
        if fields:
            line |= {name: value for name, value in fields.items() if name not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = describe(record.exc_info[1])
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:
            # A lone surrogate; this encoder escapes it.
            return json.dumps(line, default=str)


class _Stream(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Says nothing: the default prints the record, and whatever it was given."""


def describe(error: BaseException) -> dict[str, Any]:
    """An exception's type and where it passed, innermost last. Its message may hold content: left out."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    described: dict[str, Any] = {
        "type": type(error).__qualname__,
        "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if (cause := error.__cause__ or error.__context__) is not None:
        described["cause"] = type(cause).__qualname__
    return described


def _event(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if text.startswith("Traceback (most recent call last):"):
        # Uvicorn's word on a failed start. Its last line is ours to show only if we wrote it.
        last = text.rstrip().rpartition("\n")[2]
        return last if last.startswith("domain.errors.") else last.partition(":")[0]
    # asyncio appends the repr of exceptions, and with it their messages.
    return text.partition("\n")[0]


def configure_logging(level: str, stream: Any = None) -> None:
    """JSON lines on stderr for every logger, uvicorn's too. May be called again."""
    handler = _Stream(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def log_stored(
    result: ToolResult,
    handle: Handle,
    measure: Measure,
    trigger: Trigger | None,
    outcome: OutcomeKind = OutcomeKind.STORE,
) -> None:
    """A result was kept and not shown whole: the operator's cue that a tool is too chatty. Without a trigger
    its view caps left something out."""
    namespace, _ = split_tool_name(result.tool_name, result.tool_namespace)
    reason = "view_caps" if trigger is None else trigger.value
    fields = {
        "tool": result.tool_name,
        "tool_namespace": namespace,
        "provider": result.provider,
        "tool_kind": result.tool_kind,
        "handle": str(handle),
        "reason": reason,
        "outcome": outcome.value,
        "bytes": measure.bytes,
        "lines": measure.lines,
        "tokens": measure.tokens,
        "tool_output": True,
    }
    event = "Tool '%s' output stored for tool_output (%s)."
    log.warning(event, result.tool_name, reason, extra={"fields": fields})


def log_outage(why: str | None) -> None:
    """Redis went away, or (None) is back."""
    if why is None:
        log.warning("Redis is back: results are kept there again.")
    else:
        log.warning("Redis is away: results are kept in the local spool.", extra={"fields": {"why": why}})


@dataclass(slots=True)
class _Tally:
    """What was governed with one outcome and trigger since the last scrape."""

    results: int = 0
    bytes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class GovernSeconds(Collector):
    """A histogram by outcome whose observation costs a tenth of the client library's."""

    def __init__(self) -> None:
        self._counts = {kind: [0] * (len(_GOVERN_SECONDS) + 1) for kind in OutcomeKind}
        self._sums = dict.fromkeys(OutcomeKind, 0.0)

    def observe(self, kind: OutcomeKind, seconds: float) -> None:
        self._counts[kind][bisect_left(_GOVERN_SECONDS, seconds)] += 1
        self._sums[kind] += seconds

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "spillgate_govern_seconds", "Time to govern one result.", labels=["outcome"]
        )
        bounds = [*map(str, _GOVERN_SECONDS), "+Inf"]
        for kind, counts in self._counts.items():
            if any(counts):
                buckets = list(zip(bounds, accumulate(counts), strict=True))
                family.add_metric([kind.value], buckets, self._sums[kind])
        yield family


class Metrics:
    """One process's metrics in a registry of their own. Written to from the event loop alone. Labels come
    from our own enums and codes, never from a caller."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._results = Counter(
            "spillgate_results", "Results governed.", ["outcome", "trigger"], registry=registry
        )
        self._bytes = Counter("spillgate_result_bytes", "Bytes of them.", ["outcome"], registry=registry)
        self._tokens = Counter(
            "spillgate_tokens",
            "Tokens: in = of results; out = given to models; saved = in not given; "
            "spent = on extraction and reading back. Net savings are saved - spent.",
            ["direction"],
            registry=registry,
        )
        self._extractions = Counter(
            "spillgate_extractions", "Extractions.", ["strategy", "status"], registry=registry
        )
        self._calls = Counter("spillgate_llm_calls", "Model calls.", ["model", "status"], registry=registry)
        self._call_tokens = Counter(
            "spillgate_llm_tokens", "Tokens of model calls.", ["model", "direction"], registry=registry
        )
        self._call_cost = Counter(
            "spillgate_llm_cost_usd", "US dollars for model calls.", ["model"], registry=registry
        )
        self._errors = Counter("spillgate_errors", "Requests refused.", ["code"], registry=registry)
        self._reloads = Counter(
            "spillgate_policy_reloads", "Changes of the policy file.", ["status"], registry=registry
        )
        self._policy_stale = Gauge(
            "spillgate_policy_stale",
            "1 while the policy file cannot be honoured and the one before stays in force.",
            registry=registry,
        )
        self._seconds = GovernSeconds()
        registry.register(self._seconds)
        self._in_flight = Gauge(
            "spillgate_body_bytes_in_flight", "Body bytes held of the common pool.", registry=registry
        )
        self._degraded = Gauge(
            "spillgate_degraded", "1 while Redis is away and the local spool serves.", registry=registry
        )
        self.stored_bytes = Gauge("spillgate_stored_bytes", "Bytes kept.", registry=registry)
        self.stored_bytes_cap = Gauge(
            "spillgate_stored_bytes_cap", "SPILLGATE_STORAGE_MAX_BYTES; 0 = none.", registry=registry
        )
        Info("spillgate_up", "The version that runs.", registry=registry).info({"version": __version__})
        self._tallies: dict[tuple[OutcomeKind, Trigger | None], _Tally] = {
            (kind, trigger): _Tally() for kind in OutcomeKind for trigger in (None, *Trigger)
        }

    def governed(self, outcome: Outcome, tokens_out: int, seconds: float | None = None) -> None:
        """A replayed outcome was counted at its first try."""
        if outcome.replayed:
            return
        tally = self._tallies[outcome.kind, outcome.trigger]
        tally.results += 1
        tally.bytes += outcome.measure.bytes
        tally.tokens_in += outcome.measure.tokens
        tally.tokens_out += tokens_out
        if seconds is not None:
            self._seconds.observe(outcome.kind, seconds)

    def extracted(self, answer: Answer) -> None:
        self._extractions.labels(answer.strategy.value, answer.status.value).inc()

    def called(self, call: LlmCall) -> None:
        """`model` is one of the operator's own."""
        self._calls.labels(call.model, "ok" if call.error is None else "failed").inc()
        self._call_tokens.labels(call.model, "in").inc(call.tokens.input)
        self._call_tokens.labels(call.model, "out").inc(call.tokens.output)
        self._call_cost.labels(call.model).inc(call.cost_usd)
        self.spent(call.tokens.input + call.tokens.output)

    def spent(self, tokens: int) -> None:
        """What extraction or reading back cost: it lessens what was saved."""
        self._tokens.labels("spent").inc(tokens)

    def refused(self, code: str) -> None:
        self._errors.labels(code).inc()

    def reloaded(self, ok: bool) -> None:
        """The policy file changed; not ok: the one before stays in force."""
        self._reloads.labels("ok" if ok else "failed").inc()
        self._policy_stale.set(not ok)

    def watch_bodies(self, in_flight: Callable[[], float]) -> None:
        self._in_flight.set_function(in_flight)

    def watch_outage(self, is_on: Callable[[], bool]) -> None:
        self._degraded.set_function(is_on)

    def render(self) -> tuple[bytes, str]:
        """The scrape and its content type."""
        for (kind, trigger), tally in self._tallies.items():
            if tally.results:
                self._flush(kind, trigger, tally)
                self._tallies[kind, trigger] = _Tally()
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _flush(self, kind: OutcomeKind, trigger: Trigger | None, tally: _Tally) -> None:
        # Six counters a result would cost more than the rest of this class: they are written at a scrape.
        self._results.labels(kind.value, trigger.value if trigger else "none").inc(tally.results)
        self._bytes.labels(kind.value).inc(tally.bytes)
        self._tokens.labels("in").inc(tally.tokens_in)
        self._tokens.labels("out").inc(tally.tokens_out)
        self._tokens.labels("saved").inc(max(0, tally.tokens_in - tally.tokens_out))
        self._tokens.labels("spent").inc(max(0, tally.tokens_out - tally.tokens_in))
