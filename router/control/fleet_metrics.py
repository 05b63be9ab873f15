"""Metrics of the fleet as control and placement see it, read at each scrape: breakers of ranks, workers and sources.

Labels are ranks of the fleet, sources of the configuration and closed words; of a rank that left nothing is shown.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.control.fleet import FleetWatch
from router.control.worker import Standing
from router.fleet.breaker import BreakerState
from router.metrics import PREFIX, RANK, rank_labels
from router.placement.placer import Placer


class FleetCollector(Collector):
    """One router's fleet."""

    def __init__(self, placer: Placer, fleet: FleetWatch) -> None:
        self._placer = placer
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        yield from self._tell_breakers()
        yield from self._tell_workers()

    def _tell_workers(self) -> Iterator[Metric]:
        standings = self._fleet.count_standings()
        standing = GaugeMetricFamily(
            PREFIX + "workers", "Workers of the fleet, by how they stand.", labels=("standing",)
        )
        for word in Standing:
            standing.add_metric((word.value,), standings[word])
        named = GaugeMetricFamily(
            PREFIX + "source_workers", "Workers that a source names, whether they count or not.", labels=("source",)
        )
        problem = GaugeMetricFamily(
            PREFIX + "source_problem", "1 while a source cannot be read, so that what it said before holds.",
            labels=("source",),
        )  # fmt: skip
        problems = self._fleet.find_problems()
        for source, count in self._fleet.registry.count().items():
            named.add_metric((source,), count)
            problem.add_metric((source,), float(source in problems))
        yield from (standing, named, problem)

    def _tell_breakers(self) -> Iterator[Metric]:
        breakers, now_s = self._placer.breakers, self._placer.clock.now_s
        states = breakers.find_states(now_s)
        state = GaugeMetricFamily(
            PREFIX + "breaker_state", "1 for the state in which a rank's breaker is.", labels=(*RANK, "state")
        )
        openings = CounterMetricFamily(PREFIX + "breaker_openings", "Times that a rank's breaker opened.", labels=RANK)
        for rank in self._placer.fleet.ranks():
            target = rank.facts.target
            now = states.get(target, BreakerState.CLOSED)
            for word in BreakerState:
                state.add_metric((*rank_labels(target), word.value), float(word is now))
            openings.add_metric(rank_labels(target), breakers.openings.get(target, 0))
        yield from (state, openings)
