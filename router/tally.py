"""Counters and histograms of the data plane: plain numbers that are counted up at once and read when they are scraped.

A request moves some fifteen of them, so that one costs an addition and no lock: all of them belong to the event loop.
To Prometheus they look as its own client's do, the time of their beginning included.
"""

import time
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.histogram import Histogram


class Count:
    """One number that only grows."""

    __slots__ = ("created_s", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.created_s = time.time()

    def inc(self, amount: float = 1) -> None:
        """So many more."""
        self.value += amount


class Counter(Collector):
    """A family of counts, one for each combination of its labels' values; without labels a single one."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._counts: dict[tuple[str, ...], Count] = {} if labels else {(): Count()}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """The count of these values; it is shown from the first time on that somebody asks for it."""
        count = self._counts.get(values)
        if count is None:
            count = self._counts[values] = Count()
        return count

    def inc(self, amount: float = 1) -> None:
        """So many more, where there are no labels."""
        self._counts[()].inc(amount)

    def remove_by_labels(self, labels: dict[str, str]) -> None:
        """Show no longer what has these values, whatever its others are."""
        gone = [(self._labels.index(name), value) for name, value in labels.items()]
        kept = {
            values: count
            for values, count in self._counts.items()
            if any(values[place] != value for place, value in gone)
        }
        self._counts = kept

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in list(self._counts.items()):
            family.add_metric(values, count.value, created=count.created_s)
        return [family]


class _HistogramCollector(Collector):
    """Shows one histogram."""

    def __init__(self, name: str, text: str, histogram: Histogram) -> None:
        self._name = name
        self._text = text
        self._histogram = histogram
        self._created_s = time.time()

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        family = to_family(self._name, self._text, self._histogram)
        family.add_sample(f"{self._name}_created", {}, self._created_s)
        return [family]


def make_histogram(name: str, text: str, bounds: Sequence[float], registry: CollectorRegistry) -> Histogram:
    """A histogram that a registry shows."""
    histogram = Histogram(bounds)
    registry.register(_HistogramCollector(name, text, histogram))
    return histogram


def to_family(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    """A histogram as Prometheus wants it: each count with all below."""
    totals = accumulate(list(histogram.counts))
    names = (*map(str, histogram.bounds), "+Inf")
    buckets = [(bound, float(total)) for bound, total in zip(names, totals, strict=True)]
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=histogram.sum)
