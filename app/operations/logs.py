"""Logs: JSON lines, or text at a terminal. Neither holds a result, an argument or a secret."""

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from http import HTTPStatus
from logging.handlers import QueueHandler
from typing import Any, Literal, TextIO

import msgspec
from prometheus_client import Counter

from app.operations.line_writer import Descriptor, LineWriter
from app.operations.repeat_filter import RepeatFilter
from content.redaction.masks import NOT_SEARCHED
from domain.accounting import AccountingEntry
from domain.errors import SpillgateError
from domain.extraction import Answer, Question
from domain.outcomes import Outcome, OutcomeKind
from domain.ports import Observer, ServedRequest
from domain.results import StoredResult, ToolResult
from policies.tool_calls import split_tool_name

log = logging.getLogger(__name__)

LineStyle = Literal["auto", "text", "json"]

access_log = logging.getLogger("spillgate.access")

_request: ContextVar[dict[str, Any] | None] = ContextVar("request", default=None)

lines_dropped = Counter(
    "spillgate_log_lines_dropped", "Lines of the log that were not written.", registry=None
)
"""Counted by the process: its log is older than its metrics."""

MOST_WAITING = 8192
"""Lines in memory that are not written yet, of about 0.5 KB each. More are dropped, and counted."""

FLUSH_SECONDS = 2.0

_FRAMES = 20
# Their lines at INFO name addresses, or repeat what "listening" and "stopped" say.
_CHATTY = ("httpx", "httpcore", "asyncio", "urllib3", "uvicorn")


def begin_request(request_id: str) -> dict[str, Any]:
    """Every line logged from here on, in this task and in those that it starts, has the returned fields. They
    may be added to."""
    fields = {"request_id": request_id}
    _request.set(fields)
    return fields


@contextmanager
def within_request(fields: dict[str, Any] | None) -> Iterator[None]:
    """Lines logged within it have these fields of a request, whose own task they are not logged in."""
    before = _request.set(fields)
    yield
    _request.reset(before)


def describe_request(**fields: str | None) -> None:
    """Adds fields to the lines of the request under way, if there is one: its session, its call."""
    if (known := _request.get()) is not None:
        known.update((name, value) for name, value in fields.items() if value is not None)


def described(name: str) -> str | None:
    """Returns a field of the current request; None if the field is not known yet."""
    value: str | None = (_request.get() or {}).get(name)
    return value


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of the record, then those of its request."""
    own: Mapping[str, Any] = getattr(record, "fields", None) or {}
    return {**own, **{name: value for name, value in (_request.get() or {}).items() if name not in own}}


class JsonFormatter(logging.Formatter):
    """One JSON object a line; `extra={"fields": {...}}` adds its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        line |= {name: value for name, value in _fields_of(record).items() if name not in line}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = describe(record.exc_info[1])
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:
            # A lone surrogate; this encoder escapes it.
            return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """`08:12:33 warning  event  name=value …`, times in the local zone. A record with `extra={"block": True}`
    gets a line for each field."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = _fields_of(record).items()
        shown = [(name, _printable(value)) for name, value in fields if value is not None]
        if getattr(record, "block", False):
            tail = "".join(f"\n  {name:<10} {value}" for name, value in shown)
        else:
            tail = "".join(f"  {name}={value}" for name, value in shown)
        line = f"{time} {record.levelname.lower():<8} {_printable(_event(record))}{tail}"
        if record.exc_info and record.exc_info[1] is not None:
            error = describe(record.exc_info[1])
            cause = f" (cause: {error['cause']})" if "cause" in error else ""
            line += "\n    ".join(("", f"{error['type']}{cause}", *error["frames"]))
        return line


class LogHandler(QueueHandler):
    """Formats a record where it is logged, and writes its line in a thread: a stderr that is not read does
    not delay the service."""

    queue: LineWriter[str]  # type: ignore[assignment]

    def __init__(self, stream: TextIO) -> None:
        output = Descriptor(stream.fileno())
        super().__init__(LineWriter[str](output, _encoded, MOST_WAITING, _count_dropped))  # type: ignore[arg-type]

    def prepare(self, record: logging.LogRecord) -> str:
        return f"{self.format(record)}\n"

    def flush(self) -> None:
        """Returns when all lines are written, or after FLUSH_SECONDS."""
        self.queue.flush(FLUSH_SECONDS)

    def close(self) -> None:
        """Ends the thread once the lines are written."""
        self.queue.end()
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Prints nothing: the default prints the record with its arguments, which may hold content."""


def _encoded(line: str) -> bytes:
    return line.encode(errors="backslashreplace")


def _count_dropped(why: str, lines: int) -> None:
    lines_dropped.inc(lines)


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


