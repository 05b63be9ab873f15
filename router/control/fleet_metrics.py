"""Metrics of the fleet as control and placement see it, read at each scrape: breakers of ranks.

Labels are ranks of the fleet and closed words; of a rank that left nothing is shown.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.fleet.breaker import BreakerState
from router.metrics import PREFIX, RANK, rank_labels
from router.placement.placer import Placer


class FleetCollector(Collector):
    """One router's fleet."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        yield from self._tell_breakers()

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
