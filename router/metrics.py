"""The router's Prometheus metrics: names, help, labels, and the one text page.

Written by the data plane and read at scrape time from views of the event streams, the ledger and the fleet.
Labels come from closed sets only (worker, dp_rank, policy, outcome, reason, kind, trust, accuracy): never a model
name, request, session or path that a client chose.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache

import msgspec
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prefix_index.trust import Trust
from router.collector import PauseLog
from router.fleet.agreement import Disagreement
from router.histogram import Histogram
from router.tally import Count, Counter, make_histogram, to_family
from wire.ids import Target, WorkerId

PREFIX = "dovecote_router_"
#: Cached tokens on device, host and storage; None where that is not told.
Tiers = tuple[int, int, int] | None
RANK = ("worker", "dp_rank")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_INTER_TOKEN_BUCKETS_S = (1e-3, 2e-3, 5e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 5e-2, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0)
_DURATION_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_DECISION_BUCKETS_S = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2)


class RequestOutcome(StrEnum):
    """How a request ended, as the client and the operator see it."""

    DONE = "done"
    CLIENT_ERROR = "client_error"
    REJECTED = "rejected"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    WORKER_LOST = "worker_lost"


class Tier(StrEnum):
    """Where a rank found what it had cached of a prompt."""

    DEVICE = "device"
    HOST = "host"
    STORAGE = "storage"
    #: The engine says how much, and not where.
    UNKNOWN = "unknown"


class QueueEnd(StrEnum):
    """What became of a request that had to wait."""

    PLACED = "placed"
    #: There was no room in the queue.
    FULL = "full"
    #: It had to go for another tenant's.
    DISPLACED = "displaced"
    TIMED_OUT = "timed_out"
    #: Its client went, or ended it.
    LEFT = "left"
    #: Placement refused it for another reason than want of room.
    FAILED = "failed"


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rank's event stream at one moment."""

    target: Target
    trust: Trust
    last_seq: int | None
    #: Blocks that the index holds for the rank.
    blocks: int
    batches: int
    #: Events applied, by kind.
    events: Mapping[str, int]
    #: Events and frames left out, by reason.
    skipped: Mapping[str, int]
    gaps: int
    replays: int
    failed_replays: int
    resets: int
    #: Times that events were lost for good.
    losses: int
    #: Snapshots asked for, taken over, and not to be had.
    snapshots_asked: int = 0
    snapshots_loaded: int = 0
    snapshots_failed: int = 0
    #: Times that blocks were due and none came.
    overdue: int = 0
    #: Blocks told of before their parent, and removals of blocks that were not known.
    orphans: int = 0
    unknown_removals: int = 0
    #: How long messages have been waiting to be read; 0 where none waits.
    lag_s: float = 0.0
    #: Since the last batch was taken in; None before the first.
    last_batch_age_s: float | None = None


class RankMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one rank."""

    placements: Count
    prompt_tokens: Count
    predicted_cached: Count
    actual_cached: Count
    #: Prompt tokens of answers whose engine told what it had cached, and answers whose engine did not.
    counted_prompt: Count
    uncounted: Count
    hits: Mapping[Tier, Count]


class RouterMetrics:
    """All metrics of one router in one registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._of_workers: list[tuple[Counter, tuple[str, ...]]] = []  # counters that name a worker, with their labels
        ended = self._counter("requests", "Requests ended, by outcome.", ("outcome",))
        #: Looked up once: a request costs no look at names.
        self.requests = {outcome: ended.labels(outcome.value) for outcome in RequestOutcome}
        self.ttft = self._histogram("ttft_seconds", "Arrival to first output, streamed requests.", _TTFT_BUCKETS_S)
        self.inter_token = self._histogram(
            "inter_token_seconds", "Mean pause between two tokens of a streamed answer.", _INTER_TOKEN_BUCKETS_S
        )
        self.duration = self._histogram(
            "request_duration_seconds", "Arrival to the last byte of the answer.", _DURATION_BUCKETS_S
        )
        self.decision = self._histogram(
            "decision_seconds", "Matching the prompt and choosing a rank; rendering apart.", _DECISION_BUCKETS_S
        )
        self.prompt_preparation = self._histogram(
            "prompt_preparation_seconds", "Rendering, tokenizing and hashing a prompt.", _TTFT_BUCKETS_S
        )
        self.placements = self._counter("placements", "Requests placed.", RANK)
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of placed requests.", RANK)
        self.predicted_cached = self._counter(
            "predicted_cached_tokens", "Cached tokens predicted for answered requests.", RANK
        )
        self.actual_cached = self._counter("actual_cached_tokens", "Cached tokens reported by the engines.", RANK)
        self.counted_prompt = self._counter(
            "counted_prompt_tokens", "Prompt tokens of answers whose engine told how many it had cached.", RANK
        )
        self.uncounted = self._counter(
            "uncounted_answers", "Answers whose engine did not tell how many prompt tokens it had cached.", RANK
        )
        self.hits = self._counter(
            "hit_tokens", "Cached prompt tokens as engines tell them, by where they lay.", (*RANK, "tier")
        )
        self._declare_predictions()
        self.errors = self._counter("errors", "Errors answered by the router itself.", ("reason",))
        self.upstream_errors = self._counter("upstream_errors", "Failures of workers.", ("worker", "reason"))
        self.retries = self._counter("retries", "Requests sent to a second rank after a failed connection.", ())
        self._declare_admission()
        self._of_rank: dict[Target, RankMetrics] = {}
        self.kept_states = Gauge(
            PREFIX + "kept_states", "Stored responses and sessions whose engine is known.", registry=self.registry
        )
        self.prompt_cache_tokens = Gauge(
            PREFIX + "prompt_cache_tokens", "Tokens held for incremental tokenization.", registry=self.registry
        )
        self.prompt_cache_bytes = Gauge(
            PREFIX + "prompt_cache_bytes", "Bytes held for incremental tokenization.", registry=self.registry
        )

    def _declare_predictions(self) -> None:
        predicted = self._counter("predictions", "Predictions compared with the engine's count.", ("accuracy",))
        self.predictions = cache(predicted.labels)
        uncredited = self._counter("uncredited_prompts", "Prompts placed without cache credit.", ("reason",))
        self.uncredited = cache(uncredited.labels)

    def _declare_admission(self) -> None:
        self.queue_wait = self._histogram(
            "queue_wait_seconds", "How long requests that had to wait did so before they were placed.", _TTFT_BUCKETS_S
        )
        ends = self._counter("queue_ends", "Requests that had to wait or found the queue full.", ("end",))
        self.queue_ends = {end: ends.labels(end.value) for end in QueueEnd}
        self.queue_waiting = Gauge(PREFIX + "queue_waiting", "Requests that wait now.", registry=self.registry)
        self.rate_limited = self._counter("rate_limited", "Requests over a limit of their key.", ("key", "limit"))
        self.keys_file_refused = Gauge(
            PREFIX + "keys_file_refused",
            "1 while the file of keys as it stands is refused and older keys are in force.",
            registry=self.registry,
        )

    def of_rank(self, target: Target) -> "RankMetrics":
        """Counters of one rank, looked up once; the fleet bounds how many there are."""
        known = self._of_rank.get(target)
        if known is None:
            labels = rank_labels(target)
            known = self._of_rank[target] = RankMetrics(
                placements=self.placements.labels(*labels),
                prompt_tokens=self.prompt_tokens.labels(*labels),
                predicted_cached=self.predicted_cached.labels(*labels),
                actual_cached=self.actual_cached.labels(*labels),
                counted_prompt=self.counted_prompt.labels(*labels),
                uncounted=self.uncounted.labels(*labels),
                hits={tier: self.hits.labels(*labels, tier.value) for tier in Tier},
            )
        return known

    def forget_ranks(self, targets: Iterable[Target]) -> None:
        """Ranks left the fleet for good, and with them what is counted of them: names come and go without end."""
        for target in targets:
            self._of_rank.pop(target, None)
            labels = dict(zip(RANK, rank_labels(target), strict=True))
            for counter, names in self._of_workers:
                counter.remove_by_labels(labels if "dp_rank" in names else {"worker": target.worker})

    def count_hits(self, target: Target, prompt_tokens: int | None, cached_tokens: int | None, tiers: Tiers) -> None:
        """What an engine told of its cache at the end of an answer; `tiers` are tokens on device, host and storage.

        An answer whose engine tells nothing is none without hits: it is counted apart.
        """
        counters = self.of_rank(target)
        if cached_tokens is None:
            counters.uncounted.inc()
            return
        # A cache cannot hold more of a prompt than there is.
        counters.counted_prompt.inc(max(prompt_tokens or 0, cached_tokens))
        if tiers is None:
            counters.hits[Tier.UNKNOWN].inc(cached_tokens)
            return
        for tier, tokens in zip((Tier.DEVICE, Tier.HOST, Tier.STORAGE), tiers, strict=True):
            counters.hits[tier].inc(tokens)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        counter = Counter(PREFIX + name, text, labels, self.registry)
        if "worker" in labels:
            self._of_workers.append((counter, labels))
        return counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return make_histogram(PREFIX + name, text, buckets, self.registry)

    def watch_streams(self, read: Callable[[], Iterable[StreamView]]) -> None:
        """Show the event streams; `read` is called at each scrape."""
        self.registry.register(_StreamCollector(read))

    def watch_inflight(self, read: Callable[[], Mapping[Target, int]]) -> None:
        """Show the running requests of each rank; `read` is called at each scrape."""
        self.registry.register(_InflightCollector(read))

    def watch_parity(self, read: Callable[[], Mapping[WorkerId, str]]) -> None:
        """Show what the last comparison of ids gave; `read` is called at each scrape."""
        self.registry.register(_ParityCollector(read))

    def watch_agreement(self, read: Callable[[], Mapping[Target, Disagreement]]) -> None:
        """Show ranks whose predictions and answers disagree; `read` is called at each scrape."""
        self.registry.register(_AgreementCollector(read))

    def watch_health(self, read: Callable[[], Mapping[WorkerId, bool]]) -> None:
        """Show each worker's health; `read` is called at each scrape."""
        self.registry.register(_HealthCollector(read))

    def watch_collector(self, pauses: PauseLog) -> None:
        """Show how long the interpreter's collector stopped everything."""
        self.registry.register(_PauseCollector(pauses))

    def to_text(self) -> bytes:
        """The page a Prometheus server scrapes."""
        return generate_latest(self.registry)


