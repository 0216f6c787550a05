"""Metrics. They never hold a result, an argument or a secret."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, ProcessCollector
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from app import __version__
from domain.decisions import Outcome, OutcomeKind, Trigger
from domain.extraction import Answer
from domain.llm import LlmCall

_GOVERN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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

    _results_total = 0
    _bytes_kept_out = 0

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
        self._results_total += 1
        if outcome.text is not None:
            self._bytes_kept_out += max(0, outcome.measure.bytes - len(outcome.text.encode()))
        if seconds is not None:
            self._seconds.observe(outcome.kind, seconds)

    def total(self) -> tuple[int, int]:
        """Results governed since the start, and their bytes that no model read."""
        return self._results_total, self._bytes_kept_out

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
