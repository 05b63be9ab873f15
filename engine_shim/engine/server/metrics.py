"""The engine's Prometheus metrics, in a registry of their own.

Sums and gauges of the ranks are read from their snapshots when scraped, so that a step costs nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine_shim.engine.publish.replay import ReplayCounts
from engine_shim.engine.server.rank_thread import RankSnapshot

PREFIX = "dovecote_engine_"
#: Engine sums that are exported as counters under `<name>_total`, with their help texts.
_SUMS = {
    "prompt_tokens": "Prompt tokens of admitted requests",
    "cached_tokens": "Prompt tokens found in the prefix cache",
    "computed_tokens": "Prompt tokens computed, those after a retraction again",
    "generated_tokens": "Output tokens",
    "evicted_pages": "Pages dropped from the cache to make room",
    "retracted_requests": "Times a running request gave its pages back",
}
_TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class RankView(Protocol):
    """What is exported of one rank."""

    dp_rank: int
    snapshot: RankSnapshot
    failures: int


class EngineMetrics:
    """All metrics of one process."""

    def __init__(
        self, ranks: Sequence[RankView], published_batches: Callable[[int], int], replays: ReplayCounts
    ) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(f"{PREFIX}requests", "Requests by how they ended", ["outcome"], registry=self.registry)
        self._first_token = Histogram(
            f"{PREFIX}time_to_first_token_seconds",
            "From the request's hand-over to a rank to its first token",
            ["dp_rank"],
            buckets=_TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(_RankCollector(ranks, published_batches, replays))

    def count_end(self, outcome: str) -> None:
        """A request ended: `done`, `cancelled`, `error` or `refused`."""
        self._requests.labels(outcome).inc()

    def observe_first_token(self, dp_rank: int, elapsed_s: float) -> None:
        """A request got its first token."""
        self._first_token.labels(str(dp_rank)).observe(elapsed_s)


class _RankCollector(Collector):
    """Reads the ranks' snapshots at scrape time."""

    def __init__(
        self, ranks: Sequence[RankView], published_batches: Callable[[int], int], replays: ReplayCounts
    ) -> None:
        self._replays = replays
        self._ranks = ranks
        self._published_batches = published_batches

    def collect(self) -> Iterator[Metric]:
        """Every metric that is read rather than counted here."""
        snapshots = {str(rank.dp_rank): rank.snapshot for rank in self._ranks}
        yield _gauge(
            "running_requests",
            "Requests in the running batch",
            {r: s.load.running_requests for r, s in snapshots.items()},
        )
        yield _gauge(
            "waiting_requests",
            "Requests waiting for admission",
            {r: s.load.waiting_requests for r, s in snapshots.items()},
        )
        for name, text in _SUMS.items():
            yield _counter(name, text, {rank: snapshot.counters[name] for rank, snapshot in snapshots.items()})
        yield _counter(
            "kv_event_batches",
            "Batches of cache events published",
            {str(r.dp_rank): self._published_batches(r.dp_rank) for r in self._ranks},
        )
        yield _counter(
            "step_failures",
            "Steps that raised, after which the rank started over",
            {str(r.dp_rank): r.failures for r in self._ranks},
        )
        yield _pool_pages(snapshots)
        replays = CounterMetricFamily(
            f"{PREFIX}kv_event_replays", "Replays asked for, by what became of them", labels=["result"]
        )
        for result, count in msgspec.structs.asdict(self._replays).items():
            replays.add_metric([result], count)
        yield replays


def _gauge(name: str, text: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=["dp_rank"])
    for rank, value in values.items():
        family.add_metric([rank], value)
    return family


def _counter(name: str, text: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=["dp_rank"])
    for rank, value in values.items():
        family.add_metric([rank], value)
    return family


def _pool_pages(snapshots: dict[str, RankSnapshot]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}pool_pages", "Pages of the KV pool by state", labels=["dp_rank", "state"])
    for rank, snapshot in snapshots.items():
        for state in ("free", "cached", "leased"):
            family.add_metric([rank, state], getattr(snapshot.pages, state))
    return family