def rank_labels(target: Target) -> tuple[str, str]:
    """Label values of a rank, in the order of `RANK`."""
    return target.worker, str(target.dp_rank)


class _PauseCollector(Collector):
    def __init__(self, pauses: PauseLog) -> None:
        self._pauses = pauses

    def collect(self) -> Iterator[Metric]:
        text = "How long the interpreter's collector of garbage stopped everything."
        yield to_family(PREFIX + "collector_pause_seconds", text, self._pauses.pauses_s)


class _StreamCollector(Collector):
    def __init__(self, read: Callable[[], Iterable[StreamView]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        views = list(self._read())
        for name, text, field in (
            ("event_batches", "Event batches taken in.", "batches"),
            ("event_gaps", "Gaps in the numbers of event batches.", "gaps"),
            ("event_replays", "Replays asked of engines.", "replays"),
            ("event_replays_failed", "Replays that came to nothing.", "failed_replays"),
            ("event_resets", "Streams begun again: restarted engine, lost connection.", "resets"),
            ("event_losses", "Times that events were lost for good, so that credit is a lower bound.", "losses"),
            ("snapshots_asked", "Snapshots asked of sidecars.", "snapshots_asked"),
            ("snapshots_loaded", "Snapshots of sidecars taken over.", "snapshots_loaded"),
            ("snapshots_failed", "Snapshots that could not be had or broke off.", "snapshots_failed"),
            ("orphan_blocks", "Blocks told of before their parent, put aside until it turns up.", "orphans"),
            ("unknown_removals", "Removals of blocks that the index did not know.", "unknown_removals"),
            ("overdue_blocks", "Times that a rank was silent about blocks it must have stored (stale).", "overdue"),
        ):
            family = CounterMetricFamily(PREFIX + name, text, labels=RANK)
            for view in views:
                family.add_metric(rank_labels(view.target), getattr(view, field))
            yield family
        yield self._by_word(views, "events", "Events applied, by kind.", "kind", lambda view: view.events)
        yield self._by_word(
            views, "events_skipped", "Events and frames left out, by reason.", "reason", lambda view: view.skipped
        )
        yield from self._gauges(views)

    @staticmethod
    def _by_word(
        views: list[StreamView], name: str, text: str, label: str, read: Callable[[StreamView], Mapping[str, int]]
    ) -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=(*RANK, label))
        for view in views:
            for word, count in sorted(read(view).items()):
                family.add_metric((*rank_labels(view.target), word), count)
        return family

    @staticmethod
    def _gauges(views: list[StreamView]) -> Iterator[Metric]:
        trust = GaugeMetricFamily(
            PREFIX + "stream_trust", "1 for the trust a rank's stream has now.", labels=(*RANK, "trust")
        )
        blocks = GaugeMetricFamily(PREFIX + "index_blocks", "Blocks the index holds for a rank.", labels=RANK)
        lag = GaugeMetricFamily(
            PREFIX + "event_lag_seconds", "How long events of a rank have been waiting to be read.", labels=RANK
        )
        for view in views:
            for word in Trust:
                trust.add_metric((*rank_labels(view.target), word.value), float(view.trust is word))
            blocks.add_metric(rank_labels(view.target), view.blocks)
            lag.add_metric(rank_labels(view.target), view.lag_s)
        yield from (trust, blocks, lag)


class _InflightCollector(Collector):
    def __init__(self, read: Callable[[], Mapping[Target, int]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(PREFIX + "inflight_requests", "Requests placed and not ended.", labels=RANK)
        for target, count in sorted(self._read().items()):
            family.add_metric(rank_labels(target), count)
        yield family


class _ParityCollector(Collector):
    def __init__(self, read: Callable[[], Mapping[WorkerId, str]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            PREFIX + "worker_parity",
            "1 for what the last comparison of a worker's ids with the router's gave.",
            labels=("worker", "parity"),
        )
        for worker, parity in sorted(self._read().items()):
            family.add_metric((worker, parity), 1.0)
        yield family


class _AgreementCollector(Collector):
    def __init__(self, read: Callable[[], Mapping[Target, Disagreement]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            PREFIX + "prediction_disagreement",
            "1 for a rank whose predictions and answers differ time after time, by kind.",
            labels=(*RANK, "kind"),
        )
        for target, kind in sorted(self._read().items()):
            family.add_metric((*rank_labels(target), kind.value), 1.0)
        yield family


class _HealthCollector(Collector):
    def __init__(self, read: Callable[[], Mapping[WorkerId, bool]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            PREFIX + "worker_healthy", "1 while a worker answers its probes.", labels=("worker",)
        )
        for worker, healthy in sorted(self._read().items()):
            family.add_metric((worker,), float(healthy))
        yield family
