"""The sidecar's Prometheus metrics, made of views at scrape time. Labels: rank, event kind, reason, trust."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine_shim.sidecar.hub import RankView
from prefix_index.trust import Trust

PREFIX = "dovecote_sidecar_"
_RANK = ("dp_rank",)


def render_metrics(views: Sequence[RankView], *, is_ready: bool, has_redis: bool | None = None) -> bytes:
    """The text page; `has_redis` says whether Redis answers, None where nothing is published there."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Views(views, is_ready=is_ready))
    if has_redis is not None:
        text = "1 while Redis takes what is published."
        Gauge(PREFIX + "redis_connected", text, registry=registry).set(has_redis)
    return generate_latest(registry)


class _Views(Collector):
    def __init__(self, views: Sequence[RankView], *, is_ready: bool) -> None:
        self._views = views
        self._is_ready = is_ready

    def collect(self) -> Iterator[Metric]:
        """Every family, in the order of the page."""
        ready = GaugeMetricFamily(PREFIX + "ready", "1 while the engine lives and its mirrors are open.")
        ready.add_metric([], float(self._is_ready))
        yield ready
        views = self._views
        yield self._gauge("blocks", "Blocks of a rank's device cache.", ((view, view.blocks) for view in views))
        yield self._gauge(
            "replay_buffer_bytes", "Bytes kept for replay.", ((view, view.buffer_bytes) for view in views)
        )
        trust = GaugeMetricFamily(
            PREFIX + "stream_trust", "How far a mirror is believed, 0/1.", labels=(*_RANK, "trust")
        )
        for view in views:
            for level in Trust:
                trust.add_metric([str(view.dp_rank), level.value], float(view.trust is level))
        yield trust
        counters: tuple[tuple[str, str, Callable[[RankView], int]], ...] = (
            ("published_batches", "Batches published.", lambda view: view.next_seq),
            (
                "replays_cut_short",
                "Replays of published batches that their caller did not read to the end.",
                lambda view: view.replays_cut_short,
            ),
            (
                "engine_lives",
                "Times that a rank's engine, or the connection to it, ended.",
                lambda view: view.engine_lives,
            ),
            ("event_batches", "Batches of the engine that were applied.", lambda view: view.counters.batches),
            ("event_gaps", "Breaks in the engine's numbering.", lambda view: view.counters.gaps),
            ("event_replays", "Replays asked of the engine.", lambda view: view.counters.replays),
            ("event_replays_failed", "Replays that came to nothing.", lambda view: view.counters.failed_replays),
            ("event_losses", "Times that events were lost for good.", lambda view: view.counters.losses),
            ("orphan_blocks", "Blocks told of before their parent, and put aside.", lambda view: view.counters.orphans),
            (
                "unknown_removals",
                "Removals of blocks that were not known.",
                lambda view: view.counters.unknown_removals,
            ),
        )
        for name, text, read in counters:
            family = CounterMetricFamily(PREFIX + name, text, labels=_RANK)
            for view in views:
                family.add_metric([str(view.dp_rank)], read(view))
            yield family
        yield self._by("events", "Events applied, by kind.", "kind", ((v, v.counters.kinds) for v in views))
        yield self._by(
            "events_skipped", "What was left out, by reason.", "reason", ((v, v.counters.skipped) for v in views)
        )

    @staticmethod
    def _gauge(name: str, text: str, values: Iterable[tuple[RankView, float]]) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, text, labels=_RANK)
        for view, value in values:
            family.add_metric([str(view.dp_rank)], value)
        return family

    @staticmethod
    def _by(name: str, text: str, label: str, values: Iterable[tuple[RankView, Mapping[str, int]]]) -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=(*_RANK, label))
        for view, counts in values:
            for word, count in counts.items():
                family.add_metric([str(view.dp_rank), word], count)
        return family
