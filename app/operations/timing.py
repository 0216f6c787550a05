"""Times the operations of a port, and counts times by their length."""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Any

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Times:
    """The times of one kind of work, in seconds. `bounds` are the upper ends of the buckets."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds


class Histogram(Collector):
    """Written to from the event loop alone: the library's own, which locks, takes ten times as long."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._bounds = bounds
        self._times: dict[tuple[str, ...], Times] = {}

    def labels(self, *values: str) -> Times:
        return self._times.setdefault(values, Times(self._bounds))

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, times in self._times.items():
            buckets = list(zip(names, accumulate(times.counts), strict=True))
            family.add_metric(values, buckets, times.total)
        yield family


class Timed:
    """A port whose `operations`, which are coroutine functions, are timed; all else is the port's own."""

    def __init__(
        self, port: object, operations: tuple[str, ...], timer: Callable[[str], Callable[[float], None]]
    ) -> None:
        """`timer` returns what takes the seconds of the operation of that name."""
        self._port = port
        for name in operations:
            setattr(self, name, _timed(port, name, timer(name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def _timed(port: object, name: str, took: Callable[[float], None]) -> Callable[..., Awaitable[Any]]:
    async def timed(*arguments: Any) -> Any:
        began = perf_counter()
        try:
            return await getattr(port, name)(*arguments)
        finally:
            took(perf_counter() - began)

    return timed