def _printable(value: object) -> str:
    """The value as text in which a terminal finds no control character."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(value))


def _event(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if text.startswith("Traceback (most recent call last):"):
        # Uvicorn's record of a failed start. Its last line is shown only if it is a message of Spillgate.
        last = text.rstrip().rpartition("\n")[2]
        return last if last.startswith("domain.errors.") else last.partition(":")[0]
    # asyncio appends the repr of exceptions, and with it their messages.
    return text.partition("\n")[0]


def configure_logging(level: str, style: LineStyle = "auto", stream: TextIO | None = None) -> None:
    """Sets one handler on stderr for every logger, uvicorn's included. `auto` writes text if stderr is a
    terminal, else JSON. May be called again."""
    stream = stream or sys.stderr
    is_text = stream.isatty() if style == "auto" else style == "text"
    handler = LogHandler(stream)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [handler]
    for old in before:
        if isinstance(old, LogHandler):
            old.close()
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def flush_log() -> None:
    """Returns when all earlier lines are written, or after FLUSH_SECONDS."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class RequestLog(Observer):
    """The lines that requests leave in the log."""

    def __init__(self) -> None:
        self._refusals = RepeatFilter()

    def answered(self, request: ServedRequest, error: BaseException | None) -> None:
        """The access log."""
        if access_log.isEnabledFor(logging.DEBUG):
            route = f"{request.method} {request.route}".strip()
            fields = {"route": route, "status": request.status, "ms": round(request.seconds * 1000, 1)}
            access_log.debug("request", extra={"fields": fields})

    def refused(self, error: SpillgateError, route: str, *, carries_result: bool) -> None:
        """A failure of the service is logged with its `why`, once a minute for each tenant, and with how many
        were left out."""
        fields: dict[str, Any] = {"route": route or None, "status": error.status, "code": error.code}
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            log.info("refused", extra={"fields": fields})
        elif (count := self._refusals.note((described("tenant"), error.code, error.detail))) is not None:
            fields |= {"why": error.why} | ({"repeats": count} if count else {})
            log.warning("refused", extra={"fields": fields})

    def governed(self, result: ToolResult, outcome: Outcome, tokens_out: int, seconds: float) -> None:
        if outcome.redacted and NOT_SEARCHED in outcome.redacted and not outcome.is_retry:
            namespace, _ = split_tool_name(result.tool_name, result.tool_namespace)
            fields = {"tool": result.tool_name, "tool_namespace": namespace}
            event = "A part of a result was not searched for secrets in time. It is masked as a whole."
            log.warning(event, extra={"fields": fields})

    def stored(
        self, result: ToolResult, stored: StoredResult, entry: AccountingEntry, *, warns: bool
    ) -> None:
        """Shows the operator that a tool returns large results. Without a trigger, its view caps left
        something out."""
        namespace, _ = split_tool_name(result.tool_name, result.tool_namespace)
        reason = "view_caps" if entry.trigger is None else entry.trigger.value
        measure = stored.measure
        fields = {
            "tool": result.tool_name,
            "tool_namespace": namespace,
            "provider": result.provider,
            "tool_kind": result.tool_kind,
            "handle": str(stored.handle),
            "reason": reason,
            "outcome": (entry.outcome or OutcomeKind.STORE).value,
            "bytes": measure.bytes,
            "lines": measure.lines,
            "tokens": measure.tokens,
            "tool_output": True,
        }
        event = "Tool '%s' output stored for tool_output (%s)."
        level = logging.WARNING if warns else logging.INFO
        log.log(level, event, result.tool_name, reason, extra={"fields": fields})

    def unaccounted(self, entry: AccountingEntry, error: SpillgateError) -> None:
        handle = entry.details.tool_output_handle
        fields = {"code": error.code, "handle": handle, "tokens": entry.tokens_out}
        log.warning("A reading back was not accounted.", extra={"fields": fields})

    def extracted(self, question: Question, answer: Answer | None, entry: AccountingEntry) -> None:
        """A warning if the strategy fell back, or if the extraction failed."""
        fields: dict[str, Any] = {
            "handle": str(question.handle),
            "mode": question.mode.value,
            "latency_ms": entry.latency,
        }
        if answer is not None:
            fields |= {
                "strategy": answer.strategy.value,
                "status": answer.status.value,
                "fallback_reason": answer.fallback_reason,
                "coverage": answer.coverage.ratio,
                "llm_calls": answer.usage.llm_calls,
            }
        if entry.error is not None:
            log.warning("Extraction failed (%s).", entry.error, extra={"fields": fields})
        elif answer is not None and answer.fallback_reason is not None:
            event = "Extraction fell back to %s (%s)."
            log.warning(event, answer.strategy, answer.fallback_reason, extra={"fields": fields})
        else:
            log.info("Extraction answered.", extra={"fields": fields})


def log_deleted_tenant(deleted: str, results: int, sessions: int, entries: int, is_complete: bool) -> None:
    """An operator's request deleted this much of the tenant `deleted`."""
    fields = {"deleted": deleted, "results": results, "sessions": sessions, "entries": entries}
    log.warning("Deletion of a tenant.", extra={"fields": {**fields, "complete": is_complete}})


def log_hook_passed(client: str, why: str) -> None:
    """A hook passed a result without judging it."""
    log.info("hook passed", extra={"fields": {"client": client, "why": why}})


def log_stopped(results: int, bytes_kept_out: int) -> None:
    """The last line of a process: how many results it governed, and how many of their bytes no model read."""
    fields = {"results": results, "bytes_kept_out_of_context": bytes_kept_out}
    log.info("stopped", extra={"fields": fields})
