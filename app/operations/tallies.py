"""What is counted of every result, without a lock: the event loop alone counts.

A counter of the metrics library takes a lock for each number, a histogram two. For the five counters and
three histograms of a result that is a twentieth of its processor time (bench/README.md, 2 KB that passes).
Here they are plain numbers, which the library prints at a scrape.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class GovernedTally:
    """Results of one outcome and trigger that were governed since the last scrape. `took` takes the seconds
    of each."""

    def __init__(self, took: Callable[[float], None]) -> None:
        self.took = took
        self.forget()

    def forget(self) -> None:
        self.results = self.bytes = self.tokens_in = self.tokens_out = self.saved = self.spent = 0


class SecondsHistogram(Collector):
    """A histogram of seconds with the upper `bounds` of its buckets."""

    def __init__(
        self, name: str, what: str, labels: list[str], bounds: tuple[float, ...], registry: CollectorRegistry
    ) -> None:
        self._name, self._what, self._labels, self._bounds = name, what, labels, bounds
        self._ends = [*map(str, bounds), "+Inf"]
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], list[float]] = {}
        """The lists have one member each."""
        registry.register(self)

    def of(self, *labels: str) -> Callable[[float], None]:
        """Takes the seconds of each event with these values of the labels."""
        counts = self._counts.setdefault(labels, [0] * len(self._ends))
        bounds, total = self._bounds, self._sums.setdefault(labels, [0.0])

        def took(seconds: float) -> None:
            counts[bisect_left(bounds, seconds)] += 1
            total[0] += seconds

        return took

    def describe(self) -> list[Metric]:
        return [HistogramMetricFamily(self._name, self._what, labels=self._labels)]

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._what, labels=self._labels)
        for labels, counts in self._counts.items():
            up_to = zip(self._ends, accumulate(counts), strict=True)
            family.add_metric(labels, list(up_to), *self._sums[labels])
        yield family
