"""Metrics of load, read at each scrape: what this router has on each rank, and what the engine last said of it."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.metrics import PREFIX, RANK, rank_labels
from router.placement.placer import Placer

_OWN = (
    ("waiting_seconds", "Seconds of prefill that this router has placed there and that are not done.", "waiting_s"),
    ("waiting_tokens", "Prompt tokens of these.", "waiting_tokens"),
    ("decoding_requests", "Requests that generate.", "decoding_requests"),
    ("open_tokens", "Tokens of the KV cache that its requests take by their end.", "open_tokens"),
)
_REPORTED = (
    ("reported_running_requests", "Requests that run there as the engine says, of all routers.", "running_requests"),
    ("reported_waiting_requests", "Requests that wait there as the engine says.", "waiting_requests"),
    ("reported_used_tokens", "Tokens of the KV cache in use as the engine says.", "used_tokens"),
    ("reported_capacity_tokens", "Size of the KV cache as the engine says.", "capacity_tokens"),
)


class LoadCollector(Collector):
    """The load of one router's fleet.

    Args:
        placer: Whose ledger and fleet.
        clock: Seconds of all that is placed.
    """

    def __init__(self, placer: Placer, clock: Callable[[], float]) -> None:
        self._placer = placer
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        yield from self._tell_own()
        yield from self._tell_reports()

    def _tell_own(self) -> Iterator[Metric]:
        now_s, ledger = self._clock(), self._placer.ledger
        totals = [(rank.facts.target, ledger.totals(rank.facts.target, now_s)) for rank in self._placer.fleet.ranks()]
        for name, text, field in _OWN:
            family = GaugeMetricFamily(PREFIX + name, text, labels=RANK)
            for target, sums in totals:
                family.add_metric(rank_labels(target), getattr(sums, field))
            yield family

    def _tell_reports(self) -> Iterator[Metric]:
        """Of ranks that report nothing there is no sample: absence is not zero."""
        reports = [(rank.facts.target, rank.report) for rank in self._placer.fleet.ranks() if rank.report is not None]
        for name, text, field in _REPORTED:
            family = GaugeMetricFamily(PREFIX + name, text, labels=RANK)
            for target, report in reports:
                count = getattr(report, field)
                if count is not None:
                    family.add_metric(rank_labels(target), count)
            yield family
        age = GaugeMetricFamily(PREFIX + "load_report_age_seconds", "Age of the last report of a rank.", labels=RANK)
        for target, report in reports:
            age.add_metric(rank_labels(target), report.age_s(self._clock()))
        yield age
