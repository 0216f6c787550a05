"""Metrics and times. They never hold a result, an argument or a secret."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from time import monotonic, perf_counter
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app import __version__
from app.operations.logs import lines_dropped
from app.operations.readiness import TenantUse
from app.operations.tallies import GovernedTally, SecondsHistogram
from domain.accounting import AccountingEntry, EntryType
from domain.errors import SpillgateError
from domain.extraction import Answer, Question
from domain.handles import Handle
from domain.llm import LlmCall
from domain.outcomes import Outcome, OutcomeKind, Trigger
from domain.ports import Call, Charge, Entered, Ledger, Load, Observer, Receipt, ResultStore
from domain.results import StoredResult, ToolResult
from domain.wrappers import LedgerAround, StoreAround

_TENANT_SERIES = {
    "storage_max_bytes": ("stored_bytes", "Bytes stored."),
    "ledger_max_bytes": ("ledger_bytes", "Bytes of sessions and accounting."),
    "max_sessions": ("sessions", "Open sessions."),
    "llm_usd_per_day": ("llm_usd_today", "US dollars for model calls since 00:00 UTC."),
}
"""By quota: the name of its series, and what it counts."""

_GOVERN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATION_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5)

_NOT_KEPT = ("store_unavailable", "store_full", "internal_error")
"""Errors with which an agent is left with its only copy."""

_REFUSING_SECONDS = 30.0
"""Results count as refused for so long after the last one that was: an alert ends with the outage."""

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 writes a number above this where no limit is set; version 2 writes `max`."""

# A series `_created` for each counter would double the scrape.
disable_created_metrics()  # type: ignore[no-untyped-call]


T = TypeVar("T")
Timer = Callable[[str], Callable[[float], None]]
"""Returns what takes the seconds of the operation of that name."""


async def _timed(work: Awaitable[T], note: Callable[[float], None]) -> T:
    began = perf_counter()
    try:
        return await work
    finally:
        note(perf_counter() - began)


class TimedStore(StoreAround):
    def __init__(self, store: ResultStore, timer: Timer) -> None:
        super().__init__(store)
        self._found, self._touched = map(timer, ("find", "touch"))

    def find(self, tenant: str, handle: Handle) -> Coroutine[Any, Any, StoredResult | None]:
        return _timed(self._inner.find(tenant, handle), self._found)

    def touch(self, stored: StoredResult) -> Coroutine[Any, Any, StoredResult]:
        return _timed(self._inner.touch(stored), self._touched)


class TimedLedger(LedgerAround):
    def __init__(self, ledger: Ledger, timer: Timer) -> None:
        super().__init__(ledger)
        names = "enter", "reserve", "settle", "append"
        self._entered, self._reserved, self._settled, self._appended = map(timer, names)

    def enter(self, call: Call) -> Coroutine[Any, Any, Entered]:
        return _timed(self._inner.enter(call), self._entered)

    def reserve(self, charge: Charge) -> Coroutine[Any, Any, Receipt | None]:
        return _timed(self._inner.reserve(charge), self._reserved)

    def settle(self, charge: Charge) -> Coroutine[Any, Any, Receipt]:
        return _timed(self._inner.settle(charge), self._settled)

    def append(self, entry: AccountingEntry) -> Coroutine[Any, Any, None]:
        return _timed(self._inner.append(entry), self._appended)


class _Tenants(Collector):
    """What tenants use of their quotas. `requests` are counted of each tenant with a quota of requests."""

    def __init__(self, uses: Sequence[TenantUse], requests: Mapping[str, int]) -> None:
        self._shares = [(use.tenant, tuple(use.shares())) for use in uses]
        self._requests = requests

    def collect(self) -> Iterator[Metric]:
        for index, (quota, (name, what)) in enumerate(_TENANT_SERIES.items()):
            used = GaugeMetricFamily(f"spillgate_tenant_{name}", what, labels=["tenant"])
            caps = GaugeMetricFamily(
                f"spillgate_tenant_{name}_cap", f"Quota `{quota}`; 0 = none.", labels=["tenant"]
            )
            for tenant, shares in self._shares:
                share = shares[index]
                # Model spend is summed up for tenants with this quota alone.
                if share.cap or quota != "llm_usd_per_day":
                    used.add_metric([tenant], share.used)
                    caps.add_metric([tenant], share.cap)
            yield used
            yield caps
        what = "Requests of a tenant with the quota `requests_per_second`, refused ones too."
        family = CounterMetricFamily("spillgate_tenant_requests", what, labels=["tenant"])
        for tenant, count in self._requests.items():
            family.add_metric([tenant], count)
        yield family


class Metrics(Observer):
    """One process's metrics in a registry of their own. Written to from the event loop alone. Labels come
    from Spillgate's enums and codes, never from a caller."""

    _results_total = 0
    _bytes_kept_out = 0

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("spillgate_up", "The version that runs.", registry=registry).info({"version": __version__})
        self._uses: Sequence[TenantUse] = ()
        self._governed: dict[tuple[OutcomeKind, Trigger | None], GovernedTally] = {}
        self._refused_at = dict.fromkeys(_NOT_KEPT, float("-inf"))
        self._count_results()
        self._count_models()
        self._count_faults()
        self._watch_bytes()
        self._watch_keys()
        self._watch_load()
        self._watch_health()

    def _count_results(self) -> None:
        counter = partial(Counter, registry=self._registry)
        self._results = counter(
            "spillgate_results", "Results governed; a retry counts once.", ["outcome", "trigger"]
        )
        self._results_unrecorded = counter(
            "spillgate_results_unrecorded", "Results that passed without an entry: the ledger had no room."
        )
        self._readings_unrecorded = counter(
            "spillgate_readings_unrecorded",
            "Readings, questions, model calls, hand-ons without an entry: the ledger had no room.",
        )
        self._bytes = counter("spillgate_result_bytes", "Bytes of results.", ["outcome"])
        self._redacted = counter(
            "spillgate_redacted", "Secrets that were masked in what models are shown.", ["kind"]
        )
        self._seconds = SecondsHistogram(
            "spillgate_govern_seconds",
            "Time to govern one result, its upload included.",
            ["outcome"],
            _GOVERN_SECONDS,
            self._registry,
        )
        tokens = counter(
            "spillgate_tokens",
            "Tokens: in = of results; out = given to models; saved = in not given; "
            "spent = on extraction and reading back. Net savings are saved - spent.",
            ["direction"],
        )
        self._in, self._out, self._saved = (tokens.labels(way).inc for way in ("in", "out", "saved"))
        self._spent = tokens.labels("spent").inc

    def _count_models(self) -> None:
        counter = partial(Counter, registry=self._registry)
        self._extractions = counter("spillgate_extractions", "Extractions.", ["strategy", "status"])
        self._calls = counter("spillgate_llm_calls", "Calls of models for extraction.", ["model", "status"])
        self._call_tokens = counter("spillgate_llm_tokens", "Tokens of model calls.", ["model", "direction"])
        self._call_cost = counter("spillgate_llm_cost_usd", "US dollars for model calls.", ["model"])
        self.spans = counter("spillgate_spans", "Spans of requests and of model calls.")
        self.spans_exported = counter("spillgate_spans_exported", "Spans that the collector accepted.")

    def _count_faults(self) -> None:
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        self._errors = counter(
            "spillgate_errors", "Requests refused, by the code of their problem.", ["code"]
        )
        self._faults = counter(
            "spillgate_task_faults", "Background tasks that failed and started again.", ["task"]
        )
        self._reloads = counter(
            "spillgate_policy_reloads", "Changes of the policy file, ok or failed.", ["status"]
        )
        self._policy_stale = gauge(
            "spillgate_policy_stale",
            "1 while the policy file is not valid and the one before stays in force.",
        )
        self._refusing = gauge("spillgate_refusing", "1 while results are refused with this error.", ["code"])
        self.export_lost = counter("spillgate_export_lost", "Accounting entries that could not be exported.")
        self.audit_dropped = counter("spillgate_audit_dropped", "Lines of the audit that were not written.")
        self._registry.register(lines_dropped)

    def _watch_bytes(self) -> None:
        gauge = partial(Gauge, registry=self._registry)
        self.watch_bodies = gauge(
            "spillgate_body_bytes_in_flight", "Body bytes held of the common pool."
        ).set_function
        self.stored_bytes = gauge("spillgate_stored_bytes", "Bytes stored, of all tenants.")
        self.stored_bytes_cap = gauge("spillgate_stored_bytes_cap", "SPILLGATE_STORAGE_MAX_BYTES; 0 = none.")
        gauge(
            "spillgate_memory_limit_bytes", "The smallest memory limit of the control groups; 0 = none."
        ).set(memory_limit())

    def _watch_keys(self) -> None:
        gauge = partial(Gauge, registry=self._registry)
        self.key_expires = gauge(
            "spillgate_api_key_expires_timestamp_seconds",
            "When the next API key without a successor expires; 0 = none does.",
        )
        self.key_faults = gauge(
            "spillgate_api_key_faults", "Lines of the API keys that are not in force, and faults of the file."
        )
        self.storage_key_faults = gauge(
            "spillgate_storage_key_faults",
            "Lines of the storage keys that are not in force, and faults of the file.",
        )

    def _watch_load(self) -> None:
        gauge = partial(Gauge, registry=self._registry)
        self._connections = gauge(
            "spillgate_connections", "Connections to Redis in use: of the store, of the ledger.", ["backend"]
        )
        self._connections_cap = gauge(
            "spillgate_connections_cap", "The most connections that there may be; 0 = none.", ["backend"]
        )
        self._waiting = gauge(
            "spillgate_waiting", "Operations that wait for a connection or for the writer.", ["backend"]
        )
        self._medium = gauge(
            "spillgate_medium_used_ratio",
            "Of the maxmemory of Redis, or of the file system: what is used; 0 = not known.",
            ["backend"],
        )
        self.ledger_entries = gauge("spillgate_ledger_entries", "Accounting entries of all tenants.")
        self._operations = SecondsHistogram(
            "spillgate_operation_seconds",
            "Time of an operation of the store or the ledger.",
            ["backend", "operation"],
            _OPERATION_SECONDS,
            self._registry,
        )
        self.published = self.timer("store", "publish")
        """Called with the seconds that it took to make a body durable."""

    def _watch_health(self) -> None:
        gauge = partial(Gauge, registry=self._registry)
        self._ready = gauge("spillgate_ready", "1 if /readyz would answer 200.")
        self._up = gauge(
            "spillgate_backend_up", "1 if the last check of the store, of the ledger passed.", ["backend"]
        )
        self._down = gauge("spillgate_down_seconds", "Seconds since the start in which a check failed.")
        self._clock_offset = gauge(
            "spillgate_clock_offset_seconds",
            "How much the clock of this machine is ahead of that of Redis or PostgreSQL; 0 without one.",
        )
        self._clock_jump = gauge(
            "spillgate_clock_jump_seconds",
            "By how much the clock has jumped that results expire by; not 0: nothing is deleted until it is "
            "confirmed.",
        )
        self._model_up = gauge(
            "spillgate_model_up", "0 while a model is left alone after failures.", ["model"]
        )

    def governed(self, result: ToolResult, outcome: Outcome, tokens_out: int, seconds: float) -> None:
        """A retry (`is_retry`) was counted when it was first answered."""
        if outcome.is_retry:
            return
        measure = outcome.measure
        of = outcome.kind, outcome.trigger
        if (governed := self._governed.get(of)) is None:
            governed = self._governed[of] = GovernedTally(self._seconds.of(outcome.kind.value))
        governed.results += 1
        governed.bytes += measure.bytes
        governed.tokens_in += measure.tokens
        governed.tokens_out += tokens_out
        saved = measure.tokens - tokens_out
        if saved >= 0:
            governed.saved += saved
        else:
            governed.spent -= saved
        self._results_total += 1
        if outcome.text is not None:
            self._bytes_kept_out += max(0, measure.bytes - len(outcome.text.encode()))
        governed.took(seconds)
        self.masked(outcome.redacted)

    def _count_governed(self) -> None:
        for (kind, trigger), governed in self._governed.items():
            self._results.labels(kind.value, trigger.value if trigger else "none").inc(governed.results)
            self._bytes.labels(kind.value).inc(governed.bytes)
            self._in(governed.tokens_in)
            self._out(governed.tokens_out)
            self._saved(governed.saved)
            self._spent(governed.spent)
            governed.forget()

    def unrecorded(self, entry: AccountingEntry) -> None:
        """The ledger had no room for the entry."""
        is_result = entry.type is EntryType.TOOL
        (self._results_unrecorded if is_result else self._readings_unrecorded).inc()

    def total(self) -> tuple[int, int]:
        """Results governed since the start, and their bytes that no model read."""
        return self._results_total, self._bytes_kept_out

    def extracted(self, question: Question, answer: Answer | None, entry: AccountingEntry) -> None:
        if answer is not None:
            self._extractions.labels(answer.strategy.value, answer.status.value).inc()
            self.read(entry)

    def read(self, entry: AccountingEntry) -> None:
        self._spent(entry.tokens_out)
        self.masked(entry.details.redacted)

    def called(self, call: LlmCall, *, embeds: bool) -> None:
        """`model` is one of the operator's own."""
        self._calls.labels(call.model, "ok" if call.error is None else "failed").inc()
        self._call_tokens.labels(call.model, "in").inc(call.tokens.input)
        self._call_tokens.labels(call.model, "out").inc(call.tokens.output)
        self._call_cost.labels(call.model).inc(call.cost_usd)
        self._spent(call.tokens.input + call.tokens.output)

    def masked(self, counts: Mapping[str, int] | None) -> None:
        """The kinds are those of the kept rules, and the operator's patterns."""
        for kind, count in (counts or {}).items():
            self._redacted.labels(kind).inc(count)

    def refused(self, error: SpillgateError, route: str, *, carries_result: bool) -> None:
        self._count_error(error)
        if carries_result and error.code in self._refused_at:
            self._refused_at[error.code] = monotonic()

    def unaccounted(self, entry: AccountingEntry, error: SpillgateError) -> None:
        self._count_error(error)

    def _count_error(self, error: SpillgateError) -> None:
        self._errors.labels(error.code).inc()

    def task_failed(self, name: str) -> None:
        """`name` is one of the supervised background tasks."""
        self._faults.labels(name).inc()

    def reloaded(self, ok: bool) -> None:
        """The policy file changed; not ok: the one before stays in force."""
        self._reloads.labels("ok" if ok else "failed").inc()
        self._policy_stale.set(not ok)

    def timer(self, backend: str, operation: str) -> Callable[[float], None]:
        """Takes the seconds of each operation."""
        return self._operations.of(backend, operation)

    def is_ready(self, ready: bool, up: Mapping[str, bool], down_seconds: float) -> None:
        """`up`: store, ledger, and the issuer of tokens if there is one."""
        self._ready.set(ready)
        self._down.set(down_seconds)
        for name, is_up in up.items():
            self._up.labels(name).set(is_up)

    def loaded(self, backend: str, load: Load) -> None:
        """`backend`: store or ledger."""
        self._connections.labels(backend).set(load.connections)
        self._connections_cap.labels(backend).set(load.connections_cap)
        self._waiting.labels(backend).set(load.waiting)

    def medium_used(self, backend: str, share: float) -> None:
        """`backend`: store or ledger. `share`: see Load."""
        self._medium.labels(backend).set(share)

    def clock(self, offset_ms: int, jump_ms: int) -> None:
        self._clock_offset.set(offset_ms / 1000)
        self._clock_jump.set(jump_ms / 1000)

    def models_up(self, available: Mapping[str, bool]) -> None:
        """By the names of the operator's own models. A policy file may have taken others away."""
        self._model_up.clear()
        for name, is_available in available.items():
            self._model_up.labels(name).set(is_available)

    def render(
        self,
        uses: Sequence[TenantUse] | None = None,
        requests: Mapping[str, int] | None = None,
        only: str | None = None,
    ) -> tuple[bytes, str]:
        """The scrape and its content type. `uses` None: they are not known now, and the last ones stay.
        `requests` are those of each tenant with a quota of requests. `only`: a tenant, whose series are the
        only ones of a tenant in the scrape."""
        self._count_governed()
        for code, at in self._refused_at.items():
            self._refusing.labels(code).set(monotonic() - at < _REFUSING_SECONDS)
        if uses is not None:
            self._uses = uses
        shown = [use for use in self._uses if only in (None, use.tenant)]
        counts = {tenant: count for tenant, count in (requests or {}).items() if only in (None, tenant)}
        return generate_latest(self._registry) + generate_latest(_Tenants(shown, counts)), CONTENT_TYPE_LATEST


def memory_limit(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """The memory limit of this process, the smallest of its control group and of those above it, in bytes; 0
    if no limit is set. `groups` is where control groups are mounted; `own` lists those of this process. In a
    container the root of the mount is the container's own group."""
    lines = []
    with suppress(OSError):
        lines = own.read_text().splitlines()
    limits = [_NO_LIMIT]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePath(path.lstrip("/"))
        for one in (group, *group.parents):
            with suppress(OSError, ValueError):
                limits.append(int((mount / one / name).read_text()))
    least = min(limits)
    return least if least < _NO_LIMIT else 0
